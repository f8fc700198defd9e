"""Rules for turns: when the model is asked, what its final message means, and when no work is left."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import ResultOffered
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Principal, join_principals
from sessiontree.contracts.values.memory import MEMORY_SCHEME
from sessiontree.schema.result import compile_result
from sessiontree.session import compaction, cut_messages
from sessiontree.session import instructions as todo
from sessiontree.session.calls import MAX_VALIDATION_ATTEMPTS, Decision, intend, notice, park
from sessiontree.session.programs import is_waiting
from sessiontree.session.repetition import find_repetition
from sessiontree.session.state import CallState, SessionState

_PROBLEMS: Final[Mapping[str, str]] = {
    "length": (
        "the model's reply was cut off because its tokens were used up; raise max_output_tokens, or set "
        "ModelSettings(on_length=…) to continue or accept such replies"
    ),
    "refusal": "the model refused to reply",
    "error": "the model's reply broke off",
    "aborted": "the model's reply was stopped",
}
"""By the finish reason of a reply: why it is not a final message."""
_GO_ON: Final = "Your reply was cut off because its tokens were used up. Go on exactly where it ended."
_EMPTY: Final = "Your last reply was empty; answer, or say that nothing is left to do."
_BLANK: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""Categories of characters that show nothing."""
FIRST_BACKOFF_MS: Final = 500
MAX_BACKOFF_MS: Final = 60_000
FULL_SHARE: Final = 0.85
"""Share of the model's context that one question may use; then the conversation is compacted."""
MAX_RETRY_AFTER_S: Final = 300.0
"""If a provider asks to wait longer than this, in seconds, the question is not repeated automatically."""
WAITS: Final = frozenset({"asking", "delegated"})
"""Phases of a call that waits for someone else's answer; nothing of it runs."""


def take_reply(state: SessionState, stimulus: stimuli.ModelAnswered) -> Decision:
    """Process the model's reply: check its calls, or take its text as a final message."""
    decision = Decision()
    # The reply to a question that was cut may still arrive; only that of the current turn counts.
    if not state.asking or stimulus.turn != state.turn:
        return decision
    if state.compacting is not None:
        return compaction.take_reply(state, state.compacting, stimulus)
    message = stimulus.message
    calls = message.tool_calls
    context, used = stimulus.context_tokens, message.usage.input_tokens
    shared = context if len(calls) > 1 else None
    decision.facts.append(facts.TurnReplied(stimulus.turn, message, context_tokens=shared))
    is_full = context is not None and used >= FULL_SHARE * context
    if context is not None and is_full and not (state.is_crowded or state.compaction_failures):
        decision.facts.append(facts.ContextFilled(used, context))
    if not calls:
        _take_final_reply(state, decision, stimulus)
        return decision
    given_up = tuple(name for name, tried in state.ledger.items() if tried.refused) if state.ledger else ()
    for index, call in enumerate(calls):
        key = f"{stimulus.turn}.{index}"
        # The tokens ran out in the last call at the latest, so only its arguments can be incomplete.
        may_be_cut = message.stop_reason == "length" and index == len(calls) - 1
        decision.instructions.append(todo.PrepareCall(key, call, given_up, state.asked_by, may_be_cut))
    return decision


def _take_final_reply(state: SessionState, decision: Decision, stimulus: stimuli.ModelAnswered) -> None:
    """Take a complete reply as the final message; otherwise the run fails, or the model continues."""
    message, reason = stimulus.message, stimulus.message.stop_reason
    text = state.cut_text + message.text
    if reason == "length" and stimulus.on_length == "continue":
        decision.facts.append(facts.ReplyCut(stimulus.turn, message.text))
        decision.facts.append(notice(f"{stimulus.turn}:length", _GO_ON, stimulus.at_ms))
    elif reason in _PROBLEMS and not (reason == "length" and stimulus.on_length == "accept"):
        detail = message.stop_detail or (message.text if reason == "refusal" else "")
        problem = f"{_PROBLEMS[reason]}: {detail}" if detail else _PROBLEMS[reason]
        _finish_run(state, decision, text, problem, reason if reason in {"length", "refusal"} else "")
    else:
        _take_last_word(state, decision, text, stimulus.at_ms)


