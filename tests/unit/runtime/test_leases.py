"""Sessions wait at a host for their turn, none behind a long call; what a host keeps of them is current."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sessiontree import (
    FunctionModel,
    Limits,
    ModelRequest,
    Runtime,
    SessionHandle,
    SessionResult,
    SessionStatus,
    SessionTree,
    Tool,
    script_call,
)
from sessiontree.backends.local.backend import LocalBackend, LocalTransport
from sessiontree.contracts.facts.tree_facts import SessionEnded
from sessiontree.models.answers import Answer
from sessiontree.runtime.host.host import MAX_KEPT_CHARS, HostCore, HostProcess, KeptSessions
from sessiontree.runtime.runner.session_runner import RunnerState
from sessiontree.runtime.transport.frames import (
    Adopt,
    Frame,
    Kill,
    Outcome,
    PollReply,
    Release,
    SessionReturned,
)
from sessiontree.runtime.transport.link import HostLink
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.session.state import make_initial_state
from tests.behaviour.fact_fixtures import until
from tests.unit.runtime.runtime_fakes import FaultyRuntime, LongCall
from tests.unit.runtime.test_abandoned_hosts import Threadless
from tests.unit.session.session_fixtures import spec

PATIENCE_S = 60.0
LONG_S = 600.0
WIDE = Limits(max_children=64)


def reply(request: ModelRequest) -> Answer:
    """A Worker whose task is to hold makes the call that lasts; the others count their messages."""
    if request.turn == 1 and request.messages[0].text == "hold":
        return script_call("held")
    return str(len(request.messages))


MODEL = FunctionModel(reply)


class RecordingTransport(LocalTransport):
    """Notes what goes to its host and what comes back."""

    def __init__(self, host: HostCore, on_close: Any, came: asyncio.Event) -> None:
        super().__init__(host, None, on_close)
        self._came = came
        self.frames: list[Frame] = []
        self.answers: list[Any] = []

    def submit(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Note the frames and pass them on."""
        self.frames += [frame for _, frame in frames]
        super().submit(frames)
        self._came.set()

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Note the answers."""
        answer = await super().poll(after, wait_s)
        self.answers += [outcome for _, outcome in answer.outcomes]
        return answer


class RecordedBackend(LocalBackend):
    """Sessions wait at its slots, as at hosts on Ray."""

    def __init__(
        self, state: Path, slots: int, take_back_s: float, process: HostProcess | None = None
    ) -> None:
        super().__init__(state, slots=slots, ahead=16)
        self.made: list[RecordingTransport] = []
        self._came = asyncio.Event()
        self._take_back_s = take_back_s
        self._process = process

    def _make_transport(self, pool: str, name: str) -> LocalTransport:
        self.core.scheduler.placement.take_back_s = self._take_back_s
        host = HostCore(self._equip, self.services, self.memory, self._hub, self._clock.now_ms, self._process)
        transport = RecordingTransport(host, self.transports.remove, self._came)
        self.transports.append(transport)
        self.made.append(transport)
        return transport

    def sent(self, kind: type[Any]) -> list[Any]:
        """Return the frames of a type, host by host."""
        return [frame for transport in self.made for frame in transport.frames if isinstance(frame, kind)]

    async def make_adopted(self, count: int) -> None:
        """Wait until so many adoptions were sent."""
        while len(self.sent(Adopt)) < count:
            self._came.clear()
            await self._came.wait()


class Littered(Threadless):
    """A process in which every session's tools leave a process running."""

    def end_leftovers(self, ending: Collection[ProcessIdentity]) -> int:
        """One was left."""
        return 1


async def opened(
    tmp_path: Path, slots: int, take_back_s: float = LONG_S, process: HostProcess | None = None
) -> tuple[FaultyRuntime, RecordedBackend]:
    """Return a runtime and its backend."""
    runtime = FaultyRuntime(tmp_path / "state")
    await runtime.close()
    backend = RecordedBackend(tmp_path / "state", slots, take_back_s, process)
    runtime.backend = runtime.local = backend
    return runtime, backend


