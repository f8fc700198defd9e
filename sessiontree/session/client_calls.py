"""Rules for calls that the creating program answers: handed over, answered, overdue. Changes nothing."""

from __future__ import annotations

from sessiontree.contracts import session_facts as facts
from sessiontree.contracts import stimuli
from sessiontree.contracts.error_results import error_message
from sessiontree.contracts.errors import Timeout
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision, resolve
from sessiontree.session.state import CallState, SessionState


def delegated(state: SessionState, stimulus: stimuli.CallHandedOver) -> Decision:
    """A call that may run is the program's: owed to it from now on, and to nobody else."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is None or call.phase not in {"open", "intended"} or state.stopping is not None:
        return decision
    decision.facts.append(
        facts.CallDelegated(
            stimulus.key,
            stimulus.client_id,
            stimulus.tool,
            stimulus.arguments,
            stimulus.at_ms,
            stimulus.expires_at_ms,
        )
    )
    decision.instructions.append(
        todo.DelegateCall(stimulus.client_id, stimulus.tool, stimulus.arguments, stimulus.expires_at_ms)
    )
    decision.instructions.append(todo.WakeSessionAt(stimulus.expires_at_ms))
    return decision


def answered(state: SessionState, stimulus: stimuli.ClientAnswered) -> Decision:
    """The program answered: what becomes a result is made of it where results are made."""
    decision = Decision()
    found = [call for call in state.calls.values() if call.client_id == stimulus.client_id]
    if found and found[0].phase == "delegated" and state.stopping is None:
        decision.instructions.append(todo.TakeAnswer(found[0].key, stimulus.answer_id, stimulus.answer))
    else:
        decision.instructions.append(todo.SettleAnswer(stimulus.answer_id, taken=False))
    return decision


def expire(state: SessionState, at_ms: int) -> Decision:
    """End the calls whose time is over, and ask to be woken for the next."""
    decision = Decision()
    later: list[int] = []
    for call in state.calls.values():
        if call.phase != "delegated":
            continue
        if call.expires_at_ms > at_ms:
            later.append(call.expires_at_ms)
        else:
            resolve(decision, call, "timeout", _overdue(call, at_ms))
    if later:
        decision.instructions.append(todo.WakeSessionAt(min(later)))
    return decision


def _overdue(call: CallState, at_ms: int) -> ToolResultMessage:
    error = Timeout(max(0, at_ms - call.asked_at_ms) / 1000, call.tool)
    return error_message(call.call.id, call.tool, error, at_ms)
