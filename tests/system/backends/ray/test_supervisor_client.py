"""The program's way to its supervisor: through restarts of it, nobody gets an answer that means nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from sessiontree import SessionClosed, SessionTreeError, TreeNotFound
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.client.socket_rpc import LINES_SOCKET, LineListener, SocketRpc
from sessiontree.backends.ray.client.supervisor_client import MAX_DEATHS, SupervisorClient
from sessiontree.backends.ray.client.supervisor_reconnect import RESTART_S
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.rpc import RpcResponse

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
BAGGAGE = PackedResources(b"tools", None)
Say = Callable[..., Any]


class Method:
    """A method of an actor that is called from afar."""

    def __init__(self, body: Say) -> None:
        self._body = body

    def remote(self, *given: Any) -> asyncio.Future[bytes]:
        """Begin the call; its answer comes later."""
        return asyncio.ensure_future(self._body(*given))


class Supervisor:
    """Knows which trees are open; is lost and started again when the test says so."""

    def __init__(self) -> None:
        self.incarnation = "first"
        self.lives = 0
        self.is_open = False
        self.trees: set[str] = set()
        self.turns: list[tuple[str, int]] = []
        self.unreadable: set[str] = set()
        self.resuming: list[str] = []
        self.on_resume: Callable[[], Any] | None = None
        self.on_ask: Callable[[str], Any] | None = None
        self.ask = self.command = Method(self._ask)

    def restart(self) -> None:
        """Begin again with nothing open."""
        self.lives += 1
        self.incarnation = f"life {self.lives}"
        self.is_open = False
        self.trees.clear()

    async def _ask(self, key: str, name: str, data: bytes, turn: tuple[str, int] | None = None) -> bytes:
        await asyncio.sleep(0)
        if self.on_ask is not None:
            self.on_ask(name)
        return dump_value(await self.served(name, load_value(data), turn))

    async def served(
        self, name: str, given: tuple[Any, ...], turn: tuple[str, int] | None = None
    ) -> RpcResponse:
        """Answer a question, however it came."""
        if turn is not None:
            self.turns.append(turn)
        incarnation = self.incarnation
        try:
            value = await self._answer(name, given)
        except SessionTreeError as error:
            return RpcResponse(incarnation, None, error)
        return RpcResponse(incarnation, value)

    async def _answer(self, name: str, given: tuple[Any, ...]) -> Any:
        if name == "open":
            self.is_open = True
            return None
        if not self.is_open:
            raise SessionTreeError("not open yet")
        if name in {"create", "resume"}:
            tree_id = given[0]
            self.resuming.append(tree_id)
            if self.on_resume is not None:
                await self.on_resume()
            if tree_id in self.unreadable:
                raise JournalCorrupt(tree_id, "it can't be read")
            self.trees.add(tree_id)
            return None
        if given[0] not in self.trees:
            raise TreeNotFound(given[0], "is not open in this process")
        return f"{name} of {given[0]}"


async def line_to(supervisor: Supervisor, *trees: str) -> SupervisorClient:
    """Return a line over which trees are open."""
    line = SupervisorClient(supervisor, "key", lambda: True)
    await line.begin()
    for tree_id in trees:
        await line.control.resume(tree_id, {}, BAGGAGE)
        line.opened(tree_id, {}, BAGGAGE)
    return line


async def answer_to(question: Awaitable[Any]) -> Any:
    """Return what the supervisor of these tests answers: words."""
    return await question


def unavailable() -> ActorUnavailableError:
    """Return what Ray raises while an actor is started again."""
    return ActorUnavailableError("it is temporarily unavailable", None)


async def test_nobody_hears_that_a_tree_is_gone_while_it_is_taken_up_again() -> None:
    """Whoever asks between the new supervisor's start and the last tree's return waits for it."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "one", "other")
    slow = asyncio.Event()
    supervisor.restart()
    supervisor.on_resume = slow.wait
    first: asyncio.Task[Any] = asyncio.create_task(line.supervisor.result("one", "main"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(supervisor.resuming) == 3
    second: asyncio.Task[Any] = asyncio.create_task(line.supervisor.result("other", "main"))
    for _ in range(20):
        await asyncio.sleep(0)
    slow.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await first == "result of one"
        assert await second == "result of other"


async def test_supervisor_lost_again_while_its_trees_are_taken_up_is_mended_again() -> None:
    """No error of Ray reaches whoever asked."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "one", "other")
    supervisor.restart()

    async def dies() -> None:
        supervisor.on_resume = None
        supervisor.restart()
        raise unavailable()

    supervisor.on_resume = dies
    async with asyncio.timeout(PATIENCE_S):
        assert await answer_to(line.supervisor.result("other", "main")) == "result of other"
        assert await answer_to(line.supervisor.result("one", "main")) == "result of one"


async def test_tree_that_cannot_be_read_again_takes_no_other_with_it() -> None:
    """It says why it is gone; the others go on."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "broken", "whole")
    supervisor.restart()
    supervisor.unreadable.add("broken")
    async with asyncio.timeout(PATIENCE_S):
        assert await answer_to(line.supervisor.result("whole", "main")) == "result of whole"
        with pytest.raises(JournalCorrupt, match="can't be read"):
            await line.supervisor.result("broken", "main")


async def test_what_is_said_to_a_new_supervisor_is_counted_from_one() -> None:
    """A number of the old one's count would keep the new one waiting for those before it."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "one")
    for _ in range(3):
        await line.supervisor.send("one", "main", "hello", "follow_up", "m1")
    supervisor.restart()
    supervisor.turns.clear()
    await line.supervisor.send("one", "main", "hello", "follow_up", "m1")
    await line.supervisor.send("one", "main", "hello", "follow_up", "m1")
    assert [number for name, number in supervisor.turns if name == supervisor.incarnation] == [1, 2]


async def test_supervisor_that_ended_for_good_is_reported_and_not_waited_for() -> None:
    """Ray says of every call that it died: who waits hears of it."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "one")

    def dead(name: str) -> None:
        raise ActorDiedError

    supervisor.on_ask = dead
    began = time.monotonic()
    async with asyncio.timeout(MAX_DEATHS * RESTART_S + PATIENCE_S):
        with pytest.raises(SessionTreeError, match="Ray did not restart it"):
            await line.supervisor.result("one", "main")
    assert time.monotonic() - began > RESTART_S


async def test_nothing_is_asked_of_a_closed_line_or_without_ray() -> None:
    """A call to an actor would start another Ray, which nobody ever ends."""
    supervisor = Supervisor()
    up = [True]
    line = SupervisorClient(supervisor, "key", lambda: up[0])
    await line.begin()
    asked: list[str] = []
    supervisor.on_ask = asked.append
    up[0] = False
    with pytest.raises(SessionTreeError, match="shut down"):
        await line.supervisor.result("one", "main")
    with pytest.raises(SessionTreeError, match="shut down"):
        line.ask_now(lambda supervisor: supervisor.report("one", "main"))
    line.tell(SupervisorControl.unwatch, "name")
    await line.end()
    up[0] = True
    line.closed()
    with pytest.raises(SessionClosed):
        await line.supervisor.result("one", "main")
    with pytest.raises(SessionClosed):
        line.ask_now(lambda supervisor: supervisor.report("one", "main"))
    assert asked == []


class Reached(Supervisor):
    """A supervisor that is also reached over lines; every result waits until the test releases it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.released = asyncio.Event()
        self.news: asyncio.Queue[str] = asyncio.Queue()
        """What began or stopped to wait for a result."""
        self.calls: list[str] = []
        """What came as a call of the actor."""
        self.on_ask = self.calls.append
        self.lines: list[SocketRpc] = []
        self.listener = LineListener(path)
        self.listener.admit(os.getpid(), self._made)

    def _made(self) -> SocketRpc:
        self.lines.append(SocketRpc({"ask": self._over_line}))
        return self.lines[-1]

    async def _over_line(
        self, key: str, name: str, given: tuple[Any, ...], turn: tuple[str, int] | None
    ) -> RpcResponse:
        return await self.served(name, given, turn)

    async def heard(self, *news: str) -> None:
        """Wait until this is the news."""
        async with asyncio.timeout(PATIENCE_S):
            for each in news:
                assert await self.news.get() == each

    async def _answer(self, name: str, given: tuple[Any, ...]) -> Any:
        if name == "open":
            self.is_open = True
            return os.getpid()
        if name == "result":
            self.news.put_nowait("waiting")
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.news.put_nowait("cancelled")
                raise
        return await super()._answer(name, given)


@pytest.fixture
async def reached(tmp_path: Path) -> AsyncIterator[Reached]:
    """A supervisor that is reached over lines."""
    supervisor = Reached(tmp_path / LINES_SOCKET)
    yield supervisor
    supervisor.listener.close()
    for each in supervisor.lines:
        each.close()
    await asyncio.sleep(0)


async def client_of(supervisor: Reached) -> SupervisorClient:
    """Return a client with one open tree that may use a line."""
    line = SupervisorClient(supervisor, "key", lambda: True, supervisor.path)
    await line.begin()
    await line.control.resume("one", {}, BAGGAGE)
    line.opened("one", {}, BAGGAGE)
    supervisor.calls.clear()
    return line


async def test_sessions_that_are_awaited_hold_no_call_of_the_actor(reached: Reached) -> None:
    """Ray gives a call that waits a stack of its own; only control calls are calls of the actor."""
    line = await client_of(reached)
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(line.supervisor.result("one", f"main/w{number}")) for number in range(300)
    ]
    await reached.heard(*["waiting"] * 300)
    assert reached.calls == []
    await line.supervisor.send("one", "main", "hello", "follow_up", "m1")
    assert reached.calls == []
    assert [number for _, number in reached.turns] == [1]
    await line.supervisor.stop("one", "main/w1", "enough")
    assert reached.calls == ["stop"]
    waiting[0].cancel()
    await reached.heard("cancelled")
    reached.released.set()
    async with asyncio.timeout(PATIENCE_S):
        assert {await each for each in waiting[1:]} == {"result of one"}
    line.closed()


async def test_broken_line_costs_no_answer(reached: Reached) -> None:
    """What waited over it is asked again as a call of the actor."""
    line = await client_of(reached)
    waiting: asyncio.Task[Any] = asyncio.create_task(line.supervisor.result("one", "main"))
    await reached.heard("waiting")
    for each in reached.lines:
        each.close()
    await reached.heard("cancelled", "waiting")
    reached.released.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "result of one"
        assert await answer_to(line.supervisor.report("one", "main")) == "report of one"
    assert reached.calls == ["result", "report"]
    line.closed()


async def test_restarted_supervisor_is_reached_over_a_new_line(reached: Reached) -> None:
    """Open trees are resumed first, and questions need no call of the actor after that."""
    line = await client_of(reached)
    reached.restart()
    reached.released.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await answer_to(line.supervisor.result("one", "main")) == "result of one"
    assert len(reached.lines) == 2
    reached.calls.clear()
    async with asyncio.timeout(PATIENCE_S):
        assert await answer_to(line.supervisor.result("one", "main")) == "result of one"
    assert reached.calls == []
    line.closed()
    with pytest.raises(SessionClosed):
        await line.supervisor.result("one", "main")
