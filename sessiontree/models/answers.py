"""Making replies: what a script or function gives, as the message a session takes in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from sessiontree.contracts.errors import ModelError, words_of
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.messages import AssistantMessage, StopReason, TextContent, ToolCall
from sessiontree.contracts.usage import NOTHING_USED

Answer: TypeAlias = "str | ToolCall | list[str | ToolCall] | AssistantMessage"
"""Text, a call, several of both in order, or a whole message."""

_PLAIN = (str, int, bool, type(None))


def call(name: str, /, **arguments: JsonValue) -> ToolCall:
    """Return a tool call; its id is given when it becomes part of a reply."""
    return ToolCall("", name, arguments)


def message_of(answer: object, turn: int) -> AssistantMessage:
    """Return the message of an answer, every call with an id and arguments that have a JSON form.

    Raises:
        ModelError: the answer is of no known shape.
    """
    if isinstance(answer, AssistantMessage):
        blocks: tuple[object, ...] = answer.content
        usage = answer.usage
    elif isinstance(answer, list | tuple):
        blocks = tuple(answer)
        usage = NOTHING_USED
    else:
        blocks = (answer,)
        usage = NOTHING_USED
    content: list[TextContent | ToolCall] = []
    has_calls = False
    for index, block in enumerate(blocks):
        if isinstance(block, ToolCall):
            has_calls = True
            content.append(_clean(block, turn, index))
        elif isinstance(block, TextContent):
            content.append(block)
        elif isinstance(block, str):
            content.append(TextContent(block))
        else:
            raise ModelError(
                f"a model replied {type(block).__name__}; give text, a ToolCall or a list of them"
            )
    stop_reason: StopReason = "toolUse" if has_calls else "stop"
    if isinstance(answer, AssistantMessage) and answer.stop_reason != "stop":
        stop_reason = answer.stop_reason
    return AssistantMessage(tuple(content), stop_reason, usage)


def checked(message: object, turn: int) -> AssistantMessage:
    """Return a model's reply as a session may take it in; the same object where nothing is wrong with it.

    Raises:
        ModelError: it is no reply.
    """
    if type(message) is AssistantMessage:
        for block in message.content:
            if type(block) is ToolCall and not (block.id and _is_plain(block.arguments)):
                break
        else:
            return message
    return message_of(message, turn)


def reason_of(error: Exception) -> str:
    """Return what a session is told about a failed model call."""
    return error.message if isinstance(error, ModelError) else words_of(error)


def _is_plain(arguments: Mapping[str, JsonValue]) -> bool:
    """Whether arguments surely have a JSON form; False where that needs a closer look."""
    if type(arguments) is not dict:
        return False
    return all(
        type(value) in _PLAIN or (type(value) is float and math.isfinite(value))
        for value in arguments.values()
    )


def _clean(block: ToolCall, turn: int, index: int) -> ToolCall:
    arguments = block.arguments
    if not isinstance(arguments, Mapping):
        raise ModelError(f"a model called {block.name} with {type(arguments).__name__} instead of an object")
    if not _is_plain(arguments):
        cleaned = to_json_value(arguments)
        arguments = cleaned if isinstance(cleaned, dict) else {}
    if block.id and arguments is block.arguments:
        return block
    return ToolCall(block.id or f"call_{turn}_{index}", block.name, arguments)
