"""The program's end of a shard on another node: its calls are in order, and a loss fails all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from sessiontree import EngineLost, ShardLost
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.cluster.node_actor import INCARNATION
from sessiontree.backends.ray.cluster.node_shards import NodeShard
from sessiontree.contracts.errors import SupervisorUnavailable
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.transport.rpc import RpcResponse

PATIENCE_S = 20.0


class Call:
    """A call that goes on there whether its caller waits or not, until Ray cancels it."""

    def __init__(self, work: Coroutine[Any, Any, bytes]) -> None:
        self.task = asyncio.ensure_future(work)

    def __await__(self) -> Generator[Any, None, bytes]:
        return asyncio.shield(self.task).__await__()


class Method:
    """A method of an actor that is called from afar."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._body = body

    def remote(self, *given: Any) -> Call:
        """Begin the call; its answer comes later."""
        return Call(self._body(*given))


class Node:
    """The actor of a node: it notes what it is asked, and answers as the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, int] | None]] = []
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        """Names of what it was asked."""
        self.answer: Callable[[str], Any] = lambda name: None
        self.ask = self.command = Method(self._ask)

    async def _ask(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        load_value(given)
        self.asked.append((name, turn))
        self.heard.put_nowait(name)
        told = self.answer(name)
        if isinstance(told, asyncio.Future):
            told = await told
        error = told if isinstance(told, Exception) else None
        return dump_value(RpcResponse(INCARNATION, None if error else told, error))


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> NodeShard:
    """A shard whose actor is in this process."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "kill", lambda actor: None)
    monkeypatch.setattr(ray, "cancel", lambda asked: asked.task.cancel())
    made = NodeShard(Node(), "key", "east (1)", (), lambda: None)
    made._trees.update(("t2", "t1"))
    return made


def fail(error: Exception) -> Callable[[str], Any]:
    """Return an actor's answer that does not come: Ray fails the call."""

    def answer(name: str) -> Any:
        raise error

    return answer


async def test_calls_whose_order_matters_are_numbered(shard: NodeShard) -> None:
    """Numbers have no gap, also if something could not be sent; other calls have none."""
    await shard.supervisor.interrupt("t1", "main", "r")
    await shard.supervisor.report("t1", "main")
    with pytest.raises((TypeError, AttributeError)):
        await shard.supervisor.interrupt("t1", "main", lambda: None)  # type: ignore[arg-type]
    await shard.supervisor.interrupt("t1", "main", "r")
    assert shard.actor.asked == [
        ("interrupt", (INCARNATION, 1)),
        ("report", None),
        ("interrupt", (INCARNATION, 2)),
    ]


@pytest.mark.parametrize("error", [ActorDiedError(), ActorUnavailableError("the actor is unavailable", None)])
async def test_loss_of_the_actor_fails_every_call(shard: NodeShard, error: Exception) -> None:
    """One failed call is enough: those that wait fail, too, and the error names the node and its trees."""
    reasons: list[str] = []
    shard._tell_lost = reasons.append
    shard.actor.answer = lambda name: asyncio.get_running_loop().create_future()
    waiting = [shard.request_result("t1", session) for session in ("main", "main/b1")]
    for _ in waiting:
        await shard.actor.heard.get()
    shard.actor.answer = fail(error)
    with pytest.raises(ShardLost) as found:
        await shard.supervisor.report("t1", "main")
    assert (found.value.node, found.value.trees) == ("east (1)", ("t1", "t2"))
    for each in waiting:
        with pytest.raises(ShardLost):
            await each
    assert shard.is_lost
    assert len(reasons) == 1
    asked = len(shard.actor.asked)
    for name in ("report", "room"):
        with pytest.raises(ShardLost):
            await getattr(shard.supervisor, name)("t1", "main")
    with pytest.raises(ShardLost):
        shard.call_now(SupervisorControl.release, "t1")
    shard.tell(SupervisorControl.unwatch, "watch")
    assert len(shard.actor.asked) == asked, "a lost actor is called no more"


async def test_call_that_ray_could_not_complete_is_no_loss(shard: NodeShard) -> None:
    """The actor may be alive: the caller gets an error, and the shard goes on."""
    shard.actor.answer = fail(RayError("out of descriptors"))
    with pytest.raises(SupervisorUnavailable, match=r"the shard on east \(1\)"):
        await shard.supervisor.report("t1", "main")
    assert not shard.is_lost
    shard.actor.answer = lambda name: 3
    assert await shard.supervisor.room("t1", "main") == 3


async def test_node_whose_own_ray_ended_is_lost(shard: NodeShard) -> None:
    """Its actor still answers for a moment; the answer that its Ray is gone is the shard's end."""
    shard.actor.answer = lambda name: EngineLost("its raylet ended", "resume")
    with pytest.raises(ShardLost, match="its raylet ended"):
        await shard.supervisor.report("t1", "main")
    assert shard.is_lost


async def test_caller_that_waits_no_more_stops_the_call_there(shard: NodeShard) -> None:
    """A cancelled wait for a result is cancelled at the node, too."""
    ends = asyncio.get_running_loop().create_future()
    shard.actor.answer = lambda name: ends
    result: asyncio.Future[SessionResult[Any]] = shard.request_result("t1", "main")
    await shard.actor.heard.get()
    result.cancel()
    with pytest.raises(asyncio.CancelledError):
        await result
    await asyncio.wait({ends}, timeout=PATIENCE_S)
    assert ends.cancelled()


def test_journal_of_a_shard_is_on_its_node(shard: NodeShard) -> None:
    """Nothing of this machine is taken for it before it begins, and no process either."""
    assert shard.journal_dir == Path()
    assert shard.pid is None
