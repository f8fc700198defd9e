"""A conversation as its model is shown it: every call with its one result, ids in the provider's form."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sessiontree.contracts.messages import (
    AssistantMessage,
    Message,
    ReplyContent,
    ToolCall,
    ToolResultMessage,
)
from sessiontree.models.call_ids import CallIds, IdGrammar
from sessiontree.models.pairing import NO_REPAIRS, Repairs, paired


class Presented:
    """One conversation, as it is and as it is shown. What is added costs what it is long.

    Args:
        grammar: The ids its provider takes; None = any.
    """

    def __init__(self, grammar: IdGrammar | None) -> None:
        """Begin without a message."""
        self._grammar = grammar
        self._given: list[Message] = []
        self._ids: CallIds | None = None
        self.shown: list[Message] = []
        """What the model is shown; grows in place, read only."""
        self._begin()

    def __len__(self) -> int:
        """Return how many messages were given."""
        return len(self._given)

    def take(self, base: int, messages: Sequence[Message]) -> Repairs:
        """Take messages in behind the first ``base`` given ones.

        Returns:
            What was repaired in the whole conversation; nothing where the new messages are in order.
        """
        overtaken = base < len(self._given)
        if overtaken:
            del self._given[base:]
        self._given.extend(messages)
        sound, repairs = paired(messages)
        if overtaken or repairs is not NO_REPAIRS:
            # Rare: a result may have come whose call was shown as unanswered before.
            sound, repairs = paired(self._given)
            self._begin()
        self.shown.extend(sound if self._ids is None else _renamed(sound, self._ids))
        return repairs

    def own(self, reply: AssistantMessage) -> AssistantMessage:
        """Return a reply with the conversation's own ids, where it has any that were shown differently."""
        ids = self._ids
        if ids is None:
            return reply
        return _with_ids(reply, [ids.own(call.id) for call in reply.tool_calls])

    def _begin(self) -> None:
        self._ids = None if self._grammar is None else CallIds(self._grammar)
        self.shown = []


def _renamed(messages: Sequence[Message], ids: CallIds) -> list[Message]:
    """Return paired messages with shown ids: results follow their calls, so they take them in turn."""
    renamed: list[Message] = []
    open_ids: deque[str] = deque()
    for message in messages:
        if isinstance(message, AssistantMessage):
            new_ids = [ids.shown(call.id) for call in message.tool_calls]
            open_ids.extend(new_ids)
            renamed.append(_with_ids(message, new_ids))
        elif isinstance(message, ToolResultMessage):
            call_id = open_ids.popleft()
            renamed.append(
                message if call_id == message.tool_call_id else replace(message, tool_call_id=call_id)
            )
        else:
            renamed.append(message)
    return renamed


def _with_ids(reply: AssistantMessage, ids: list[str]) -> AssistantMessage:
    """Return a reply whose calls have these ids, in order; the same object where they do already."""
    if all(call.id == call_id for call, call_id in zip(reply.tool_calls, ids, strict=True)):
        return reply
    fresh = iter(ids)
    content: list[ReplyContent] = [
        replace(block, id=next(fresh)) if isinstance(block, ToolCall) else block for block in reply.content
    ]
    return replace(reply, content=tuple(content))
