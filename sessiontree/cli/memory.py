"""The commands ``sessiontree memory search``, ``list``, ``forget``, ``export``, ``import`` and ``reindex``.

The owner sees every record. Options name the store and its embedder.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import pydantic

from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import find_state_dir
from sessiontree.contracts.errors import ConfigError, MemoryFailed
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.memory import (
    MAX_HITS,
    RECORD_TYPES,
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    RecordType,
    Selection,
    Source,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.export import open_private_file
from sessiontree.memory.embedders import Embedder, make_embedder
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.import_export import (
    Exported,
    Imported,
    check_export,
    flatten_record,
    import_export,
    write_export,
)
from sessiontree.memory.reindex import NO_STORE, open_as_stored, read_stored_embedder
from sessiontree.memory.reindex import reindex as reindex_store
from sessiontree.memory.settings import EmbedderSettings, MemorySettings
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.runtime.timing.clock import read_machine_ms

_EMBEDDER: pydantic.TypeAdapter[EmbedderSettings] = pydantic.TypeAdapter(EmbedderSettings)


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """A store that may be there or not."""

    uri: str

    @classmethod
    def of(cls, workspace: Path | None, state_dir: Path | None, uri: str | None) -> MemoryPlace:
        """Return the store that options name; without any, that of the workspace.

        Raises:
            ConfigError: the workspace is not a directory, or the address is not one.
        """
        try:
            settings = MemorySettings(uri=uri)
        except pydantic.ValidationError as error:
            raise ConfigError(f"--uri: {_describe_faults(error)}") from error
        if uri is not None:
            return cls(settings.uri_in(Path()))
        return cls(settings.uri_in(find_state_dir(workspace, state_dir)))

    async def read(self) -> LanceMemoryStore:
        """Open it for reading while another process may write; it can't be searched.

        Raises:
            MemoryFailed: the store does not exist or can't be read.
        """
        store, _ = await open_as_stored(self.uri, lock=False)
        return store

    async def open_to_forget(self) -> LanceMemoryStore:
        """Open it to forget records.

        Raises:
            MemoryFailed: a runtime writes it.
            MemoryFailed: the store does not exist or can't be used.
        """
        store, _ = await open_as_stored(self.uri, lock=True)
        return store

    async def check(self) -> None:
        """Check that there is a store.

        Raises:
            MemoryFailed: the store does not exist or can't be read.
        """
        if await self.identity() is None:
            raise MemoryFailed(self.uri, NO_STORE)

    async def identity(self) -> str | None:
        """Return the identity of the embedder that made its vectors; None if the store does not exist."""
        stored = await read_stored_embedder(self.uri)
        return None if stored is None else stored.identity

    async def embedder(self, named: str | None) -> Embedder:
        """Return the embedder to open it with: the one named, else the one it was made with.

        Raises:
            ConfigError: it was made with another than the default, and none is named.
        """
        if named is not None:
            return load_embedder(named)
        stored, default = await self.identity(), HashingEmbedder()
        if stored not in {None, default.identity}:
            raise ConfigError(
                f"the vectors in {self.uri!r} come from {stored!r}; name its embedder with --embedder: "
                "'minilm model_dir=…' or 'http url=… model=… dimensions=…'"
            )
        return default


def load_embedder(text: str) -> Embedder:
    """Return the embedder an option names.

    Args:
        text: A kind, and its settings behind it: ``hashing``, ``minilm model_dir=…`` or
            ``http url=… model=… dimensions=… api_key_env=…``.

    Raises:
        ConfigError: the kind is unknown, a setting is missing or wrong, or its extra is not installed.
    """
    try:
        kind, *given = shlex.split(text)
        members = dict(each.split("=", 1) for each in given)
        settings = _EMBEDDER.validate_python({"kind": kind, **members})
    except pydantic.ValidationError as error:
        raise ConfigError(f"--embedder: {_describe_faults(error)}") from error
    except ValueError as error:
        message = "a kind and its settings were expected, such as 'minilm model_dir=/models/minilm'"
        raise ConfigError(f"--embedder: {message}") from error
    return make_embedder(settings)


def _describe_faults(error: pydantic.ValidationError) -> str:
    """Return what is wrong with which setting, without what was given."""
    return ", ".join(
        ".".join(map(str, each["loc"][1:])) + (": " if each["loc"][1:] else "") + each["msg"]
        for each in error.errors(include_url=False, include_input=False)
    )


_MAX_LINES, _MAX_CHARS = 8, 160
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
    types: Sequence[str] | None,
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
        MemoryFailed: another embedder made the store.
        MemoryFailed: the store does not exist or can't be read.
    """
    wanted = MemoryQuery(query, _check_limit(limit, MAX_HITS), _parse_types(types), path)
    place = MemoryPlace.of(workspace, state_dir, uri)

    async def find() -> list[MemoryHit]:
        await place.check()
        made = await place.embedder(embedder)
        async with await LanceMemoryStore.open(place.uri, made, lock=False) as store:
            return await store.search(wanted, None)

    hits = asyncio.run(find())
    if as_json:
        found = [{**flatten_record(hit.record), "score": hit.score} for hit in hits]
        screen.raw(dump_json({"uri": place.uri, "hits": found}))
        return 0
    for hit in hits:
        _show(screen, f"{hit.score:.2f}", hit.record, _MAX_LINES)
    screen.line(f"{format_count(len(hits), 'record')} found in {place.uri}")
    return 0


