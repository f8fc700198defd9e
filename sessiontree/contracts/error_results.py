"""Results that no tool returned: the error, blocked and pending envelopes of the wire.

Source: seed 000, sections 3.2 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sessiontree.contracts.errors import PermissionDenied, Timeout, ToolError, ValidationError
from sessiontree.contracts.jsonable import JsonValue, dump_readable, to_json_value
from sessiontree.contracts.messages import TextContent, ToolResultMessage
from sessiontree.contracts.truncation import cut_text

MAX_REASON_CHARS: Final = 8_000
"""Longest reason in an envelope; what a tool raised may be of any size."""
MIN_REASON_CHARS: Final = 15
"""What is left of a reason however little room there is."""
MAX_FIELD_CHARS: Final = 400


def error_message(
    call_id: str,
    tool: str,
    error: ToolError,
    at_ms: int,
    *,
    schema: Mapping[str, JsonValue] | None = None,
    extra: Mapping[str, JsonValue] | None = None,
    max_chars: int | None = None,
) -> ToolResultMessage:
    """Return ``{"status":"error","tool","error"}`` as a failed result.

    A validation error adds the failing ``field`` and the tool's ``schema``, so that the model can mend the
    call; the error's code and status stand in ``details``. Where the text would be longer than ``max_chars``,
    the reason is shortened, though never to nothing.
    """
    envelope: dict[str, JsonValue] = {"status": "error", "tool": tool, "error": _reason(error.message)}
    details: dict[str, JsonValue] = {"code": error.code, "status": error.status}
    if isinstance(error, ValidationError):
        field = error.field if error.field is None else cut_text(error.field, MAX_FIELD_CHARS)
        envelope["field"] = details["field"] = field
        if schema is not None:
            envelope["schema"] = dict(schema)
    if isinstance(error, PermissionDenied):
        envelope["tier"] = details["tier"] = error.tier.label
    if isinstance(error, Timeout):
        details["elapsed"] = error.elapsed
    if extra:
        envelope.update(extra)
    if max_chars is not None:
        _shorten(envelope, "error", error.message, max_chars)
    # A tool's own error may hold anything in its fields, such as a time that is no number.
    return _message(call_id, tool, envelope, to_json_value(details), at_ms, is_error=True)


def blocked_message(
    call_id: str, tool: str, reason: str, at_ms: int, *, max_chars: int | None = None
) -> ToolResultMessage:
    """Return ``{"status":"blocked","tool","reason"}``: a rule or hook stopped the call before it ran.

    ``max_chars`` is what it is to :func:`error_message`.
    """
    envelope: dict[str, JsonValue] = {"status": "blocked", "tool": tool, "reason": _reason(reason)}
    if max_chars is not None:
        _shorten(envelope, "reason", reason, max_chars)
    return _message(call_id, tool, envelope, None, at_ms, is_error=True)


def pending_message(call_id: str, tool: str, message: str, request_id: str, at_ms: int) -> ToolResultMessage:
    """Return ``{"status":"pending","tool","message","requestId"}``: the outcome comes later, as a notice."""
    envelope: dict[str, JsonValue] = {
        "status": "pending",
        "tool": tool,
        "message": _reason(message),
        "requestId": request_id,
    }
    return _message(call_id, tool, envelope, None, at_ms, is_error=False)


def unknown_message(call_id: str, tool: str, at_ms: int) -> ToolResultMessage:
    """Return ``{"status":"unknown","may_have_run":true}``: the call was begun and its host was lost."""
    envelope: dict[str, JsonValue] = {
        "status": "unknown",
        "tool": tool,
        "may_have_run": True,
        "error": "the process running this call was lost; check what it did before you repeat it",
    }
    return _message(call_id, tool, envelope, None, at_ms, is_error=True)


def _reason(text: str) -> str:
    return cut_text(text, MAX_REASON_CHARS)


def _shorten(envelope: dict[str, JsonValue], member: str, text: str, max_chars: int) -> None:
    """Cut a reason until the envelope's text fits, or few characters of the reason are left."""
    room = min(len(text), MAX_REASON_CHARS)
    # How long it gets in JSON is known when it is written: some letters need six characters.
    while len(dump_readable(envelope)) > max_chars and room > MIN_REASON_CHARS:
        room = max(MIN_REASON_CHARS, room * 3 // 4)
        envelope[member] = cut_text(text, room)


def _message(
    call_id: str,
    tool: str,
    envelope: dict[str, JsonValue],
    details: JsonValue,
    at_ms: int,
    *,
    is_error: bool,
) -> ToolResultMessage:
    return ToolResultMessage(call_id, tool, (TextContent(dump_readable(envelope)),), details, is_error, at_ms)
