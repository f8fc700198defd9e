"""The memory store: records are kept, found again by meaning and by words, and forgotten."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import numpy as np

from sessiontree.contracts.errors import MemoryCorrupt, MemoryFailed
from sessiontree.contracts.memory import (
    MAX_HITS,
    Hit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
)
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.finished import FinishedTree, FinishedTrees
from sessiontree.memory.fsync import DurableFolder
from sessiontree.memory.matrix import Vectors
from sessiontree.memory.new_records import recorded
from sessiontree.memory.place import StoreLock, directory_of
from sessiontree.memory.row_index import Mask, Positions
from sessiontree.memory.rows import schema_of
from sessiontree.memory.search import search
from sessiontree.memory.table import RecordTable, connect
from sessiontree.memory.table_cache import Shelf
from sessiontree.memory.upkeep import Upkeep
from sessiontree.memory.vectors import vectors_of
from sessiontree.memory.visibility import at_path, of_tree, overlapping, visible
from sessiontree.memory.writer import StoreWriter

_VECTORS_BYTES: Final = 512 * 2**20
"""Most that vectors take in memory where nothing else is said."""
_AT_ONCE: Final = 1_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a store's records, in created order."""

    records: list[MemoryRecord]
    vectors: Vectors | None
    """One row for each where they were asked for."""


