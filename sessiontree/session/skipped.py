"""The result of a call that is never begun, because something overtook it."""

from __future__ import annotations

from sessiontree.contracts.envelopes import error_message
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.messages import ToolCall, ToolResultMessage

NEW_MESSAGE = "a new message came in before the call began"


def skipped_message(call: ToolCall, reason: str, at_ms: int) -> ToolResultMessage:
    """Return the result that says why the call was not begun."""
    error = ExecutionError(f"skipped: {reason}")
    return error_message(call.id, call.name, error, at_ms)
