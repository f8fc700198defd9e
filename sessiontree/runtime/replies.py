"""What became of a message or a call that the program sent, also where it was answered before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, Timeout, ToolError, ValidationError
from sessiontree.contracts.messages import TextContent, ToolResultMessage
from sessiontree.contracts.session_facts import CallResolved, Rested
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool_reply import ToolReply
from sessiontree.journal.record import kind_in
from sessiontree.runtime.replay import fact_of


@dataclass(frozen=True, slots=True)
class Reply:
    """The last word for a message, or why there is none."""

    text: str
    error: str | None
    interrupted: bool = False
    """Whether there is none because somebody interrupted the session."""


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
        # The output is the first block; what others say is about images.
        said = next((block.text for block in message.content if isinstance(block, TextContent)), "")
        try:
            output = json.loads(said)
        except ValueError:
            output = said
        return ToolReply(output, text, message.details, message.content)
    raise _error_of(reply.outcome, message)


def _error_of(outcome: str, message: ToolResultMessage) -> ToolError:
    envelope = _envelope(message.text)
    text = envelope.get("error") or envelope.get("reason") or message.text
    if outcome == "invalid":
        return ValidationError(text, envelope.get("field"))
    if outcome in {"denied", "blocked"}:
        named = [tier for tier in PermissionTier if tier.label == envelope.get("tier")]
        return PermissionDenied(named[0] if named else PermissionTier.ELEVATED, text)
    if outcome == "timeout" and isinstance(message.details, dict):
        return Timeout(_seconds(message.details.get("elapsed")), message.tool_name)
    return ExecutionError(text)


def _envelope(text: str) -> dict[str, str]:
    """Return the texts of an error's envelope; a hook may have made anything else of it."""
    try:
        envelope = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(envelope, dict):
        return {}
    return {name: value for name, value in envelope.items() if isinstance(value, str)}


def _seconds(elapsed: object) -> float:
    return float(elapsed) if isinstance(elapsed, int | float) else 0.0


def reply_in(facts: Iterable[str], message_id: str) -> Reply | None:
    """Return the last word for a message, None while there is none."""
    for text in facts:
        if kind_in(text) == "rested" and message_id in text:
            fact = fact_of(text)
            if isinstance(fact, Rested) and message_id in fact.answers:
                return Reply(fact.text, fact.error, fact.interrupted)
    return None


def call_in(facts: Iterable[str], call_id: str) -> CallReply | None:
    """Return how a call made outside the transcript ended, None while it has not."""
    for text in facts:
        if kind_in(text) == "call_resolved" and call_id in text:
            fact = fact_of(text)
            if isinstance(fact, CallResolved) and fact.key == f"call.{call_id}":
                return CallReply(fact.outcome, fact.message)
    return None
