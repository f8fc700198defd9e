"""What the creating program gets back from a session."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sessiontree.contracts.errors import (
    ExecutionError,
    PermissionDenied,
    Timeout,
    ToolError,
    ValidationError,
)
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool_reply import ToolReply


@dataclass(frozen=True, slots=True)
class Reply:
    """The last word for a message, or why there is none."""

    text: str
    error: str | None


@dataclass(frozen=True, slots=True)
class CallReply:
    """The result of a call asked from outside."""

    outcome: str
    message: ToolResultMessage


def tool_reply(reply: CallReply) -> ToolReply:
    """Return the result of a call that went well.

    Raises:
        ValidationError, PermissionDenied, Timeout, ExecutionError: as the call ended.
    """
    message = reply.message
    if not message.is_error:
        text = message.text
        try:
            output = json.loads(text)
        except ValueError:
            output = text
        return ToolReply(output, text, message.details, message.content)
    raise _error_of(reply.outcome, message)


def _error_of(outcome: str, message: ToolResultMessage) -> ToolError:
    envelope = json.loads(message.text)
    text = envelope.get("error") or envelope.get("reason") or message.text
    if outcome == "invalid":
        return ValidationError(text, envelope.get("field"))
    if outcome in {"denied", "blocked"}:
        tier = PermissionTier.from_label(envelope.get("tier", PermissionTier.ELEVATED.label))
        return PermissionDenied(tier, text)
    if outcome == "timeout" and isinstance(message.details, dict):
        return Timeout(float(str(message.details["elapsed"])))
    return ExecutionError(text)
