"""What became of preparing a call, as a stimulus for its session."""

from __future__ import annotations

from sessiontree.contracts.stimuli import CallFinished, CallPrepared, CallRejected, Stimulus
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall, RejectedCall


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
    return CallFinished(at_ms, prepared.key, prepared.outcome, prepared.message)
