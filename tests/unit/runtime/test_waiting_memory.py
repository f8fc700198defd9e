"""What a session that waits for its model takes, in supervisor, gateway and program together, and no more."""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import CoroutineType
from typing import Any, TypeAlias

import pytest

from sessiontree import (
    AssistantMessage,
    Limits,
    ModelRequest,
    Runtime,
    SessionHandle,
    SessionKind,
    SessionTree,
)
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.messages import TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from sessiontree.models.port import EmitEvent, ToolSpec
from sessiontree.runtime.gateway import model_gateway
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt

SESSIONS = 300
MOST_BYTES = 5_850
"""Of objects that the garbage collector knows, for each waiting session; 5,520 to 5,640 were measured."""
CONVERSATIONS = 100
MOST_AT_GATEWAY = 8_000
"""Bytes of a conversation of five turns; 7,470 were measured."""
PATIENCE_S = 60.0
Begin: TypeAlias = Callable[[SessionHandle[Any], int], Any]
"""Starts sessions below a session, and awaits their results in a task."""


class HeldModel:
    """Holds every reply to a Worker until all are released."""

    name = "held"

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    async def was_asked(self, times: int) -> None:
        """Wait until it was asked so many times more, and everything else has come to rest."""
        for _ in range(times):
            await self._all.acquire()
        await asyncio.sleep(0.2)

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Hold the reply of a Worker back."""
        if request.kind is not SessionKind.MAIN:
            self._all.release()
            await self.release.wait()
        return AssistantMessage((TextContent("done"),))


def held_objects() -> tuple[Counter[str], int]:
    """Return the number of objects by type, or by function for coroutines, and the bytes of all."""
    gc.collect()
    found, size = Counter[str](), 0
    for each in gc.get_objects():
        is_coroutine = isinstance(each, CoroutineType)
        found[f"{each.__qualname__}()" if is_coroutine else type(each).__qualname__] += 1
        size += sys.getsizeof(each)
    return found, size


@asynccontextmanager
async def waiting(path: Path, begin: Begin) -> AsyncIterator[tuple[Counter[str], float]]:
    """Return how many objects of each type are there for each waiting session, and their bytes."""
    workspace = path / "workspace"
    workspace.mkdir()
    limits = Limits(max_children=2 * SESSIONS, max_live=2 * SESSIONS, worker_ttl_s=None)
    model = HeldModel()
    async with (
        asyncio.timeout(PATIENCE_S),
        Runtime(path / "state", backend="local", slots=8) as runtime,
        SessionTree(workspace, model=model, builtin_tools=False, limits=limits, runtime=runtime) as tree,
    ):
        first = asyncio.ensure_future(begin(tree.main, 8))  # what all sessions share is there then
        await model.was_asked(8)
        before, bytes_before = held_objects()
        others = asyncio.ensure_future(begin(tree.main, SESSIONS))
        await model.was_asked(SESSIONS)
        after, bytes_after = held_objects()
        after.subtract(before)
        each = Counter({name: round(count / SESSIONS) for name, count in after.items()})
        try:
            yield each, (bytes_after - bytes_before) / SESSIONS
        finally:
            model.release.set()
            await first
            await others


async def mapped(main: SessionHandle[Any], count: int) -> None:
    """Await all results in one call."""
    await main.map("worker", ["look"] * count, concurrency=count, on_error="raise")


async def awaited_in_tasks(main: SessionHandle[Any], count: int) -> None:
    """Await each result in a task of its own: what one call for all of them saves."""
    handles = [await main.spawn("worker", "look") for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for handle in handles:
            group.create_task(handle.result())


async def test_waiting_session_takes_one_task_and_few_bytes(tmp_path: Path) -> None:
    """The task asks the model. Neither the program nor the supervisor has one for the session."""
    foreign = tmp_path / "first"
    foreign.mkdir()
    async with waiting(foreign, mapped):  # what the process loads late is there then, and counts for nobody
        pass
    async with waiting(tmp_path, mapped) as (each, size):
        assert each["Task"] == 1
        running = {name for name, count in each.items() if count > 0 and name.endswith("()")}
        assert running == {"_complete()", "HeldModel.complete()", "Event.wait()"}
        assert each["TimerHandle"] == 0
        assert size < MOST_BYTES, each.most_common(20)


async def test_task_for_each_result_is_noticed(tmp_path: Path) -> None:
    """Planted: the measurement sees what a session takes besides."""
    async with waiting(tmp_path, awaited_in_tasks) as (each, size):
        assert each["Task"] == 2
        assert size > MOST_BYTES


class EndlessModel:
    """Never replies."""

    name = "endless"

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Hold every reply back."""
        await asyncio.Event().wait()
        raise AssertionError("it was withdrawn")


def question(number: int, turn: int) -> AskModel:
    """Return a session's question of a turn: what is new since the one before."""
    settings = ModelSettings()
    if turn == 1:
        prompt = ModelPrompt(f"You are session {number}.", (ToolSpec("look", "Looks.", {}),), None)
        return AskModel(1, 0, (UserMessage((TextContent("go"),), number),), prompt, settings=settings)
    call = ToolCall(f"call{turn}", "look", {"path": f"{number}.txt", "limit": 5})
    done = ToolResultMessage(call.id, "look", (TextContent(f"seen {number}"),), timestamp=number)
    reply = AssistantMessage((call,), "toolUse", Usage(), number, "endless:1")
    return AskModel(turn, 2 * turn - 3, (reply, done), None, settings=settings)


async def held_by_a_gateway() -> float:
    """Return the bytes of a conversation of five turns whose last question waits."""
    gateway, number, size = model_gateway.GatewayHost(lambda equipment: {"default": EndlessModel()}), 0, 0
    for sessions in (range(8), range(8, 8 + CONVERSATIONS)):  # the first ones pay for what all share
        gc.collect()
        tracemalloc.start()
        for turn in range(1, 6):
            for session in sessions:
                number += 1
                asked = (f"main/w{session}", "default", number, SessionKind.WORKER, question(session, turn))
                frame = model_gateway.Ask("tree", *asked, "tree#1")
                gateway.receive(pickle.loads(pickle.dumps(((number, frame),))))
            await asyncio.sleep(0)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    await gateway._core.close()
    return size / CONVERSATIONS


async def test_conversation_at_the_gateway_holds_names_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every frame brings copies of its own. Planted: the gateway keeps them."""
    assert await held_by_a_gateway() < MOST_AT_GATEWAY
    monkeypatch.setattr(model_gateway, "share_names", lambda message: message)
    assert await held_by_a_gateway() > MOST_AT_GATEWAY
