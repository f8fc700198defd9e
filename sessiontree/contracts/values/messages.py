"""Messages between a session and its model, the usage that replies report, and what a program's call returns.

Values are frozen and snake_case here; ``to_json``, ``to_wire`` and ``decode_message`` use camelCase. The
text is written directly: a message is rendered once, when it is journaled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final, Literal, TypeAlias

from sessiontree.contracts.values.data_frames import make_data_frame
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, quote
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts used; values can be added and subtracted."""

    input_tokens: int = 0
    """All tokens of the request, including tokens read from or written to the provider's cache."""
    output_tokens: int = 0
    """All tokens of the reply, including reasoning tokens."""
    cost_usd: float = 0.0
    turns: int = 0
    tool_calls: int = 0
    cache_read_tokens: int = 0
    """Part of ``input_tokens`` that was read from the provider's cache."""
    cache_write_tokens: int = 0
    """Part of ``input_tokens`` that was written to the provider's cache."""
    reasoning_tokens: int = 0
    """Part of ``output_tokens`` used for reasoning; also 0 if the provider does not report it."""
    unpriced_tokens: int = 0
    """Tokens that a provider may charge at an unknown price; ``cost_usd`` does not include them."""

    def __add__(self, other: Usage) -> Usage:
        """Return the member-wise sum."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
            self.turns + other.turns,
            self.tool_calls + other.tool_calls,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.unpriced_tokens + other.unpriced_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        """Return the member-wise difference."""
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cost_usd - other.cost_usd,
            self.turns - other.turns,
            self.tool_calls - other.tool_calls,
            self.cache_read_tokens - other.cache_read_tokens,
            self.cache_write_tokens - other.cache_write_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
            self.unpriced_tokens - other.unpriced_tokens,
        )

    def to_pandas(self) -> Any:
        """Return the amounts as a ``pandas.DataFrame`` of one row.

        Raises:
            ConfigError: pandas is not installed.
        """
        return make_data_frame([asdict(self)], "usage")

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_text(self) -> str:
        """The cost in dollars, in words where prices are unknown."""
        if not self.unpriced_tokens:
            return f"${self.cost_usd:,.4f}"
        return f"${self.cost_usd:,.4f} + unknown prices" if self.cost_usd else "price unknown"

    def to_wire(self) -> dict[str, Any]:
        """Return the members under camelCase names; cache and reasoning tokens only if they are not 0."""
        wire = {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "costUsd": self.cost_usd,
            "turns": self.turns,
            "toolCalls": self.tool_calls,
        }
        if self.cache_read_tokens:
            wire["cacheReadTokens"] = self.cache_read_tokens
        if self.cache_write_tokens:
            wire["cacheWriteTokens"] = self.cache_write_tokens
        if self.reasoning_tokens:
            wire["reasoningTokens"] = self.reasoning_tokens
        if self.unpriced_tokens:
            wire["unpricedTokens"] = self.unpriced_tokens
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Usage:
        """Return the usage of a wire object; a count that is left out is 0."""
        return cls(
            wire["inputTokens"],
            wire["outputTokens"],
            wire["costUsd"],
            wire["turns"],
            wire["toolCalls"],
            wire.get("cacheReadTokens", 0),
            wire.get("cacheWriteTokens", 0),
            wire.get("reasoningTokens", 0),
            wire.get("unpricedTokens", 0),
        )


NOTHING_USED = Usage()
"""Usage of a message whose model does not report any."""


StopReason: TypeAlias = Literal["stop", "toolUse", "length", "refusal", "error", "aborted"]
"""Why a reply ends, in this order: it is complete, it waits for its calls, its tokens were used up, the model
or its provider refused, it failed part-way, or it was stopped."""
UNFINISHED: Final = frozenset({"error", "aborted"})
"""Stop reasons of a reply that its provider did not finish."""
Origin: TypeAlias = Literal["user", "parent", "child", "notice", "canvas", "cron"]
"""Who a message to a session is from; ``notice`` = the runtime, ``canvas`` = a frame of its canvas,
``cron`` = a timed job."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class TextContent:
    """A block of text."""

    text: str

    def to_json(self) -> str:
        """Return ``{type: "text", text}``."""
        return f'{{"type":"text","text":{quote(self.text)}}}'


