"""The result of a call that a steering message overtook."""

from __future__ import annotations

from sessiontree.contracts.envelopes import error_message
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.messages import ToolCall, ToolResultMessage


def skipped_message(call: ToolCall, at_ms: int) -> ToolResultMessage:
    """Return the result that says the call was not begun."""
    error = ExecutionError("skipped: a new message came in before the call began")
    return error_message(call.id, call.name, error, at_ms)