def take_failure(state: SessionState, stimulus: stimuli.ModelFailed) -> Decision:
    """Process a failure of the model: ask it again later, or end the run early."""
    decision = Decision()
    if not state.asking or stimulus.turn != state.turn:
        return decision
    wait_ms = _wait_ms(state, stimulus)
    if wait_ms is None and state.compacting is not None:
        decision.facts.append(compaction.end_without_reply(state, state.compacting, stimulus))
        return decision
    fact = facts.TurnFailed(
        stimulus.turn,
        stimulus.reason,
        stimulus.said,
        cause=stimulus.cause,
        account=stimulus.account,
        raised=stimulus.raised,
        is_final=stimulus.cause == "provider" and not stimulus.retryable and not stimulus.overflow,
    )
    if stimulus.raised:
        frames = tuple(stimulus.raised.split("\n"))
        decision.instructions.append(todo.ReportRaised("the model", frames))
    if stimulus.overflow:
        # What follows from it is decided where the next turn begins.
        decision.facts.append(replace(fact, overflow=True))
        return decision
    retry_at_ms = None if wait_ms is None else stimulus.at_ms + wait_ms
    decision.facts.append(replace(fact, retry_at_ms=retry_at_ms))
    if retry_at_ms is not None:
        decision.instructions.append(todo.WakeSessionAt(retry_at_ms, retries=True))
        return decision
    tried = f" ({state.model_failures + 1} attempts)" if state.model_failures else ""
    # A child that runs a program has no model: its program raised, and the reason says so.
    who = f"the model failed{tried}: " if state.spec.first_call is None else ""
    _finish_run(state, decision, "", f"{who}{stimulus.reason}")
    return decision


def _wait_ms(state: SessionState, stimulus: stimuli.ModelFailed) -> int | None:
    """Return how long to wait before the model is asked again, in milliseconds; None = it is not asked again.

    The wait doubles with each failure. It differs between sessions, so that sessions whose provider failed
    at the same time do not retry at the same time. For one session it is always the same.
    """
    after_s = stimulus.retry_after_s or 0.0
    if not stimulus.retryable or stimulus.overflow or state.model_failures >= state.limits.model_retries:
        return None
    # Written this way round so that NaN, which a provider may send, counts as too long.
    if not after_s <= MAX_RETRY_AFTER_S:
        return None
    return max(math.ceil(after_s * 1000), compute_backoff_ms(state, stimulus.turn))


def compute_backoff_ms(state: SessionState, turn: int) -> int:
    """Return how long a session waits before it repeats a turn, unless its provider asks for more."""
    longest_ms = min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS << state.model_failures)
    name = f"{state.spec.session_id} {turn} {state.model_failures}"
    share = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[0] / 255
    return longest_ms // 2 + int(longest_ms / 2 * share)


def retry(state: SessionState, at_ms: int, decision: Decision) -> None:
    """Ask the model again if its retry time has come; called when a timer rings."""
    # Timers ring for approvals and programs, too, so the time is compared.
    if state.retry_at_ms is not None and state.retry_at_ms <= at_ms and state.stopping is None:
        decision.facts.append(facts.TurnRetried(state.turn))
        decision.instructions.append(todo.CallModel(state.turn))


def _take_last_word(state: SessionState, decision: Decision, text: str, at_ms: int) -> None:
    schema = state.spec.result_schema
    if schema is None:
        _take_text(state, decision, text, at_ms)
        return
    if state.result_attempts >= MAX_VALIDATION_ATTEMPTS:
        _finish_run(
            state, decision, text, "the result never fitted the schema its parent gave, and was given up"
        )
        return
    try:
        result = compile_result(schema)
    except ConfigError as error:  # a release with other rules accepted it
        _finish_run(state, decision, text, f"the result can't be checked: {error}")
        return
    try:
        value = result.validate_text(text)
    except ValidationError as error:
        attempt = state.result_attempts + 1
        decision.facts.append(facts.ResultRejected(attempt, error.field, error.message))
        where = f" at {error.field}" if error.field else ""
        if attempt >= MAX_VALIDATION_ATTEMPTS:
            problem = f"the result never fitted the schema its parent gave; last{where}: {error.message}"
            _finish_run(state, decision, text, problem)
            return
        words = f"Your reply does not fit{where}: {error.message}. Reply again. {result.demand}"
        decision.facts.append(notice(f"{state.turn}:result", words, at_ms))
        return
    decision.facts.append(facts.RunFinished(text, tuple(state.unanswered), None, value, has_result=True))
    _answer(state, decision, text, None)


def _take_text(state: SessionState, decision: Decision, text: str, at_ms: int) -> None:
    """Take a text as the final message; of an empty one the model is asked once more in each run."""
    is_empty = _is_blank(text)
    if is_empty and not state.asked_again and state.run_turns < state.limits.max_turns:
        decision.facts.append(facts.ReplyEmpty(state.turn))
        decision.facts.append(notice(f"{state.turn}:empty", _EMPTY, at_ms))
        return
    answers = tuple(state.unanswered)
    finished = facts.RunFinished(text, answers, None, None, has_result=False, is_empty=is_empty)
    decision.facts.append(finished)
    _answer(state, decision, text, None)