class LanceMemoryStore:
    """Records on disk and what is known of them in memory; made by :meth:`open`, ended by :meth:`close`.

    Belongs to one event loop. What :meth:`store` returned for survives a kill, and on a local disk a power
    failure.
    """

    def __init__(
        self,
        shelf: Shelf,
        finished: FinishedTrees,
        embedder: Embedder,
        writer: StoreWriter | None,
        lock: StoreLock | None,
    ) -> None:
        self._shelf = shelf
        self._finished = finished
        self._embedder = embedder
        self._writer = writer
        self._lock = lock
        self._upkeep = Upkeep(self._tidy, shelf.place)

    @classmethod
    async def open(
        cls,
        uri: str,
        embedder: Embedder,
        *,
        lock: bool = True,
        ann_above: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> LanceMemoryStore:
        """Open a store, or make one where nothing is.

        Args:
            uri: A directory, or an address LanceDB knows such as ``s3://bucket/memory``. Of a store that is
                reached by network the caller sees to it that one process alone writes it.
            embedder: Turns texts into vectors; the one the store was made with.
            lock: Be the one that writes; False = only read, beside whoever writes.
            ann_above: More records than this are searched by an approximate index of LanceDB instead of
                exactly in memory; None = as many as have 512 MiB of vectors.
            storage_options: What LanceDB needs to reach an address.

        Raises:
            MemoryLocked: another process writes it.
            EmbedderMismatch: its vectors come from another embedder.
            MemoryCorrupt: its files are damaged, or some are gone.
            MemoryUnwritable: it can't be made.
            MemoryFailed: there is none to read.
        """
        directory = directory_of(uri)
        held = StoreLock(directory) if lock and directory is not None else None
        try:
            connection = await connect(uri, storage_options)
            table = await RecordTable.open(connection, uri)
            finished = await FinishedTrees.open(connection, uri, create=False)
            if table is None and (not lock or finished.trees):
                raise (MemoryFailed if not lock else MemoryCorrupt)(
                    uri, "no records are there; check the place"
                )
            if table is None:
                schema = schema_of(embedder.identity, embedder.dimensions)
                table = await RecordTable.create(connection, uri, schema)
            limit = _VECTORS_BYTES // (4 * embedder.dimensions) if ann_above is None else ann_above
            shelf = Shelf(table, uri, embedder.identity, limit)
            shelf.check()
            if lock:
                await table.index_text()
                finished = await FinishedTrees.open(connection, uri, create=True)
            await shelf.load()
        except BaseException:
            if held is not None:
                held.release()
            raise
        store = cls(shelf, finished, embedder, None, held)
        if lock:
            durable = None if directory is None else DurableFolder(table.folder(directory))
            store._writer = StoreWriter(shelf, held, durable, store._upkeep.wrote)
            store._upkeep.wrote(await table.fragments())
        return store

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    @property
    def upkeep_failure(self) -> MemoryFailed | None:
        """Why the table could not be tidied the last time; searches get slower until it can."""
        return self._upkeep.failure

    def __len__(self) -> int:
        """Return how many records there are, as far as this process has looked."""
        return len(self._shelf.mirror)

    async def close(self) -> None:
        """Write what waits, end what tidies, and let another process write; may be called again."""
        if self._writer is not None:
            await self._writer.close()
        await self._upkeep.close()
        self._shelf.table.close()
        self._finished.close()
        held, self._lock = self._lock, None
        if held is not None:
            held.release()

    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Keep records and return their ids in order, once they are durable.

        Args:
            records: At most 1,000, of one call.
            scope: Who stores.
            key: Names the call within its tree: with the same key nothing is added and the same ids come
                back, whatever the records say. A call all of whose records were forgotten stores them anew.

        Raises:
            ValidationError: a record can't be kept as it is.
            MemoryUnwritable: the place refuses; nothing of this call is promised.
            MemoryFailed: the embedder failed, or the store is gone.
        """
        kept = recorded(records, scope, key, time.time_ns() // 1_000_000)
        if kept:
            await self._writing().store(kept, await self._embed(kept), whole=True)
        return [record.id for record in kept]

    async def add(self, records: Sequence[MemoryRecord], vectors: Vectors | None = None) -> list[str]:
        """Keep records as they are, such as those of an export, and return the ids that were not there yet.

        Args:
            records: In created order, at most a few thousand at once.
            vectors: One row for each, from this store's embedder; None = they are made.
        """
        single = {record.id: place for place, record in enumerate(records)}
        fresh = [record_id for record_id in single if record_id not in self._shelf.mirror]
        if not fresh:
            return []
        chosen = [records[single[record_id]] for record_id in fresh]
        made = (
            await self._embed(chosen)
            if vectors is None
            else vectors[[single[record_id] for record_id in fresh]]
        )
        return await self._writing().store(chosen, made, whole=False)

    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[Hit]:
        """Return the records that fit best and may be seen, best first; None as scope sees everything.

        Any text is a query: its words count, whatever stands around them.

        Raises:
            MemoryFailed: the embedder failed, or the store can't be read.
        """
        limit = max(1, min(query.limit, MAX_HITS))
        asked = MemoryQuery(_well_formed(query.text), limit, query.types, query.path, query.min_score)
        return await self._reading(
            lambda: search(self._shelf, self._embedder, asked, scope, self._finished.trees.keys())
        )

    async def get(self, ids: Sequence[str], scope: MemoryScope | None) -> list[MemoryRecord]:
        """Return the records of these ids that may be seen, in the order of the ids."""

        async def read() -> list[MemoryRecord]:
            mirror = self._shelf.mirror
            mask = await in_thread(visible, mirror, scope, self._finished.trees.keys())
            places = [mirror.position(record_id) for record_id in ids]
            seen = [place for place in places if place is not None and place < len(mask) and mask[place]]
            return await self._shelf.records(mirror, np.array(seen, np.intp))

        return await self._reading(read)

    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return the first of the selected records that may be seen, in created order.

        Raises:
            ValueError: the selection has no condition.
        """
        _check(selection)

        async def read() -> list[MemoryRecord]:
            mirror = self._shelf.mirror
            positions = await in_thread(self._selected, selection, scope)
            return await self._shelf.records(mirror, mirror.in_created_order(positions)[:limit])

        return await self._reading(read)

    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove the selected records that may be seen; return their ids. Nothing finds them any more.

        Their texts leave the disk when tidying rewrites the files they lie in, which may be much later; to be
        sure, export, delete the store and import.

        Raises:
            ValueError: the selection has no condition.
            MemoryUnwritable: the place refuses; some may be gone already; a repeated call removes the rest.
        """
        _check(selection)

        async def remove() -> list[str]:
            mirror = self._shelf.mirror
            positions = await in_thread(self._selected, selection, scope)
            await self._shelf.number()
            if len(positions):
                await self._shelf.table.delete(mirror.row_ids(positions))
                mirror.drop(positions)
            return [mirror.ids[position] for position in positions.tolist()]

        return await self._writing().run(remove)

    async def mark_finished(self, tree_id: str, *, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Let a tree's records be seen by later Mains of its agent and workspace; may be repeated."""
        await self.add_finished([FinishedTree(tree_id, agent_id, workspace, ended_at_ms)])

    async def add_finished(self, trees: Sequence[FinishedTree]) -> None:
        """Take in finished trees, such as those of an export; known ones are passed over."""
        if any(tree.tree_id not in self._finished.trees for tree in trees):
            await self._writing().run(lambda: self._finished.add(list(trees)))

    def finished_trees(self) -> list[FinishedTree]:
        """Return the trees whose Main has finished, by time."""
        return sorted(self._finished.trees.values(), key=lambda tree: (tree.ended_at_ms, tree.tree_id))

    def unfinished_trees(self) -> set[str]:
        """Return the ids of trees that have records and no finished Main."""
        return self._shelf.mirror.living_trees() - self._finished.trees.keys()

    async def parts(self, *, vectors: bool = False, at_once: int = _AT_ONCE) -> AsyncIterator[Part]:
        """Yield all records in created order, part by part; those of one moment as they were stored.

        What is stored meanwhile is not among them, what is forgotten meanwhile may be missing.
        """
        await self._reading(self._nothing)
        mirror = self._shelf.mirror
        positions = mirror.in_created_order(np.flatnonzero(mirror.alive()))
        for start in range(0, len(positions), at_once):
            chosen = positions[start : start + at_once]
            if vectors:
                yield Part(*await self._shelf.with_vectors(mirror, chosen))
            else:
                yield Part(await self._shelf.records(mirror, chosen), None)

    async def tidy(self) -> None:
        """Merge files and bring indexes up to date now; the store does so by itself from time to time.

        Raises:
            MemoryFailed: it could not be done.
        """
        await self._upkeep.now()
        if self._upkeep.failure is not None:
            raise self._upkeep.failure

    def _writing(self) -> StoreWriter:
        if self._writer is None or (self._lock is None and directory_of(self._shelf.place) is not None):
            raise MemoryFailed(self._shelf.place, "it was opened for reading only, or is closed")
        return self._writer

    async def _reading(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read what is newest; a reader whose version was pruned under it reads once more."""
        if self._writer is not None:
            return await read()
        try:
            await self._catch_up()
            return await read()
        except MemoryCorrupt:
            await self._catch_up()
            return await read()

    async def _catch_up(self) -> None:
        await self._shelf.catch_up()
        await self._finished.load()

    async def _nothing(self) -> None:
        """Read nothing: only catch up."""

    async def _embed(self, records: Sequence[MemoryRecord]) -> Vectors:
        texts = [record.text for record in records]
        return await in_thread(vectors_of, texts, self._embedder, self._shelf.place)

    def _selected(self, selection: Selection, scope: MemoryScope | None) -> Positions:
        mirror = self._shelf.mirror
        mask: Mask = visible(mirror, scope, self._finished.trees.keys())
        rows = len(mask)
        if selection.ids:
            named = np.zeros(rows, np.bool_)
            places = [mirror.position(record_id) for record_id in selection.ids]
            named[[place for place in places if place is not None and place < rows]] = True
            mask &= named
        if selection.path is not None:
            mask &= at_path(mirror, selection.path, rows)
            mask &= overlapping(mirror, selection.first, selection.last, rows)
        if selection.tree_id is not None:
            mask &= of_tree(mirror, selection.tree_id, rows)
        return np.flatnonzero(mask)

    async def _tidy(self) -> None:
        writer = self._writing()
        await self._shelf.table.optimize()
        await writer.sync()
        await self._shelf.table.prune()
        if len(self._shelf.mirror) > self._shelf.ann_above and self._shelf.mirror.matrix is not None:
            await self._shelf.table.index_vectors()
        await writer.run(self._shelf.tidy)


def _well_formed(text: str) -> str:
    """Return a text that UTF-8 has bytes for: lone halves of surrogate pairs, as of a terminal, replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _check(selection: Selection) -> None:
    """Raise ValueError where nothing is selected by anything: it would mean everything."""
    if not selection.to_wire():
        raise ValueError("name ids, a path or a tree: a selection without a condition is refused")
    if selection.path is None and (selection.first is not None or selection.last is not None):
        raise ValueError("lines are of a path: name it too")
