"""The writer in doubt: a write that failed may have been made, and is neither lost nor made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryRecord, MemoryScope
from sessiontree.memory.mirror.table_cache import TableCache
from sessiontree.memory.tables import RecordTable, build_schema, connect
from sessiontree.memory.writer import StoreWriter
from tests.system.house.error_fixtures import has_cause
from tests.unit.memory.record_strategies import ToyEmbedder

SCOPE = MemoryScope("t1", "main", "a1", "/w")
RECORDS = [MemoryRecord(f"{n:032x}", "free", f"text {n}", None, "session", SCOPE, n) for n in range(4)]
VECTORS = ToyEmbedder().embed([record.text for record in RECORDS])


class Deceiving(RecordTable):
    """A table that does what it is asked, and then says that it failed."""

    deceiving = True

    async def add(self, rows: pa.Table) -> int:
        version = await super().add(rows)
        self._deceive()
        return version

    async def delete(self, row_ids: Sequence[int]) -> list[int]:
        versions = await super().delete(row_ids)
        self._deceive()
        return versions

    def _deceive(self) -> None:
        if self.deceiving:
            raise MemoryFailed("place", "the connection was lost", "unwritable")


@pytest.fixture
async def cache(tmp_path: Path) -> TableCache:
    """An empty cache over a table that deceives."""
    table = await Deceiving.create(await connect(str(tmp_path)), str(tmp_path), build_schema("toy-16", 16))
    return TableCache(table, str(tmp_path), "toy-16", 1_000)


async def test_repeated_store_finds_what_the_failed_one_left(cache: TableCache) -> None:
    """Committed and reported as failed: the caller is informed, the repetition adds nothing."""
    commits = []
    writer = StoreWriter(cache, None, None, lambda: commits.append(1))
    with pytest.raises(MemoryFailed, check=has_cause("unwritable"), match="lost"):
        await writer.store(RECORDS, VECTORS, whole=True)
    assert await writer.store(RECORDS, VECTORS, whole=True) == []
    assert len(cache.mirror) == await cache.table.count() == 4
    await writer.close()


async def test_failed_removal_is_known_as_it_was_made(cache: TableCache) -> None:
    """Deleted and reported as failed: what is gone is not shown as if it were there."""
    assert isinstance(cache.table, Deceiving)
    writer = StoreWriter(cache, None, None, lambda: None)
    cache.table.deceiving = False
    await writer.store(RECORDS, VECTORS, whole=True)
    await cache.number()
    cache.table.deceiving = True

    async def remove() -> None:
        await cache.table.delete(cache.mirror.row_ids(cache.mirror.alive().nonzero()[0][:3]))

    with pytest.raises(MemoryFailed, check=has_cause("unwritable")):
        await writer.run(remove)
    cache.table.deceiving = False
    assert await writer.store(RECORDS[3:], VECTORS[3:], whole=True) == []
    assert [record_id for record_id in (r.id for r in RECORDS) if record_id in cache.mirror] == [
        RECORDS[3].id
    ]
    await writer.close()


class Picky(RecordTable):
    """A table that takes nothing together with one record."""

    async def add(self, rows: pa.Table) -> int:
        if RECORDS[2].id in rows["id"].to_pylist():
            raise MemoryFailed("place", "not this one", "unwritable")
        return await super().add(rows)


async def test_one_record_at_fault_keeps_no_other_out(tmp_path: Path) -> None:
    """Of a commit that fails, all calls are stored but the one that makes it fail."""
    table = await Picky.create(await connect(str(tmp_path)), str(tmp_path), build_schema("toy-16", 16))
    cache = TableCache(table, str(tmp_path), "toy-16", 1_000)
    writer = StoreWriter(cache, None, None, lambda: None)
    tasks = [
        asyncio.ensure_future(writer.store([record], VECTORS[n : n + 1], whole=True))
        for n, record in enumerate(RECORDS)
    ]
    await asyncio.wait(tasks)
    assert [task.exception() is None for task in tasks] == [True, True, False, True]
    assert has_cause("unwritable")(tasks[2].exception())
    assert await table.count() == len(cache.mirror) == 3
    await writer.close()


async def test_unexpected_failure_reaches_the_caller(cache: TableCache) -> None:
    """Whatever is raised inside, who waits hears of it as MemoryFailed, and the next is served."""
    writer = StoreWriter(cache, None, None, lambda: None)

    async def stumble() -> None:
        raise KeyError("odd")

    with pytest.raises(MemoryFailed, match=r"unexpectedly \(KeyError"):
        await writer.run(stumble)
    assert await writer.run(cache.table.count) == 0
    await writer.close()
