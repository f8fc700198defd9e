"""Tools that do what no tool should; every one of them must leave its session running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from sessiontree import (
    Artifact,
    ExecutionError,
    PermissionDenied,
    PermissionTier,
    SessionKind,
    Timeout,
    Tool,
    ToolContext,
    ToolResult,
    ValidationError,
)
from sessiontree.contracts.values.messages import ImageContent
from tests.behaviour.waiting_fakes import Nothing

RING: dict[str, Any] = {}
RING["again"] = RING
NESTED: list[Any] = []
for _ in range(10_000):
    NESTED = [NESTED]


def junk(value: object) -> Any:
    """Return a value where another type belongs."""
    return value


class Odd(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Ruinous(Exception):
    """Ends the program when it is shown."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Outcry(BaseException):
    """No ordinary exception."""


def cancelled_from_within() -> object:
    """Raise what only a cancelled task should see."""
    raise asyncio.CancelledError


def raising(error: BaseException) -> Callable[[], object]:
    """Return a function that raises."""

    def body() -> object:
        raise error

    return body


@dataclass(frozen=True)
class Misdeed:
    """What a tool does, and how its call must end."""

    body: Callable[[], object]
    outcome: str
    words: str


MISDEEDS = {
    "raises what would end the program": Misdeed(raising(Ruinous()), "error", "failed: Ruinous"),
    "a time that is no number": Misdeed(raising(Timeout(float("nan"))), "error", "timed out after nan s"),
    "returns none": Misdeed(lambda: None, "error", "returned NoneType instead of a ToolResult"),
    "returns a class": Misdeed(lambda: ToolResult, "error", "instead of a ToolResult"),
    "returns no JSON": Misdeed(lambda: ToolResult(junk(object())), "error", "without a JSON form"),
    "returns NaN": Misdeed(lambda: ToolResult({"x": float("nan")}), "error", "without a JSON form"),
    "returns a circle": Misdeed(lambda: ToolResult(RING), "error", "without a JSON form"),
    "returns depths": Misdeed(lambda: ToolResult(NESTED), "error", "without a JSON form"),
    "details in a circle": Misdeed(lambda: ToolResult("x", details=RING), "error", "nested too deeply"),
    "a display that is no text": Misdeed(lambda: ToolResult("x", display=junk(5)), "error", "int as display"),
    "images that are not valid": Misdeed(
        lambda: ToolResult("x", images=junk(("cat",))), "error", "'cat' among its images"
    ),
    "an image without data": Misdeed(
        lambda: ToolResult("x", images=(ImageContent(junk(None), "image/png"),)),
        "error",
        "among its images",
    ),
    "artifacts that are not valid": Misdeed(
        lambda: ToolResult("x", artifacts=junk(("a.txt",))), "error", "'a.txt' among its artifacts"
    ),
    "an artifact of no text": Misdeed(
        lambda: ToolResult("x", artifacts=(Artifact("file", junk(b"bytes")),)),
        "error",
        "among its artifacts",
    ),
    "raises": Misdeed(raising(ValueError("no good")), "error", "ValueError: no good"),
    "raises without words": Misdeed(raising(Odd()), "error", "Odd"),
    "raises surrogates": Misdeed(raising(ValueError("\ud800")), "error", "ValueError"),
    "raises SystemExit": Misdeed(raising(SystemExit(3)), "error", "SystemExit: 3"),
    "raises GeneratorExit": Misdeed(raising(GeneratorExit()), "error", "GeneratorExit"),
    "raises StopAsyncIteration": Misdeed(raising(StopAsyncIteration()), "error", "StopAsyncIteration"),
    "raises StopIteration": Misdeed(raising(StopIteration()), "error", "StopIteration"),
    "raises an outcry": Misdeed(raising(Outcry("help")), "error", "Outcry: help"),
    "raises a group": Misdeed(
        raising(BaseExceptionGroup("many", [Outcry("one"), ValueError("two")])), "error", "many"
    ),
    "raises CancelledError": Misdeed(cancelled_from_within, "error", "something it waited for was cancelled"),
    "raises MemoryError": Misdeed(raising(MemoryError()), "error", "MemoryError"),
    "recurses": Misdeed(lambda: recurse(0), "error", "RecursionError"),
    "refuses": Misdeed(raising(PermissionDenied(PermissionTier.SYSTEM, "not here")), "denied", "not here"),
    "finds fault": Misdeed(raising(ValidationError("too late", "/x")), "error", "too late"),
    "gives up in no words": Misdeed(
        raising(ExecutionError(junk(object()))), "error", "failed: ExecutionError"
    ),
    "refuses without a tier": Misdeed(
        raising(PermissionDenied(junk("high"), "no")), "error", "PermissionDenied"
    ),
    "gives up": Misdeed(raising(ExecutionError("no luck")), "error", "no luck"),
}


def recurse(depth: int) -> object:
    """Never return."""
    return recurse(depth + 1)


class Misbehave(Tool[Nothing]):
    """Does one misdeed."""

    description = "Misbehave."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    def __init__(self, name: str) -> None:
        self.name = name.replace(" ", "_")  # type: ignore[misc]
        self._misdeed = name

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        return MISDEEDS[self._misdeed].body()  # type: ignore[return-value]
