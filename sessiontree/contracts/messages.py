"""Messages between a session and its model, in the seeds' wire form.

Values are frozen and snake_case here; ``to_json``, ``to_wire`` and ``message_from_wire`` speak the seeds'
camelCase. The text is written directly: a message is rendered once, when it is journaled.
Source: seed 000 (tool invocation protocol), sections 1 to 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sessiontree.contracts.fast_init import quickly_made
from sessiontree.contracts.jsonable import JsonValue, dump_json, quote
from sessiontree.contracts.usage import NOTHING_USED, Usage

StopReason: TypeAlias = Literal["stop", "toolUse", "length", "error", "aborted"]
Origin: TypeAlias = Literal["user", "parent", "child", "notice"]


@quickly_made
@dataclass(frozen=True, slots=True)
class TextContent:
    """A block of text."""

    text: str

    def to_json(self) -> str:
        """Return ``{type: "text", text}``."""
        return f'{{"type":"text","text":{quote(self.text)}}}'


NO_CONTENT = TextContent("(no content)")
"""What stands where a result was left without any content."""


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image as base64 text."""

    data: str
    mime_type: str

    def to_json(self) -> str:
        """Return ``{type: "image", data, mimeType}``."""
        return f'{{"type":"image","data":{quote(self.data)},"mimeType":{quote(self.mime_type)}}}'


@dataclass(frozen=True, slots=True)
class ThinkingContent:
    """What the model thought on its way to a reply; no part of the reply's text."""

    thinking: str
    signature: str = ""
    """What the provider wants to see again beside the thought; ``""`` = nothing."""

    def to_json(self) -> str:
        """Return ``{type: "thinking", thinking}``, and ``thinkingSignature`` where there is one."""
        signature = f',"thinkingSignature":{quote(self.signature)}' if self.signature else ""
        return f'{{"type":"thinking","thinking":{quote(self.thinking)}{signature}}}'


@quickly_made
@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asks for; ``id`` is the provider's and may repeat within a conversation."""

    id: str
    name: str
    arguments: Mapping[str, JsonValue]
    unread: str | None = None
    """The text that came as arguments where it is no JSON object; such a call is refused."""

    def to_json(self) -> str:
        """Return ``{type: "toolCall", id, name, arguments}``, and ``unread`` where there is any."""
        arguments = dump_json(self.arguments)
        unread = "" if self.unread is None else f',"unread":{quote(self.unread)}'
        return (
            f'{{"type":"toolCall","id":{quote(self.id)},"name":{quote(self.name)},'
            f'"arguments":{arguments}{unread}}}'
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the same as an object."""
        return _object(self.to_json())


ReplyContent: TypeAlias = TextContent | ThinkingContent | ToolCall
"""A block of a model's reply."""


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

    def to_json(self) -> str:
        """Return ``{role: "user", content, timestamp, origin}``."""
        content = ",".join([block.to_json() for block in self.content])
        return (
            f'{{"role":"user","content":[{content}],"timestamp":{self.timestamp:d},'
            f'"origin":{quote(self.origin)}}}'
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the same as an object."""
        return _object(self.to_json())


@quickly_made
@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One reply of the model: text, thoughts and tool calls in the order the model gave them."""

    content: tuple[ReplyContent, ...]
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
        content = self.content
        if len(content) == 1:
            only = content[0]
            return (only,) if isinstance(only, ToolCall) else ()
        return tuple([block for block in content if isinstance(block, ToolCall)])

    def to_json(self) -> str:
        """Return ``{role: "assistant", content, stopReason, timestamp}``, and ``usage`` where any is."""
        content = ",".join([block.to_json() for block in self.content])
        usage = "" if self.usage is NOTHING_USED else f',"usage":{dump_json(self.usage.to_wire())}'
        return (
            f'{{"role":"assistant","content":[{content}],"stopReason":{quote(self.stop_reason)},'
            f'"timestamp":{self.timestamp:d}{usage}}}'
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the same as an object."""
        return _object(self.to_json())


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    """The one result of one tool call; ``details`` is journaled and shown, never sent to a model.

    It holds at least one block of content: whoever leaves none, a hook or a journal, gets ``(no content)``.
    """

    tool_call_id: str
    tool_name: str
    content: tuple[TextContent | ImageContent, ...]
    details: JsonValue = None
    is_error: bool = False
    timestamp: int = 0
    """Milliseconds since the epoch."""

    def __post_init__(self) -> None:
        """Close the rule of one block where every way to a result ends."""
        if not self.content:
            object.__setattr__(self, "content", (NO_CONTENT,))

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def to_json(self) -> str:
        """Return ``{role: "toolResult", toolCallId, toolName, content, details, isError, timestamp}``."""
        content = ",".join([block.to_json() for block in self.content])
        details = "null" if self.details is None else dump_json(self.details)
        is_error = "true" if self.is_error else "false"
        return (
            f'{{"role":"toolResult","toolCallId":{quote(self.tool_call_id)},'
            f'"toolName":{quote(self.tool_name)},"content":[{content}],"details":{details},'
            f'"isError":{is_error},"timestamp":{self.timestamp:d}}}'
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the same as an object."""
        return _object(self.to_json())


Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage


def shown(message: Message) -> Message:
    """Return a message as a model may see it: without the details of a tool's result."""
    if isinstance(message, ToolResultMessage) and message.details is not None:
        return replace(message, details=None)
    return message


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


def _object(text: str) -> dict[str, Any]:
    wire: dict[str, Any] = json.loads(text)
    return wire


def _blocks(wire: list[Mapping[str, Any]]) -> tuple[TextContent | ImageContent, ...]:
    return tuple(_block(block) for block in wire)


def _block(block: Mapping[str, Any]) -> TextContent | ImageContent:
    if block["type"] == "text":
        return TextContent(block["text"])
    if block["type"] == "image":
        return ImageContent(block["data"], block["mimeType"])
    raise ValueError(f"no content block has the type {block['type']!r}")


def call_from_wire(block: Mapping[str, Any]) -> ToolCall:
    """Return the call of a wire object.

    Raises:
        KeyError: a member is missing.
    """
    return ToolCall(block["id"], block["name"], block["arguments"], block.get("unread"))


def _assistant_block(block: Mapping[str, Any]) -> ReplyContent:
    if block["type"] == "toolCall":
        return call_from_wire(block)
    if block["type"] == "text":
        return TextContent(block["text"])
    if block["type"] == "thinking":
        return ThinkingContent(block["thinking"], block.get("thinkingSignature", ""))
    raise ValueError(f"no assistant block has the type {block['type']!r}")
