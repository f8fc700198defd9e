"""A conversation as its model is shown it: each call with its one result, ids and names in form."""

from __future__ import annotations

import re
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
from sessiontree.models.call_ids import NAMES, CallIds, CallNames, IdGrammar
from sessiontree.models.call_pairs import NO_REPAIRS, Repairs, paired


class Presented:
    """One conversation, as it is and as it is shown. What is added costs what it is long.

    Args:
        grammar: The ids its provider takes; None = any.
        names: The names of tools that it takes.
    """

    def __init__(self, grammar: IdGrammar | None, names: re.Pattern[str] = NAMES) -> None:
        self._grammar = grammar
        self._pattern = names
        self._given: list[Message] = []
        self._ids: CallIds | None = None
        self._names = CallNames(names)
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
        self._show(sound)
        return repairs

    def own(self, reply: AssistantMessage) -> AssistantMessage:
        """Return a reply with the conversation's own ids, where it has any that were shown differently.

        Names stay: what a model calls is what it said.
        """
        ids = self._ids
        if ids is None:
            return reply
        return _rewritten(reply, [(ids.own(call.id), call.name) for call in reply.tool_calls])

    def _begin(self) -> None:
        self._ids = None if self._grammar is None else CallIds(self._grammar)
        self._names = CallNames(self._pattern)
        self.shown = []

    def _show(self, messages: Sequence[Message]) -> None:
        """Add paired messages in shown form: results follow their calls, so they take theirs in turn."""
        ids, names = self._ids, self._names
        open_calls: deque[tuple[str, str]] = deque()
        for message in messages:
            if isinstance(message, AssistantMessage):
                calls = [
                    (call.id if ids is None else ids.shown(call.id), names.shown(call.name))
                    for call in message.tool_calls
                ]
                open_calls.extend(calls)
                self.shown.append(_rewritten(message, calls))
            elif isinstance(message, ToolResultMessage):
                call_id, name = open_calls.popleft()
                is_so = (call_id, name) == (message.tool_call_id, message.tool_name)
                self.shown.append(
                    message if is_so else replace(message, tool_call_id=call_id, tool_name=name)
                )
            else:
                self.shown.append(message)


def _rewritten(reply: AssistantMessage, calls: Sequence[tuple[str, str]]) -> AssistantMessage:
    """Return a reply whose calls have these ids and names, in order; the same object where they have them."""
    if all((call.id, call.name) == pair for call, pair in zip(reply.tool_calls, calls, strict=True)):
        return reply
    fresh = iter(calls)
    content: list[ReplyContent] = [
        _renamed(block, *next(fresh)) if isinstance(block, ToolCall) else block for block in reply.content
    ]
    return replace(reply, content=tuple(content))


def _renamed(call: ToolCall, call_id: str, name: str) -> ToolCall:
    return replace(call, id=call_id, name=name)