def _is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen."""
    return all(unicodedata.category(each) in _BLANK for each in text)


def _finish_run(
    state: SessionState, decision: Decision, text: str, error: str | None, failure: facts.RunFailure = ""
) -> None:
    answers = tuple(state.unanswered)
    decision.facts.append(facts.RunFinished(text, answers, error, None, has_result=False, failure=failure))
    _answer(state, decision, text, error, failure)


def _answer(
    state: SessionState, decision: Decision, text: str, error: str | None, failure: facts.RunFailure = ""
) -> None:
    if state.unanswered:
        answers = tuple(state.unanswered)
        decision.instructions.append(todo.AnswerMessages(answers, text, error, failure=failure))


def advance(state: SessionState, at_ms: int) -> Decision | None:
    """Return the next step after a stimulus was applied; None = nothing is to be done."""
    # A stop comes first: no turn may begin whose outcome nobody takes.
    if state.stopping is not None:
        return None if state.calls else _offer_stopped(state)
    if state.asking or state.retry_at_ms is not None:
        # A compaction is not cut: the next turn needs it, and takes the message.
        return _cut_turn(state) if state.inbox and state.steered and state.compacting is None else None
    if state.reply_keys:
        return _wait_for_calls(state, at_ms)
    if state.calls and any(call.outside and call.phase == "intended" for call in state.calls.values()):
        return None
    waiting = bool(state.inbox) and any(each.wakes for each in state.inbox)
    if (state.owes_turn or waiting) and (turn := _start_turn(state, waiting, at_ms)) is not None:
        return turn
    if held := [call for call in state.calls.values() if call.phase in {"held", "approved"}]:
        return _release(held)
    if is_at_rest(state):
        # A final message while a call waits suspends the session; the tree does not end it before that.
        return _offer(state)
    return None


def is_at_rest(state: SessionState) -> bool:
    """Whether the session's final message is valid: its only open calls wait for answers from others."""
    if state.stopping is not None:
        return not state.calls
    return state.offer is not None and all(call.phase in WAITS for call in state.calls.values())


def keep_valid_instructions(told: Sequence[Any], state: SessionState) -> tuple[Any, ...]:
    """Return the instructions to carry out: of the final messages only the newest, if it is still valid."""
    words = [each for each in told if is_offer(each)]
    if not words:
        return tuple(told)
    newest = words[-1] if is_at_rest(state) else None
    return tuple([each for each in told if each is newest or not is_offer(each)])


def is_offer(instruction: object) -> bool:
    """Whether an instruction offers the session's final message to the tree."""
    return type(instruction) is todo.ToTree and type(instruction.event) is ResultOffered


def _release(held: list[CallState]) -> Decision:
    decision = Decision()
    for call in held:
        if call.phase == "approved":
            intend(decision, call.final)
            continue
        decision.facts.append(facts.CallHeld(call.key, held=False))
        decision.instructions.append(todo.PrepareCall(call.key, call.call, asked_by=call.asked_by))
    return decision


def _cut_turn(state: SessionState) -> Decision:
    """Cut the current turn: a steering message does not wait for the reply."""
    decision = Decision()
    decision.facts.append(facts.TurnCut(state.turn, "a new message came in"))
    return decision


def _answer_repetition(state: SessionState, decision: Decision, at_ms: int) -> bool:
    """End a run that makes one call again and again, or advise the model; return whether either was due."""
    most = state.limits.max_repeats
    loop = None if most is None else find_repetition(state.transcript, most)
    if most is None or loop is None:
        return False
    if loop.count >= most:
        _finish_run(state, decision, "", loop.problem)
        return True
    if not loop.is_told:
        decision.facts.append(notice(f"{state.turn}:repeats", loop.build_advice(most), at_ms))
        return True
    return False


def _start_turn(state: SessionState, waiting: bool, at_ms: int) -> Decision | None:
    """Ask the model, or rest if a limit is reached; then notices wait for the next message."""
    decision = Decision()
    fresh = waiting and any(each.wakes and each.message.origin != "notice" for each in state.inbox)
    if not fresh and state.run_turns >= state.limits.max_turns:
        if state.offer is not None:
            return None
        allowed = state.limits.max_turns
        problem = f"max_turns is {allowed} and the work is not done; raise it with Limits(max_turns=…)"
        _finish_run(state, decision, "", problem)
        return decision
    # A message makes a new situation, so only a model that goes on by itself is looked at for loops.
    if state.owes_turn and not waiting and _answer_repetition(state, decision, at_ms):
        return decision
    turn = state.turn + 1
    # Images go first: they are large, the model has seen them, and it takes no question to remove them.
    cut = cut_messages.leave_out_seen_images(state) if state.overflow else None
    if cut is None and (state.is_crowded or state.overflow):
        begun = compaction.begin(state)
        if begun is not None:
            decision.facts.append(begun)
            decision.instructions.append(todo.CallModel(begun.turn))
            return decision
        if state.overflow:
            cut = cut_messages.cut_longest(state)
            if cut is None:
                _finish_run(state, decision, "", compaction.describe_overflow(state), "overflow")
                return decision
    cut = cut or cut_messages.share_room(state, FULL_SHARE)
    if cut is not None:
        decision.facts.append(cut)
    askers = _list_askers(state)
    if askers != state.asked_by:
        decision.facts.append(facts.ActsFor(askers))
    decision.facts.append(facts.TurnStarted(turn, len(state.inbox), fresh))
    decision.instructions.append(todo.CallModel(turn))
    return decision


