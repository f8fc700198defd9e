"""What one session's runner tells those who watch: calls begin, report, end. Silent where nobody does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

from sessiontree.contracts.context import CallSignals
from sessiontree.contracts.event_display import displayed
from sessiontree.contracts.events import (
    ToolEvent,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ToolCall
from sessiontree.contracts.ports import UpdateCallback
from sessiontree.contracts.retry import OF_TIMEOUTS
from sessiontree.contracts.session_facts import CallResolved, SessionFact, TurnReplied
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall
from sessiontree.runtime.progress import ProgressHub
from sessiontree.runtime.session_rights import Facades


class CallWatch:
    """Sends one session's progress to the hub, and counts calls that were left behind."""

    def __init__(self, hub: ProgressHub, tree_id: str, session: str, facades: Facades) -> None:
        """Bind hub and session; what tools report comes past the session's facades."""
        self._hub = hub
        self._tree_id = tree_id
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.readers: Sequence[object] = hub.readers_of(tree_id)
        """Who watches; empty = nobody."""
        self.abandoned = 0
        """Calls that ignored their cancellation and may still run."""
        self._begun: set[str] = set()
        """Keys of calls that began and have no result yet."""
        self._asked: dict[str, ToolCall] = {}
        """Calls of the newest reply that nobody took up yet."""
        self._updated = facades.notice(self._update)

    def began(self, key: str, call: ToolCall) -> None:
        """A call is taken up, for the first time or again."""
        self._asked.pop(key, None)
        if key not in self._begun:
            self._begun.add(key)
            self._emit(ToolExecutionStart(call.id, call.name, call.arguments))

    def updates_of(self, call_id: str, tool: str, signals: CallSignals) -> UpdateCallback:
        """Return where the progress of an attempt goes; callable from any thread."""
        return partial(self._updated, call_id, tool, signals)

    def _update(self, call_id: str, tool: str, signals: CallSignals, progress: JsonValue) -> None:
        event = ToolExecutionUpdate(call_id, tool, progress)
        if threading.get_ident() == self._thread:
            self._emit(event)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._emit_unless_over, signals, event)

    def _emit_unless_over(self, signals: CallSignals, event: ToolEvent) -> None:
        if not signals.over:
            self._emit(event)

    def retries(self, prepared: PreparedCall, failed: ImmediateOutcome, attempt: int, delay_s: float) -> None:
        """An attempt failed, and the call will be tried again."""
        tool, details = prepared.entry.tool, failed.message.details
        code = str(details.get("code")) if isinstance(details, dict) else failed.outcome
        attempts = (tool.retry or OF_TIMEOUTS).attempts
        self._emit(
            ToolExecutionRetry(prepared.provider_id, tool.name, attempt, attempts, code, round(delay_s, 3))
        )

    def saw(self, facts: Sequence[SessionFact]) -> None:
        """Tell of the calls that have their result; one that nobody took up begins with its end."""
        for fact in facts:
            if isinstance(fact, TurnReplied):
                calls = fact.message.tool_calls
                self._asked = {f"{fact.turn}.{index}": call for index, call in enumerate(calls)}
            elif isinstance(fact, CallResolved):
                if fact.key in self._asked:
                    self.began(fact.key, self._asked[fact.key])
                self._begun.discard(fact.key)
                message = fact.message
                result = displayed(message)
                self._emit(
                    ToolExecutionEnd(message.tool_call_id, message.tool_name, result, message.is_error)
                )

    def _emit(self, event: ToolEvent) -> None:
        self._hub.emit(self._tree_id, self._session, event)
