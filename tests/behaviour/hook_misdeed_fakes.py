"""What hooks must not do, one name each; every one ends as one typed failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sessiontree import (
    BlockCall,
    CalledTool,
    ChangeArguments,
    EndedCall,
    Hook,
    HookContext,
    HookResult,
    KeptResult,
    ToolResult,
)
from sessiontree.contracts.tools.hooks import HookPoint, OnError
from sessiontree.contracts.values.messages import ImageContent, TextContent
from tests.behaviour.signal_fixtures import Flag

HUGE = 1 << 30


class Unutterable(BaseException):
    """Can't even be reported."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Endless(dict[str, Any]):
    """A mapping that goes on for ever."""

    def items(self) -> Any:
        return ((f"k{number}", "x" * 1000) for number in iter(int, 1))


def _knot() -> list[Any]:
    knot: list[Any] = []
    knot.append(knot)
    return knot


def _raise(error: BaseException) -> Any:
    raise error


RAISES: dict[str, Callable[[], Any]] = {
    "an exception": lambda: _raise(ValueError("the secret word")),
    "system exit": lambda: _raise(SystemExit(1)),
    "stop iteration": lambda: _raise(StopIteration()),
    "cancelled": lambda: _raise(asyncio.CancelledError()),
    "generator exit": lambda: _raise(GeneratorExit()),
    "unutterable": lambda: _raise(Unutterable()),
    "a number": lambda: 7,
    "a text": lambda: "x" * 1000,
    "a class": lambda: BlockCall,
}
"""At every point."""
BEFORE: dict[str, Callable[[], Any]] = {
    "a wordless block": lambda: BlockCall(None),  # type: ignore[arg-type]
    "changes that are not valid": lambda: ChangeArguments([1]),  # type: ignore[arg-type]
    "endless changes": lambda: ChangeArguments(Endless(a=1)),
    "a gigabyte": lambda: ChangeArguments({"text": "x" * HUGE}),
    "a knot": lambda: ChangeArguments({"text": _knot()}),
    "no number": lambda: ChangeArguments({"text": float("nan")}),
    "bytes": lambda: ChangeArguments({"text": b"x"}),  # type: ignore[dict-item]
    "a result that is not valid": lambda: HookResult("x"),  # type: ignore[arg-type]
    "a result of a gigabyte": lambda: HookResult(ToolResult("x" * HUGE)),
    "a result with odd images": lambda: HookResult(ToolResult("x", images=("y",))),  # type: ignore[arg-type]
}
"""Answers before a call."""
PERSIST: dict[str, Callable[[KeptResult], Any]] = {
    "none": lambda kept: None,
    "odd content": lambda kept: replace(kept, content=("x",)),  # type: ignore[arg-type]
    "no text": lambda kept: replace(kept, content=(TextContent(None),)),  # type: ignore[arg-type]
    "a list": lambda kept: replace(kept, content=[TextContent("x")]),  # type: ignore[arg-type]
    "a gigabyte kept": lambda kept: replace(kept, content=(TextContent("x" * HUGE),)),
    "endless details": lambda kept: replace(kept, details=Endless(a=1)),
    "a knot in details": lambda kept: replace(kept, details=_knot()),
    "infinite details": lambda kept: replace(kept, details=float("inf")),
    "a long number": lambda kept: replace(kept, details=1 << 100_000),
    "odd artifacts": lambda kept: replace(kept, artifacts=("x",)),  # type: ignore[arg-type]
    "an image of its own": lambda kept: replace(kept, content=(ImageContent("aGk=", "image/png"),)),
}
"""Returns of what is kept."""


class Misbehaving(Hook):
    """Does the misdeed a call's text names, at one point, as a coroutine or in a thread."""

    def __init__(self, point: HookPoint, *, guards: bool) -> None:
        self.point = point
        self.on_error: OnError = "block" if guards else "run"

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> Any:
        if self.point == "before_tool_call":
            return {**RAISES, **BEFORE}[str(call.params["text"])]()
        return None

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> Any:
        return RAISES[str(ended.params["text"])]() if self.point == "after_tool_call" else None

    def tool_result_persist(self, result: KeptResult) -> Any:
        (block,) = result.content
        if self.point != "tool_result_persist" or result.is_error or not isinstance(block, TextContent):
            return result
        name = block.text.removeprefix("appended ")
        return PERSIST[name](result) if name in PERSIST else RAISES[name]()


class MisbehavingAsync(Misbehaving):
    """The same, on the loop."""

    async def before_tool_call(self, call: CalledTool, ctx: HookContext) -> Any:
        return super().before_tool_call(call, ctx)

    async def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> Any:
        return super().after_tool_call(ended, ctx)

    async def tool_result_persist(self, result: KeptResult) -> Any:
        return super().tool_result_persist(result)


class Hanging(Hook):
    """Blocks its thread until it is let go, at one point."""

    timeout_s = 0.05

    def __init__(self, point: HookPoint, let_go: Flag, *, guards: bool) -> None:
        self.point, self.let_go = point, let_go
        self.on_error: OnError = "block" if guards else "run"

    def before_tool_call(self, call: object, ctx: object) -> None:
        self._hang("before_tool_call")

    def after_tool_call(self, ended: object, ctx: object) -> None:
        self._hang("after_tool_call")

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        self._hang("tool_result_persist")
        return result

    def _hang(self, point: HookPoint) -> None:
        if self.point == point:
            self.let_go.wait_blocking()


class DeafAsync(Hanging):
    """Ignores being cancelled until it is let go."""

    async def before_tool_call(self, call: object, ctx: object) -> None:  # type: ignore[override]
        while self.point == "before_tool_call" and not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
