"""The store: records in LanceDB tables, written by one process and compacted from time to time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self

from sessiontree.contracts.errors import MemoryFailed, describe_error
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.values.memory import MemoryRecord, MemoryScope, NewRecord, Selection
from sessiontree.memory.embedders import Embedder
from sessiontree.memory.mirror.table_cache import TableCache
from sessiontree.memory.place import DurableFolder, StoreLock, VersionFolder, resolve_directory
from sessiontree.memory.search import embed_texts
from sessiontree.memory.store_reader import StoreReader, check_selection
from sessiontree.memory.tables import FinishedTree, FinishedTrees, RecordTable, Vectors, build_schema, connect
from sessiontree.memory.writer import StoreWriter, to_records

MANY_COMMITS: Final = 100
"""From this many on, they are merged at once."""
FEW_COMMITS: Final = 8
"""From this many on, they are merged when the store is idle."""
IDLE_S: Final = 0.25
"""The store is idle after so long without a commit."""
SOME_COMMITS: Final = 24
"""From this many on, they slow a search noticeably."""
_BREAK: Final = 10
"""After merging few commits the pause is this many times as long as the merge took."""
_COMMIT_S: Final = 0.004
"""The approximate cost of a commit."""


class Upkeep:
    """Decides when to tidy the table, and tidies it in the background.

    Args:
        tidy: Tidies the table.
        place: Path or address of the store, for errors.
    """

    def __init__(self, tidy: Callable[[], Awaitable[None]], place: str) -> None:
        self._tidy = tidy
        self._place = place
        self._commits = 0
        self._cost_s = 0.0
        self._ended_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.failure: MemoryFailed | None = None
        """Why the last tidying failed; None if it succeeded."""

    def count_commits(self, commits: int = 1) -> None:
        """Count commits. Call it on the event loop."""
        self._commits += commits
        if self._closed or self._task is not None:
            return
        # A tidying that costs as much as many commits waits for as many, so it takes at most half of the
        # time.
        if self._commits >= max(MANY_COMMITS, self._cost_s / _COMMIT_S):
            self._begin()
        elif self._commits >= FEW_COMMITS:
            self._begin_when_idle()

    async def now(self) -> None:
        """Tidy now, or wait for the tidying that is under way."""
        if self._task is None:
            self._begin()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Return once the tidying under way has ended; begin no other."""
        self._closed = True
        self._forget_timer()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin_when_idle(self) -> None:
        """Tidy after ``IDLE_S`` without a commit, but leave a pause after the last tidying."""
        self._forget_timer()
        loop = asyncio.get_running_loop()
        pause_s = self._cost_s * (_BREAK if self._commits < SOME_COMMITS else 1)
        earliest_s = self._ended_at + pause_s - time.monotonic()
        self._timer = loop.call_later(max(IDLE_S, earliest_s), self._begin)

    def _begin(self) -> None:
        self._forget_timer()
        if not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memory-upkeep")

    async def _run(self) -> None:
        began, commits = time.monotonic(), self._commits
        try:
            await self._tidy()
            self.failure = None
        except MemoryFailed as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - nobody awaits the task; doctor and `tidy` report it
            self.failure = MemoryFailed(self._place, f"tidying failed unexpectedly ({describe_error(error)})")
        finally:
            self._ended_at = time.monotonic()
            self._cost_s = self._ended_at - began
            # Commits that came during the tidying may not be merged yet, so they stay counted.
            self._commits -= commits
            self._task = None
        if self._commits:
            self.count_commits(0)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_VECTORS_BYTES: Final = 512 * 2**20
"""The default limit of the memory that vectors take."""


