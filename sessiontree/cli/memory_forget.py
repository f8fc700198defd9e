"""Memory, thinned: what ``sessiontree memory forget`` does. It asks before it removes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from sessiontree.cli.memory_place import MemoryPlace
from sessiontree.cli.memory_records import show_records
from sessiontree.cli.plural import counted
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.memory import MemoryRecord, Selection

_SHOWN = 10
"""Records a person sees before the question."""
_MOST = 2**31
"""Of one selection: all there are."""
KEPT = 1
"""Exit code where a person said no."""


def forget(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    ids: Sequence[str],
    path: str | None,
    tree: str | None,
    yes: bool,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Remove the records that fit all conditions, and return the exit code: 1 where a person said no.

    With ``as_json`` one object: ``uri`` and ``forgotten`` (ids).

    Raises:
        ConfigError: no condition is given, or nobody can be asked and ``yes`` is not given.
        MemoryLocked: a runtime writes the store.
        MemoryFailed: there is none, or it can't be written.
    """
    chosen = Selection(ids=tuple(ids), path=path, tree_id=tree)
    if not chosen.to_wire():
        raise ConfigError("name what is to be forgotten with --id, --path or --tree")
    if not yes and (as_json or not _at_terminal()):
        raise ConfigError(
            "nobody is there to be asked, so nothing is forgotten; give --yes to forget all the same"
        )
    place = MemoryPlace.of(workspace, state_dir, uri)
    found = asyncio.run(_found(place, chosen))
    if found and not yes and not _agrees(screen, found):
        screen.line("nothing forgotten")
        return KEPT
    # exactly what was shown: more may have come since
    ids = asyncio.run(_forget(place, Selection(ids=tuple(record.id for record in found)))) if found else []
    if as_json:
        screen.raw(dump_json({"uri": place.uri, "forgotten": list(ids)}))
    else:
        screen.line(f"{counted(len(ids), 'record')} forgotten")
    return 0


async def _found(place: MemoryPlace, chosen: Selection) -> list[MemoryRecord]:
    async with await place.thin() as store:  # says at once where a runtime writes it
        return await store.select(chosen, None, _MOST)


async def _forget(place: MemoryPlace, chosen: Selection) -> list[str]:
    async with await place.thin() as store:
        forgotten = await store.forget(chosen, None)
        await store.tidy()
    return forgotten


def _agrees(screen: RichScreen, found: Sequence[MemoryRecord]) -> bool:
    show_records(screen, found[:_SHOWN])
    if len(found) > _SHOWN:
        screen.line(f"… and {len(found) - _SHOWN:,} more")
    screen.line(f"forget {counted(len(found), 'record')}? [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