@asynccontextmanager
async def with_tree(
    tmp_path: Path, *tools: Tool[Any], slots: int = 1, take_back_s: float = LONG_S, limits: Limits = WIDE
) -> AsyncIterator[tuple[RecordedBackend, SessionTree]]:
    """Open a tree in a runtime of its own, for a limited time."""
    runtime, backend = await opened(tmp_path, slots, take_back_s)
    async with (
        runtime,
        SessionTree(tmp_path, model=MODEL, tools=tools, limits=limits, runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        yield backend, tree


async def held_up(
    backend: RecordedBackend, tree: SessionTree, held: LongCall
) -> tuple[asyncio.Task[list[SessionResult[Any]]], HostLink]:
    """Start six Workers, the first of which holds the only host while others wait there."""
    mapped = asyncio.create_task(tree.main.map("worker", ["hold", *["look"] * 5], concurrency=6))
    await held.began.wait()
    (link,) = backend.core.scheduler.links
    await backend.make_adopted(4)
    return mapped, link


async def test_next_session_begins_without_a_word_from_the_supervisor(tmp_path: Path) -> None:
    """While the only host is busy the others wait there; it lets each go as soon as it is idle."""
    async with with_tree(tmp_path) as (backend, tree):
        results = await tree.main.map("worker", ["look"] * 12, concurrency=12, on_error="raise")
        assert [each.summary for each in results] == ["1"] * 12
        let_go = [answer for answer in backend.made[0].answers if isinstance(answer, SessionReturned)]
        assert len(let_go) >= 6


async def test_sessions_that_a_host_gives_back_run_elsewhere(tmp_path: Path) -> None:
    """PRC27: a host whose session left a process behind serves nobody else; who waited there is not lost."""
    runtime, backend = await opened(tmp_path, slots=1, process=Littered())
    async with (
        runtime,
        SessionTree(tmp_path, model=MODEL, limits=WIDE, runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        results = await tree.main.map("worker", ["look"] * 4, concurrency=4, on_error="raise")
        assert [each.summary for each in results] == ["1"] * 4
        answers = [answer for made in backend.made for answer in made.answers]
        assert any(isinstance(answer, SessionReturned) and not answer.has_begun for answer in answers)


async def test_nobody_waits_behind_a_long_call(tmp_path: Path) -> None:
    """Those that wait at its host are taken back soon, and run elsewhere while it lasts."""
    held = LongCall()
    async with with_tree(tmp_path, held, slots=2, take_back_s=0.02) as (_, tree):
        tasks = ["hold", *["look"] * 9]
        mapped = asyncio.create_task(tree.main.map("worker", tasks, concurrency=10, on_error="raise"))
        await until(tree, SessionEnded, count=9)
        assert held.began.is_set()
        assert not mapped.done()
        held.ending.set()
        assert [each.status for each in await mapped] == [SessionStatus.COMPLETED] * 10


async def alternate(*branches: SessionHandle) -> list[str]:
    """Send three messages to each of some sessions in turn; return the replies."""
    return [str(await branch.send("And now?")) for _ in range(3) for branch in branches]


async def test_host_continues_with_the_state_that_it_kept(tmp_path: Path) -> None:
    """A session that gives way and comes back needs no facts, and nothing of its conversation is lost."""
    async with with_tree(tmp_path) as (backend, tree):
        first, second = [await tree.main.spawn("branch", "begin") for _ in range(2)]
        said = await alternate(first, second)
        assert said == ["3", "3", "5", "5", "7", "7"]
        again = [adopt for adopt in backend.sent(Adopt) if adopt.kept]
        assert len(again) >= 4
        assert all(adopt.facts == () for adopt in again)


async def test_what_a_host_kept_is_gone_when_another_tree_was_there(tmp_path: Path) -> None:
    """It holds states of one tree at a time; a state that it no longer has comes from the journal."""
    runtime, backend = await opened(tmp_path, slots=1)
    async with (
        runtime,
        SessionTree(tmp_path, model=MODEL, runtime=runtime) as one,
        SessionTree(tmp_path, model=MODEL, runtime=runtime) as other,
        asyncio.timeout(PATIENCE_S),
    ):
        branches = [await tree.main.spawn("branch", "begin") for tree in (one, other)]
        assert await alternate(*branches) == ["3", "3", "5", "5", "7", "7"]
        refused = [
            answer
            for answer in backend.made[0].answers
            if isinstance(answer, SessionReturned) and not answer.kept
        ]
        assert refused
        kept = backend.made[0].host._kept
        assert kept.equipment == backend.sent(Adopt)[-1].equipment
        assert {session for session, _ in kept.states} <= {"main", "main/b1"}


async def test_session_that_went_on_elsewhere_is_not_continued_where_it_was(tmp_path: Path) -> None:
    """A host's state is used only while nothing else has embodied the session."""
    async with with_tree(tmp_path, slots=2) as (backend, tree):
        branches = [await tree.main.spawn("branch", "begin") for _ in range(5)]
        assert await alternate(*branches) == ["3"] * 5 + ["5"] * 5 + ["7"] * 5
        for transport in backend.made:
            adopts = [frame for frame in transport.frames if isinstance(frame, Adopt)]
            here = {(adopt.session, adopt.epoch) for adopt in adopts}
            assert all((adopt.session, adopt.kept) in here for adopt in adopts if adopt.kept)
        # A host learns with its next adoption what it keeps in vain.
        stale = {each for link in backend.core.scheduler.links for each in link.stale}
        states = [each for made in backend.made for each in made.host._kept.states if each not in stale]
        assert len(states) > 2
        assert len({session for session, _ in states}) == len(states)


async def test_hosts_of_one_process_share_what_they_keep(tmp_path: Path) -> None:
    """No session is read from its facts again, whichever host it goes on at; states of another tree stay."""
    async with (
        Runtime(tmp_path / "state", backend="local", slots=2) as runtime,
        SessionTree(tmp_path, model=MODEL, limits=WIDE, runtime=runtime) as tree,
        SessionTree(tmp_path, model=MODEL, limits=WIDE, runtime=runtime) as other,
        asyncio.timeout(PATIENCE_S),
    ):
        backend: Any = runtime.backend
        trees = (tree, other, tree, other, tree)
        branches = [await each.main.spawn("branch", "begin") for each in trees]
        assert await alternate(*branches) == ["3"] * 5 + ["5"] * 5 + ["7"] * 5
        assert len({id(made.host._kept) for made in backend.transports}) == 1
        read: list[str] = []
        whole = backend.core.journal.read_session

        def note(tree_id: str, session: str, **more: Any) -> Any:
            read.append(session)
            return whole(tree_id, session, **more)

        backend.core.journal.read_session = note
        assert await alternate(*branches) == ["9"] * 5 + ["11"] * 5 + ["13"] * 5
        assert [session for session in read if session.startswith("main/")] == []


def test_what_a_host_keeps_is_bounded() -> None:
    """The oldest states go first; a taken state is no longer there, and another tree's never."""
    kept = KeptSessions()
    kept.only("one")
    for epoch in range(1, 5):
        kept.keep("main", epoch, RunnerState(make_initial_state(spec(), Limits()), 0, MAX_KEPT_CHARS // 3))
    assert [epoch for _, epoch in kept.states] == [2, 3, 4]
    assert kept.take("main", 1) is None
    assert kept.take("main", 3) is not None
    assert kept.take("main", 3) is None
    assert kept.size == 2 * (MAX_KEPT_CHARS // 3)
    kept.keep("main", 9, RunnerState(make_initial_state(spec(), Limits()), 0, MAX_KEPT_CHARS + 1))
    assert (kept.size, len(kept.states)) == (0, 0)
    kept.keep("main", 10, RunnerState(make_initial_state(spec(), Limits()), 0, 1))
    kept.only("another")
    assert kept.take("main", 10) is None


async def test_lost_host_ends_none_of_those_that_waited_there(tmp_path: Path) -> None:
    """Whoever was there goes on elsewhere; none is blamed for what may have been another's work."""
    held = LongCall()
    async with with_tree(tmp_path, held) as (backend, tree):
        mapped, link = await held_up(backend, tree, held)
        link.declare_lost("something went wrong", to_blame=True)
        lives = [live for live in backend.core.tree(tree.tree_id).live_sessions.values() if live.alone]
        assert len(lives) >= 4
        held.ending.set()
        assert [each.status for each in await mapped] == [SessionStatus.COMPLETED] * 6
        (_, *adopted) = [len(transport.frames) for transport in backend.made]
        assert adopted


async def test_session_that_a_host_names_ends_alone(tmp_path: Path) -> None:
    """A host that ends because of one session's work says whose; the others there only change hosts."""
    held = LongCall()
    async with with_tree(tmp_path, held) as (backend, tree):
        mapped, link = await held_up(backend, tree, held)
        grants = [adopt.grant for adopt in backend.sent(Adopt) if adopt.epoch in link.leases]
        backend.core.last_words(grants[2], "it took too much memory")
        held.ending.set()
        statuses = sorted(str(each.status) for each in await mapped)
        assert statuses == ["completed"] * 5 + ["failed"]


async def test_cancelled_session_leaves_the_host_and_nobody_waits_behind_it(tmp_path: Path) -> None:
    """One that waits is taken out of the line; the one that runs is stopped, and those behind it go on."""
    held = LongCall()
    limits = Limits(max_children=64, cancel_grace_s=0.0)
    async with with_tree(tmp_path, held, limits=limits) as (backend, tree):
        mapped, link = await held_up(backend, tree, held)
        running, waiting, *_ = [live.session for live in link.leases.values()]  # type: ignore[attr-defined]
        await tree.session(waiting).cancel()
        await tree.session(running).cancel()
        statuses = sorted(str(each.status) for each in await mapped)
        assert statuses == ["cancelled"] * 2 + ["completed"] * 4
        assert backend.sent(Kill)
        said = [answer.session for answer in backend.made[0].answers if isinstance(answer, Outcome)]
        assert waiting not in said


async def test_session_taken_back_before_it_began_leaves_nothing_running(tmp_path: Path) -> None:
    """Its host serves others: a task that was cancelled before its first step is over."""
    async with with_tree(tmp_path) as (backend, tree):
        await tree.main.send("hello")
        (adopt, *_) = backend.sent(Adopt)
        host = HostCore(
            backend._equip, backend.services, backend.memory, backend._hub, lambda: 1, process=Threadless()
        )
        host.receive(((1, adopt), (2, Release(adopt.session, adopt.epoch))))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not (await host.poll(0, 0.0)).unusable
        host.close()


async def test_host_whose_session_just_stopped_serves_the_next_one(tmp_path: Path) -> None:
    """PRC27: cancelled work needs a turn of the loop to end; until then it does not cost the host."""
    async with with_tree(tmp_path) as (backend, tree):
        await tree.main.map("worker", ["look"] * 2, on_error="raise")
        first, second, *_ = backend.sent(Adopt)
        host = HostCore(
            backend._equip, backend.services, backend.memory, backend._hub, lambda: 1, process=Threadless()
        )
        assert first.session != second.session
        host.receive(((1, first), (2, second), (3, Release(first.session, first.epoch))))
        reply = await host.poll(0, 0.0)
        assert not reply.unusable
        assert not any(isinstance(answer, SessionReturned) for _, answer in reply.outcomes)
        assert host.embodied == (second.session, second.epoch)
        host.close()
