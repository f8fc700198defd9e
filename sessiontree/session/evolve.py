"""How facts change a session's state. Total, and without a single rule: rules are in ``decide``.

``evolve`` owns the state it is given: it changes it in place and returns it, so that a conversation of n
messages costs O(n) and not O(n²). Who needs the old state replays its facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessiontree.contracts import session_facts as facts
from sessiontree.contracts.messages import ToolCall, ToolResultMessage
from sessiontree.contracts.session_facts import SessionFact
from sessiontree.contracts.usage import NOTHING_USED
from sessiontree.session.state import Attempts, CallState, Consultation, SessionState, Waiting

REMEMBERED_MESSAGES = 4096


def evolve(state: SessionState, fact: SessionFact) -> SessionState:
    """Apply one fact. Amortised O(1) in the length of the conversation."""
    APPLY[type(fact)](state, fact)
    return state


def _opened(state: SessionState, fact: facts.Opened) -> None:
    state.system_prompt = fact.system_prompt
    state.tools = fact.tools
    state.model = fact.model


def _heard(state: SessionState, fact: facts.Heard) -> None:
    state.inbox.append(Waiting(fact.message_id, fact.message, fact.steer, fact.wakes, fact.asked_by))
    _remember(state, fact.message_id)
    if fact.wakes:
        state.offer = None
        state.interrupted = False


def _acts_for(state: SessionState, fact: facts.ActsFor) -> None:
    state.asked_by = fact.askers


def _remember(state: SessionState, name: str) -> None:
    state.heard[name] = None
    if len(state.heard) > REMEMBERED_MESSAGES:
        del state.heard[next(iter(state.heard))]


def _turn_started(state: SessionState, fact: facts.TurnStarted) -> None:
    state.turn = fact.turn
    state.run_turns = 1 if fact.fresh_run else state.run_turns + 1
    state.asking = True
    state.owes_turn = False
    state.offer = None
    if fact.fresh_run:
        state.ledger.clear()
        state.result_attempts = 0
    if fact.took:
        for waiting in state.inbox[: fact.took]:
            state.transcript.append(waiting.message)
            if waiting.wakes:
                state.unanswered.append(waiting.message_id)
        del state.inbox[: fact.took]


def _turn_replied(state: SessionState, fact: facts.TurnReplied) -> None:
    state.asking = False
    message = fact.message
    state.transcript.append(message)
    calls = message.tool_calls
    if message.usage is not NOTHING_USED:
        state.reported += message.usage
    state.replies += 1
    state.calls_made += len(calls)
    if calls:
        keys = []
        for index, call in enumerate(calls):
            key = f"{fact.turn}.{index}"
            keys.append(key)
            state.calls[key] = CallState(key, call, asked_by=state.asked_by)
        state.reply_keys = tuple(keys)


def _turn_failed(state: SessionState, fact: facts.TurnFailed) -> None:
    state.asking = False


def _turn_cut(state: SessionState, fact: facts.TurnCut) -> None:
    state.asking = False


def _call_opened(state: SessionState, fact: facts.CallOpened) -> None:
    call = ToolCall(fact.call_id, fact.tool, fact.arguments)
    state.calls[fact.key] = CallState(fact.key, call, outside=True)
    _remember(state, fact.key)


def _call_held(state: SessionState, fact: facts.CallHeld) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        call.phase = "held" if fact.held else "open"


def _bind(state: SessionState, fact: facts.CallIntended | facts.ApprovalWanted) -> CallState | None:
    call = state.calls.get(fact.key)
    if call is not None:
        if call.phase == "open" and not call.outside:
            state.ledger.pop(fact.tool, None)
        call.tool = fact.tool
        call.arguments = fact.arguments
        call.digest = fact.digest
        call.tier = fact.tier
        call.repeatable = fact.repeatable
    return call


def _call_intended(state: SessionState, fact: facts.CallIntended) -> None:
    call = _bind(state, fact)
    if call is not None:
        call.phase = "intended"


def _approval_wanted(state: SessionState, fact: facts.ApprovalWanted) -> None:
    call = _bind(state, fact)
    if call is not None:
        call.phase = "asking"
        call.request_id = fact.request_id
        call.asked_at_ms = fact.at_ms


def _approval_settled(state: SessionState, fact: facts.ApprovalSettled) -> None:
    call = state.calls.get(fact.key)
    if call is not None and fact.decision == "approved" and call.phase == "asking":
        call.phase = "approved"  # else its intent was made durable with the answer, before this


def _call_delegated(state: SessionState, fact: facts.CallDelegated) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        if call.phase == "open" and not call.outside:
            state.ledger.pop(fact.tool, None)
        call.phase = "delegated"
        call.tool = fact.tool
        call.arguments = fact.arguments
        call.client_id = fact.client_id
        call.asked_at_ms = fact.at_ms
        call.expires_at_ms = fact.expires_at_ms


def _call_parked(state: SessionState, fact: facts.CallParked) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        call.parked = True
    _place(state, fact.key, fact.message)


def _arguments_rejected(state: SessionState, fact: facts.ArgumentsRejected) -> None:
    state.ledger[fact.tool] = Attempts(fact.attempt, state.turn, fact.digest, fact.final)


def _call_resolved(state: SessionState, fact: facts.CallResolved) -> None:
    call = state.calls.pop(fact.key, None)
    if fact.resets is not None:
        state.ledger.pop(fact.resets, None)
    if fact.artifacts:
        state.artifacts.extend(fact.artifacts)
    if call is not None and not call.outside and not call.parked:
        _place(state, fact.key, fact.message)


def _place(state: SessionState, key: str, message: ToolResultMessage) -> None:
    """Results stand in call order: they join the transcript together, when the last one is there."""
    keys = state.reply_keys
    if len(keys) == 1:
        state.transcript.append(message)
    else:
        state.results[key] = message
        if len(state.results) < len(keys):
            return
        state.transcript.extend(state.results[each] for each in keys)
        state.results = {}
    state.reply_keys = ()
    state.owes_turn = not state.interrupted


def _tainted(state: SessionState, fact: facts.Tainted) -> None:
    state.taint = fact.source


def _hook_failed(state: SessionState, fact: facts.HookFailed) -> None:
    """Told to whoever reads the journal; a session is no different for it."""


def _tool_given_up(state: SessionState, fact: facts.ToolGivenUp) -> None:
    """Told to the parent; the ledger already refuses the tool."""


def _child_trouble_noted(state: SessionState, fact: facts.ChildTroubleNoted) -> None:
    """Recorded for the event stream; its text waits in the inbox as a notice of its own."""


def _approver_consulted(state: SessionState, fact: facts.ApproverConsulted) -> None:
    state.consultations[fact.request_id] = Consultation(
        fact.requester, fact.tool, fact.arguments, fact.tier, fact.asked_by
    )


def _approver_replied(state: SessionState, fact: facts.ApproverReplied) -> None:
    state.consultations.pop(fact.request_id, None)


def _result_rejected(state: SessionState, fact: facts.ResultRejected) -> None:
    state.result_attempts = fact.attempt


def _rested(state: SessionState, fact: facts.Rested) -> None:
    state.unanswered = [each for each in state.unanswered if each not in fact.answers]
    status = "failed" if fact.error is not None else "completed"
    state.offer = (status, fact.text if fact.error is None else fact.error, fact.result)
    state.owes_turn = False


def _interrupted(state: SessionState, fact: facts.Interrupted) -> None:
    _remember(state, fact.post_id)
    state.interrupted = True
    state.owes_turn = False
    for waiting in state.inbox:
        waiting.steer = waiting.wakes = False
    for call in state.calls.values():
        call.cut = True


def _stopping(state: SessionState, fact: facts.Stopping) -> None:
    state.stopping = fact.status
    state.stop_reason = fact.reason
    state.asking = False


APPLY: dict[type[Any], Callable[[SessionState, Any], None]] = {
    facts.Opened: _opened,
    facts.Heard: _heard,
    facts.ActsFor: _acts_for,
    facts.TurnStarted: _turn_started,
    facts.TurnReplied: _turn_replied,
    facts.TurnFailed: _turn_failed,
    facts.TurnCut: _turn_cut,
    facts.CallOpened: _call_opened,
    facts.CallHeld: _call_held,
    facts.CallIntended: _call_intended,
    facts.ApprovalWanted: _approval_wanted,
    facts.ApprovalSettled: _approval_settled,
    facts.CallDelegated: _call_delegated,
    facts.CallParked: _call_parked,
    facts.ArgumentsRejected: _arguments_rejected,
    facts.CallResolved: _call_resolved,
    facts.Tainted: _tainted,
    facts.HookFailed: _hook_failed,
    facts.ToolGivenUp: _tool_given_up,
    facts.ChildTroubleNoted: _child_trouble_noted,
    facts.ApproverConsulted: _approver_consulted,
    facts.ApproverReplied: _approver_replied,
    facts.ResultRejected: _result_rejected,
    facts.Rested: _rested,
    facts.Interrupted: _interrupted,
    facts.Stopping: _stopping,
}
"""How each type of fact is applied; every fact of a session has its entry."""
