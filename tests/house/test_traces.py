"""How many files of the project one action passes: what a stranger has to read to follow it.

Each action is traced on the local backend, on the event loop's thread alone. The bounds may only shrink.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PermissionTier,
    SessionTree,
    call,
    tool,
)
from sessiontree.models.answers import Answer

MOST_FILES = {"read": 30, "write": 64, "approval": 66, "spawn": 74, "memory_search": 38}
"""Files that each action may pass."""


class Trace:
    """Collects the files of the project that are entered between ``start`` and ``stop``."""

    def __init__(self, checkout: Path) -> None:
        self._roots = (f"{checkout / 'sessiontree'}/", f"{checkout / 'tools'}/")
        self.files: set[str] = set()

    def start(self) -> None:
        """Begin to count."""
        sys.setprofile(self._seen)

    def stop(self) -> None:
        """Count no more."""
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._roots):
            self.files.add(frame.f_code.co_filename)


@pytest.fixture
def trace(checkout: Path) -> Iterator[Trace]:
    """A trace that is stopped with the test."""
    found = Trace(checkout)
    yield found
    found.stop()


@contextmanager
def checked(trace: Trace, name: str) -> Iterator[None]:
    """Check how many files were passed."""
    yield
    assert trace.files, "nothing was traced"
    assert len(trace.files) <= MOST_FILES[name], sorted(trace.files)


def asks_twice(trace: Trace, first: Callable[[], Answer]) -> FunctionModel:
    """A model that has one call made, traced from its reply to the next question."""
    asked = 0

    def answer(request: ModelRequest) -> Answer:
        nonlocal asked
        asked += 1
        if asked > 1:
            trace.stop()
            return "done"
        reply = first()
        trace.start()
        return reply

    return FunctionModel(answer)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("read", lambda: call("read", path="a.txt")),
        ("write", lambda: call("write", path="b.txt", content="hello")),
        ("memory_search", lambda: call("memory_search", query="tides")),
    ],
)
async def test_trace_of_one_call(trace: Trace, tmp_path: Path, name: str, made: Callable[[], Answer]) -> None:
    """From the model's reply to its next turn."""
    (tmp_path / "ground").mkdir()
    (tmp_path / "ground" / "a.txt").write_text("hello\n")
    model = asks_twice(trace, made)
    with checked(trace, name):
        async with SessionTree(
            tmp_path / "ground", model=model, backend="local", state_dir=tmp_path / "state"
        ) as tree:
            if name == "memory_search":
                await tree.main.call("memory_search", {"query": "warm"})
            assert await tree.main.send("go") == "done"


async def test_trace_of_an_approval_at_depth_three(trace: Trace, tmp_path: Path) -> None:
    """From the reply of a Branch three levels down to the first line of the tool that was allowed."""

    @tool(tier=PermissionTier.ELEVATED)
    async def launch() -> str:
        """Launch."""
        trace.stop()
        return "launched"

    def answer(request: ModelRequest) -> Answer:
        depth = request.session_id.count("/")
        if len(request.messages) > 1:
            return "done"
        if depth == 3:
            trace.start()
            return call("launch")
        return "waits"

    (tmp_path / "ground").mkdir()
    with checked(trace, "approval"):
        async with (
            asyncio.timeout(60),
            SessionTree(
                tmp_path / "ground",
                model=FunctionModel(answer),
                tools=[launch],
                approver=lambda request: True,
                backend="local",
                state_dir=tmp_path / "state",
            ) as tree,
        ):
            session = tree.main
            for _ in range(3):
                session = await session.spawn("branch", "go")
            assert (await session.result()).summary == "done"


async def test_trace_of_a_spawn(trace: Trace, tmp_path: Path) -> None:
    """From the reply that spawns a Worker to the first question to the Worker's model."""

    def answer(request: ModelRequest) -> Answer:
        if request.session_id != "main":
            trace.stop()
            return "counted"
        if len(request.messages) > 1:
            return "done"
        trace.start()
        return call("sessions_spawn", kind="worker", task="count")

    (tmp_path / "ground").mkdir()
    with checked(trace, "spawn"):
        async with (
            asyncio.timeout(60),
            SessionTree(
                tmp_path / "ground",
                model=FunctionModel(answer),
                backend="local",
                state_dir=tmp_path / "state",
            ) as tree,
        ):
            await tree.main.send("go")
