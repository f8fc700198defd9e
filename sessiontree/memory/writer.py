"""The one writer of a store: what waits is written together, one commit after the other.

Whoever comes while a commit is under way goes into the next one. A commit that fails is tried again in
halves, so that one record at fault keeps no other from being stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sessiontree.contracts.errors import MemoryFailed, MemoryUnwritable, SessionTreeError, words_of
from sessiontree.contracts.memory import MemoryRecord
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.memory.fsync import DurableFolder
from sessiontree.memory.matrix import Vectors
from sessiontree.memory.place import StoreLock
from sessiontree.memory.rows import to_table
from sessiontree.memory.table_cache import Shelf

_MOST_ROWS = 5_000
"""Of one commit."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Store:
    """Records of one call."""

    records: Sequence[MemoryRecord]
    vectors: Vectors
    whole: bool
    """Stored by a call that is all there or not at all: one known id means it was made before."""
    done: asyncio.Future[list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class _Errand:
    """Something else that must not overlap with a commit."""

    run: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]


_Item: TypeAlias = _Store | _Errand


class StoreWriter:
    """Writes for whoever calls, in the order of the calls.

    Args:
        shelf: What is written to.
        lock: Of a local store; None where the caller sees to it that nobody else writes.
        durable: Of a local store; None where a commit that returns is durable.
        wrote: Called after each commit.
    """

    def __init__(
        self,
        shelf: Shelf,
        lock: StoreLock | None,
        durable: DurableFolder | None,
        wrote: Callable[[], None],
    ) -> None:
        self._shelf = shelf
        self._lock = lock
        self._durable = durable
        self._wrote = wrote
        self._waiting: deque[_Item] = deque()
        self._task: asyncio.Task[None] | None = None
        self._syncing = asyncio.Lock()
        self._in_doubt = False
        self._broken: MemoryUnwritable | None = None

    async def store(self, records: Sequence[MemoryRecord], vectors: Vectors, *, whole: bool) -> list[str]:
        """Return once the records are durable; those that were stored before are passed over.

        Args:
            records: Of one call.
            vectors: One row for each.
            whole: Pass over all where one was stored before.

        Returns:
            The ids that were added.
        """
        done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._put(_Store(records, vectors, whole, done))
        return await done

    async def run(self, errand: Callable[[], Awaitable[T]]) -> T:
        """Run something between two commits and return what it returns."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._put(_Errand(errand, done))
        return await done

    async def sync(self) -> None:
        """Send what LanceDB wrote to the disk.

        Raises:
            MemoryUnwritable: it refuses; nothing is written any more, since what it lost is not known.
        """
        if self._durable is None:
            return
        async with self._syncing:
            try:
                await in_thread(self._durable.sync)
            except OSError as error:
                self._broken = MemoryUnwritable(
                    self._shelf.place, f"the disk failed ({error}); free the cause and open it again"
                )
                raise self._broken from error

    async def close(self) -> None:
        """Return once everything that waited is written."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _put(self, item: _Item) -> None:
        self._waiting.append(item)
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="memory-writer")

    async def _work(self) -> None:
        try:
            while self._waiting:
                item = self._waiting.popleft()
                if isinstance(item, _Errand):
                    await self._carry_out(item)
                else:
                    await self._commit([item, *self._more(len(item.records))])
                self._wrote()
        finally:
            self._task = None

    def _more(self, rows: int) -> Iterable[_Store]:
        """Yield the stores that wait next and fit into the same commit."""
        while self._waiting:
            item = self._waiting[0]
            if not isinstance(item, _Store) or rows + len(item.records) > _MOST_ROWS:
                return
            rows += len(item.records)
            self._waiting.popleft()
            yield item

    async def _carry_out(self, errand: _Errand) -> None:
        try:
            await self._make_sure()
            result = await errand.run()
            await self.sync()
        except Exception as error:  # noqa: BLE001 - the writer's edge: who waits must hear of it
            self._in_doubt = True
            _fail([errand], error)
        else:
            _tell(errand.done, result)

    async def _commit(self, stores: Sequence[_Store]) -> None:
        try:
            added = await self._write(stores)
        except Exception as error:  # noqa: BLE001 - the writer's edge: who waits must hear of it
            self._in_doubt = True
            if len(stores) == 1 or self._broken is not None:
                _fail(stores, error)
                return
            half = len(stores) // 2
            await self._commit(stores[:half])
            await self._commit(stores[half:])
        else:
            for store, ids in zip(stores, added, strict=True):
                _tell(store.done, ids)

    async def _write(self, stores: Sequence[_Store]) -> list[list[str]]:
        """Add what is not there yet in one commit; return the new ids of each."""
        await self._make_sure()
        taken: set[str] = set()
        added: list[list[str]] = []
        records: list[MemoryRecord] = []
        vectors: list[Vectors] = []
        for store in stores:
            fresh = [
                place
                for place, record in enumerate(store.records)
                if record.id not in taken and record.id not in self._shelf.mirror
            ]
            if store.whole and len(fresh) < len(store.records):
                fresh = []
            chosen = [store.records[place] for place in fresh]
            taken.update(record.id for record in chosen)
            added.append([record.id for record in chosen])
            records += chosen
            vectors.append(store.vectors[fresh])
        if records:
            joined = np.concatenate(vectors)
            await self._shelf.table.add(await in_thread(to_table, records, joined, self._shelf.table.schema))
            await self.sync()
            self._shelf.mirror.append(records, joined)
        return added

    async def _make_sure(self) -> None:
        """Raise where nothing may be written; where the last write failed, find out what it left."""
        if self._broken is not None:
            raise self._broken
        if self._lock is not None:
            self._lock.check()
        if self._in_doubt:
            await self.sync()
            await self._shelf.catch_up(surely=True)
            self._in_doubt = False


def _tell(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(items: Sequence[_Item], error: Exception) -> None:
    """Let everyone who waits fail, each with an error of its own."""
    for item in items:
        if not item.done.done():
            item.done.set_exception(_own(error))


def _own(error: Exception) -> SessionTreeError:
    if isinstance(error, SessionTreeError):
        return type(error)(*error.args)
    return MemoryFailed("store", f"a write failed unexpectedly ({words_of(error)})")
