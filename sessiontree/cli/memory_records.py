"""Memory's records: what ``sessiontree memory search`` and ``list`` show. The owner sees everything."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sessiontree.cli.memory_place import MemoryPlace
from sessiontree.cli.plural import counted
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.memory import (
    MAX_HITS,
    RECORD_TYPES,
    Hit,
    MemoryQuery,
    MemoryRecord,
    RecordType,
    Source,
)
from sessiontree.memory.export_file import members_of
from sessiontree.memory.store import LanceMemoryStore

_MOST_LINES, _MOST_CHARS = 8, 160
"""Of one text, where a person reads."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which records are meant; an empty condition holds for all."""

    types: tuple[RecordType, ...]
    path: str | None
    tree: str | None

    def fits(self, record: MemoryRecord) -> bool:
        if self.path is not None:
            source = "" if record.source is None else Source.of(record.source).path
            start = self.path.rstrip("/")
            if source != start and not source.startswith(f"{start}/"):
                return False
        return (not self.types or record.type in self.types) and self.tree in {None, record.scope.tree_id}


def search(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    query: str,
    limit: int,
    types: Sequence[str],
    path: str | None,
    embedder: str | None,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Show the records that fit a question best, best first, and return the exit code.

    With ``as_json`` one object: ``uri`` and ``hits``, each a record as an export has it, and its ``score``.

    Raises:
        ConfigError: an option is wrong.
        EmbedderMismatch: another embedder made the store.
        MemoryFailed: there is none, or it can't be read.
    """
    wanted = MemoryQuery(query, _checked(limit, MAX_HITS), _types(types), path)
    place = MemoryPlace.of(workspace, state_dir, uri)

    async def find() -> list[Hit]:
        await place.check()
        made = await place.embedder(embedder)
        async with await LanceMemoryStore.open(place.uri, made, lock=False) as store:
            return await store.search(wanted, None)

    hits = asyncio.run(find())
    if as_json:
        found = [{**members_of(hit.record), "score": hit.score} for hit in hits]
        screen.raw(dump_json({"uri": place.uri, "hits": found}))
        return 0
    for hit in hits:
        _show(screen, f"{hit.score:.2f}", hit.record, _MOST_LINES)
    screen.line(f"{counted(len(hits), 'record')} found in {place.uri}")
    return 0


def show_list(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    limit: int,
    types: Sequence[str],
    path: str | None,
    tree: str | None,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Show the newest records, the newest last, and return the exit code.

    With ``as_json`` one object: ``uri``, ``embedder``, ``total`` (how many there are that fit) and
    ``records``, each as an export has it.

    Raises:
        ConfigError: an option is wrong.
        MemoryFailed: there is no store, or it can't be read.
    """
    wanted = _Wanted(_types(types), path, tree)
    newest: deque[MemoryRecord] = deque(maxlen=_checked(limit, None))
    place = MemoryPlace.of(workspace, state_dir, uri)

    async def look() -> tuple[int, str | None]:
        total = 0
        async with await place.read() as store:
            async for part in store.parts():
                fitting = [record for record in part.records if wanted.fits(record)]
                newest.extend(fitting)
                total += len(fitting)
        return total, await place.identity()

    total, identity = asyncio.run(look())
    if as_json:
        records = [members_of(record) for record in newest]
        told = {"uri": place.uri, "embedder": identity, "total": total, "records": records}
        screen.raw(dump_json(told))
        return 0
    show_records(screen, newest)
    screen.line(f"{len(newest):,} of {counted(total, 'record')} in {place.uri}, embedded by {identity}")
    return 0


def show_records(screen: RichScreen, records: Iterable[MemoryRecord]) -> None:
    """Show records one below the other, each with the beginning of its text."""
    for record in records:
        at = datetime.fromtimestamp(record.created_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        _show(screen, at, record, 1)


def _show(screen: RichScreen, prefix: str, record: MemoryRecord, most_lines: int) -> None:
    source = "" if record.source is None else f" {record.source}"
    by = f"{record.scope.tree_id}:{record.scope.session}, {record.trust}"
    screen.line(f"{prefix} {record.type}{source} (by {by}; {record.id})")
    lines = record.text.splitlines()
    for line in lines[:most_lines]:
        screen.line(f"     {_cut(line)}")
    if len(lines) > most_lines:
        screen.line(f"     … {counted(len(lines) - most_lines, 'more line')}")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def _types(given: Sequence[str]) -> tuple[RecordType, ...]:
    unknown = set(given) - set(RECORD_TYPES)
    if unknown:
        raise ConfigError(f"--type {min(unknown)!r} is none of {', '.join(RECORD_TYPES)}")
    return tuple(each for each in RECORD_TYPES if each in given)


def _checked(limit: int, most: int | None) -> int:
    if limit < 1 or (most is not None and limit > most):
        raise ConfigError(f"--limit {limit} is not " + ("positive" if most is None else f"1 to {most}"))
    return limit
