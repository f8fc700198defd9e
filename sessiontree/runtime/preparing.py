"""What became of preparing a call, as a stimulus for its session."""

from __future__ import annotations

from sessiontree.contracts.envelopes import error_message
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.stimuli import CallFinished, CallPrepared, CallRejected, Stimulus
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall, RejectedCall
from sessiontree.session.state import CallState


def stimulus_of(prepared: PreparedCall | RejectedCall | ImmediateOutcome, at_ms: int) -> Stimulus:
    """Return the stimulus that tells a session how its call was prepared."""
    if isinstance(prepared, PreparedCall):
        tool = prepared.entry.tool
        return CallPrepared(
            at_ms,
            prepared.key,
            tool.name,
            prepared.arguments,
            prepared.tier,
            prepared.digest,
            prepared.needs_approval,
            tool.idempotent or prepared.tier == 0,
        )
    if isinstance(prepared, RejectedCall):
        return CallRejected(
            at_ms,
            prepared.key,
            prepared.tool,
            prepared.message,
            prepared.field,
            prepared.digest,
            prepared.schema,
        )
    return finished(prepared, "")


def finished(outcome: ImmediateOutcome, answer_id: str) -> Stimulus:
    """Return the stimulus that tells a session the result of its call, and which answer it was made of."""
    message = outcome.message
    return CallFinished(
        message.timestamp,
        outcome.key,
        outcome.outcome,
        message,
        outcome.artifacts,
        answer_id,
        outcome.untrusted,
    )


def skipped(call: CallState, reason: str, at_ms: int) -> Stimulus:
    """Return the stimulus that tells a session that its call was not begun."""
    error = ExecutionError(f"skipped before it began: {reason}")
    message = error_message(call.call.id, call.tool or call.call.name, error, at_ms)
    return CallFinished(at_ms, call.key, "skipped", message)
