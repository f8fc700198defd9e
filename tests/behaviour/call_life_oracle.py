"""Calls of every kind, written down step by step; and the rules each of them keeps from start to end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

from pydantic import BaseModel

from sessiontree import (
    BlockCall,
    CalledTool,
    EndedCall,
    ExecutionError,
    Hook,
    HookContext,
    HookResult,
    KeptResult,
    PermissionTier,
    Retry,
    Tool,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.reports.events import (
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from sessiontree.contracts.tools.hooks import HookAnswer
from sessiontree.runtime.transport.progress import ProgressReader

WORDS = {
    ToolExecutionStart: "start",
    ToolExecutionUpdate: "update",
    ToolExecutionRetry: "retry",
    ToolExecutionEnd: "end",
}
RUNS = {"reads": 1, "writes": 1, "alone": 1, "fails": 1, "crashes": 1, "late": 2, "stuck": 1}
"""Tools, and how often one call of theirs runs at most."""


class Diary:
    """Everything that happens to calls, in one order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        """Call and step: those of :data:`ORDER`, ``update`` and ``retry``."""
        self.progress: ProgressReader | None = None
        self.inside: list[str] = []
        """Tools that run."""
        self.met: list[str] = []
        """Calls that ran alongside one that runs alone."""
        self.stuck = asyncio.Event()
        self.stuck_ever = False
        self.news = asyncio.Event()

    def write(self, call_id: str, step: str) -> None:
        """Write a step down, behind all events so far."""
        for shown in self.progress.drain() if self.progress is not None else ():
            event: Any = shown.event
            if type(event) in WORDS:
                self.lines.append((event.tool_call_id, WORDS[type(event)]))
        if step:
            self.lines.append((call_id, step))
        self.news.set()

    async def holds(self, step: str, count: int) -> None:
        """Wait until a step was written down so often."""
        while sum(1 for _, each in self.lines if each == step) < count:
            self.news.clear()
            await self.news.wait()

    def read_steps(self, call_id: str) -> list[str]:
        """Return the steps of one call, in order."""
        return [step for each, step in self.lines if each == call_id]


class Call(BaseModel):
    """Which call it is, and what its hook does."""

    id: str
    hook: str = ""


class Step(Tool[Call]):
    """Does what it is called."""

    description = "Do something."
    Params: ClassVar[type[BaseModel]] = Call
    tier = PermissionTier.READ_ONLY
    timeout_s: ClassVar[float | None] = 600

    def __init__(self, name: str, diary: Diary) -> None:
        self.name = name  # type: ignore[misc]
        self.diary = diary
        if name in {"writes", "alone", "denied"}:
            self.tier = PermissionTier.ELEVATED if name == "denied" else PermissionTier.WORKSPACE  # type: ignore[misc]
        self.sequential = name == "alone"  # type: ignore[misc]
        if name == "late":
            self.timeout_s = 0.01  # type: ignore[misc]
            self.retry = Retry(2, 0, 0)  # type: ignore[misc]

    async def execute(self, params: Call, ctx: ToolContext) -> ToolResult:
        self.diary.write(params.id, "run")
        self.diary.inside.append(self.name)
        if "alone" in self.diary.inside and len(self.diary.inside) > 1:
            self.diary.met.append(params.id)
        try:
            ctx.update({"id": params.id})
            await asyncio.sleep(0)
            if self.name in {"stuck", "late"}:
                if self.name == "stuck":
                    self.diary.stuck.set()
                    self.diary.stuck_ever = True
                await asyncio.get_running_loop().create_future()
            if self.name == "fails":
                raise ExecutionError("no luck")
            if self.name == "crashes":
                raise ZeroDivisionError
            ctx.update("nearly")
            return ToolResult(params.id)
        finally:
            self.diary.inside.remove(self.name)


class Diarist(Hook):
    """Writes down when it is asked, and does what the call says."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    async def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer:
        self.diary.write(call.call_id, "before")
        if call.params.get("hook") == "block":
            return BlockCall("not today")
        return HookResult(ToolResult("in its place")) if call.params.get("hook") == "answer" else None

    async def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> None:
        self.diary.write(ended.result.tool_call_id, "after")

    async def tool_result_persist(self, result: KeptResult) -> KeptResult:
        if result.content:
            self.diary.write(result.call_id, "persist")
        return replace(result)


ORDER = ("start", "before", "run", "after", "persist", "end")


def judge(steps: list[str], asked: Mapping[str, str], *, hooked: bool, hurried: bool) -> None:
    """Check one call that is over: the steps of seed 000, section 1, in order, once each.

    Args:
        steps: What happened to it.
        asked: Its tool, outcome and what its hook does.
        hooked: Whether hooks were around it.
        hurried: Whether something may have asked it to stop, be it between two attempts.
    """
    seen = (asked, steps)
    assert steps[0] == "start", seen
    for once in ("start", "end", *(("after",) if hooked else ())):
        assert steps.count(once) == 1, seen
    for at_most_once in ("before", "persist"):
        assert steps.count(at_most_once) <= int(hooked), seen
    runs = steps.count("run")
    assert runs <= RUNS.get(asked["tool"], 0), seen
    between = [step for step in steps if step in {"run", "retry"}]
    assert all(one != other for one, other in pairwise(between)), seen
    if between and between[-1] == "retry":  # asked to stop in the pause
        assert asked["outcome"] == "aborted", seen
    if asked["outcome"] == "timeout" and not hurried:
        assert runs == RUNS["late"], seen
    if runs and hooked:
        assert steps.count("before") == steps.count("persist") == 1, seen
    if asked["hook"] and hooked:
        assert not runs, seen
    if asked["outcome"] in {"invalid", "denied", "blocked", "skipped"}:
        assert not runs, seen
    last = max(at for at, step in enumerate(steps) if step in {"end", "after"})
    assert last == len(steps) - 1, seen
    if runs:
        first = [steps.index(step) for step in ORDER if step in steps]
        assert first == sorted(first), seen
        over = steps.index("after" if hooked else "end")
        at_work = [at for at, step in enumerate(steps) if step in {"update", "retry", "run"}]
        assert all(steps.index("run") <= at < over for at in at_work), seen
    else:
        assert not {"update", "retry"}.intersection(steps), seen