def _list_askers(state: SessionState) -> tuple[Principal, ...]:
    """Return the principals of the next turn: the authors of its messages and those its parent acted for."""
    carried = state.asked_by if state.unanswered else state.spec.asked_by
    return join_principals(carried, *(each.asked_by for each in state.inbox)) if state.inbox else carried


def _find_waiting(state: SessionState) -> list[CallState]:
    """Return the reply's calls that wait for others' answers; empty if another call is in progress."""
    waiting: list[CallState] = []
    for key in state.reply_keys:
        call = state.calls.get(key)
        if call is None or call.parked:
            continue
        if call.phase not in WAITS and (call.program is None or not is_waiting_program(state, call)):
            return []
        waiting.append(call)
    return waiting


def is_waiting_program(state: SessionState, call: CallState) -> bool:
    """Whether a call is a program that waits, and a message is here for which the model need not wait."""
    # Asked at every step of a program, so the cheap part comes first: without a message it goes on alone.
    return call.program is not None and any(each.wakes for each in state.inbox) and is_waiting(state, call)


def _find_patience_end_ms(state: SessionState, waiting: Sequence[CallState]) -> int | None:
    """Return when the model continues without these calls, in milliseconds; None = never."""
    patience_s = state.limits.approval_patience_s
    if patience_s is None or any(call.program is not None for call in waiting):
        # What a program waits for may be a child: only a message is a reason to go on without it.
        return None
    return max(call.asked_at_ms for call in waiting) + int(patience_s * 1000)


def _wait_for_calls(state: SessionState, at_ms: int) -> Decision | None:
    """Wait for others' answers, if only those are missing, up to the tree's approval patience.

    A timer always reports the end of the wait, even if the patience is zero: a request that is answered at
    once is settled before the timer rings.
    """
    waiting = _find_waiting(state)
    if not waiting:
        return None
    ends_ms = _find_patience_end_ms(state, waiting)
    decision = Decision()
    if any(each.wakes for each in state.inbox):
        decision.facts.extend(park(call, at_ms) for call in waiting)
    elif ends_ms is not None:
        decision.instructions.append(todo.WakeSessionAt(ends_ms))
    else:
        return None
    return decision


def lose_patience(state: SessionState, at_ms: int, decision: Decision) -> None:
    """Let the model continue without answers that are late; called when a timer rings."""
    if not state.reply_keys or state.is_waiting_for_model or state.stopping is not None:
        return
    waiting = _find_waiting(state)
    ends_ms = _find_patience_end_ms(state, waiting) if waiting else None
    if ends_ms is not None and ends_ms <= at_ms:
        ended = {fact.key for fact in decision.facts if isinstance(fact, facts.CallResolved)}
        decision.facts.extend(park(call, at_ms) for call in waiting if call.key not in ended)


def _offer(state: SessionState) -> Decision:
    assert state.offer is not None  # noqa: S101 - asked by the caller
    status, summary, output = state.offer
    if state.spec.kind is SessionKind.MAIN:
        # Main rests after every message; its artifacts would be reported again each time.
        result: SessionResult[object] = SessionResult(SessionStatus.COMPLETED, summary, usage=state.usage)
        return _offer_result(result, stays=False)
    return _build_offer(state, SessionStatus(status), summary, output)


def _offer_stopped(state: SessionState) -> Decision:
    assert state.stopping is not None  # noqa: S101 - asked by the caller
    return _build_offer(state, SessionStatus(state.stopping), state.stop_reason, None)


def _build_offer(state: SessionState, status: SessionStatus, summary: str, output: object) -> Decision:
    addresses = [each.uri for each in state.artifacts if each.kind == "reference" and each.uri is not None]
    records = tuple(uri[len(MEMORY_SCHEME) :] for uri in addresses if uri.startswith(MEMORY_SCHEME))
    result: SessionResult[object] = SessionResult(
        status,
        summary,
        output,
        tuple(state.artifacts),
        records,
        state.usage,
        tuple(state.given_up.values()),
        cause=state.failure_cause if status is SessionStatus.FAILED else "",
    )
    return _offer_result(result, stays=state.interrupted and state.stopping is None)


def _offer_result(result: SessionResult[object], *, stays: bool) -> Decision:
    decision = Decision()
    decision.instructions.append(todo.ToTree(ResultOffered(result, stays)))
    return decision
