"""Memory's export: what ``sessiontree memory export`` and ``import`` do."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from sessiontree.cli.memory_place import MemoryPlace
from sessiontree.cli.plural import counted
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.memory.export_file import Exported, private_file, write_export
from sessiontree.memory.import_file import Imported, check_export, import_export
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.runtime.clock import machine_ms

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
        ConfigError: both the export and what is told of it would go to standard output.
        MemoryFailed: there is no store, or it can't be read.
        OSError: the file can't be written; what was there before is as it was.
    """
    if file == STREAM and as_json:
        raise ConfigError("--json tells of an export in a file; the one on standard output tells of itself")
    place = MemoryPlace.of(workspace, state_dir, uri)
    if file == STREAM:
        asyncio.run(_write(place, sys.stdout.buffer))
        return 0
    path = Path(file).expanduser().absolute()
    with private_file(path) as out:
        told = asyncio.run(_write(place, out))
    if as_json:
        screen.raw(dump_json({"uri": place.uri, "file": str(path), **asdict(told)}))
    else:
        screen.line(f"{_told(told)} exported to {path}")
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
        ExportRefused: it is cut, altered, none, or of a later release.
        ConfigError: an option is wrong.
        MemoryLocked: a runtime writes the store.
        MemoryFailed: the store can't be written.
    """
    place = MemoryPlace.of(workspace, state_dir, uri)

    async def take_in(data: BinaryIO) -> Imported:
        made = await place.embedder(embedder)
        async with await LanceMemoryStore.open(place.uri, made) as store:
            return await import_export(store, data, file)

    with _opened(file) as data:
        check_export(data, file)  # before a store is made for it
        data.seek(0)
        told = asyncio.run(take_in(data))
    if as_json:
        screen.raw(dump_json({"uri": place.uri, **asdict(told)}))
    else:
        screen.line(f"{_told(told)} imported, {counted(told.added, 'record')} of them new")
    return 0


def _told(told: Exported | Imported) -> str:
    return f"{counted(told.records, 'record')} and {counted(told.finished, 'finished tree')}"


async def _write(place: MemoryPlace, out: BinaryIO) -> Exported:
    async with await place.read() as store:
        batches = (part.records async for part in store.parts())
        identity = await place.identity() or ""
        trees = store.finished_trees()
        return await write_export(batches, trees, out, embedder=identity, at_ms=machine_ms())


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open an export so that it can be read twice."""
    if file != STREAM:
        with Path(file).expanduser().open("rb") as data:
            yield data
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.seek(0)
        yield kept
