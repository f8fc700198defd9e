"""Writing records: each gets an id and a time, and calls are committed in batches."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sessiontree.contracts.errors import MemoryFailed, SessionTreeError, ValidationError, describe_error
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.values.memory import (
    MAX_SOURCE_CHARS,
    MAX_STORED_AT_ONCE,
    MAX_TEXT_CHARS,
    RECORD_TYPES,
    TRUSTS,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Source,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.mirror.table_cache import TableCache
from sessiontree.memory.place import DurableFolder, StoreLock
from sessiontree.memory.tables import Vectors, to_table

_ID_BYTES = 16


def record_id(tree_id: str, key: str, index: int) -> str:
    """Return the id of one record of a call, 32 hex digits."""
    # A resumed tree may repeat a call that was stored before the crash: equal ids make it add nothing.
    named = json.dumps([tree_id, key, index]).encode("ascii")
    return hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()


def to_records(records: Sequence[NewRecord], scope: MemoryScope, key: str, at_ms: int) -> list[MemoryRecord]:
    """Return the records of one call as they are stored, in its order.

    Raises:
        ValidationError: there are too many, or one has an invalid text, type, trust or source.
    """
    if len(records) > MAX_STORED_AT_ONCE:
        raise ValidationError(
            f"can't store {len(records)} records with one call; store at most {MAX_STORED_AT_ONCE}",
            "/records",
        )
    return [
        MemoryRecord(
            record_id(scope.tree_id, key, index),
            record.type,
            _check_text(record, index),
            _check_source(record, index),
            record.trust,
            scope,
            at_ms,
        )
        for index, record in enumerate(records)
        if _check_words(record, index)
    ]


def _check_text(record: NewRecord, index: int) -> str:
    if not 1 <= len(record.text) <= MAX_TEXT_CHARS:
        raise ValidationError(
            f"the text of a record has 1 to {MAX_TEXT_CHARS} characters, and this one has {len(record.text)}",
            f"/records/{index}/text",
        )
    return _check_utf8(record.text, f"/records/{index}/text")


def _check_source(record: NewRecord, index: int) -> str | None:
    if record.source is None:
        return None
    field = f"/records/{index}/source"
    if len(record.source) > MAX_SOURCE_CHARS:
        raise ValidationError(
            f"a source has at most {MAX_SOURCE_CHARS} characters, and this one has {len(record.source)}",
            field,
        )
    try:
        return str(Source.of(_check_utf8(record.source, field)))
    except ValueError as error:
        raise ValidationError(str(error), field) from error


def _check_words(record: NewRecord, index: int) -> bool:
    if record.type not in RECORD_TYPES:
        raise ValidationError(
            f"no record type is named {record.type!r}; choose one of {', '.join(RECORD_TYPES)}",
            f"/records/{index}/type",
        )
    if record.trust not in TRUSTS:
        raise ValidationError(
            f"no trust is named {record.trust!r}; choose one of {', '.join(TRUSTS)}",
            f"/records/{index}/trust",
        )
    return True


def _check_utf8(text: str, field: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"character {error.start + 1} is half of a surrogate pair; remove it or complete the pair",
            field,
        ) from error
    return text


_MAX_ROWS = 5_000
"""The limit of one commit."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Store:
    """Records of one call."""

    records: Sequence[MemoryRecord]
    vectors: Vectors
    whole: bool
    """Whether the call is stored completely or not at all; then one known id means that it was stored."""
    done: asyncio.Future[list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class _WriteTask:
    """Another action that must not overlap with a commit."""

    run: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]


_Item: TypeAlias = _Store | _WriteTask


