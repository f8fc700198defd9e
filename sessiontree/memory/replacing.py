"""Making all vectors of a store anew with another embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.threads import in_thread
from sessiontree.memory.durable import DurableFolder
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.place import WriterLock, directory_of
from sessiontree.memory.rows import embedder_of, schema_of, to_records, to_table
from sessiontree.memory.table import RecordTable, connect
from sessiontree.memory.vectors import vectors_of

_AT_ONCE = 1_000


async def replace_vectors(
    uri: str,
    embedder: Embedder,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> int:
    """Make every vector of a store anew; return how many.

    The new ones take the old ones' place in one commit: a process that is killed before it leaves the store
    as it was, one killed later leaves the new. Ids, texts and order stay.

    Args:
        uri: As of :meth:`MemoryStore.open`; nobody may have it open for writing.
        embedder: Whose vectors the store has afterwards.
        storage_options: What LanceDB needs to reach an address.
        progress: Told after each part how many are done, and of how many; called in another thread.

    Raises:
        MemoryLocked: another process writes it.
        MemoryFailed: there is no store, or the embedder failed; it stands as it was.
    """
    directory = directory_of(uri)
    lock = None if directory is None else WriterLock(directory)
    try:
        connection = await connect(uri, storage_options)
        table = await RecordTable.open(connection, uri)
        if table is None:
            raise MemoryFailed(uri, "no records are there; check the place")
        embedder_of(table.schema, uri)
        batches = _Batches(table, await table.row_ids(), embedder, uri, progress)
        try:
            replaced = await RecordTable.replace(connection, uri, batches.schema, batches)
        except MemoryFailed:
            if batches.failure is not None:
                raise batches.failure from None
            raise
        await replaced.index_text()
        if directory is not None:
            await in_thread(DurableFolder(replaced.folder(directory)).sync)
        return len(batches)
    finally:
        if lock is not None:
            lock.release()


class _Batches:
    """Rows of a table with new vectors. LanceDB takes them in a thread of its own, so the loop can read."""

    def __init__(
        self,
        table: RecordTable,
        row_ids: np.ndarray,
        embedder: Embedder,
        place: str,
        progress: Callable[[int, int], None],
    ) -> None:
        self.schema = schema_of(embedder.identity, embedder.dimensions)
        self.failure: Exception | None = None
        """What ended the rows early; LanceDB passes on its text alone."""
        self._table = table
        self._row_ids = row_ids.tolist()
        self._embedder = embedder
        self._place = place
        self._progress = progress
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._row_ids)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for start in range(0, len(self._row_ids), _AT_ONCE):
                chosen = self._row_ids[start : start + _AT_ONCE]
                taking = asyncio.run_coroutine_threadsafe(self._table.take(chosen), self._loop)
                records = to_records(taking.result())
                vectors = vectors_of([record.text for record in records], self._embedder, self._place)
                yield from to_table(records, vectors, self.schema).to_batches()
                self._progress(start + len(chosen), len(self))
        except Exception as error:
            self.failure = error
            raise
