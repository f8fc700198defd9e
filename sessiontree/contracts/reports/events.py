"""Events: what watchers see while a tree runs. Unlike facts, events are not journaled and may be dropped.

Source: seed 000, sections 1, 2.2 and 5.4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolCall, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.short_values import SHOWN_CHARS
from sessiontree.contracts.values.truncation import cut_line, cut_text

SHOWN_ERROR_CHARS: Final = 400
"""Maximum characters of an error on a screen; only its first line is shown."""
_ENDED: Final = frozenset({"timeout", "limit", "signal"})
"""Why a command was ended, in the details of its result."""


def encode_for_screen(message: ToolResultMessage) -> dict[str, JsonValue]:
    """Return a result in its wire form for a screen.

    All blocks together have at most 8,000 characters of text. An image has its size instead of its data:
    ``{type, mimeType, bytes, omitted: true}``. A failed result has an ``error`` of one line, at most
    400 characters. Details of more than 8,000 characters are replaced by ``{omitted: true}``.
    """
    left = SHOWN_CHARS
    content: list[JsonValue] = []
    for block in message.content:
        if isinstance(block, TextContent):
            text = cut_text(block.text, left)
            left -= len(text)
            content.append({"type": "text", "text": text})
        else:
            content.append(_omit_data(block))
    shown: dict[str, JsonValue] = {
        "role": "toolResult",
        "toolCallId": message.tool_call_id,
        "toolName": message.tool_name,
        "content": content,
        "details": message.details if _is_short(message.details) else {"omitted": True},
        "isError": message.is_error,
        "timestamp": message.timestamp,
    }
    if message.is_error:
        shown["error"] = cut_line(_extract_reason(message.text), SHOWN_ERROR_CHARS)
    return shown


def get_display(message: ToolResultMessage) -> str | None:
    """Return the display line that a tool gave with its result; None if it gave none."""
    details = message.details
    display = details.get("display") if isinstance(details, dict) else None
    return display if isinstance(display, str) and display else None


def describe_failure(message: ToolResultMessage) -> str | None:
    """Return in one line why a call failed; None if it did not.

    A command that ran and failed has a result without an error. Its details tell: an ``exit_code`` other than
    0, or a ``reason`` why it was ended.
    """
    if message.is_error:
        return cut_line(_extract_reason(message.text), SHOWN_ERROR_CHARS)
    how = describe_exit(message)
    return None if how is None else cut_line(get_display(message) or how, SHOWN_ERROR_CHARS)


def describe_exit(message: ToolResultMessage) -> str | None:
    """Return how a command failed, such as ``exit code 2`` or ``timeout``; None if it did not."""
    details = message.details.get("details") if isinstance(message.details, dict) else None
    if not isinstance(details, dict) or "exit_code" not in details:
        return None
    code, reason = details["exit_code"], details.get("reason")
    if isinstance(code, int) and code:
        return f"exit code {code}"
    return str(reason) if reason in _ENDED else None


def _is_short(details: JsonValue) -> bool:
    return details is None or len(dump_json(details)) <= SHOWN_CHARS


def _omit_data(image: ImageContent) -> dict[str, JsonValue]:
    size = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    return {"type": "image", "mimeType": image.mime_type, "bytes": size, "omitted": True}


def _extract_reason(text: str) -> str:
    """Return the reason in an envelope; any other text unchanged."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(envelope, dict):
        for member in ("error", "reason"):
            if isinstance(said := envelope.get(member), str):
                return said
    return text


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
    content: tuple[TextContent | ImageContent, ...] = ()
    """The update's images, fitted as those of a result, after a text that says what was done to them; empty
    for an update without images."""

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "tool_execution_update", toolCallId, toolName, partialResult}``.

        With images, ``partialResult`` is ``{content, details}``; ``details`` is what the tool reported.
        """
        partial: JsonValue = self.partial
        if self.content:
            partial = {"content": [json.loads(block.to_json()) for block in self.content], "details": partial}
        return {
            "type": "tool_execution_update",
            "toolCallId": self.tool_call_id,
            "toolName": self.tool_name,
            "partialResult": partial,
        }


@dataclass(frozen=True, slots=True)
class ToolExecutionRetry:
    """An attempt at a call failed, and another follows."""

    tool_call_id: str
    tool_name: str
    attempt: int
    """Number of the attempt that failed, from 1."""
    attempts: int
    """Maximum number of attempts."""
    code: str
    """Error code, such as ``timeout``; the error's message may contain secrets and is left out."""
    delay_s: float
    """Seconds until the next attempt."""

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "tool_execution_retry", toolCallId, toolName, attempt, …, delayMs}``.

        The specification has no such event; the member names follow its conventions.
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
    """A piece of the model's thinking."""

    delta: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "thinking_delta", delta}``."""
        return {"type": "thinking_delta", "delta": self.delta}


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The model begins to write a call at a position of its reply."""

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
    """A call is complete."""

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
    """The reply is complete or cut short; ``stop_reason`` is ``error`` or ``aborted`` if it is cut short."""

    stop_reason: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "done", stopReason}``."""
        return {"type": "done", "stopReason": self.stop_reason}


@dataclass(frozen=True, slots=True)
class TranscriptRepaired:
    """A conversation was repaired before the model saw it, because calls and results did not match."""

    missing: int
    """Number of calls that got a placeholder result."""
    dropped: int
    """Number of results left out: they had no call, or were duplicates."""
    moved: int
    """Number of results moved after their calls."""

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
"""What happens while a model replies."""
ToolEvent: TypeAlias = ToolExecutionStart | ToolExecutionUpdate | ToolExecutionRetry | ToolExecutionEnd
"""What happens while a tool runs."""
Event: TypeAlias = ModelEvent | ToolEvent
"""What ``progress()`` yields inside a :class:`~sessiontree.Progress`."""