def show_list(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    limit: int,
    types: Sequence[str] | None,
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
        MemoryFailed: the store does not exist or can't be read.
    """
    wanted = _Wanted(_parse_types(types), path, tree)
    newest: deque[MemoryRecord] = deque(maxlen=_check_limit(limit, None))
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
        records = [flatten_record(record) for record in newest]
        told = {"uri": place.uri, "embedder": identity, "total": total, "records": records}
        screen.raw(dump_json(told))
        return 0
    show_records(screen, newest)
    screen.line(f"{len(newest):,} of {format_count(total, 'record')} in {place.uri}, embedded by {identity}")
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
        screen.line(f"     … {format_count(len(lines) - most_lines, 'more line')}")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"


def _parse_types(given: Sequence[str] | None) -> tuple[RecordType, ...]:
    wanted = set(given or ())
    unknown = wanted - set(RECORD_TYPES)
    if unknown:
        raise ConfigError(f"--type {min(unknown)!r} is not one of {', '.join(RECORD_TYPES)}")
    return tuple(each for each in RECORD_TYPES if each in wanted)


def _check_limit(limit: int, most: int | None) -> int:
    if limit < 1 or (most is not None and limit > most):
        raise ConfigError(f"--limit {limit} is not " + ("positive" if most is None else f"1 to {most}"))
    return limit


_SHOWN = 10
"""Records a person sees before the question."""
_MOST = 2**31
"""Of one selection: all there are."""
KEPT = 1
"""Exit code where a person said no."""


def forget(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    ids: Sequence[str] | None,
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
        MemoryFailed: a runtime writes the store.
        MemoryFailed: the store does not exist or can't be written.
    """
    chosen = Selection(ids=tuple(ids or ()), path=path, tree_id=tree)
    if not chosen.to_wire():
        raise ConfigError("name what is to be forgotten with --id, --path or --tree")
    if not yes and (as_json or not _is_at_terminal()):
        raise ConfigError(
            "no terminal to confirm this at, so nothing was removed; give --yes to forget without asking"
        )
    place = MemoryPlace.of(workspace, state_dir, uri)
    found = asyncio.run(_find_records(place, chosen))
    if found and not yes and not _confirm(screen, found):
        screen.line("nothing forgotten")
        return KEPT
    # exactly what was shown: more may have come since
    ids = asyncio.run(_forget(place, Selection(ids=tuple(record.id for record in found)))) if found else []
    if as_json:
        screen.raw(dump_json({"uri": place.uri, "forgotten": list(ids)}))
    else:
        screen.line(f"{format_count(len(ids), 'record')} forgotten")
    return 0


async def _find_records(place: MemoryPlace, chosen: Selection) -> list[MemoryRecord]:
    async with await place.open_to_forget() as store:  # says at once where a runtime writes it
        return await store.select(chosen, None, _MOST)


async def _forget(place: MemoryPlace, chosen: Selection) -> list[str]:
    async with await place.open_to_forget() as store:
        forgotten = await store.forget(chosen, None)
        await store.tidy()
    return forgotten


def _confirm(screen: RichScreen, found: Sequence[MemoryRecord]) -> bool:
    show_records(screen, found[:_SHOWN])
    if len(found) > _SHOWN:
        screen.line(f"… and {len(found) - _SHOWN:,} more")
    screen.line(f"forget {format_count(len(found), 'record')}? [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _is_at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


STREAM = "-"
"""Names standard output, or input, as a file."""


def export(
    screen: RichScreen,
    *,
    file: str,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Write all records into a file only its owner may read, or to standard output; return the exit code.

    With ``as_json`` one object tells of it: ``uri``, ``file``, ``records``, ``finished`` (trees whose Main
    has finished) and ``by_type``.

    Raises:
        ConfigError: both the export and what is reported of it would go to standard output.
        MemoryFailed: the store does not exist or can't be read.
        OSError: the file can't be written; what was there before is as it was.
    """
    if file == STREAM and as_json:
        raise ConfigError(
            "--json reports on an export to a file; an export to standard output can't have a report"
        )
    place = MemoryPlace.of(workspace, state_dir, uri)
    if file == STREAM:
        asyncio.run(_write(place, sys.stdout.buffer))
        return 0
    path = Path(file).expanduser().absolute()
    with open_private_file(path) as out:
        told = asyncio.run(_write(place, out))
    if as_json:
        screen.raw(dump_json({"uri": place.uri, "file": str(path), **asdict(told)}))
    else:
        screen.line(f"{_describe_moved(told)} exported to {path}")
    return 0


def import_(
    screen: RichScreen,
    *,
    file: str,
    embedder: str | None,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Take in an export, all of it or nothing, and return the exit code; what is there already stays.

    With ``as_json`` one object: ``uri``, ``records`` (in the export), ``added`` and ``finished``.

    Raises:
        MemoryFailed: it is cut, altered, none, or of a later release.
        ConfigError: an option is wrong.
        MemoryFailed: a runtime writes the store.
        MemoryFailed: the store can't be written.
    """
    place = MemoryPlace.of(workspace, state_dir, uri)

    async def take_in(data: BinaryIO) -> Imported:
        made = await place.embedder(embedder)
        async with await LanceMemoryStore.open(place.uri, made) as store:
            return await import_export(store, data, file)

    with _open_export(file) as data:
        check_export(data, file)  # before a store is made for it
        data.seek(0)
        told = asyncio.run(take_in(data))
    if as_json:
        screen.raw(dump_json({"uri": place.uri, **asdict(told)}))
    else:
        screen.line(f"{_describe_moved(told)} imported, {format_count(told.added, 'record')} of them new")
    return 0


def _describe_moved(told: Exported | Imported) -> str:
    return f"{format_count(told.records, 'record')} and {format_count(told.finished, 'finished tree')}"


async def _write(place: MemoryPlace, out: BinaryIO) -> Exported:
    async with await place.read() as store:
        batches = (part.records async for part in store.parts())
        identity = await place.identity() or ""
        trees = store.list_finished_trees()
        return await write_export(batches, trees, out, embedder=identity, at_ms=read_machine_ms())


@contextmanager
def _open_export(file: str) -> Iterator[BinaryIO]:
    """Open an export so that it can be read twice."""
    if file != STREAM:
        with Path(file).expanduser().open("rb") as data:
            yield data
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.seek(0)
        yield kept


def reindex(
    screen: RichScreen,
    *,
    embedder: str,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Embed all records again, and return the exit code; until all are, the store stays as it is.

    With ``as_json`` one object: ``uri``, ``records``, ``before`` and ``after`` (identities of embedders).

    Raises:
        ConfigError: an option is wrong, or the embedder can't be made.
        MemoryFailed: a runtime writes the store.
        MemoryFailed: the store does not exist, or the embedder failed.
    """
    place = MemoryPlace.of(workspace, state_dir, uri)
    done = asyncio.run(reindex_store(place.uri, load_embedder(embedder)))
    if as_json:
        screen.raw(dump_json({"uri": place.uri, **asdict(done)}))
    else:
        records = format_count(done.records, "record")
        screen.line(f"{records} in {place.uri} embedded by {done.after}, before by {done.before}")
    return 0
