"""Making replies: what a script or function gives, as the message a session takes in."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TypeAlias, get_args

from sessiontree.contracts.errors import ModelError, words_of
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.messages import (
    AssistantMessage,
    ReplyContent,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from sessiontree.contracts.usage import NOTHING_USED, Usage

Answer: TypeAlias = "str | ToolCall | list[str | ToolCall] | AssistantMessage"
"""Text, a call, several of both in order, or a whole message."""

_PLAIN = frozenset({str, int, bool, type(None)})
_STOP_REASONS = frozenset(get_args(StopReason))
_COUNTS = ("input_tokens", "output_tokens", "turns", "tool_calls")


def call(name: str, /, **arguments: JsonValue) -> ToolCall:
    """Return a tool call; its id is given when it becomes part of a reply."""
    return ToolCall("", name, arguments)


def message_of(answer: object, turn: int) -> AssistantMessage:
    """Return the message of an answer, every call with an id and arguments that have a JSON form.

    Raises:
        ModelError: the answer is of no known shape.
    """
    if isinstance(answer, AssistantMessage):
        blocks: tuple[object, ...] = answer.content if isinstance(answer.content, list | tuple) else (None,)
        usage = answer.usage
    elif isinstance(answer, list | tuple):
        blocks = tuple(answer)
        usage = NOTHING_USED
    else:
        blocks = (answer,)
        usage = NOTHING_USED
    content: list[ReplyContent] = []
    has_calls = False
    for index, block in enumerate(blocks):
        if isinstance(block, ToolCall):
            has_calls = True
            content.append(_clean(block, turn, index))
        elif isinstance(block, TextContent | ThinkingContent) and _is_whole(block):
            content.append(block)
        elif isinstance(block, str):
            content.append(TextContent(block))
        else:
            raise ModelError(
                f"a model replied {type(block).__name__}; give text, a ToolCall or a list of them"
            )
    stop_reason: StopReason = "toolUse" if has_calls else "stop"
    if isinstance(answer, AssistantMessage) and answer.stop_reason in _STOP_REASONS - {"stop"}:
        stop_reason = answer.stop_reason
    return AssistantMessage(tuple(content), stop_reason, usage if _is_sound(usage) else NOTHING_USED)


def checked(message: object, turn: int) -> AssistantMessage:
    """Return a model's reply as a session may take it in; the same object where nothing is wrong with it.

    Raises:
        ModelError: it is no reply.
    """
    if (
        type(message) is AssistantMessage
        and type(message.content) is tuple
        and all(map(_is_whole, message.content))
        and message.stop_reason in _STOP_REASONS
        and type(message.timestamp) is int
        and (message.usage is NOTHING_USED or _is_sound(message.usage))
    ):
        return message
    return message_of(message, turn)


def reason_of(error: BaseException) -> str:
    """Return what a session is told about a failed model call."""
    if isinstance(error, asyncio.CancelledError):
        return "something it waited for was cancelled"
    if isinstance(error, ModelError) and isinstance(error.message, str):
        return error.message
    return words_of(error)


def _is_whole(block: object) -> bool:
    """Whether a block can be taken in as it is."""
    if type(block) is TextContent:
        return type(block.text) is str
    if type(block) is ThinkingContent:
        return type(block.thinking) is str and type(block.signature) is str
    return (
        type(block) is ToolCall
        and type(block.name) is str
        and block.name != ""
        and type(block.id) is str
        and block.id != ""
        and (block.unread is None or type(block.unread) is str)
        and _is_plain(block.arguments)
    )


def _is_sound(usage: object) -> bool:
    """Whether a usage is one that can be written down; what a provider made up counts as nothing used."""
    return (
        isinstance(usage, Usage)
        and all(type(getattr(usage, name)) is int for name in _COUNTS)
        and type(usage.cost_usd) in {int, float}
        and math.isfinite(usage.cost_usd)
    )


def _is_plain(arguments: Mapping[str, JsonValue]) -> bool:
    """Whether arguments surely have a JSON form; False where that needs a closer look."""
    if type(arguments) is not dict:
        return False
    for key, value in arguments.items():
        if type(key) is not str:
            return False
        if type(value) not in _PLAIN and not (type(value) is float and math.isfinite(value)):
            return False
    return True


def _clean(block: ToolCall, turn: int, index: int) -> ToolCall:
    arguments = block.arguments
    if not isinstance(block.name, str) or not block.name:
        raise ModelError(f"a model called a tool by {block.name!r}; a name is text")
    if not isinstance(arguments, Mapping):
        raise ModelError(f"a model called {block.name} with {type(arguments).__name__} instead of an object")
    if not _is_plain(arguments):
        try:
            cleaned = to_json_value(arguments)
        except RecursionError:
            raise ModelError(f"a model called {block.name} with arguments nested too deeply") from None
        arguments = cleaned if isinstance(cleaned, dict) else {}
    if _is_whole(block) and arguments is block.arguments:
        return block
    call_id = str(block.id) if block.id else f"call_{turn}_{index}"
    return ToolCall(call_id, block.name, arguments, None if block.unread is None else str(block.unread))
