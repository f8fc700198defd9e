"""The writer in doubt: a write that failed may have been made, and is neither lost nor made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sessiontree.contracts.errors import MemoryFailed, MemoryUnwritable
from sessiontree.contracts.memory import MemoryRecord, MemoryScope
from sessiontree.memory.rows import schema_of
from sessiontree.memory.table import RecordTable, connect
from sessiontree.memory.table_cache import Shelf
from sessiontree.memory.writer import StoreWriter
from tests.memory.words import ToyEmbedder

SCOPE = MemoryScope("t1", "main", "a1", "/w")
RECORDS = [MemoryRecord(f"{n:032x}", "free", f"text {n}", None, "session", SCOPE, n) for n in range(4)]
VECTORS = ToyEmbedder().embed([record.text for record in RECORDS])


class Deceiving(RecordTable):
    """A table that does what it is told, and then says that it failed."""

    deceiving = True

    async def add(self, rows: pa.Table) -> None:
        await super().add(rows)
        self._deceive()

    async def delete(self, row_ids: Sequence[int]) -> None:
        await super().delete(row_ids)
        self._deceive()

    def _deceive(self) -> None:
        if self.deceiving:
            raise MemoryUnwritable("place", "the connection was lost")


@pytest.fixture
async def shelf(tmp_path: Path) -> Shelf:
    """An empty shelf over a table that deceives."""
    table = await Deceiving.create(await connect(str(tmp_path)), str(tmp_path), schema_of("toy-16", 16))
    return Shelf(table, str(tmp_path), "toy-16", 1_000)


async def test_repeated_store_finds_what_the_failed_one_left(shelf: Shelf) -> None:
    """Committed and reported as failed: the caller is told so, the repetition adds nothing."""
    commits = []
    writer = StoreWriter(shelf, None, None, lambda: commits.append(1))
    with pytest.raises(MemoryUnwritable, match="lost"):
        await writer.store(RECORDS, VECTORS, whole=True)
    assert await writer.store(RECORDS, VECTORS, whole=True) == []
    assert len(shelf.mirror) == await shelf.table.count() == 4
    await writer.close()


async def test_failed_removal_is_known_as_it_was_made(shelf: Shelf) -> None:
    """Deleted and reported as failed: what is gone is not shown as if it were there."""
    assert isinstance(shelf.table, Deceiving)
    writer = StoreWriter(shelf, None, None, lambda: None)
    shelf.table.deceiving = False
    await writer.store(RECORDS, VECTORS, whole=True)
    await shelf.number()
    shelf.table.deceiving = True

    async def remove() -> None:
        await shelf.table.delete(shelf.mirror.row_ids(shelf.mirror.alive().nonzero()[0][:3]))

    with pytest.raises(MemoryUnwritable):
        await writer.run(remove)
    shelf.table.deceiving = False
    assert await writer.store(RECORDS[3:], VECTORS[3:], whole=True) == []
    assert [record_id for record_id in (r.id for r in RECORDS) if record_id in shelf.mirror] == [
        RECORDS[3].id
    ]
    await writer.close()


class Picky(RecordTable):
    """A table that takes nothing together with one record."""

    async def add(self, rows: pa.Table) -> None:
        if RECORDS[2].id in rows["id"].to_pylist():
            raise MemoryUnwritable("place", "not this one")
        await super().add(rows)


async def test_one_record_at_fault_keeps_no_other_out(tmp_path: Path) -> None:
    """Of a commit that fails, all calls are stored but the one that makes it fail."""
    table = await Picky.create(await connect(str(tmp_path)), str(tmp_path), schema_of("toy-16", 16))
    shelf = Shelf(table, str(tmp_path), "toy-16", 1_000)
    writer = StoreWriter(shelf, None, None, lambda: None)
    tasks = [
        asyncio.ensure_future(writer.store([record], VECTORS[n : n + 1], whole=True))
        for n, record in enumerate(RECORDS)
    ]
    await asyncio.wait(tasks)
    assert [task.exception() is None for task in tasks] == [True, True, False, True]
    assert isinstance(tasks[2].exception(), MemoryUnwritable)
    assert await table.count() == len(shelf.mirror) == 3
    await writer.close()


async def test_unexpected_failure_reaches_the_caller(shelf: Shelf) -> None:
    """Whatever is raised inside, who waits hears of it as MemoryFailed, and the next is served."""
    writer = StoreWriter(shelf, None, None, lambda: None)

    async def stumble() -> None:
        raise KeyError("odd")

    with pytest.raises(MemoryFailed, match=r"unexpectedly \(KeyError"):
        await writer.run(stumble)
    assert await writer.run(shelf.table.count) == 0
    await writer.close()
