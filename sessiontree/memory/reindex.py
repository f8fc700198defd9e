"""Reindexing: a store opened without its embedder, and its records embedded again by another one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.embedders import Embedder
from sessiontree.memory.failures import convert_write_errors
from sessiontree.memory.place import DurableFolder, StoreLock, resolve_directory
from sessiontree.memory.search import embed_texts
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.tables import (
    RECORDS,
    VECTOR,
    RecordTable,
    Vectors,
    build_schema,
    connect,
    read_embedder,
    to_table,
)

NO_STORE: Final = "the store does not exist; check the place"


@dataclass(frozen=True, slots=True)
class KnownByName:
    """An embedder of which only the name is known, from a store."""

    identity: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Refuse."""
        raise MemoryFailed(
            self.identity, f"can't embed {len(texts)} texts: only the embedder's name is known"
        )


async def read_stored_embedder(
    uri: str, storage_options: Mapping[str, str] | None = None
) -> KnownByName | None:
    """Return the embedder of a store's vectors, or None if the store does not exist. Never makes one.

    Raises:
        MemoryFailed: the store cannot be read.
    """
    directory = resolve_directory(uri)
    if directory is not None and not directory.is_dir():
        return None
    table = await RecordTable.open(await connect(uri, storage_options), uri)
    if table is None:
        return None
    try:
        dimensions: int = table.schema.field(VECTOR).type.list_size
        return KnownByName(read_embedder(table.schema, uri), dimensions)
    finally:
        table.close()


async def open_as_stored(
    uri: str, *, lock: bool, storage_options: Mapping[str, str] | None = None
) -> tuple[LanceMemoryStore, KnownByName]:
    """Open a store without its embedder; it can neither search nor add texts.

    Raises:
        MemoryFailed: ``lock`` is set, and another process writes the store.
        MemoryFailed: the store does not exist or cannot be read.
    """
    embedder = await read_stored_embedder(uri, storage_options)
    if embedder is None:
        raise MemoryFailed(uri, NO_STORE)
    store = await LanceMemoryStore.open(uri, embedder, lock=lock, storage_options=storage_options)
    return store, embedder


_AT_ONCE = 256
"""How many records are embedded at a time."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """The outcome of :func:`reindex`."""

    records: int
    before: str
    """Identity of the embedder before."""
    after: str
    """Identity of the embedder now."""


async def reindex(
    uri: str,
    embedder: Embedder,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Reindexed:
    """Embed all records of a store again. With the same embedder the vectors stay the same.

    Args:
        uri: The store; nobody else may have it open for writing.
        embedder: Makes the new vectors.
        storage_options: What LanceDB needs to reach an address.
        progress: Called with the number of records embedded so far.

    Raises:
        MemoryFailed: another process writes the store.
        MemoryFailed: the store does not exist or cannot be read, or the embedder failed; it is unchanged.
        MemoryFailed: the disk has no room for both copies; the store is unchanged.
    """
    directory = resolve_directory(uri)
    store, known = await open_as_stored(uri, lock=False, storage_options=storage_options)
    async with store:
        with ExitStack() as held:
            if directory is not None:
                lock = StoreLock(directory)
                held.callback(lock.release)
            draft = held.enter_context(_open_unnamed_file(uri, directory))
            # All vectors are made before the table changes: an embedder that fails halfway leaves the store
            # as it was.
            records = await _write_draft(store, embedder, draft, uri, progress)
            await _swap(draft, uri, storage_options)
    return Reindexed(records, known.identity, embedder.identity)


@contextmanager
def _open_unnamed_file(place: str, directory: Path | None) -> Iterator[BinaryIO]:
    """Open a temporary file without a name; for a local store it is on the store's disk."""
    with convert_write_errors(place):
        file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closing it may fail, see below
    try:
        yield file
    finally:
        with suppress(OSError):  # on a full disk, closing fails to write the rest
            file.close()


async def _write_draft(
    store: LanceMemoryStore,
    embedder: Embedder,
    draft: BinaryIO,
    place: str,
    progress: Callable[[int], None] | None,
) -> int:
    """Write all records with new vectors as an Arrow stream; return how many."""
    schema = build_schema(embedder.identity, embedder.dimensions)
    count = 0
    with convert_write_errors(place), pa.ipc.new_stream(draft, schema) as stream:
        async for part in store.parts(at_once=_AT_ONCE):
            texts = [record.text for record in part.records]
            vectors = await run_in_thread(embed_texts, texts, embedder, place)
            await run_in_thread(stream.write_table, to_table(part.records, vectors, schema))
            count += len(part.records)
            if progress is not None:
                progress(count)
    return count


async def _swap(draft: BinaryIO, place: str, storage_options: Mapping[str, str] | None) -> None:
    """Replace the old rows with the new ones in one commit, then make their text index."""
    connection = await connect(place, storage_options)
    draft.seek(0)
    with convert_write_errors(place):
        rows = pa.ipc.open_stream(draft)
        table = await connection.create_table(RECORDS, data=rows, schema=rows.schema, mode="overwrite")
        made = RecordTable(table, place, rows.schema)
        directory = resolve_directory(place)
        durable = None if directory is None else DurableFolder(made.folder(directory))
        try:
            await _sync(durable)
            await made.index_text()
            await _sync(durable)
        finally:
            made.close()


async def _sync(durable: DurableFolder | None) -> None:
    if durable is not None:
        await run_in_thread(durable.sync)
