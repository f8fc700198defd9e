"""What the dispatch benchmarks run: a tool that does nothing, and a model that calls it turn after turn."""

from __future__ import annotations

import time
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from sessiontree import (
    AssistantMessage,
    ModelRequest,
    PermissionTier,
    SessionKind,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import TextContent

ARGUMENTS: dict[str, JsonValue] = {"path": "a.txt", "limit": 5}


class NothingParams(BaseModel):
    """Two fields, as a small real call has."""

    model_config = ConfigDict(extra="forbid")

    path: str
    limit: int = 10


class Nothing(Tool[NothingParams]):
    """Does nothing."""

    name = "nothing"
    description = "Does nothing."
    Params: ClassVar[type[BaseModel]] = NothingParams
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    async def execute(self, params: NothingParams, ctx: ToolContext) -> ToolResult:
        """Return at once."""
        return ToolResult("ok")


class NoChange(Nothing):
    """Does nothing, as a tool that may change the workspace: its intent is durable before it runs."""

    name = "no_change"
    tier = PermissionTier.WORKSPACE
    kinds = frozenset({SessionKind.MAIN, SessionKind.BRANCH})


class TurnModel:
    """Asks for `calls` calls a turn, for `turns` turns after each message; notes when it was asked."""

    name = "turns"

    def __init__(self, turns: int, calls: int = 1, tool: str = "nothing") -> None:
        """Begin before the first message."""
        self._turns = turns
        self._calls = tuple(ToolCall(f"c{index}", tool, ARGUMENTS) for index in range(calls))
        self._left = turns
        self.asked: list[float] = []

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return calls while turns are left, then text."""
        self.asked.append(time.perf_counter())
        if self._left == 0:
            self._left = self._turns
            return AssistantMessage((TextContent("done"),))
        self._left -= 1
        return AssistantMessage(self._calls, "toolUse")
