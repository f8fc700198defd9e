"""When a table is tidied: after many commits, soon after few, never twice at once, and not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryScope, NewRecord
from sessiontree.memory.store import FEW_COMMITS, MANY_COMMITS, LanceMemoryStore, Upkeep
from tests.unit.memory.record_strategies import ToyEmbedder


class Broom:
    """Counts how often it sweeps; each sweep ends when it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.most_at_once = 0
        self.swept = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()
        self.failure: Exception | None = None

    async def __call__(self) -> None:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.swept.set()
        await self.free.wait()
        self.at_once -= 1
        if self.failure is not None:
            raise self.failure


async def test_many_commits_are_tidied_at_once() -> None:
    """The hundredth commit begins it; those that come meanwhile count for the next time."""
    broom = Broom()
    upkeep = Upkeep(broom, "place")
    for _ in range(MANY_COMMITS - 1):
        upkeep.count_commits()
    await asyncio.sleep(0)
    assert broom.begun == 0
    broom.free.clear()
    upkeep.count_commits()
    await broom.swept.wait()
    for _ in range(3 * MANY_COMMITS):
        upkeep.count_commits()
    broom.free.set()
    broom.swept.clear()
    async with asyncio.timeout(60):
        await broom.swept.wait()
    await upkeep.close()
    assert (broom.begun, broom.most_at_once) == (2, 1)


async def test_few_commits_wait_for_rest() -> None:
    """Eight are tidied when nothing is written any more; seven are left."""
    broom = Broom()
    upkeep = Upkeep(broom, "place")
    for _ in range(FEW_COMMITS - 1):
        upkeep.count_commits()
    assert upkeep._timer is None
    upkeep.count_commits()
    assert broom.begun == 0
    async with asyncio.timeout(60):
        await broom.swept.wait()
    await upkeep.close()
    assert broom.begun == 1


@pytest.mark.parametrize(
    "failure", [MemoryFailed("place", "the disk is full", "unwritable"), KeyError("odd")]
)
async def test_failure_is_kept_until_it_works_again(failure: Exception) -> None:
    """What went wrong can be asked for, always as MemoryFailed; the next time may work."""
    broom = Broom()
    upkeep = Upkeep(broom, "place")
    broom.failure = failure
    await upkeep.now()
    assert isinstance(upkeep.failure, MemoryFailed)
    broom.failure = None
    await upkeep.now()
    assert upkeep.failure is None
    await upkeep.close()


async def test_closed_means_still() -> None:
    """Closing waits for what is under way and lets nothing begin."""
    broom = Broom()
    upkeep = Upkeep(broom, "place")
    broom.free.clear()
    for _ in range(MANY_COMMITS):
        upkeep.count_commits()
    await broom.swept.wait()
    closing = asyncio.ensure_future(upkeep.close())
    await asyncio.sleep(0)
    assert not closing.done()
    broom.free.set()
    await closing
    for _ in range(3 * MANY_COMMITS):
        upkeep.count_commits()
    await upkeep.now()
    assert broom.begun == 1


@pytest.mark.slow
async def test_store_stays_tidy_by_itself(tmp_path: Path) -> None:
    """Some stores over a hundred, one after the other, leave less files than that, and soon a few."""
    scope = MemoryScope("t1", "main", "a1", "/w")
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        for n in range(MANY_COMMITS + 30):
            await store.store([NewRecord(f"record {n}")], scope, str(n))
        await store.tidy()
        assert await store._cache.table.count_fragments() < MANY_COMMITS
        await store.tidy()
        assert await store._cache.table.count_fragments() < FEW_COMMITS
        assert store.upkeep_failure is None
        assert len(store) == MANY_COMMITS + 30
