"""Messages between a session and its model, in the seeds' wire form.

Values are frozen and snake_case here; ``to_wire`` and ``message_from_wire`` speak the seeds' camelCase.
Source: seed 000 (tool invocation protocol), sections 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.usage import NOTHING_USED, Usage

StopReason: TypeAlias = Literal["stop", "toolUse", "length", "error", "aborted"]
Origin: TypeAlias = Literal["user", "parent", "child", "notice"]


@dataclass(frozen=True, slots=True)
class TextContent:
    """A block of text."""

    text: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "text", text}``."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image as base64 text."""

    data: str
    mime_type: str

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "image", data, mimeType}``."""
        return {"type": "image", "data": self.data, "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asks for; ``id`` is the provider's and may repeat within a conversation."""

    id: str
    name: str
    arguments: Mapping[str, JsonValue]

    def to_wire(self) -> dict[str, Any]:
        """Return ``{type: "toolCall", id, name, arguments}``."""
        return {"type": "toolCall", "id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Something said to the session: by a person, its parent, a child, or the runtime itself."""

    content: tuple[TextContent | ImageContent, ...]
    timestamp: int
    """Milliseconds since the epoch."""
    origin: Origin = "user"

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def to_wire(self) -> dict[str, Any]:
        """Return ``{role: "user", content, timestamp, origin}``."""
        content = [block.to_wire() for block in self.content]
        return {"role": "user", "content": content, "timestamp": self.timestamp, "origin": self.origin}


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One reply of the model: text and tool calls in the order the model gave them."""

    content: tuple[TextContent | ToolCall, ...]
    stop_reason: StopReason = "stop"
    usage: Usage = NOTHING_USED
    timestamp: int = 0
    """Milliseconds since the epoch."""

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the reply's order."""
        return tuple([block for block in self.content if isinstance(block, ToolCall)])

    def to_wire(self) -> dict[str, Any]:
        """Return ``{role: "assistant", content, stopReason, timestamp}``, and ``usage`` where any is."""
        wire: dict[str, Any] = {
            "role": "assistant",
            "content": [block.to_wire() for block in self.content],
            "stopReason": self.stop_reason,
            "timestamp": self.timestamp,
        }
        if self.usage is not NOTHING_USED:
            wire["usage"] = self.usage.to_wire()
        return wire


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    """The one result of one tool call; ``details`` is journaled and shown, never sent to a model."""

    tool_call_id: str
    tool_name: str
    content: tuple[TextContent | ImageContent, ...]
    details: JsonValue = None
    is_error: bool = False
    timestamp: int = 0
    """Milliseconds since the epoch."""

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def to_wire(self) -> dict[str, Any]:
        """Return ``{role: "toolResult", toolCallId, toolName, content, details, isError, timestamp}``."""
        return {
            "role": "toolResult",
            "toolCallId": self.tool_call_id,
            "toolName": self.tool_name,
            "content": [block.to_wire() for block in self.content],
            "details": self.details,
            "isError": self.is_error,
            "timestamp": self.timestamp,
        }


Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage


def message_from_wire(wire: Mapping[str, Any]) -> Message:
    """Return the message of a wire object.

    Raises:
        ValueError: the role or a block's type is unknown.
        KeyError: a member is missing.
    """
    role = wire["role"]
    if role == "user":
        return UserMessage(_blocks(wire["content"]), wire["timestamp"], wire.get("origin", "user"))
    if role == "assistant":
        return AssistantMessage(
            tuple(_assistant_block(block) for block in wire["content"]),
            wire["stopReason"],
            Usage.from_wire(wire["usage"]) if "usage" in wire else NOTHING_USED,
            wire["timestamp"],
        )
    if role == "toolResult":
        return ToolResultMessage(
            wire["toolCallId"],
            wire["toolName"],
            _blocks(wire["content"]),
            wire["details"],
            wire["isError"],
            wire["timestamp"],
        )
    raise ValueError(f"no message has the role {role!r}")


def _blocks(wire: list[Mapping[str, Any]]) -> tuple[TextContent | ImageContent, ...]:
    return tuple(_block(block) for block in wire)


def _block(block: Mapping[str, Any]) -> TextContent | ImageContent:
    if block["type"] == "text":
        return TextContent(block["text"])
    if block["type"] == "image":
        return ImageContent(block["data"], block["mimeType"])
    raise ValueError(f"no content block has the type {block['type']!r}")


def _assistant_block(block: Mapping[str, Any]) -> TextContent | ToolCall:
    if block["type"] == "toolCall":
        return ToolCall(block["id"], block["name"], block["arguments"])
    if block["type"] == "text":
        return TextContent(block["text"])
    raise ValueError(f"no assistant block has the type {block['type']!r}")
