"""The feed of a tree gives every fact once, in order, to whoever follows it, whenever it begins."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from sessiontree.api.runtime.backend import READ_AT_ONCE
from sessiontree.doors.journal_feed import JournalFeed
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.supervisor_api import SupervisorApi


class GrowingJournal:
    """A journal that gets facts while it is read; a read lets other tasks run, as that of a real one does."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.reads = 0
        self._news = asyncio.Event()

    def grow(self, count: int) -> None:
        """Add facts."""
        for _ in range(count):
            seq = len(self.records) + 1
            self.records.append(JournalRecord(seq, "main", "cause", 10 * seq, "{}"))
        self._news.set()

    async def read(self, _: str, after_seq: int, max_n: int, wait_s: float) -> list[JournalRecord]:
        """Return facts after a number; wait for the first if asked to."""
        self.reads += 1
        await asyncio.sleep(0)
        while wait_s and len(self.records) <= after_seq:
            self._news.clear()
            await self._news.wait()
        return self.records[after_seq : after_seq + max_n]


@pytest.fixture
def journal() -> GrowingJournal:
    """An empty journal."""
    return GrowingJournal()


@pytest.fixture
def feed(journal: GrowingJournal) -> JournalFeed:
    """The feed of its tree."""
    return JournalFeed(cast(SupervisorApi, cast(Any, journal)), "t")


@pytest.mark.parametrize("seed", range(30))
async def test_each_follower_gets_each_fact_once_and_in_order(
    journal: GrowingJournal, feed: JournalFeed, seed: int
) -> None:
    """Several read, wait and begin to follow at the same time, while the journal grows."""
    lots = random.Random(seed)
    heard: list[list[int]] = [[] for _ in range(3)]
    takes = [lambda record, own=own: own.append(record.seq) for own in heard]

    async def follow(number: int) -> None:
        for _ in range(lots.randrange(4)):
            await asyncio.sleep(0)
        while True:
            await feed.read(takes[number])
            if feed.cursor >= 60:
                return
            await feed.wait()

    async with asyncio.timeout(30.0), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(follow(number))
        while len(journal.records) < 60:
            journal.grow(lots.randrange(1, 8))
            await asyncio.sleep(0)
    for take in takes:
        await feed.read(take)
    seqs = [record.seq for record in journal.records]
    assert heard == [seqs] * 3
    assert feed.changed_ms == 10 * len(seqs)


async def test_more_facts_than_one_read_gives_are_all_given(
    journal: GrowingJournal, feed: JournalFeed
) -> None:
    """A long conversation is read in parts, also by one who begins to follow late."""
    journal.grow(2 * READ_AT_ONCE + 1)
    first: list[int] = []
    late: list[int] = []
    await feed.read(lambda record: first.append(record.seq))
    await feed.read(lambda record: late.append(record.seq))
    assert first == late == [record.seq for record in journal.records]


async def test_what_was_waited_for_is_not_read_again(journal: GrowingJournal, feed: JournalFeed) -> None:
    """News costs one read of the journal, for all that follow it."""
    heard: list[int] = []
    for _ in range(2):
        await feed.read(lambda record: heard.append(record.seq))
    before = journal.reads
    journal.grow(1)
    await feed.wait()
    assert (heard, journal.reads - before) == ([1, 1], 1)
