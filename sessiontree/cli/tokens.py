"""The bodies of ``sessiontree tokens``: tokens made, listed and revoked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.cli.door import parse_rights
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.doors.tokens import MAX_DAYS, DoorToken, TokenFile
from sessiontree.runtime.timing.clock import read_machine_ms

_SPAN: Final = re.compile(r"([1-9]\d{0,5})([hd])")
_UNIT_MS: Final = {"h": 3_600_000, "d": 86_400_000}


def create(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    name: str,
    workspace: Path,
    tier: str,
    budget_usd: float | None,
    expires: str | None,
    agents: Sequence[str] | None,
    tools: Sequence[str] | None,
    approve: bool,
    per_minute: int,
    max_open: int,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Make a token, print it, and return the exit code.

    With ``as_json`` one object: ``token``, and the members of a row of :func:`show_list`.

    Raises:
        ConfigError: an option is wrong, or the token can't be kept.
    """
    given = parse_rights(tier, workspace, budget_usd=budget_usd, agents=agents, tools=tools, approve=approve)
    rights = given.model_copy(update={"per_minute": per_minute, "max_open": max_open})
    file = TokenFile(find_state_dir(None, state_dir))
    now_ms = read_machine_ms()
    token = file.add(name, rights, now_ms, _compute_end(expires, now_ms))
    made = file.find(token, now_ms)
    if as_json:
        screen.raw(dump_json({"token": token, **_build_row(made)}))
    else:
        screen.raw(token)
        screen.line("keep it: nothing shows it again; `sessiontree tokens revoke` ends it")
    return 0


def show_list(screen: RichScreen, *, state_dir: Path | None, as_json: bool) -> int:
    """List all tokens and return the exit code.

    With ``as_json`` one object with ``tokens``: each ``id``, ``name``, ``state``, ``tier``, ``budget_usd``,
    ``workspace``, ``agents``, ``tools``, ``approves``, ``per_minute``, ``max_open``,
    ``created_at_ms``, ``expires_at_ms``.

    Raises:
        ConfigError: the file can't be read.
    """
    found = [_build_row(each) for each in TokenFile(find_state_dir(None, state_dir)).all()]
    if as_json:
        screen.raw(dump_json({"tokens": found}))
    elif not found:
        screen.line("no tokens yet; make one with `sessiontree tokens create NAME`")
    else:
        names = ("id", "name", "state", "tier", "budget_usd", "workspace", "expires")
        rows = [tuple(make_visible(_format_member(row, name)) for name in names) for row in found]
        screen.table(names, rows)
    return 0


def revoke(screen: RichScreen, *, token: str, state_dir: Path | None) -> int:
    """Revoke a token and return the exit code.

    Raises:
        ConfigError: no token has that id.
    """
    ended = TokenFile(find_state_dir(None, state_dir)).revoke(token)
    screen.line(f"{ended.token_id} ({make_visible(ended.name)}) lets nobody in any more")
    return 0


def _compute_end(expires: str | None, now_ms: int) -> int | None:
    if expires is None or expires == "never":
        return None
    span = _SPAN.fullmatch(expires)
    if span is None or int(span[1]) * _UNIT_MS[span[2]] > MAX_DAYS * _UNIT_MS["d"]:
        raise ConfigError(f"--expires {expires!r} is not a time such as 12h, 30d or never")
    return now_ms + int(span[1]) * _UNIT_MS[span[2]]


def _build_row(token: DoorToken) -> dict[str, object]:
    state = token.refusal(read_machine_ms()).removeprefix("the token ").removeprefix("was ") or "active"
    rights = token.rights.model_dump(mode="json")
    return {
        "id": token.token_id,
        "name": token.name,
        "state": state.removeprefix("has "),
        **rights,
        "created_at_ms": token.created_at_ms,
        "expires_at_ms": token.expires_at_ms,
    }


def _format_member(row: dict[str, object], name: str) -> str:
    if name == "expires":
        at_ms = row["expires_at_ms"]
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}" if isinstance(at_ms, int) else "never"
    value = row[name]
    return "" if value is None else str(value)
