"""Where a tree can be forked: at the end of what was written together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sessiontree import FunctionModel, SessionTree
from sessiontree.contracts.errors import ConfigError
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.replay.tree_fork import Identity, find_fork_point, group_around
from sessiontree.runtime.supervisor.supervisor import Supervisor
from tests.unit.runtime.runtime_fakes import FaultyRuntime

FACTS = [
    # session, cause, time
    ("", "created", 1),
    ("", "created", 1),
    ("main", "adopted", 2),
    ("main", "message:a", 3),
    ("", "adopted", 4),
    ("", "clock", 5),
    ("", "clock", 6),
    ("main/b1", "decision:r", 7),
    ("", "decision:r", 7),
    ("main/b1", "model:1", 8),
    ("main/b2", "model:1", 9),
    ("main/b2", "call:1.0", 9),
    ("main/b3 intends", "model:1", 9),
    ("", "model:1", 9),
]


def _record(seq: int, session: str, cause: str, at_ms: int) -> JournalRecord:
    name, _, intends = session.partition(" ")
    return JournalRecord(seq, name, cause, at_ms, f'{{"kind":"{"call_intended" if intends else "tainted"}"}}')


RECORDS = [_record(seq, *fact) for seq, fact in enumerate(FACTS, 1)]
GROUPS = [(1, 2), (3, 5), (6, 6), (7, 7), (8, 9), (10, 10), (11, 14)]


@pytest.mark.parametrize("at", range(1, len(RECORDS) + 1))
def test_group_is_what_was_written_together(at: int) -> None:
    """A session's facts, then the tree's with the cause of the first; an intent belongs to its decision."""
    begin, end = next(group for group in GROUPS if group[0] <= at <= group[1])
    assert group_around(RECORDS, at) == (begin, end)
    if at == end:
        assert find_fork_point("t", RECORDS, at) == at
        return
    with pytest.raises(ConfigError, match=f"fork at {f'{begin - 1} or ' if begin > 1 else ''}{end}"):
        find_fork_point("t", RECORDS, at)


def test_newest_fact_is_taken_where_none_is_named() -> None:
    """None is the end, whatever it is."""
    assert find_fork_point("t", RECORDS, None) == len(RECORDS)


@dataclass(frozen=True, slots=True)
class HeldDisk:
    """A tree whose supervisor's writer waits until it may go on."""

    tree: SessionTree
    supervisor: Supervisor
    free: threading.Event
    """Lets it go on."""
    done: asyncio.Task[None]
    """Ends when it has gone on."""
    in_time: list[bool]
    """Whether it went on before it gave up."""

    async def asked(self, forking: asyncio.Task[object]) -> None:
        """Wait until the writer has been given a fork, or the fork has ended."""
        appender = self.supervisor.journal._appender
        assert appender is not None
        while not (appender._writer._queue.qsize() or forking.done()):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[HeldDisk]:
    """A tree with one answer, and a disk that does not answer."""
    free, reached = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def hold(_: object) -> None:
        reached.set()
        in_time.append(free.wait(10.0))

    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(tmp_path, model=FunctionModel(lambda _: "fine"), runtime=runtime) as tree,
    ):
        await tree.main.send("hello")
        supervisor = runtime.local.core
        appender = supervisor.journal._appender
        assert appender is not None
        holding = asyncio.create_task(asyncio.to_thread(appender._writer.do, hold))
        assert await asyncio.to_thread(reached.wait, 30.0)
        yield HeldDisk(tree, supervisor, free, holding, in_time)


async def test_other_trees_go_on_while_a_fork_is_written(held: HeldDisk) -> None:
    """The supervisor's loop does not wait for the disk."""
    new = Identity("t" + 16 * "0", 32 * "a", 1)
    forking = asyncio.create_task(held.supervisor.fork(held.tree.tree_id, None, new))
    await held.asked(forking)
    held.free.set()
    await forking
    await held.done
    assert held.in_time == [True]
    journal = held.supervisor.journal
    assert journal.last_seq(new.tree_id) > journal.last_seq(held.tree.tree_id)


async def test_repeated_request_for_a_fork_waits_for_the_first(held: HeldDisk) -> None:
    """One tree is written, each request returns when it is durable, and the journal takes facts as before."""
    new = Identity("t" + 16 * "0", 32 * "a", 1)
    given_up, *repeated = [
        asyncio.create_task(held.supervisor.fork(held.tree.tree_id, None, new)) for _ in range(3)
    ]
    await held.asked(given_up)
    given_up.cancel()
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in repeated)
    held.free.set()
    for each in (*repeated, held.done):
        await each
    await held.supervisor.fork(held.tree.tree_id, None, new)
    assert given_up.cancelled()
    known = {row.tree_id for row in held.supervisor.journal.trees()}
    assert known == {held.tree.tree_id, new.tree_id}
    assert held.supervisor.journal.verify(new.tree_id).ok
    assert await held.tree.main.send("go on") == "fine"
