"""A scripted model that makes the calls a benchmark gives as its ground truth, one call per reply.

It depends only on the conversation, so it may run in any process and continue after a crash. Not here: how
arguments are damaged (``damage``), and where the calls come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sessiontree import (
    AssistantMessage,
    FunctionModel,
    Message,
    ModelRequest,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """What follows one message of the user."""

    calls: tuple[ToolCall, ...]
    """In order; their ids are not used."""
    closing: str
    """The final message after the calls."""


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call of a conversation, and its result."""

    call: ToolCall
    result: ToolResultMessage

    @property
    def rejection(self) -> dict[str, Any] | None:
        """The error that refused the arguments; None if they were accepted."""
        if not self.result.is_error:
            return None
        try:
            envelope = json.loads(self.result.text)
        except (ValueError, RecursionError):
            return None
        return envelope if isinstance(envelope, dict) and "attempt" in envelope else None

    @property
    def is_final_rejection(self) -> bool:
        """Whether the tool is refused from now on, until the next message."""
        found = self.rejection
        return found is not None and not str(found.get("advice", "")).startswith("attempt ")


def list_answered_calls(messages: Iterable[Message]) -> list[list[AnsweredCall]]:
    """Return the finished calls of a conversation, in order, for each message of the user.

    What precedes the first message of the user is left out.
    """
    found: list[list[AnsweredCall]] = []
    calls: dict[str, ToolCall] = {}
    for message in messages:
        match message:
            case UserMessage(origin="user"):
                found.append([])
            case AssistantMessage():
                calls |= {each.id: each for each in message.tool_calls}
            case ToolResultMessage(tool_call_id=known) if found and known in calls:
                found[-1].append(AnsweredCall(calls.pop(known), message))
    return found


def group_attempts(answered: Sequence[AnsweredCall]) -> list[list[AnsweredCall]]:
    """Return the calls of one turn in groups: all attempts at one planned call.

    A call whose arguments were refused is tried again, until its tool is refused.
    """
    groups: list[list[AnsweredCall]] = []
    is_open = False
    for each in answered:
        if not is_open:
            groups.append([])
        groups[-1].append(each)
        is_open = each.rejection is not None and not each.is_final_rejection
    return groups


class GroundTruth:
    """What the model of a sample replies: the planned calls of each turn, whatever their results are.

    Args:
        turns: What follows each message of the user.
    """

    def __init__(self, turns: Sequence[PlannedTurn]) -> None:
        self.turns = tuple(turns)

    def __call__(self, request: ModelRequest) -> str | ToolCall:
        """Return the next planned call, or the final message after the last one."""
        done = list_answered_calls(request.messages)
        if not done or len(done) > len(self.turns):
            return "The ground truth has no turn for this message."
        planned = self.turns[len(done) - 1]
        number = len(done[-1])
        return planned.calls[number] if number < len(planned.calls) else planned.closing

    def to_model(self) -> FunctionModel:
        """Return the model that replies so."""
        return FunctionModel(self, name="ground-truth")
