"""Rules for turns: when the model is asked, what its last word means, when there is nothing more to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sessiontree.contracts import session_facts as facts
from sessiontree.contracts import stimuli
from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.memory import MEMORY_SCHEME
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Principal, joined
from sessiontree.schema.result import compile_result
from sessiontree.session import instructions as todo
from sessiontree.session.calls import MAX_ATTEMPTS, Decision, intend, notice, park
from sessiontree.session.state import CallState, SessionState

WAITS: Final = frozenset({"asking", "delegated"})
"""Phases of a call whose outcome is somebody else's to say; nothing of it runs."""


def answered(state: SessionState, stimulus: stimuli.ModelAnswered) -> Decision:
    """The model replied: its calls are checked, or its text is a last word."""
    decision = Decision()
    if not state.asking or stimulus.turn != state.turn:
        return decision
    message = stimulus.message
    decision.facts.append(facts.TurnReplied(stimulus.turn, message))
    calls = message.tool_calls
    if not calls:
        _last_word(state, decision, message.text, stimulus.at_ms)
        return decision
    given_up = tuple(name for name, tried in state.ledger.items() if tried.refused) if state.ledger else ()
    for index, call in enumerate(calls):
        key = f"{stimulus.turn}.{index}"
        decision.instructions.append(todo.PrepareCall(key, call, given_up, state.asked_by))
    return decision


def failed(state: SessionState, stimulus: stimuli.ModelFailed) -> Decision:
    """The model could not reply: the run stops short."""
    decision = Decision()
    if state.asking and stimulus.turn == state.turn:
        decision.facts.append(facts.TurnFailed(stimulus.turn, stimulus.reason, stimulus.said))
        _rest(state, decision, "", f"the model failed: {stimulus.reason}")
    return decision


def _last_word(state: SessionState, decision: Decision, text: str, at_ms: int) -> None:
    schema = state.spec.result_schema
    if schema is None:
        _rest(state, decision, text, None)
        return
    if state.result_attempts >= MAX_ATTEMPTS:
        _rest(state, decision, text, "the result never fitted the schema its parent gave, and was given up")
        return
    try:
        value = compile_result(schema).validate_text(text)
    except ValidationError as error:
        attempt = state.result_attempts + 1
        decision.facts.append(facts.ResultRejected(attempt, error.field, error.message))
        where = f" at {error.field}" if error.field else ""
        if attempt >= MAX_ATTEMPTS:
            problem = f"the result never fitted the schema its parent gave; last{where}: {error.message}"
            _rest(state, decision, text, problem)
            return
        words = (
            f"Your reply does not fit the result schema{where}: {error.message}. Reply again with JSON only."
        )
        decision.facts.append(notice(f"{state.turn}:result", words, at_ms))
        return
    decision.facts.append(facts.Rested(text, tuple(state.unanswered), None, value, has_result=True))
    _answer(state, decision, text, None)


def _rest(state: SessionState, decision: Decision, text: str, error: str | None) -> None:
    decision.facts.append(facts.Rested(text, tuple(state.unanswered), error, None, has_result=False))
    _answer(state, decision, text, error)


def _answer(state: SessionState, decision: Decision, text: str, error: str | None) -> None:
    if state.unanswered:
        decision.instructions.append(todo.AnswerMessages(tuple(state.unanswered), text, error))


def advance(state: SessionState, at_ms: int) -> Decision | None:
    """Say what comes next once a stimulus has been taken in; None = nothing."""
    if state.stopping is not None:
        return None if state.calls else _offer_stopped(state)
    if state.asking:
        return _cut_turn(state) if state.inbox and state.steered else None
    if state.reply_keys:
        return _wait_for_calls(state, at_ms)
    if state.calls and any(call.outside and call.phase == "intended" for call in state.calls.values()):
        return None
    waiting = bool(state.inbox) and any(each.wakes for each in state.inbox)
    if (state.owes_turn or waiting) and (turn := _start_turn(state, waiting)) is not None:
        return turn
    if held := [call for call in state.calls.values() if call.phase in {"held", "approved"}]:
        return _release(held)
    if rests(state):
        # A last word under a call that waits suspends the session; the tree does not end it before.
        return _offer(state)
    return None


def rests(state: SessionState) -> bool:
    """Whether the session's last word stands: nothing of its own is under way but what others answer."""
    if state.stopping is not None:
        return not state.calls
    return state.offer is not None and all(call.phase in WAITS for call in state.calls.values())


def standing(told: Sequence[Any], state: SessionState) -> tuple[Any, ...]:
    """Return what is to be carried out: of last words the newest alone, and not if it was taken back."""
    words = [each for each in told if type(each) is todo.OfferResult]
    if not words:
        return tuple(told)
    newest = words[-1] if rests(state) else None
    return tuple([each for each in told if each is newest or type(each) is not todo.OfferResult])


