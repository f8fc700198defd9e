"""What one session's runner tells those who watch: calls begin, report, end. Silent where nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from sessiontree.contracts.displays import displayed
from sessiontree.contracts.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.messages import ToolCall
from sessiontree.contracts.ports import UpdateCallback
from sessiontree.contracts.session_facts import CallResolved, SessionFact
from sessiontree.kernel.progress import ProgressHub


class CallWatch:
    """Sends one session's progress to the hub, and counts calls that were left behind."""

    def __init__(self, hub: ProgressHub, tree_id: str, session: str) -> None:
        """Bind hub and session."""
        self._hub = hub
        self._tree_id = tree_id
        self._session = session
        self._loop = asyncio.get_running_loop()
        self.readers: Sequence[object] = hub.readers_of(tree_id)
        """Who watches; empty = nobody."""
        self.abandoned = 0
        """Calls that ignored their cancellation and may still run."""

    def began(self, call: ToolCall) -> None:
        """A call is taken up."""
        self._hub.emit(self._tree_id, self._session, ToolExecutionStart(call.id, call.name, call.arguments))

    def updates_of(self, call_id: str, tool: str) -> UpdateCallback:
        """Return where a call's progress goes; callable from any thread."""
        return partial(self._update, call_id, tool)

    def _update(self, call_id: str, tool: str, progress: JsonValue) -> None:
        event = ToolExecutionUpdate(call_id, tool, to_json_value(progress))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hub.emit, self._tree_id, self._session, event)

    def saw(self, facts: Sequence[SessionFact]) -> None:
        """Tell of the calls that have their result."""
        for fact in facts:
            if isinstance(fact, CallResolved):
                message = fact.message
                result = displayed(message)
                event = ToolExecutionEnd(message.tool_call_id, message.tool_name, result, message.is_error)
                self._hub.emit(self._tree_id, self._session, event)
