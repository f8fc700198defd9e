"""Cancel: what ``sessiontree cancel`` and ``interrupt`` do in a live tree; both show the receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from sessiontree.cli.changes import shorten_summary
from sessiontree.cli.connect import find_live_journal, open_tree
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import complete_tree_id, find_state_dir
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.control.client import ControlClient
from sessiontree.tree.report import ReceiptLine

REASON = "cancelled from the command line"
INTERRUPTED = "interrupted from the command line"


def cancel(
    screen: RichScreen,
    *,
    path: Path | None,
    state_dir: Path | None,
    tree_id: str | None,
    session: str,
    reason: str | None,
    as_json: bool,
) -> int:
    """End a session and everything below it, show how each of them ended, and return the exit code.

    With ``as_json`` one object is printed: ``state_dir``, ``tree``, and ``receipt``, each of ``session``,
    ``kind``, ``status``, ``forced``, ``leftovers``, ``usage``, ``summary`` (at most 400 characters).

    Args:
        screen: Where it is shown.
        path: The workspace; None = this directory.
        state_dir: Where the journal is; None = the workspace's own place.
        tree_id: The tree; None = the only one that is open.
        session: The session's path, such as ``main/b1``.
        reason: Why; None = that it came from here.
        as_json: Whether a program reads it.

    Raises:
        TreeNotFound, SessionClosed: nobody has the tree open, or it has ended.
        SessionNotFound: it has no such session.
        JournalError: the journal does not exist or can't be read.
        ConfigError: several trees are open and none is named.
    """
    place = find_state_dir(path, state_dir)
    tree, lines = asyncio.run(_stop(place, tree_id, session, reason or REASON, for_good=True))
    _tell(screen, place, tree, lines, as_json=as_json)
    return 0


def interrupt(
    screen: RichScreen,
    *,
    path: Path | None,
    state_dir: Path | None,
    tree_id: str | None,
    session: str,
    reason: str | None,
    as_json: bool,
) -> int:
    """Have a session and everything below it drop what it does, show the state of each, return the exit code.

    Arguments, output and errors are those of :func:`cancel`; the session lives on.
    """
    place = find_state_dir(path, state_dir)
    tree, lines = asyncio.run(_stop(place, tree_id, session, reason or INTERRUPTED, for_good=False))
    _tell(screen, place, tree, lines, as_json=as_json)
    return 0


def _tell(screen: RichScreen, place: Path, tree: str, lines: Sequence[ReceiptLine], *, as_json: bool) -> None:
    if as_json:
        receipt = [_to_json(line) for line in lines]
        screen.raw(dump_json({"state_dir": str(place), "tree": tree, "receipt": receipt}))
    else:
        _show(screen, tree, lines)


async def _stop(
    place: Path, tree_id: str | None, session: str, reason: str, *, for_good: bool
) -> tuple[str, tuple[ReceiptLine, ...]]:
    tree_id = complete_tree_id(place, tree_id)
    place = await find_live_journal(place, tree_id)
    client = await ControlClient.find(place)
    if client is None:
        return await open_tree(None, place, tree_id), ()
    async with client:
        tree = await open_tree(client, place, tree_id)
        if for_good:
            return tree, await client.supervisor.stop(tree, session, reason, SessionStatus.CANCELLED)
        return tree, await client.supervisor.interrupt(tree, session, reason)


def _show(screen: RichScreen, tree_id: str, lines: Sequence[ReceiptLine]) -> None:
    rows = [
        (
            line.session_id,
            line.kind,
            line.status,
            "yes" if line.forced else "",
            f"{line.leftovers:,}" if line.leftovers else "",
            shorten_summary(line.summary),
        )
        for line in lines
    ]
    screen.table(("session", "kind", "status", "forced", "left behind", "final message"), rows)
    cancelled = sum(line.status is SessionStatus.CANCELLED for line in lines)
    screen.line(f"tree {tree_id}: {len(lines):,} sessions, {cancelled:,} of them cancelled")


def _to_json(line: ReceiptLine) -> dict[str, JsonValue]:
    return {
        "session": line.session_id,
        "kind": line.kind,
        "status": line.status,
        "forced": line.forced,
        "leftovers": line.leftovers,
        "usage": line.usage.to_wire(),
        "summary": shorten_summary(line.summary),
    }