class LanceMemoryStore(StoreReader):
    """A store of records. :meth:`open` makes one, :meth:`close` ends it.

    It belongs to one event loop. Records for which :meth:`store` returned survive a kill, and on a local disk
    also a power failure.
    """

    def __init__(
        self,
        cache: TableCache,
        finished: FinishedTrees,
        embedder: Embedder,
        writer: StoreWriter | None,
        lock: StoreLock | None,
    ) -> None:
        self._cache = cache
        self._finished = finished
        self._embedder = embedder
        self._writer = writer
        self._lock = lock
        self._upkeep = Upkeep(self._tidy, cache.place)

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
        """Open a store; with ``lock``, make it if it does not exist.

        Args:
            uri: A directory, or an address of LanceDB such as ``s3://bucket/memory``. If the store is on the
                network, the caller ensures that only one process writes it.
            embedder: Turns texts into vectors; the same one that made the store's vectors.
            lock: Write as the only process; False = only read, next to a process that writes.
            ann_above: With more records than this, searches use an approximate index of LanceDB instead of
                exact vectors in memory; None = as many as have 512 MiB of vectors.
            storage_options: What LanceDB needs to reach an address.

        Raises:
            MemoryFailed: another process writes the store.
            MemoryFailed: another embedder made its vectors.
            MemoryFailed: its files are damaged, or some are gone.
            MemoryFailed: it cannot be made.
            MemoryFailed: the store does not exist.
        """
        directory = resolve_directory(uri)
        held = StoreLock(directory) if lock and directory is not None else None
        try:
            connection = await connect(uri, storage_options)
            table = await RecordTable.open(connection, uri)
            finished = await FinishedTrees.open(connection, uri, create=False)
            # Finished trees without a table of records mean that it was lost; an empty one would hide that.
            if table is None and (not lock or finished.trees):
                raise MemoryFailed(
                    uri, "the table of records is missing; check the place", "corrupt" if lock else "other"
                )
            if table is None:
                schema = build_schema(embedder.identity, embedder.dimensions)
                table = await RecordTable.create(connection, uri, schema)
            limit = _VECTORS_BYTES // (4 * embedder.dimensions) if ann_above is None else ann_above
            versions = None if directory is None else VersionFolder(table.folder(directory), held)
            read_newest = None if versions is None else versions.read_newest
            cache = TableCache(table, uri, embedder.identity, limit, read_newest)
            cache.check()
            if lock:
                await table.index_text()
                finished = await FinishedTrees.open(connection, uri, create=True)
            await cache.load()
        except BaseException:
            if held is not None:
                held.release()
            raise
        store = cls(cache, finished, embedder, None, held)
        if lock:
            durable = None if directory is None else DurableFolder(table.folder(directory))
            cache.builds_words = True
            store._writer = StoreWriter(cache, held, durable, store._upkeep.count_commits)
            store._upkeep.count_commits(await table.count_fragments())
        return store

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    @property
    def upkeep_failure(self) -> MemoryFailed | None:
        """Why the last tidying failed, or None. Searches get slower until it succeeds."""
        return self._upkeep.failure

    async def close(self) -> None:
        """Write what waits, end the tidying, and release the lock; may be called again."""
        if self._writer is not None:
            # The writer ends first, because its commits may begin a tidying; the lock goes last, because
            # until then both may still write.
            await self._writer.close()
        await self._upkeep.close()
        self._cache.close()
        self._finished.close()
        held, self._lock = self._lock, None
        if held is not None:
            held.release()

    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Store records and return their ids in order, once they are durable.

        Args:
            records: The records of one call, at most 1,000.
            scope: Who stores them.
            key: Identifies the call within its tree. A second call with the key adds nothing and returns the
                same ids, whatever its records are, unless all records of the first were forgotten.

        Raises:
            ValidationError: a record is not valid.
            MemoryFailed: the store cannot be written; some records of this call may be stored.
            MemoryFailed: the embedder failed, or the store is gone.
        """
        kept = to_records(records, scope, key, time.time_ns() // 1_000_000)
        if kept:
            await self._writing().store(kept, await self._embed(kept), whole=True)
        return [record.id for record in kept]

    async def add(self, records: Sequence[MemoryRecord], vectors: Vectors | None = None) -> list[str]:
        """Store complete records, such as those of an export, and return the ids that were added.

        Args:
            records: In created order, at most a few thousand.
            vectors: One row for each record, from this store's embedder; None = embed the texts.
        """
        single = {record.id: place for place, record in enumerate(records)}
        fresh = [record_id for record_id in single if record_id not in self._cache.mirror]
        if not fresh:
            return []
        chosen = [records[single[record_id]] for record_id in fresh]
        made = (
            await self._embed(chosen)
            if vectors is None
            else vectors[[single[record_id] for record_id in fresh]]
        )
        return await self._writing().store(chosen, made, whole=False)

    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove the selected records that the scope may see; return their ids. No search finds them again.

        Their texts leave the disk when tidying rewrites the files that hold them, which may be much later. To
        remove them at once, export, delete the store and import.

        Raises:
            ValueError: the selection has no condition.
            MemoryFailed: the store cannot be written; some records may be removed, and a repeated call
                removes the rest.
        """
        check_selection(selection)

        async def remove() -> list[str]:
            mirror = self._cache.mirror
            # Chosen in the writer's turn: no commit adds or moves rows between the choice and the removal.
            positions = await run_in_thread(self._select, selection, scope)
            await self._cache.number()
            if len(positions):
                versions = await self._cache.table.delete(mirror.row_ids(positions))
                mirror.drop(positions)
                self._cache.note_commits(versions)
            return [mirror.ids[position] for position in positions.tolist()]

        return await self._writing().run(remove)

    async def mark_finished(self, tree_id: str, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Let later Mains of the same agent and workspace see a tree's records; may be repeated."""
        await self.add_finished([FinishedTree(tree_id, agent_id, workspace, ended_at_ms)])

    async def add_finished(self, trees: Sequence[FinishedTree]) -> None:
        """Add finished trees, such as those of an export; known ones are ignored."""
        if any(tree.tree_id not in self._finished.trees for tree in trees):
            await self._writing().run(lambda: self._finished.add(list(trees)))

    async def forget_tree(self, tree_id: str) -> list[str]:
        """Remove all records of a tree and its entry as a finished tree; return the ids of the records.

        Raises:
            MemoryFailed: the store cannot be written; some records may be removed, and a repeated call
                removes the rest.
        """
        forgotten = await self.forget(Selection(tree_id=tree_id), None)
        await self._writing().run(lambda: self._finished.remove(tree_id))
        await self.tidy()
        return forgotten

    async def tidy(self) -> None:
        """Merge files and update indexes now; the store also does so by itself from time to time.

        Raises:
            MemoryFailed: tidying failed.
        """
        await self._upkeep.now()
        if self._upkeep.failure is not None:
            raise self._upkeep.failure

    def _writing(self) -> StoreWriter:
        if self._writer is None or (self._lock is None and resolve_directory(self._cache.place) is not None):
            raise MemoryFailed(
                self._cache.place, "can't write: the store is closed, or open only for reading; open it again"
            )
        return self._writer

    async def _embed(self, records: Sequence[MemoryRecord]) -> Vectors:
        texts = [record.text for record in records]
        return await run_in_thread(embed_texts, texts, self._embedder, self._cache.place)

    async def _tidy(self) -> None:
        writer = self._writing()
        # LanceDB refuses to rewrite what another process has changed since this one saw it.
        await self._cache.table.catch_up()
        await self._cache.table.optimize()
        # Before old versions are pruned the newest must be on the disk: after a power failure no other is
        # left.
        await writer.sync()
        await self._cache.table.prune()
        if len(self._cache.mirror) > self._cache.ann_above and self._cache.mirror.matrix is not None:
            await self._cache.table.index_vectors()
        # In the writer's turn: rows that a commit appends to the old mirror meanwhile would miss in the new
        # one.
        await writer.run(self._cache.tidy)
