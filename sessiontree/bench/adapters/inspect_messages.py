"""Messages, usage and settings of inspect_ai and of sessions, converted in both directions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolCallError, ToolFunction, ToolInfo, ToolParams
from pydantic import ValidationError

from sessiontree import (
    AssistantMessage,
    ImageContent,
    Message,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.messages import (
    ProviderForm,
    ReplyContent,
    StopReason,
    TextContent,
    ThinkingContent,
)
from sessiontree.models.port import ToolSpec

SYSTEM: Final = "inspect"
"""Name under which a reply keeps inspect's own form of it."""
_VERSION: Final = 1
_STOPS: Final[Mapping[str, StopReason]] = {
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "tool_calls": "toolUse",
}
"""inspect's stop reasons other than ``stop`` and ``unknown``."""


def convert_reply(output: ModelOutput, turn: int) -> AssistantMessage:
    """Return a session's form of what inspect's model replied.

    Args:
        output: The output; its first choice counts.
        turn: The session's turn, for calls without an id.
    """
    message: ChatMessageAssistant = output.message
    content: list[ReplyContent] = []
    blocks = [ContentText(text=message.content)] if isinstance(message.content, str) else message.content
    for block in blocks:
        if isinstance(block, ContentReasoning) and not block.redacted:
            content.append(ThinkingContent(block.reasoning, block.signature or ""))
        elif isinstance(block, ContentText) and block.text:
            content.append(TextContent(block.text))
    for index, call in enumerate(message.tool_calls or ()):
        unread = json.dumps(call.arguments) if call.parse_error else None
        content.append(
            ToolCall(call.id or f"call_{turn}_{index}", call.function, dict(call.arguments), unread=unread)
        )
    return AssistantMessage(
        tuple(content),
        _STOPS.get(output.stop_reason, "toolUse" if message.tool_calls else "stop"),
        to_usage(output.usage),
        model=output.model or "",
        replay=ProviderForm(_VERSION, SYSTEM, SYSTEM, message.model_dump(mode="json", exclude_none=True)),
    )


def to_usage(usage: ModelUsage | None) -> Usage:
    """Return a session's form of a usage; inspect counts cached tokens apart from the others."""
    if usage is None:
        return Usage()
    read, written = usage.input_tokens_cache_read or 0, usage.input_tokens_cache_write or 0
    return Usage(
        usage.input_tokens + read + written,
        usage.output_tokens,
        usage.total_cost or 0.0,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=usage.reasoning_tokens or 0,
    )


def to_model_usage(usage: Usage) -> ModelUsage:
    """Return inspect's form of a usage."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return ModelUsage(
        input_tokens=usage.input_tokens - cached,
        output_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
        input_tokens_cache_read=usage.cache_read_tokens or None,
        input_tokens_cache_write=usage.cache_write_tokens or None,
        reasoning_tokens=usage.reasoning_tokens or None,
        total_cost=usage.cost_usd or None,
    )


def to_chat_message(
    message: Message, session_id: str, results: Mapping[tuple[str, str], ChatMessageTool]
) -> ChatMessage:
    """Return inspect's form of a session's message.

    Args:
        message: The message.
        session_id: The session.
        results: What inspect's tools returned, by session and call id: the errors keep their types.
    """
    if isinstance(message, UserMessage):
        return ChatMessageUser(content=_convert_content(message.content))
    if isinstance(message, ToolResultMessage):
        return _to_tool_message(message, results.get((session_id, message.tool_call_id)))
    return _to_assistant_message(message)


def _to_assistant_message(message: AssistantMessage) -> ChatMessageAssistant:
    replay = message.replay_for(SYSTEM)
    if replay is not None and replay.version == _VERSION:
        try:
            return ChatMessageAssistant.model_validate(replay.payload)
        except ValidationError:  # another release of inspect wrote it
            pass
    calls = [
        InspectCall(id=call.id, function=call.name, arguments=dict(call.arguments), parse_error=call.unread)
        for call in message.tool_calls
    ]
    return ChatMessageAssistant(
        content=message.text, tool_calls=calls or None, model=message.model or None, source="generate"
    )


def _to_tool_message(message: ToolResultMessage, known: ChatMessageTool | None) -> ChatMessageTool:
    error = None if known is None else known.error
    if message.is_error and error is None:
        error = ToolCallError(_classify_error(message.text), message.text)
    return ChatMessageTool(
        content="" if message.is_error else _convert_content(message.content),
        tool_call_id=message.tool_call_id,
        function=message.tool_name,
        error=error,
    )


def _classify_error(text: str) -> Any:
    """Return inspect's type of an error that the runtime itself gave."""
    try:
        envelope = parse_json(text)
    except ValueError:
        return "unknown"
    if not isinstance(envelope, dict):
        return "unknown"
    if "tier" in envelope:
        return "approval"
    return "parsing" if "field" in envelope else "unknown"


def _convert_content(blocks: Sequence[TextContent | ImageContent]) -> Any:
    if len(blocks) == 1 and isinstance(blocks[0], TextContent):
        return blocks[0].text
    return [
        ContentText(text=block.text)
        if isinstance(block, TextContent)
        else ContentImage(image=f"data:{block.mime_type};base64,{block.data}")
        for block in blocks
    ]


def extract_images(content: str | list[Any]) -> tuple[ImageContent, ...]:
    """Return the inline images of inspect's content; an image elsewhere is left out."""
    found: list[ImageContent] = []
    for block in () if isinstance(content, str) else content:
        if isinstance(block, ContentImage) and block.image.startswith("data:"):
            head, _, data = block.image.partition(",")
            found.append(ImageContent(data, head.removeprefix("data:").partition(";")[0]))
    return tuple(found)


def to_tool_info(spec: ToolSpec) -> ToolInfo:
    """Return inspect's form of a tool that a session's model is shown."""
    return ToolInfo(
        name=spec.name,
        description=spec.description,
        parameters=ToolParams.model_validate(dict(spec.parameters)),
    )


def to_generate_config(settings: ModelSettings) -> GenerateConfig:
    """Return inspect's form of model settings, without the choice of a tool."""
    level = settings.thinking
    thinking: dict[str, Any] = {}
    if isinstance(level, int):
        thinking["reasoning_tokens"] = level
    elif level is not None:
        thinking["reasoning_effort"] = "none" if level == "off" else level
    return GenerateConfig(
        max_tokens=settings.max_output_tokens,
        temperature=settings.temperature,
        stop_seqs=None if settings.stop is None else list(settings.stop),
        seed=settings.seed,
        **thinking,
    )


def to_tool_choice(settings: ModelSettings) -> Any:
    """Return inspect's form of the choice of a tool; None = the model's default."""
    choice = settings.tool_choice
    if choice in {None, "auto", "none"}:
        return choice
    return "any" if choice == "required" else ToolFunction(name=choice)