class StoreWriter:
    """Commits the calls of all callers, in the order of the calls.

    Args:
        cache: The table and its mirror.
        lock: The lock of a local store; None if the caller ensures that nobody else writes.
        durable: The files of a local store; None if a commit that returns is durable.
        wrote: Called after each commit.
    """

    def __init__(
        self,
        cache: TableCache,
        lock: StoreLock | None,
        durable: DurableFolder | None,
        wrote: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._lock = lock
        self._durable = durable
        self._wrote = wrote
        self._waiting: deque[_Item] = deque()
        self._task: asyncio.Task[None] | None = None
        self._syncing = asyncio.Lock()
        self._in_doubt = False
        self._broken: MemoryFailed | None = None

    async def store(self, records: Sequence[MemoryRecord], vectors: Vectors, *, whole: bool) -> list[str]:
        """Store records and return once they are durable; records that are already stored are skipped.

        Args:
            records: The records of one call.
            vectors: One row for each record.
            whole: Skip all records if one of them is already stored.

        Returns:
            The ids that were added.
        """
        done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._put(_Store(records, vectors, whole, done))
        return await done

    async def run(self, action: Callable[[], Awaitable[T]]) -> T:
        """Run something between two commits and return its result."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._put(_WriteTask(action, done))
        return await done

    async def sync(self) -> None:
        """Write the files of LanceDB through to the disk.

        Raises:
            MemoryFailed: the disk failed. Nothing is written after that, because it is not known which
                writes are lost.
        """
        if self._durable is None:
            return
        async with self._syncing:
            try:
                await run_in_thread(self._durable.sync)
            except OSError as error:
                self._broken = MemoryFailed(
                    self._cache.place,
                    f"the disk failed ({error}); remove the cause and open it again",
                    "unwritable",
                )
                raise self._broken from error

    async def close(self) -> None:
        """Return once everything that waits is written."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _put(self, item: _Item) -> None:
        self._waiting.append(item)
        if self._task is None:
            self._task = asyncio.create_task(self._process_queue(), name="memory-writer")

    async def _process_queue(self) -> None:
        try:
            while self._waiting:
                item = self._waiting.popleft()
                if isinstance(item, _WriteTask):
                    await self._carry_out(item)
                else:
                    await self._commit([item, *self._take_more(len(item.records))])
                self._wrote()
        finally:
            # Between the last look at the queue and this line nothing is awaited, so no call is left without
            # a task.
            self._task = None

    def _take_more(self, rows: int) -> Iterable[_Store]:
        """Yield the calls that wait next and fit into the same commit."""
        while self._waiting:
            item = self._waiting[0]
            if not isinstance(item, _Store) or rows + len(item.records) > _MAX_ROWS:
                return
            rows += len(item.records)
            self._waiting.popleft()
            yield item

    async def _carry_out(self, task: _WriteTask) -> None:
        try:
            await self._check_writable()
            result = await task.run()
            await self.sync()
        except Exception as error:  # noqa: BLE001 - the edge of the writer: the caller gets the error
            self._in_doubt = True
            _fail([task], error)
        else:
            _resolve(task.done, result)

    async def _commit(self, stores: Sequence[_Store]) -> None:
        try:
            added = await self._write(stores)
        except Exception as error:  # noqa: BLE001 - the edge of the writer: the callers get the error
            self._in_doubt = True
            if len(stores) == 1 or self._broken is not None:
                _fail(stores, error)
                return
            # One bad call must not fail those that share its commit: each half is tried by itself. What the
            # failed commit did write is found by `_check_writable` and skipped.
            half = len(stores) // 2
            await self._commit(stores[:half])
            await self._commit(stores[half:])
        else:
            for store, ids in zip(stores, added, strict=True):
                _resolve(store.done, ids)

    async def _write(self, stores: Sequence[_Store]) -> list[list[str]]:
        """Add the records that are not stored yet, in one commit; return the new ids of each call."""
        await self._check_writable()
        taken: set[str] = set()
        added: list[list[str]] = []
        records: list[MemoryRecord] = []
        vectors: list[Vectors] = []
        for store in stores:
            fresh = [
                place
                for place, record in enumerate(store.records)
                if record.id not in taken and record.id not in self._cache.mirror
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
            rows = await run_in_thread(to_table, records, joined, self._cache.table.schema)
            version = await self._cache.table.add(rows)
            await self.sync()
            # After the sync: no search may find what a power failure could still take back.
            self._cache.mirror.append(records, joined)
            self._cache.note_commits([version])
        return added

    async def _check_writable(self) -> None:
        """Raise if nothing may be written; after a failed write, find out first what it left."""
        if self._broken is not None:
            raise self._broken
        if self._lock is not None:
            self._lock.check()
        if self._in_doubt:
            # A write that raised may have reached the table. Until both are compared, a second try could
            # store its records twice.
            await self.sync()
            await self._cache.catch_up(surely=True)
            self._in_doubt = False


def _resolve(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(items: Sequence[_Item], error: Exception) -> None:
    """Raise the error for every caller that waits, each with a copy of its own."""
    for item in items:
        if not item.done.done():
            item.done.set_exception(_copy_error(error))


def _copy_error(error: Exception) -> SessionTreeError:
    if isinstance(error, SessionTreeError):
        return type(error)(*error.args)
    return MemoryFailed("store", f"a write failed unexpectedly ({describe_error(error)})")