def _release(held: list[CallState]) -> Decision:
    decision = Decision()
    for call in held:
        if call.phase == "approved":
            intend(decision, call)
            continue
        decision.facts.append(facts.CallHeld(call.key, held=False))
        decision.instructions.append(todo.PrepareCall(call.key, call.call, asked_by=call.asked_by))
    return decision


def _cut_turn(state: SessionState) -> Decision:
    """A steering message waits for no reply: the next question takes the place of this one."""
    decision = Decision()
    decision.facts.append(facts.TurnCut(state.turn, "a new message came in"))
    return decision


def _start_turn(state: SessionState, waiting: bool) -> Decision | None:
    """Ask the model, or rest where it was asked often enough; then notices wait for the next message."""
    decision = Decision()
    fresh = waiting and any(each.wakes and each.message.origin != "notice" for each in state.inbox)
    if not fresh and state.run_turns >= state.limits.max_turns:
        if state.offer is not None:
            return None
        allowed = state.limits.max_turns
        problem = f"max_turns is {allowed} and the work is not done; raise it with Limits(max_turns=…)"
        _rest(state, decision, "", problem)
        return decision
    turn = state.turn + 1
    askers = _askers(state)
    if askers != state.asked_by:
        decision.facts.append(facts.ActsFor(askers))
    decision.facts.append(facts.TurnStarted(turn, len(state.inbox), fresh))
    decision.instructions.append(todo.CallModel(turn))
    return decision


def _askers(state: SessionState) -> tuple[Principal, ...]:
    """Return whom the next turn acts for: everybody whose words it answers, and whom its parent acted for."""
    carried = state.asked_by if state.unanswered else state.spec.asked_by
    return joined(carried, *(each.asked_by for each in state.inbox)) if state.inbox else carried


def _waiting(state: SessionState) -> list[CallState]:
    """Return the reply's calls that wait for others' answers, where nothing else of it is under way."""
    waiting: list[CallState] = []
    for call in state.calls.values():
        if call.outside or call.parked:
            continue
        if call.phase not in WAITS:
            return []
        waiting.append(call)
    return waiting


def _patience_ends_ms(state: SessionState, waiting: Sequence[CallState]) -> int | None:
    """Return when the model goes on without these; None = never."""
    patience_s = state.limits.approval_patience_s
    return None if patience_s is None else max(call.asked_at_ms for call in waiting) + int(patience_s * 1000)


def _wait_for_calls(state: SessionState, at_ms: int) -> Decision | None:
    """When only others' answers are out, the model waits for them as long as the tree's patience lasts.

    Its end is always told by a bell, even where there is none to begin with: what is asked is answered before
    the bell rings, if it is answered at once.
    """
    waiting = _waiting(state)
    if not waiting:
        return None
    ends_ms = _patience_ends_ms(state, waiting)
    decision = Decision()
    if any(each.wakes for each in state.inbox):
        decision.facts.extend(park(call, at_ms) for call in waiting)
    elif ends_ms is not None:
        decision.instructions.append(todo.WakeSessionAt(ends_ms))
    else:
        return None
    return decision


def lose_patience(state: SessionState, at_ms: int, decision: Decision) -> None:
    """A bell rang: let the model go on without answers for which it has waited long enough."""
    if not state.reply_keys or state.asking or state.stopping is not None:
        return
    waiting = _waiting(state)
    ends_ms = _patience_ends_ms(state, waiting) if waiting else None
    if ends_ms is not None and ends_ms <= at_ms:
        ended = {fact.key for fact in decision.facts if isinstance(fact, facts.CallResolved)}
        decision.facts.extend(park(call, at_ms) for call in waiting if call.key not in ended)


def _offer(state: SessionState) -> Decision:
    assert state.offer is not None  # noqa: S101 - asked by the caller
    status, summary, output = state.offer
    if state.spec.kind is SessionKind.MAIN:
        # Main rests after every message; its artifacts would be told again each time.
        result: SessionResult[object] = SessionResult(SessionStatus.COMPLETED, summary, usage=state.usage)
        return _offering(result, stays=False)
    return _offered(state, SessionStatus(status), summary, output)


def _offer_stopped(state: SessionState) -> Decision:
    assert state.stopping is not None  # noqa: S101 - asked by the caller
    return _offered(state, SessionStatus(state.stopping), state.stop_reason, None)


def _offered(state: SessionState, status: SessionStatus, summary: str, output: object) -> Decision:
    addresses = [each.uri for each in state.artifacts if each.kind == "reference" and each.uri is not None]
    records = tuple(uri[len(MEMORY_SCHEME) :] for uri in addresses if uri.startswith(MEMORY_SCHEME))
    result: SessionResult[object] = SessionResult(
        status, summary, output, tuple(state.artifacts), records, state.usage
    )
    return _offering(result, stays=state.interrupted and state.stopping is None)


def _offering(result: SessionResult[object], *, stays: bool) -> Decision:
    decision = Decision()
    decision.instructions.append(todo.OfferResult(result, stays))
    return decision