NO_CONTENT = TextContent("(no content)")
"""Placeholder content of an empty result."""


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
    """The model's thinking before a reply; not part of the reply's text."""

    thinking: str
    signature: str = ""
    """Signature that the provider requires when the thought is sent back; ``""`` = none."""

    def to_json(self) -> str:
        """Return ``{type: "thinking", thinking}``, and ``thinkingSignature`` if there is one."""
        signature = f',"thinkingSignature":{quote(self.signature)}' if self.signature else ""
        return f'{{"type":"thinking","thinking":{quote(self.thinking)}{signature}}}'


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model requests; ``id`` is the provider's and may repeat within a conversation."""

    id: str
    name: str
    arguments: Mapping[str, JsonValue]
    unread: str | None = None
    """The text of arguments that are not a JSON object; such a call is refused."""

    def to_json(self) -> str:
        """Return ``{type: "toolCall", id, name, arguments}``, and ``unread`` if there is any."""
        arguments = dump_json(self.arguments)
        unread = "" if self.unread is None else f',"unread":{quote(self.unread)}'
        return (
            f'{{"type":"toolCall","id":{quote(self.id)},"name":{quote(self.name)},'
            f'"arguments":{arguments}{unread}}}'
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the same as an object."""
        return _parse_object(self.to_json())


ReplyContent: TypeAlias = TextContent | ThinkingContent | ToolCall
"""A block of a model's reply."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the session from a person, its parent, a child, or the runtime itself."""

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
        return _parse_object(self.to_json())


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """A reply in its provider's form, to send back to the same system: signatures, encrypted thoughts, ids.

    Only the adapter that made it reads the payload. The reply's own blocks are authoritative: the replay is
    dropped if they are changed, such as by a hook or because its calls are shown under other ids.
    """

    version: int
    """Version of the payload's form."""
    provider: str
    """Name of the provider, such as ``openai``."""
    system: str
    """The canonical system that accepts it; several providers may serve one system."""
    payload: JsonValue
    """The provider's message."""

    def to_json(self) -> str:
        """Return ``{version, provider, system, payload}``."""
        return (
            f'{{"version":{self.version:d},"provider":{quote(self.provider)},"system":{quote(self.system)},'
            f'"payload":{dump_json(self.payload)}}}'
        )

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ProviderForm:
        """Return the replay of a wire object."""
        return cls(wire["version"], wire["provider"], wire["system"], wire["payload"])


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One reply of the model: text, thoughts and tool calls in the order the model gave them."""

    content: tuple[ReplyContent, ...]
    stop_reason: StopReason = "stop"
    usage: Usage = NOTHING_USED
    timestamp: int = 0
    """Milliseconds since the epoch."""
    model: str = ""
    """The provider's name of the model that replied, if reported; empty = the session's model."""
    stop_detail: str = ""
    """The provider's explanation of the stop reason, such as the reason for a refusal."""
    replay: ProviderForm | None = None
    """The reply in its provider's form; None if the provider has none, and for every unfinished reply."""

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def replay_for(self, system: str) -> ProviderForm | None:
        """Return the replay that a system accepts in place of this reply; None = send its blocks."""
        return self.replay if self.replay is not None and self.replay.system == system else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the order of the reply."""
        content = self.content
        if len(content) == 1:
            only = content[0]
            return (only,) if isinstance(only, ToolCall) else ()
        return tuple([block for block in content if isinstance(block, ToolCall)])

    def to_json(self) -> str:
        """Return ``{role: "assistant", content, stopReason, timestamp}`` and the optional members.

        The optional members are ``usage``, ``model``, ``stopDetail`` and ``replay``.
        """
        content = ",".join([block.to_json() for block in self.content])
        # By identity: usage that was reported as zero is kept apart from usage that was not reported.
        rest = "" if self.usage is NOTHING_USED else f',"usage":{dump_json(self.usage.to_wire())}'
        if self.model:
            rest += f',"model":{quote(self.model)}'
        if self.stop_detail:
            rest += f',"stopDetail":{quote(self.stop_detail)}'
        if self.replay is not None:
            rest += f',"replay":{self.replay.to_json()}'
        return (
            f'{{"role":"assistant","content":[{content}],"stopReason":{quote(self.stop_reason)},'
            f'"timestamp":{self.timestamp:d}{rest}}}'
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the same as an object."""
        return _parse_object(self.to_json())


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    """The result of one tool call; ``details`` is journaled and shown, never sent to a model.

    It has at least one block of content: ``(no content)`` replaces empty content.
    """

    tool_call_id: str
    tool_name: str
    content: tuple[TextContent | ImageContent, ...]
    details: JsonValue = None
    is_error: bool = False
    timestamp: int = 0
    """Milliseconds since the epoch."""

    def __post_init__(self) -> None:
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
        return _parse_object(self.to_json())


Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
"""One message of a conversation."""


def measure_text(message: Message) -> int:
    """Return how much of a message can be cut, in characters: text and arguments."""
    size = 0
    for block in message.content:
        if isinstance(block, TextContent):
            size += len(block.text)
        elif isinstance(block, ToolCall):
            size += len(dump_json(block.arguments)) if block.unread is None else len(block.unread)
    return size


def hide_details(message: Message) -> Message:
    """Return a message as a model may see it, without the details of a tool's result."""
    if isinstance(message, ToolResultMessage) and message.details is not None:
        return replace(message, details=None)
    return message


def decode_message(wire: Mapping[str, Any]) -> Message:
    """Return the message of a wire object.

    Raises:
        ValueError: the role or a block's type is unknown.
        KeyError: a member is missing.
    """
    role = wire["role"]
    if role == "user":
        return UserMessage(_read_blocks(wire["content"]), wire["timestamp"], wire.get("origin", "user"))
    if role == "assistant":
        return AssistantMessage(
            tuple(_read_assistant_block(block) for block in wire["content"]),
            wire["stopReason"],
            Usage.from_wire(wire["usage"]) if "usage" in wire else NOTHING_USED,
            wire["timestamp"],
            wire.get("model", ""),
            wire.get("stopDetail", ""),
            ProviderForm.from_wire(wire["replay"]) if "replay" in wire else None,
        )
    if role == "toolResult":
        return ToolResultMessage(
            wire["toolCallId"],
            wire["toolName"],
            _read_blocks(wire["content"]),
            wire["details"],
            wire["isError"],
            wire["timestamp"],
        )
    raise ValueError(f"no message has the role {role!r}")


def _parse_object(text: str) -> dict[str, Any]:
    wire: dict[str, Any] = json.loads(text)
    return wire


def _read_blocks(wire: list[Mapping[str, Any]]) -> tuple[TextContent | ImageContent, ...]:
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


def _read_assistant_block(block: Mapping[str, Any]) -> ReplyContent:
    if block["type"] == "toolCall":
        return call_from_wire(block)
    if block["type"] == "text":
        return TextContent(block["text"])
    if block["type"] == "thinking":
        return ThinkingContent(block["thinking"], block.get("thinkingSignature", ""))
    raise ValueError(f"no assistant block has the type {block['type']!r}")


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The result of one call outside a transcript."""

    output: JsonValue
    """The tool's output: JSON if its text is JSON, else the text."""
    text: str
    """The text that a model would have read."""
    details: JsonValue
    """``{display, details}`` of the tool, or None."""
    content: tuple[TextContent | ImageContent, ...]
    """All blocks."""
