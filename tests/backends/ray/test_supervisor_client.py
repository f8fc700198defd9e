"""The program's way to its supervisor: through restarts of it, nobody gets an answer that means nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from sessiontree import SessionClosed, SessionTreeError, TreeNotFound
from sessiontree.backends.ray import supervisor_client as line_room
from sessiontree.backends.ray.supervisor_client import SupervisorClient
from sessiontree.backends.ray.wire import opened, packed
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.runtime.rpc_response import RpcResponse
from sessiontree.runtime.tree_resources import Baggage

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
BAGGAGE = Baggage(b"tools", None)
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
        if turn is not None:
            self.turns.append(turn)
        given = opened(data)
        incarnation = self.incarnation
        try:
            value = await self._answer(name, given)
        except SessionTreeError as error:
            return packed(RpcResponse(incarnation, None, error))
        return packed(RpcResponse(incarnation, value))

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
        await line.ask("resume", tree_id, {}, BAGGAGE)
        line.opened(tree_id, {}, BAGGAGE)
    return line


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
    first = asyncio.create_task(line.ask("result", "one"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(supervisor.resuming) == 3
    second = asyncio.create_task(line.ask("result", "other"))
    for _ in range(20):
        await asyncio.sleep(0)
    slow.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await first == "result of one"
        assert await second == "result of other"


async def test_a_supervisor_lost_again_while_its_trees_are_taken_up_is_mended_again() -> None:
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
        assert await line.ask("result", "other") == "result of other"
        assert await line.ask("result", "one") == "result of one"


async def test_a_tree_that_cannot_be_read_again_takes_no_other_with_it() -> None:
    """It says why it is gone; the others go on."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "broken", "whole")
    supervisor.restart()
    supervisor.unreadable.add("broken")
    async with asyncio.timeout(PATIENCE_S):
        assert await line.ask("result", "whole") == "result of whole"
        with pytest.raises(JournalCorrupt, match="can't be read"):
            await line.ask("result", "broken")


async def test_what_is_said_to_a_new_supervisor_is_counted_from_one() -> None:
    """A number of the old one's count would keep the new one waiting for those before it."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "one")
    for _ in range(3):
        await line.ask("send", "one", "hello")
    supervisor.restart()
    supervisor.turns.clear()
    await line.ask("send", "one", "hello")
    await line.ask("send", "one", "hello")
    assert [number for name, number in supervisor.turns if name == supervisor.incarnation] == [1, 2]


async def test_a_supervisor_that_ended_for_good_is_told_and_not_waited_for() -> None:
    """Ray says of every call that it died: who waits hears of it."""
    supervisor = Supervisor()
    line = await line_to(supervisor, "one")

    def dead(name: str) -> None:
        raise ActorDiedError

    supervisor.on_ask = dead
    began = time.monotonic()
    async with asyncio.timeout(line_room.MOST_DEATHS * line_room.RESTART_S + PATIENCE_S):
        with pytest.raises(SessionTreeError, match="for good"):
            await line.ask("result", "one")
    assert time.monotonic() - began > line_room.RESTART_S


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
        await line.ask("result", "one")
    with pytest.raises(SessionTreeError, match="shut down"):
        line.ask_now("report", "one", "main")
    line.tell("unwatch", "name")
    await line.end()
    up[0] = True
    line.closed()
    with pytest.raises(SessionClosed):
        await line.ask("result", "one")
    with pytest.raises(SessionClosed):
        line.ask_now("report", "one", "main")
    assert asked == []
