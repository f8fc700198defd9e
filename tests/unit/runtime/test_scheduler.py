"""Hosts are given out so that everybody gets one in the end, and nobody gets another's words."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, ModelRequest, ScriptedModel, SessionKind, SessionTree
from sessiontree.backends.local.backend import LocalBackend, LocalTransport
from sessiontree.contracts.errors import AnswerTooLate, JournalCorrupt
from sessiontree.contracts.facts.session_facts import RunFinished
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.codec import pack
from sessiontree.journal.record import Packed
from sessiontree.models.answers import Answer, script_call
from sessiontree.runtime.host.host import HostCore
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import LiveSession
from sessiontree.runtime.scheduling.pool import BUSY, PoolSize, measure_busy_time
from sessiontree.runtime.scheduling.scheduler import Scheduler
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.frames import Adopt, HostUnsuitable, Outcome, PollReply
from sessiontree.runtime.transport.link import HostLink
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import until
from tests.unit.runtime.runtime_fakes import FaultyRuntime, LongCall

PATIENCE_S = 60.0
GROW_S = 0.02


def reply(request: ModelRequest) -> Answer:
    """A Branch waits for a person; Main answers."""
    if request.kind is SessionKind.MAIN:
        return "here"
    return script_call("launch", text="now") if request.turn == 1 else "launched"


MODEL = FunctionModel(reply)


def live_session_of(supervisor: Supervisor, tree: SessionTree, session: str = "main") -> LiveSession:
    """Return the record of a live session."""
    return supervisor.tree(tree.tree_id).live_sessions[session]


async def test_hosts_kept_for_life_take_no_room_from_the_others(tmp_path: Path) -> None:
    """Dedicated hosts are extra: when the pool's only host is lost, another one is started."""
    async with (
        FaultyRuntime(tmp_path / "state", slots=1) as runtime,
        SessionTree(tmp_path, model=MODEL, tools=TOOLS, runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        await tree.main.send("hello")
        child = await tree.main.spawn("branch", "go", dedicated=True)
        await until(tree, ApprovalWaiting)
        link = live_session_of(runtime.local.core, tree).link
        assert link is not None
        link.declare_lost("it was lost", to_blame=False)
        assert await tree.main.send("there?") == "here"
        (pending,) = tree.approvals.pending()
        await pending.approve()
        assert (await child.result()).summary == "launched"


async def test_dedicated_session_does_not_queue_for_the_pool(tmp_path: Path) -> None:
    """It gets a host of its own at once, however many others wait for theirs."""
    async with (
        FaultyRuntime(tmp_path / "state", slots=1) as runtime,
        SessionTree(tmp_path, model=MODEL, tools=TOOLS, runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        await tree.main.send("hello")
        scheduler = runtime.local.core.scheduler
        main = live_session_of(runtime.local.core, tree)
        main.idle = False
        scheduler.settle(main)
        await tree.main.spawn("branch", "go")
        kept = await tree.main.spawn("branch", "go", dedicated=True)
        live = live_session_of(runtime.local.core, tree, kept.session_id)
        assert live.link is not None


async def test_two_sessions_of_one_name_never_share_an_epoch(tmp_path: Path) -> None:
    """What a host still says of one tree's Main is not taken for another tree's Main on the same host."""
    model = ScriptedModel(["here"] * 4)
    async with (
        FaultyRuntime(tmp_path / "state", slots=1) as runtime,
        SessionTree(tmp_path, model=model, runtime=runtime) as one,
        SessionTree(tmp_path, model=model, runtime=runtime) as other,
        asyncio.timeout(PATIENCE_S),
    ):
        await one.main.send("hello")
        supervisor = runtime.local.core
        epoch = live_session_of(supervisor, one).epoch
        await other.main.send("hello")
        live = live_session_of(supervisor, other)
        assert live.link is not None
        before = await runtime.local.supervisor.last_seq(other.tree_id)
        late = Outcome("main", epoch, 9, (), (), False, None, "it crashed")
        live.link._on_outcome(live.link, late)
        assert await other.main.send("hello") == "here"
        assert await runtime.local.supervisor.last_seq(other.tree_id) > before


@pytest.mark.covers("ORD12")
async def test_host_that_lost_a_session_is_heard_of_it_no_more(tmp_path: Path) -> None:
    """It was taken for lost and works on; the session has another host by now, and both know its name."""
    async with (
        FaultyRuntime(tmp_path / "state", slots=1) as runtime,
        SessionTree(tmp_path, model=ScriptedModel(["here"] * 4), runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        await tree.main.send("hello")
        supervisor = runtime.local.core
        earlier, epoch = live_session_of(supervisor, tree).link, live_session_of(supervisor, tree).epoch
        assert earlier is not None
        earlier.declare_lost("it was lost", to_blame=False)
        assert await tree.main.send("again") == "here"
        live = live_session_of(supervisor, tree)
        assert live.link is not None
        assert (live.link is earlier, live.epoch == epoch) == (False, False)
        before = await runtime.local.supervisor.last_seq(tree.tree_id)
        forged = pack(RunFinished("forged", (), None, None, has_result=False))
        said = Packed("model:1", 0, forged)
        for link in (earlier, live.link):
            link._on_outcome(link, Outcome("main", epoch, live.taken, (said,), (), False, None, None))
            link._on_outcome(link, Outcome("main", epoch, live.taken, (), (), True, None, "it crashed"))
        await asyncio.sleep(0)
        assert await runtime.local.supervisor.last_seq(tree.tree_id) == before
        assert await tree.main.send("still") == "here"
        assert tree.main.status().status is SessionStatus.SUSPENDED


async def test_session_whose_facts_cannot_be_read_ends_alone(tmp_path: Path) -> None:
    """It ends, typed; its host serves others, and whoever woke it hears no strange error."""
    async with (
        FaultyRuntime(tmp_path / "state", slots=1) as runtime,
        SessionTree(tmp_path, model=MODEL, tools=TOOLS, runtime=runtime) as tree,
        SessionTree(tmp_path, model=ScriptedModel(["here"] * 4), runtime=runtime) as other,
        asyncio.timeout(PATIENCE_S),
    ):
        child = await tree.main.spawn("branch", "go")
        await until(tree, ApprovalWaiting)
        assert await other.main.send("hello") == "here"
        runtime.local._kept.states.clear()  # others have pushed its state out
        journal = runtime.local.core.journal
        whole = journal.read_session

        def damaged(tree_id: str, session: str, *, after_seq: int = 0, max_n: int | None = None) -> object:
            if session == child.session_id:
                raise JournalCorrupt(tree_id, "a record of it is damaged")
            return whole(tree_id, session, after_seq=after_seq, max_n=max_n)

        journal.read_session = damaged  # type: ignore[method-assign, assignment]
        (pending,) = tree.approvals.pending()
        with pytest.raises(AnswerTooLate):  # who asked is gone: nothing runs
            await pending.approve()
        result = await child.result()
        assert "damaged" in result.summary
        assert await other.main.send("hello") == "here"
        assert await tree.main.send("hello") == "here"


class EarlyHosts(LocalBackend):
    """Hosts that can't read what was made after their start, as confined processes can't."""

    made = 0
    readable: dict[str, int] = {}  # noqa: RUF012 - set by the test, by tree: how many hosts are too old for it

    def _make_transport(self, pool: str, name: str) -> LocalTransport:
        self.made += 1
        number, readable = self.made, self.readable

        class EarlyHost(HostCore):
            def _adopt(self, adopt: Adopt) -> None:
                if number <= readable.get(adopt.tree_id, 0):
                    self._drop()
                    self._mailbox.put(HostUnsuitable(adopt.session, adopt.epoch, "it started too early"))
                else:
                    super()._adopt(adopt)

        host = EarlyHost(self._equip, self.services, self.memory, self._hub, self._clock.now_ms)
        transport = LocalTransport(host, None, self.transports.remove)
        self.transports.append(transport)
        return transport


async def test_tree_made_after_all_hosts_were_started_gets_a_new_one(tmp_path: Path) -> None:
    """However many hosts were confined too early, the first that was not is found at once."""
    runtime = FaultyRuntime(tmp_path / "state")
    await runtime.close()
    backend = runtime.backend = runtime.local = EarlyHosts(tmp_path / "state", slots=6)
    backend.core.scheduler._most_losses = 2
    async with (
        runtime,
        SessionTree(tmp_path, model=MODEL, tools=TOOLS, runtime=runtime) as tree,
        SessionTree(tmp_path, model=MODEL, tools=TOOLS, runtime=runtime) as later,
        asyncio.timeout(PATIENCE_S),
    ):
        await tree.main.send("hello")
        for _ in range(5):
            await tree.main.spawn("branch", "go")
        await until(tree, ApprovalWaiting, count=5)
        assert backend.made == 6
        backend.readable[later.tree_id] = backend.made
        assert await later.main.send("hello") == "here"


def taking(request: ModelRequest) -> Answer:
    """Make one call, which lasts."""
    return script_call("held") if request.turn == 1 else "done"


@asynccontextmanager
async def held_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: float
) -> AsyncIterator[tuple[Scheduler, LongCall]]:
    """Run four Workers with long calls on a pool that usually has one host; the supervisor is so busy."""
    step_ns = round(busy * GROW_S * 1e9)
    wanted = itertools.count(0, step_ns) if step_ns else itertools.repeat(0)
    monkeypatch.setattr("sessiontree.runtime.scheduling.pool.measure_busy_time", lambda: next(wanted))
    monkeypatch.setattr("sessiontree.runtime.scheduling.pool.GROW_AFTER_S", GROW_S)
    take = LongCall()
    async with (
        FaultyRuntime(tmp_path / "state", slots=4) as runtime,
        SessionTree(tmp_path, model=FunctionModel(taking), tools=(take,), runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        scheduler = runtime.local.core.scheduler
        scheduler.placement.take_back_s = 0.01
        (pool,) = scheduler._pools.values()
        pool.size = PoolSize(most=4, usual=1)
        children = [await tree.main.spawn("worker", "go") for _ in range(4)]
        yield scheduler, take
        take.ending.set()
        for child in children:
            await child.result()


async def reached(take: LongCall, count: int) -> None:
    """Wait until so many calls run."""
    while take.under_way < count:  # noqa: ASYNC110 - calls that begin later count too
        await asyncio.sleep(0.005)


async def test_pool_grows_while_the_supervisor_has_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to its limit, as long as every host is held by a long call."""
    async with held_hosts(tmp_path, monkeypatch, BUSY) as (scheduler, take):
        await reached(take, 4)
        assert len(scheduler.links) == 4


async def test_pool_does_not_grow_while_the_supervisor_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are long then because they wait for it."""
    async with held_hosts(tmp_path, monkeypatch, BUSY + 0.1) as (scheduler, take):
        await reached(take, 1)
        await asyncio.sleep(0.5)
        assert (len(scheduler.links), take.under_way) == (1, 1)


async def test_pool_that_stands_still_grows_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that last for minutes must not hold up everybody else."""
    monkeypatch.setattr("sessiontree.runtime.scheduling.pool.STANDSTILL_S", 0.1)
    async with held_hosts(tmp_path, monkeypatch, 1.0) as (scheduler, take):
        await reached(take, 4)
        assert len(scheduler.links) == 4


async def test_pool_with_a_host_for_short_sessions_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits there gets its turn soon."""
    async with held_hosts(tmp_path, monkeypatch, 0.0) as (scheduler, take):
        await reached(take, 4)
        (pool,) = scheduler._pools.values()
        pool.size = PoolSize(most=8, usual=1)
        free = next(iter(pool.links))
        now = asyncio.get_running_loop().time() + 1.0
        assert pool.is_short(now, scheduler.placement.take_back_s)
        monkeypatch.setattr(free, "since", now)
        assert not pool.is_short(now, scheduler.placement.take_back_s)


async def test_thread_wants_a_core_only_while_it_does_something() -> None:
    """Time in which it waits for events is not counted; time in which it waits for a core is."""
    began, before = time.monotonic_ns(), measure_busy_time()
    await asyncio.sleep(0.3)
    rested = measure_busy_time() - before
    assert 0 <= rested < 0.5 * (time.monotonic_ns() - began)
    began, before = time.monotonic_ns(), measure_busy_time()
    while time.monotonic_ns() - began < 200_000_000:
        pass
    assert measure_busy_time() - before > 0.8 * 200_000_000


class SlowTransport:
    """A host that is ready when the test says so."""

    pid, level, node, is_ready = 0, "starting", "", False
    embodied: tuple[str, int] | None = None

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def ready(self) -> None:
        """Wait for the test."""
        await self.begun.wait()
        self.is_ready = True

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Wait for ever: there is nothing to report."""
        await asyncio.Event().wait()
        raise AssertionError("waited for ever")

    def submit(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Take frames in."""

    async def lag_s(self) -> float:
        """Return that nothing blocks it."""
        return 0.0

    def close(self) -> None:
        """End."""

    async def ended(self) -> int:
        """Return that nothing outlived it."""
        return 0


async def test_host_is_started_early_when_the_one_before_is_ready() -> None:
    """Two that start at once would share the processors, and a session waits for the first."""
    started: list[tuple[str, SlowTransport]] = []

    def begin(pool: str) -> HostLink:
        transport = SlowTransport()
        started.append((pool, transport))
        return HostLink(
            pool,
            transport,
            on_outcome=lambda link, outcome: None,
            on_lost=lambda link, lost: None,
            on_free=free,
            on_progress=lambda progress: None,
        )

    def free(link: HostLink) -> None:
        scheduler.on_freed(link)
        freed.put_nowait(link)

    freed: asyncio.Queue[HostLink] = asyncio.Queue()
    pools = dict.fromkeys(("acting", "observing"), PoolSize(most=2, usual=2))
    scheduler = Scheduler(begin, pools, dict.fromkeys(SessionKind, "acting"), Grants(), 3)
    scheduler.warm(["acting", "observing"])
    assert [pool for pool, _ in started] == ["acting"]
    async with asyncio.timeout(PATIENCE_S):
        for number, pool in enumerate(("acting", "observing")):
            assert [name for name, _ in started][number:] == [pool]
            started[number][1].begun.set()
            await freed.get()
    assert len(started) == 2
    for link in scheduler.links:
        await link.close()
