"""Embedding all records anew under another embedder, in one swap: a store is never seen half done.

The new rows are made beside the store, in a file without a name. Then one commit of LanceDB puts them in the
place of the old ones. Killed before it, the store is as it was; killed after it, it is the new one, and the
next writer makes its text index. Who reads meanwhile reads the old rows, then learns of EmbedderMismatch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sessiontree.contracts.thread_calls import in_thread
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.failures import typed_writes
from sessiontree.memory.fsync import DurableFolder
from sessiontree.memory.place import StoreLock, directory_of
from sessiontree.memory.rows import schema_of, to_table
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.stored import open_as_stored
from sessiontree.memory.table import RECORDS, RecordTable, connect
from sessiontree.memory.vectors import vectors_of

_AT_ONCE = 256
"""Records embedded at a time."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """What was done."""

    records: int
    before: str
    """Identity of the embedder before."""
    after: str


async def reindex(
    uri: str,
    embedder: Embedder,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Reindexed:
    """Embed all records of a store anew; done again under the same embedder, it makes the same vectors.

    Args:
        uri: The store; nobody else may have it open for writing.
        embedder: What its vectors shall come from.
        storage_options: What LanceDB needs to reach an address.
        progress: Told how many records are embedded.

    Raises:
        MemoryLocked: another process writes it.
        MemoryFailed: there is none, it can't be read, or the embedder failed; it is as it was.
        MemoryUnwritable: there is no room for both copies; it is as it was.
    """
    directory = directory_of(uri)
    store, known = await open_as_stored(uri, lock=False, storage_options=storage_options)
    async with store:
        with ExitStack() as held:
            if directory is not None:
                lock = StoreLock(directory)
                held.callback(lock.release)
            draft = held.enter_context(_nameless(uri, directory))
            records = await _draft(store, embedder, draft, uri, progress)
            await _swap(draft, uri, storage_options)
    return Reindexed(records, known.identity, embedder.identity)


@contextmanager
def _nameless(place: str, directory: Path | None) -> Iterator[BinaryIO]:
    """Open a file that is gone with whoever has it open, on the disk of the store where that is local."""
    with typed_writes(place):
        file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closing it may fail, see below
    try:
        yield file
    finally:
        with suppress(OSError):  # on a full disk: what could not be written before can't be now
            file.close()


async def _draft(
    store: LanceMemoryStore,
    embedder: Embedder,
    draft: BinaryIO,
    place: str,
    progress: Callable[[int], None] | None,
) -> int:
    """Write all records with new vectors as a stream of Arrow; return how many."""
    schema = schema_of(embedder.identity, embedder.dimensions)
    count = 0
    with typed_writes(place), pa.ipc.new_stream(draft, schema) as stream:
        async for part in store.parts(at_once=_AT_ONCE):
            texts = [record.text for record in part.records]
            vectors = await in_thread(vectors_of, texts, embedder, place)
            await in_thread(stream.write_table, to_table(part.records, vectors, schema))
            count += len(part.records)
            if progress is not None:
                progress(count)
    return count


async def _swap(draft: BinaryIO, place: str, storage_options: Mapping[str, str] | None) -> None:
    """Put the new rows in the place of the old ones with one commit, then make their text index."""
    connection = await connect(place, storage_options)
    draft.seek(0)
    with typed_writes(place):
        rows = pa.ipc.open_stream(draft)
        table = await connection.create_table(RECORDS, data=rows, schema=rows.schema, mode="overwrite")
        made = RecordTable(table, place, rows.schema)
        directory = directory_of(place)
        durable = None if directory is None else DurableFolder(made.folder(directory))
        try:
            await _sync(durable)
            await made.index_text()
            await _sync(durable)
        finally:
            made.close()


async def _sync(durable: DurableFolder | None) -> None:
    if durable is not None:
        await in_thread(durable.sync)
