"""Tools and a model that wait, each until something else happens; tests see from outside how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from pydantic import BaseModel

from sessiontree import (
    AsyncFunctionModel,
    ModelRequest,
    PermissionTier,
    Retry,
    SessionKind,
    Tool,
    ToolContext,
    ToolResult,
)
from sessiontree.models.answers import Answer
from tests.behaviour.signal_fixtures import Flag, Log
from tests.behaviour.switchboard_fixtures import Switchboard


class Nothing(BaseModel):
    """No parameters."""


class Sleeper(Tool[Nothing]):
    """Waits for ever, and goes when it is asked to."""

    name = "sleeper"
    description = "Wait."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    retry: ClassVar[Retry | None] = Retry(attempts=1)
    kinds = frozenset(SessionKind)

    def __init__(self, board: Switchboard, timeout_s: float | None = None) -> None:
        self.timeout_s = timeout_s  # type: ignore[misc]
        self.started = Flag(board)
        self.ended = Log(board)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended.append("cancelled" if ctx.cancelled else "dropped")
        return ToolResult("woke up")


class Held(Sleeper):
    """Waits until it is let go."""

    name = "held"

    def __init__(self, board: Switchboard, timeout_s: float | None = None) -> None:
        super().__init__(board, timeout_s)
        self.let_go = Flag(board)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        self.started.set()
        await self.let_go.wait()
        self.ended.append("through")
        return ToolResult("through")


class Deaf(Held):
    """Ignores being cancelled until it is let go."""

    name = "deaf"

    def __init__(self, board: Switchboard, timeout_s: float | None = None) -> None:
        super().__init__(board, timeout_s)
        self.done = Flag(board)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        self.started.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.ended.append("ignored")
        self.done.set()
        return ToolResult("too late")


class InThread(Held):
    """Blocks a thread, which nobody can stop, until it is let go."""

    name = "in_thread"

    def __init__(self, board: Switchboard, timeout_s: float | None = None) -> None:
        super().__init__(board, timeout_s)
        self.saw_cancel = Flag(board)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        self.started.set()

        def block() -> str:
            self.let_go.wait_blocking(20)
            if ctx.cancelled:
                self.saw_cancel.set()
            return "late"

        return ToolResult(await asyncio.to_thread(block))


class Late(AsyncFunctionModel):
    """Replies once it is let go, so that what was spawned is there until its test is done with it."""

    def __init__(
        self, board: Switchboard, function: Callable[[ModelRequest], Answer], name: str = "late"
    ) -> None:
        super().__init__(self._reply, name)
        self.function = function
        self.let_go = Flag(board)

    async def _reply(self, request: ModelRequest) -> Answer:
        await self.let_go.wait()
        return self.function(request)
