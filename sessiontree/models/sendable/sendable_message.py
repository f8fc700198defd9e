"""Messages, prompts and tools whose every text can be encoded, as a remote model is shown them.

The journal keeps its own. Whatever needs no change is returned as the same object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ProviderForm,
    ReplyContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
)
from sessiontree.contracts.values.whole_text import repair_object, repair_text, repair_value
from sessiontree.models.port import ToolSpec


def repair_message(message: Message) -> Message:
    """Return a message whose every text is whole."""
    if isinstance(message, AssistantMessage):
        return _repair_reply(message)
    content = tuple([_repair_block(block) for block in message.content])
    is_same = all(new is old for new, old in zip(content, message.content, strict=True))
    if isinstance(message, ToolResultMessage):
        call_id, name = repair_text(message.tool_call_id), repair_text(message.tool_name)
        if is_same and call_id is message.tool_call_id and name is message.tool_name:
            return message
        return replace(message, content=content, tool_call_id=call_id, tool_name=name)
    return message if is_same else replace(message, content=content)


def repair_tools(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return tools whose names, descriptions and schemas are whole."""
    return tuple([_repair_tool(tool) for tool in tools])


def _repair_tool(tool: ToolSpec) -> ToolSpec:
    name, description = repair_text(tool.name), repair_text(tool.description)
    schema = repair_object(tool.parameters)
    if name is tool.name and description is tool.description and schema is tool.parameters:
        return tool
    return ToolSpec(name, description, schema)


def _repair_block(block: TextContent | ImageContent) -> TextContent | ImageContent:
    if isinstance(block, ImageContent):
        mime_type = repair_text(block.mime_type)
        return block if mime_type is block.mime_type else ImageContent(block.data, mime_type)
    text = repair_text(block.text)
    return block if text is block.text else TextContent(text)


def _repair_reply(message: AssistantMessage) -> AssistantMessage:
    content = tuple([_repair_part(block) for block in message.content])
    changed = [old for new, old in zip(content, message.content, strict=True) if new is not old]
    replay = message.replay
    if replay is not None:
        # The signature of a thought covers its text: a changed thought goes back without it.
        has_changed_thought = any(isinstance(block, ThinkingContent) for block in changed)
        replay = None if has_changed_thought else _repair_replay(replay)
    if not changed and replay is message.replay:
        return message
    return replace(message, content=content, replay=replay)


def _repair_replay(replay: ProviderForm) -> ProviderForm:
    payload = repair_value(replay.payload)
    return replay if payload is replay.payload else replace(replay, payload=payload)


def _repair_part(block: ReplyContent) -> ReplyContent:
    if isinstance(block, TextContent):
        text = repair_text(block.text)
        return block if text is block.text else TextContent(text)
    if isinstance(block, ThinkingContent):
        thought, signature = repair_text(block.thinking), repair_text(block.signature)
        is_same = thought is block.thinking and signature is block.signature
        return block if is_same else ThinkingContent(thought, signature)
    return _repair_call(block)


def _repair_call(call: ToolCall) -> ToolCall:
    call_id, name = repair_text(call.id), repair_text(call.name)
    arguments = repair_object(call.arguments)
    unread = None if call.unread is None else repair_text(call.unread)
    is_same = call_id is call.id and name is call.name and unread is call.unread
    if is_same and arguments is call.arguments:
        return call
    return ToolCall(call_id, name, arguments, unread)
