"""Answers the calls of a session that search its tools: from those that it holds, and no others."""

from __future__ import annotations

import sqlite3

from sessiontree.contracts.errors import ExecutionError, describe_error
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.programs import DEFAULT_FOUND, STARTS_CHILDREN
from sessiontree.contracts.recorded.results import ToolResult, make_error_message
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.results import ImmediateOutcome, make_result_message
from sessiontree.programs.tool_index import HeldTool, ToolIndex
from sessiontree.session.state import CallState

NOTHING = "no tool has any of these words; search with others"


class ToolSearches:
    """The searches of one session on its host.

    Args:
        dispatcher: Knows the tools that the session holds.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._index: ToolIndex | None = None
        """Made by the first search."""

    def answer(self, call: CallState, checked: CheckedCall, at_ms: int) -> ImmediateOutcome:
        """Return the outcome of a call; it finds nothing that is withheld from those whom it is made for."""
        arguments, dispatcher = checked.arguments, self._dispatcher
        query, asked = str(arguments["query"]), arguments.get("limit")
        limit = asked if isinstance(asked, int) else DEFAULT_FOUND
        withheld = dispatcher.find_withheld(call.asked_by)
        try:
            tools, more = self._make_index().find(query, limit, withheld)
        except sqlite3.Error as error:
            failed = ExecutionError(f"the tools can't be searched here: {describe_error(error)}")
            return ImmediateOutcome(
                call.key, "error", make_error_message(call.call.id, checked.tool, failed, at_ms)
            )
        result = ToolResult(output={"tools": [*tools], "more": more} if tools else NOTHING)
        message = make_result_message(
            call.call.id, checked.tool, result, at_ms, max_chars=dispatcher.max_chars
        )
        return ImmediateOutcome(call.key, "ok", message)

    def close(self) -> None:
        """Free the index; a later search makes another one."""
        index, self._index = self._index, None
        if index is not None:
            index.close()

    def _make_index(self) -> ToolIndex:
        if self._index is None:
            found = self._dispatcher.callable_in_programs
            tools = [
                HeldTool(each.name, each.tool.description, each.compiled.schema, each.tool.aliases)
                for each in found
            ]
            self._index = ToolIndex(tools, STARTS_CHILDREN)
        return self._index
