"""Pairing calls with results: a provider refuses a conversation where a call has no result, or two.

The machine's own transcripts are always paired. What may not be: a conversation that came from elsewhere, or
whose results were changed on the way. The journal is never touched; only what a model is shown is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sessiontree.contracts.messages import AssistantMessage, Message, TextContent, ToolCall, ToolResultMessage

NO_RESULT: Final = "No result provided"
"""What stands as the result of a call that has none; the seeds' source says the same."""


@dataclass(frozen=True, slots=True)
class Repairs:
    """How a conversation was changed to pair it."""

    missing: int = 0
    dropped: int = 0
    moved: int = 0


NO_REPAIRS: Final = Repairs()


@dataclass(slots=True)
class _PairedCall:
    """A call of the conversation, and its result once that is found."""

    call: ToolCall
    reply: int
    """Index of its reply among the messages."""
    result: ToolResultMessage | None = None
    at: int = 0
    """Index of its result."""
    behind: int = 0
    """Index of the nearest message before its result that is no result itself."""


def paired(messages: Sequence[Message]) -> tuple[Sequence[Message], Repairs]:
    """Return the conversation with exactly one result behind every call, in the calls' order.

    A result belongs to the nearest reply before it that has an unanswered call of its id, there to the first
    one. Results nobody asked for and second ones are left out; a call without any gets an error.

    Returns:
        The messages, the same object where nothing is wrong, and what was changed. Linear in the messages.
    """
    asked: list[_PairedCall] = []
    open_calls: dict[str, list[list[_PairedCall]]] = {}
    dropped = 0
    behind = -1
    for at, message in enumerate(messages):
        if not isinstance(message, ToolResultMessage):
            behind = at
            if isinstance(message, AssistantMessage):
                asked.extend(_opened(message, at, open_calls))
            continue
        groups = open_calls.get(message.tool_call_id)
        if not groups:
            dropped += 1
            continue
        found = groups[-1].pop()
        if not groups[-1]:
            groups.pop()
        found.result, found.at, found.behind = message, at, behind
    missing = sum(found.result is None for found in asked)
    moved = _moved(asked)
    if not missing and not dropped and not moved:
        return messages, NO_REPAIRS
    return _ordered(messages, asked), Repairs(missing, dropped, moved)


def _opened(
    message: AssistantMessage, at: int, open_calls: dict[str, list[list[_PairedCall]]]
) -> list[_PairedCall]:
    """Return a reply's calls in order, and open them by id, the first of an id on top."""
    asked = [_PairedCall(call, at) for call in message.tool_calls]
    mine: dict[str, list[_PairedCall]] = {}
    for each in reversed(asked):
        mine.setdefault(each.call.id, []).append(each)
    for call_id, group in mine.items():
        open_calls.setdefault(call_id, []).append(group)
    return asked


def _moved(asked: list[_PairedCall]) -> int:
    """Return how many results do not stand behind their reply, in the order of its calls."""
    moved = 0
    reply, last = -1, -1
    for each in asked:
        if each.reply != reply:
            reply, last = each.reply, -1
        if each.result is None:
            continue
        if each.behind != reply or each.at < last:
            moved += 1
        else:
            last = each.at
    return moved


def _ordered(messages: Sequence[Message], asked: list[_PairedCall]) -> list[Message]:
    ordered: list[Message] = []
    results = iter(asked)
    for message in messages:
        if isinstance(message, ToolResultMessage):
            continue
        ordered.append(message)
        if isinstance(message, AssistantMessage):
            for _ in message.tool_calls:
                each = next(results)
                ordered.append(each.result or _no_result(each.call, message.timestamp))
    return ordered


def _no_result(call: ToolCall, at_ms: int) -> ToolResultMessage:
    return ToolResultMessage(call.id, call.name, (TextContent(NO_RESULT),), is_error=True, timestamp=at_ms)
