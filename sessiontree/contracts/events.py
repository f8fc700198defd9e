"""Events: what watchers see while a tree runs. Facts are journaled; these are not, and may be dropped.

Source: seed 000, sections 1, 2.2 and 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ToolCall


@dataclass(frozen=True, slots=True)
class ToolExecutionStart:
    """A call begins."""

    tool_call_id: str
    tool_name: str
    args: Mapping[str, JsonValue]

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "tool_execution_start", toolCallId, toolName, args}``."""
        return {
            "type": "tool_execution_start",
            "toolCallId": self.tool_call_id,
            "toolName": self.tool_name,
            "args": self.args,
        }


@dataclass(frozen=True, slots=True)
class ToolExecutionUpdate:
    """A running call reports progress."""

    tool_call_id: str
    tool_name: str
    partial: JsonValue

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "tool_execution_update", toolCallId, toolName, partialResult}``."""
        return {
            "type": "tool_execution_update",
            "toolCallId": self.tool_call_id,
            "toolName": self.tool_name,
            "partialResult": self.partial,
        }


@dataclass(frozen=True, slots=True)
class ToolExecutionRetry:
    """An attempt at a call failed, and another follows."""

    tool_call_id: str
    tool_name: str
    attempt: int
    """The one that failed, from 1."""
    attempts: int
    """How many there are at most."""
    code: str
    """What it failed of, such as ``timeout``; the words of the error may hold what nobody should see."""
    delay_s: float
    """How long the next one is waited for."""

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "tool_execution_retry", toolCallId, toolName, attempt, …, delayMs}``.

        The specification has no word for it; its members are named as its own are.
        """
        return {
            "type": "tool_execution_retry",
            "toolCallId": self.tool_call_id,
            "toolName": self.tool_name,
            "attempt": self.attempt,
            "attempts": self.attempts,
            "code": self.code,
            "delayMs": round(self.delay_s * 1_000),
        }


@dataclass(frozen=True, slots=True)
class ToolExecutionEnd:
    """A call has its result."""

    tool_call_id: str
    tool_name: str
    result: JsonValue
    is_error: bool

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "tool_execution_end", toolCallId, toolName, result, isError}``."""
        return {
            "type": "tool_execution_end",
            "toolCallId": self.tool_call_id,
            "toolName": self.tool_name,
            "result": self.result,
            "isError": self.is_error,
        }


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    delta: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "text_delta", delta}``."""
        return {"type": "text_delta", "delta": self.delta}


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of what the model thinks before it replies."""

    delta: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "thinking_delta", delta}``."""
        return {"type": "thinking_delta", "delta": self.delta}


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The model begins to write a call at a place of its reply."""

    content_index: int

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "toolcall_start", contentIndex}``."""
        return {"type": "toolcall_start", "contentIndex": self.content_index}


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call's argument text."""

    content_index: int
    delta: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "toolcall_delta", contentIndex, delta}``."""
        return {"type": "toolcall_delta", "contentIndex": self.content_index, "delta": self.delta}


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A call is written whole."""

    content_index: int
    tool_call: ToolCall

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "toolcall_end", contentIndex, toolCall}``."""
        return {
            "type": "toolcall_end",
            "contentIndex": self.content_index,
            "toolCall": self.tool_call.to_wire(),
        }


@dataclass(frozen=True, slots=True)
class Done:
    """The reply is complete, or cut short: ``stop_reason`` is ``error`` or ``aborted`` then."""

    stop_reason: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "done", stopReason}``."""
        return {"type": "done", "stopReason": self.stop_reason}


@dataclass(frozen=True, slots=True)
class TranscriptRepaired:
    """A conversation was not shown to its model as it stands: calls and results did not match."""

    missing: int
    """Calls that got a made-up result."""
    dropped: int
    """Results left out: nobody asked for them, or they came twice."""
    moved: int
    """Results put behind their calls."""

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "transcript_repaired", missing, dropped, moved}``."""
        return {
            "type": "transcript_repaired",
            "missing": self.missing,
            "dropped": self.dropped,
            "moved": self.moved,
        }


ModelEvent: TypeAlias = (
    TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | Done | TranscriptRepaired
)
ToolEvent: TypeAlias = ToolExecutionStart | ToolExecutionUpdate | ToolExecutionRetry | ToolExecutionEnd
Event: TypeAlias = ModelEvent | ToolEvent
