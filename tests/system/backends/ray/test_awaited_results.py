"""Results that are pushed over a line: each arrives once, whatever is given up or lost meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sessiontree import SessionClosed, SessionNotFound
from sessiontree.backends.ray.client.awaited_results import AwaitedResult, AwaitedResults
from sessiontree.backends.ray.client.socket_rpc import (
    LINES_SOCKET,
    LineListener,
    SocketRpc,
    SocketRpcClosed,
    connect_line,
)
from sessiontree.contracts.errors import EngineLost
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.scheduling.tree_waiters import FutureMap
from sessiontree.runtime.transport.result_push import ResultAnswer, ResultChange, ResultListener, ResultPush
from sessiontree.runtime.transport.rpc import RpcResponse
from tests.behaviour.fact_fixtures import PATIENCE_S

TREE = "tree"


def result_of(session: str) -> SessionResult[Any]:
    """Return how a session ended."""
    return SessionResult(SessionStatus.COMPLETED, session)


class Supervisor:
    """Knows which sessions live, and answers calls for the results of the others."""

    def __init__(self) -> None:
        self.incarnation = "first"
        self.live: set[str] = set()
        self.results: FutureMap[SessionResult[Any]] = FutureMap()
        self.asked: list[str] = []
        self.push = ResultPush(lambda: self, self.ask, self.response, self.send)
        self.line = SocketRpc({"await_results": self.await_results, "follow_results": self.follow})

    def listen(self, tree_id: str, session: str, listener: ResultListener) -> bool:
        """Listen for the end of a session that lives."""
        if tree_id != TREE or session not in self.live:
            return False
        self.results.listen(session, listener)
        return True

    def drop_listener(self, tree_id: str, session: str | None, listener: ResultListener) -> None:
        """Listen no more."""
        self.results.drop_listener(session, listener)

    async def ask(self, tree_id: str, session: str) -> RpcResponse:
        """Answer a call for the result of a session that does not live."""
        self.asked.append(session)
        return self.response(None, SessionNotFound(session, "never spawned"))

    def response(self, result: SessionResult[Any] | None, error: Exception | None) -> RpcResponse:
        """Return an answer."""
        return RpcResponse(self.incarnation, result, error)

    def send(self, answers: tuple[ResultAnswer, ...]) -> None:
        """Send answers to the program."""
        if self.line.is_open:
            self.line.tell("results", answers)

    def await_results(self, key: str, changes: tuple[ResultChange, ...]) -> None:
        """Await more results."""
        assert key == "key"
        self.push.change(changes)

    async def follow(self, key: str) -> None:
        """Push results until the line is closed."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.push.close()

    def spawn(self, *sessions: str) -> None:
        """Let sessions live."""
        self.live.update(sessions)

    def end(self, session: str) -> None:
        """End a session."""
        self.live.discard(session)
        self.results.settle(session, result_of(session))


class Program:
    """A program and its supervisor, with a line between them."""

    def __init__(self) -> None:
        self.there = Supervisor()
        self.called: list[str] = []
        """Sessions for whose results the supervisor was called."""
        self.releases: dict[str, asyncio.Future[SessionResult[Any]]] = {}
        self.lost: Exception | None = None
        self.results = AwaitedResults("key", self._taken, self._call, self._follow)
        self.here: SocketRpc

    def _taken(self, tree_id: str, answer: RpcResponse) -> SessionResult[Any]:
        if answer.error is not None and answer.incarnation != "first":
            raise SocketRpcClosed("restarted")
        taken: SessionResult[Any] = answer.unwrap()
        return taken

    async def _call(self, tree_id: str, session: str) -> SessionResult[Any]:
        self.called.append(session)
        self.releases[session] = asyncio.get_running_loop().create_future()
        return await self.releases[session]

    async def _follow(self, following: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await following
        except SocketRpcClosed:
            if self.lost is not None:
                raise self.lost from None
            raise

    def wait(self, session: str) -> AwaitedResult:
        """Await a result over the line."""
        awaited = self.results.wait(TREE, session)
        assert awaited is not None
        return awaited

    async def settled(self) -> None:
        """Let everything arrive that is on its way."""
        for _ in range(40):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    """A program with a line to its supervisor."""
    made = Program()
    listener = LineListener(tmp_path / LINES_SOCKET)
    listener.admit(os.getpid(), lambda: made.there.line)
    line = await connect_line(tmp_path / LINES_SOCKET, os.getpid(), {"results": made.results.take})
    assert line is not None
    made.here = line
    made.results.use(line)
    await made.settled()
    async with asyncio.timeout(PATIENCE_S):
        yield made
    line.close()
    listener.close()
    await made.settled()


async def test_each_result_arrives_once_and_a_refusal_too(program: Program) -> None:
    """In any order; a session that does not live is asked for by a call there."""
    names = [f"main/w{number}" for number in range(200)]
    program.there.spawn(*names)
    awaited = {name: program.wait(name) for name in names}
    gone = program.wait("main/w999")
    assert program.results.wait(TREE, names[0]) is None
    await program.settled()
    for name in random.Random(7).sample(names, len(names)):
        program.there.end(name)
    for name, each in awaited.items():
        assert (await each).summary == name
    with pytest.raises(SessionNotFound):
        await gone
    assert program.there.asked == ["main/w999"]
    assert program.called == []
    assert not program.results._waiting
    assert not program.there.results._listeners


async def test_result_that_was_given_up_is_awaited_nowhere(program: Program) -> None:
    """It leaves nothing behind at either end, and may be awaited again."""
    program.there.spawn("main/w1", "main/w2")
    first, other = program.wait("main/w1"), program.wait("main/w2")
    await program.settled()
    assert set(program.there.results._listeners) == {"main/w1", "main/w2"}
    first.cancel()
    await program.settled()
    assert set(program.there.results._listeners) == {"main/w2"}
    again = program.wait("main/w1")
    await program.settled()
    program.there.end("main/w1")
    program.there.end("main/w2")
    assert (await again).summary == "main/w1"
    assert (await other).summary == "main/w2"


async def test_results_are_called_for_when_the_line_is_lost(program: Program) -> None:
    """The calls go on where the line ended; a wait that is given up then ends its call."""
    program.there.spawn("main/w1", "main/w2")
    first, other = program.wait("main/w1"), program.wait("main/w2")
    await program.settled()
    program.there.line.close()
    await program.settled()
    assert program.called == ["main/w1", "main/w2"]
    assert not program.there.results._listeners
    assert program.results.wait(TREE, "main/w3") is None
    other.cancel()
    await program.settled()
    assert program.releases["main/w2"].cancelled()
    program.releases["main/w1"].set_result(result_of("main/w1"))
    assert (await first).summary == "main/w1"


async def test_refusal_of_a_restarted_supervisor_means_nothing(program: Program) -> None:
    """Its trees are not open yet; the call repeats the question when they are."""
    program.there.incarnation = "second"
    awaited = program.wait("main/w1")
    await program.settled()
    assert program.called == ["main/w1"]
    program.releases["main/w1"].set_exception(SessionClosed("main/w1", "over"))
    with pytest.raises(SessionClosed):
        await awaited


async def test_results_fail_with_the_ray(program: Program) -> None:
    """No call follows: it would start another Ray."""
    program.there.spawn("main/w1")
    awaited = program.wait("main/w1")
    await program.settled()
    program.lost = EngineLost("the raylet", "resume the tree")
    program.here.close()
    with pytest.raises(EngineLost):
        await awaited
    assert program.called == []
