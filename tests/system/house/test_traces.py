"""How many files of the project one action passes, and how many calls it takes: what a stranger has to read.

Each action is traced on the local backend, on the event loop's thread alone. It is done twelve times in one
tree, and the fewest files and calls count: a loaded machine, a timer or a cache that is still empty can only
add some. The bounds may only shrink, unless a class is cut into parts that have files of their own.
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

from sessiontree import FunctionModel, Limits, ModelRequest, PermissionTier, SessionTree, script_call, tool
from sessiontree.bench import Attempt, Sample, Suite, exact
from sessiontree.models.answers import Answer

TIMES = 12
"""How often each action is traced."""
LIMITS = Limits(max_repeats=TIMES + 3)
"""The same call may be traced each time: no warning comes before the last one."""
MAX_FILES = {"read": 33, "write": 64, "approval": 66, "spawn": 85, "memory_search": 40, "sample": 154}
"""Files that each action may pass."""
MAX_CALLS = {
    "read": 160,
    "write": 490,
    "approval": 900,
    "spawn": 850,
    "memory_search": 200,
    "sample": 2_000,
}
"""Calls of the project's functions that each action may take. The fewest of twelve count, so that tasks that
wait for time, and run again on a busy machine, add none."""


class Trace:
    """Collects the files of the project that are entered between ``start`` and ``stop``, and counts calls."""

    def __init__(self, checkout: Path) -> None:
        self._roots = (f"{checkout / 'sessiontree'}/", f"{checkout / 'tools'}/")
        self.runs: list[set[str]] = []
        self.calls: list[int] = []

    def start(self) -> None:
        """Begin to count, from nothing."""
        self.runs.append(set())
        self.calls.append(0)
        sys.setprofile(self._seen)

    def stop(self) -> None:
        """Count no more."""
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._roots):
            self.runs[-1].add(frame.f_code.co_filename)
            self.calls[-1] += 1


@pytest.fixture
def trace(checkout: Path) -> Iterator[Trace]:
    """A trace that is stopped with the test."""
    found = Trace(checkout)
    yield found
    found.stop()


@contextmanager
def checked(trace: Trace, name: str) -> Iterator[None]:
    """Check how many files were passed, and how many calls were made."""
    yield
    assert len(trace.runs) == TIMES, "the action was not traced as often as it should be"
    each_time = set.intersection(*trace.runs)  # without an import or a timer, which run once
    assert each_time, "nothing was traced"
    assert len(each_time) <= MAX_FILES[name], "\n" + "\n".join(sorted(each_time))
    assert min(trace.calls) <= MAX_CALLS[name]


def calls_repeatedly(trace: Trace, made: Callable[[int], Answer]) -> FunctionModel:
    """A model that makes one call after the other, each traced from its reply to the next question.

    No two are the same: repetitions are compared with what was before, and that is another walk.
    """

    def answer(request: ModelRequest) -> Answer:
        trace.stop()
        if len(trace.runs) == TIMES:
            return "done"
        reply = made(len(trace.runs))
        trace.start()
        return reply

    return FunctionModel(answer)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("read", lambda n: script_call("read", path="a.txt", limit=n + 1)),
        ("write", lambda n: script_call("write", path=f"b{n}.txt", content="hello")),
        ("memory_search", lambda n: script_call("memory_search", query=f"tides {n}")),
    ],
)
async def test_trace_of_one_call(
    trace: Trace, tmp_path: Path, name: str, made: Callable[[int], Answer]
) -> None:
    """From the model's reply to its next turn."""
    (tmp_path / "ground").mkdir()
    (tmp_path / "ground" / "a.txt").write_text("hello\n")
    model = calls_repeatedly(trace, made)
    with checked(trace, name):
        async with SessionTree(
            tmp_path / "ground", model=model, limits=LIMITS, backend="local", state_dir=tmp_path / "state"
        ) as tree:
            assert await tree.main.send("go") == "done"


async def test_trace_of_an_approval_at_depth_three(trace: Trace, tmp_path: Path) -> None:
    """From the reply of a Branch three levels down to the first line of the tool that was allowed."""

    @tool(tier=PermissionTier.ELEVATED)
    async def launch() -> str:
        """Launch."""
        trace.stop()
        return "launched"

    def answer(request: ModelRequest) -> Answer:
        if request.session_id.count("/") < 3:
            return "waits"
        if len(trace.runs) == TIMES:
            return "done"
        trace.start()
        return script_call("launch")

    (tmp_path / "ground").mkdir()
    with checked(trace, "approval"):
        async with (
            asyncio.timeout(60),
            SessionTree(
                tmp_path / "ground",
                model=FunctionModel(answer),
                tools=[launch],
                limits=LIMITS,
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
        if not request.messages[-1].text.endswith("go"):
            return "done"
        trace.start()
        return script_call("sessions_spawn", kind="worker", task="count")

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
            for number in range(1, TIMES + 1):
                await tree.main.send("go")
                # the end of one Worker is not a part of the next one's beginning
                await tree.session(f"main/w{number}").result()


async def test_trace_of_a_sample(trace: Trace, tmp_path: Path) -> None:
    """From one call of a suite's solver to the next: the score of a sample, and the tree of the next one."""

    async def solve(attempt: Attempt[Any]) -> None:
        trace.stop()
        attempt.output = await attempt.tree.run(attempt.sample.input)
        if len(trace.runs) < TIMES:
            trace.start()

    samples = [Sample(id=str(number), input="go", target="done") for number in range(TIMES + 1)]
    suite = Suite("traced", samples, solver=solve, scorers=exact())
    with checked(trace, "sample"):
        model = FunctionModel(lambda request: "done")
        results = await suite.run(tmp_path / "run", model=model, backend="local", concurrency=1)
    assert results.counts.scored == len(samples)
