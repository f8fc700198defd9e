"""Calls of one embodied session that the creating program answers: handing them over, taking answers in.

A host keeps nothing of such a call while it waits: it is in the journal, owed to the program.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from sessiontree.contracts import stimuli
from sessiontree.contracts.errors import ToolError, ValidationError
from sessiontree.contracts.session_ids import SessionIds
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall
from sessiontree.session import instructions as todo
from sessiontree.session.state import CallState

Making: TypeAlias = Callable[[], Awaitable[ImmediateOutcome]]
"""Makes a call's outcome."""


class Delegation:
    """Hands a session's calls over, and makes results of the program's answers.

    Args:
        dispatcher: Checks calls and makes results.
        now_ms: The clock.
        due: Where what the session is to hear goes.
        out: Where what the supervisor is to do goes.
        finished: Told of a call that may not be made any more.
        ids: Names calls to the program.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        now_ms: Callable[[], int],
        due: deque[tuple[str, Stimulus]],
        out: list[Any],
        finished: Callable[[ImmediateOutcome], None],
        ids: SessionIds,
    ) -> None:
        """Begin with no answer on its way."""
        self.tools = dispatcher.client_tools
        """Names of the tools that the program runs."""
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._due = due
        self._out = out
        self._finished = finished
        self._ids = ids
        self._taking: dict[str, str] = {}
        """Call to the answer that its result is being made of."""

    def hand_over(self, execute: todo.ExecuteCall, prepared: PreparedCall | None, call: CallState) -> None:
        """Let the program answer a call; where another host had prepared it, it is prepared again."""
        key = execute.key
        checked: PreparedCall | ImmediateOutcome | None = prepared
        if checked is None:
            asked_by = call.asked_by
            checked = self._dispatcher.again(key, call.call.id, execute.tool, execute.arguments, asked_by)
        if isinstance(checked, PreparedCall):
            checked = self._dispatcher.altered(checked, execute.digest) or checked
        if isinstance(checked, ImmediateOutcome):
            self._finished(checked)
            return
        at_ms = self._now_ms()
        expires_at_ms = at_ms + int(self._dispatcher.timeout_of(checked) * 1000)
        client_id = self._ids.client(key) or secrets.token_hex(16)
        delegated = stimuli.CallHandedOver(
            at_ms, key, client_id, checked.entry.name, checked.arguments, expires_at_ms
        )
        self._due.append((f"call:{key}", delegated))

    def making_of(self, take: todo.TakeAnswer, call: CallState) -> Making | None:
        """Return what makes the outcome of an answer; None where it makes none, which is told."""
        if take.key in self._taking:
            self._out.append(todo.SettleAnswer(take.answer_id, taken=False))
            return None
        try:
            made = self._dispatcher.answered(take.key, call.call.id, call.tool, take.answer)
        except ToolError as error:
            field = error.field if isinstance(error, ValidationError) else None
            refused = todo.SettleAnswer(take.answer_id, taken=False, refusal=error.message, field=field)
            self._out.append(refused)
            return None
        self._taking[take.key] = take.answer_id
        return partial(self._dispatcher.fitted, made, call.tier)

    def answer_to(self, key: str) -> str:
        """Return the id of the answer that a call's result was made of, once; empty = of none."""
        return self._taking.pop(key, "") if self._taking else ""
