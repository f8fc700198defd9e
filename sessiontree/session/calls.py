"""Rules for tool calls: attempts, intents, approvals, the program's answers and results.

They never change the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, Timeout, ValidationError
from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import (
    ApprovalAsked,
    ApprovalWithdrawn,
    ChildWithdrawn,
    ClientCallDelegated,
    ClientCallWithdrawn,
    TaintReported,
    TroubleReported,
)
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import BY_POLICY, CheckedCall, RejectedCall
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.results import (
    make_error_message,
    make_pending_message,
    make_unknown_message,
)
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.author_errors import read_frames
from sessiontree.contracts.tools.client_tool import DELEGATED, PERSON_ASKED
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage, UserMessage
from sessiontree.session import instructions as todo
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import CUT_SHORT, IDLE_PHASES, CallState, SessionState

MAX_VALIDATION_ATTEMPTS = 3
UNKNOWN_IN_FORK = "the tree was forked while the call ran; check what it did before you repeat it"
WITHDRAWN = "its program has given it up"
OUTCOME = ":outcome"
"""What follows the key of a call in the id of the message that brings its outcome later."""
UNAWAITED = "the program that started it waits for it no more"
_PROGRAM_WAITS = "the program waits for its calls and goes on by itself; its result will be reported"
_NEW_MESSAGE = "a new message came in before the call began"


class Decision:
    """Facts and instructions of one decision, in order."""

    __slots__ = ("facts", "instructions")

    def __init__(self) -> None:
        self.facts: list[SessionFact] = []
        self.instructions: list[SessionInstruction] = []


def take_in(state: SessionState, decision: Decision, source: str) -> None:
    """Record that the session has taken in untrusted text; only once, because it stays tainted for life."""
    if source and not state.taint:
        decision.facts.append(facts.Tainted(source))
        decision.instructions.append(todo.ToTree(TaintReported(source)))


def on_prepared(state: SessionState, stimulus: stimuli.CallPrepared) -> Decision:
    """Decide on a checked call: it runs now, after its intent is durable, or after an approval."""
    decision = Decision()
    checked = stimulus.call
    call = state.calls.get(checked.key)
    # After a host was lost a call may be prepared twice; the first preparation counts.
    if call is None or call.phase != "open" or state.stopping is not None:
        return decision
    if call.withdrawn:
        abort_waiting(decision, call, WITHDRAWN, stimulus.at_ms)
        return decision
    attempts = state.ledger.get(checked.tool)
    if attempts is not None and attempts.refused and not call.outside:
        _refuse_given_up(decision, call, checked.tool, checked.tier, stimulus.at_ms)
    elif call.outside and state.in_turn and checked.tier > PermissionTier.READ_ONLY:
        decision.facts.append(facts.CallHeld(checked.key, held=True))
    elif stimulus.needs_approval:
        _want_approval(state, decision, call, checked, stimulus.at_ms)
    elif checked.tier == PermissionTier.READ_ONLY:
        decision.instructions.append(todo.ExecuteCall(state.ids.call(checked.key), checked))
    else:
        intend(decision, checked)
    return decision


def _is_of_a_reply(call: CallState) -> bool:
    """Whether a call is in the transcript; others must each have a result of their own."""
    return not call.outside and not call.part_of


def _want_approval(
    state: SessionState, decision: Decision, call: CallState, checked: CheckedCall, at_ms: int
) -> None:
    same = [
        other
        for other in state.calls.values()
        if other.phase == "asking" and _is_of_a_reply(other) and other.final.digest == checked.digest
    ]
    if same and _is_of_a_reply(call):
        # A repeat of a pending call joins it: one request, one prompt, at most one effect.
        request_id = same[0].request_id
        text = f"the same call {same[0].call.id} already waits for an approval; its outcome is this one's too"
        message = make_pending_message(call.call.id, checked.tool, text, request_id, at_ms)
        resets = checked.tool if checked.tool in state.ledger else None
        decision.facts.append(facts.CallResolved(call.key, "pending", message, (), resets))
        return
    request_id = state.ids.request(call.key)
    decision.facts.append(facts.ApprovalWanted(request_id, checked, at_ms))
    # A call from outside may have to wait after it is allowed; any other call runs at once.
    asked = ApprovalAsked(request_id, checked, call.asked_by, runs_at_once=not call.outside)
    decision.instructions.append(todo.ToTree(asked))


def on_rejected(state: SessionState, stimulus: stimuli.CallRejected) -> Decision:
    """Count a failed validation: at most three attempts, two if the same mistake is repeated at once.

    A program whose text is refused counts as a call whose arguments do not fit.
    """
    decision = Decision()
    bad, at_ms = stimulus.call, stimulus.at_ms
    call = state.calls.get(bad.key)
    if call is None or call.phase not in {"open", "program"}:
        return decision
    if call.outside:
        error = ValidationError(bad.message, bad.field)
        message = make_error_message(call.call.id, bad.tool, error, at_ms, schema=bad.schema or None)
        resolve(decision, call, "invalid", message)
        return decision
    previous = state.ledger.get(bad.tool)
    if previous is not None and previous.refused:
        _refuse_given_up(decision, call, bad.tool, PermissionTier.READ_ONLY, at_ms)
        return decision
    # Bad calls of one reply count as one attempt: the model saw no error in between.
    same_reply = (
        previous is not None and previous.turn == state.turn and call.asked_after < max(1, previous.asked)
    )
    count = 1 if previous is None else previous.count + (0 if same_reply else 1)
    identical = previous is not None and not same_reply and previous.digest == bad.digest
    final = count >= MAX_VALIDATION_ATTEMPTS or identical
    _reject(decision, call, bad, at_ms, count, final=final, identical=identical)
    return decision


def _reject(
    decision: Decision,
    call: CallState,
    bad: RejectedCall,
    at_ms: int,
    count: int,
    *,
    final: bool,
    identical: bool,
) -> None:
    decision.facts.append(
        facts.ArgumentsRejected(bad.key, bad.tool, count, bad.field, bad.message, bad.digest, final)
    )
    if final:
        same = "these very arguments were refused just before; " if identical else ""
        advice = f"{same}{bad.tool} is refused until the next message; go on without it"
    else:
        advice = f"attempt {count} of {MAX_VALIDATION_ATTEMPTS}; correct the arguments and call again"
    message = make_error_message(
        call.call.id,
        bad.tool,
        ValidationError(bad.message, bad.field),
        at_ms,
        schema=bad.schema or None,
        extra={"attempt": count, "advice": advice},
    )
    resolve(decision, call, "invalid", message)
    if final:
        trouble = facts.ToolGivenUp(bad.tool, count, bad.field, bad.message)
        decision.facts.append(trouble)
        decision.instructions.append(todo.ToTree(TroubleReported(trouble)))


def _refuse_given_up(decision: Decision, call: CallState, tool: str, tier: int, at_ms: int) -> None:
    error = PermissionDenied(
        PermissionTier(tier), f"{tool} is refused until the next message: its arguments never fitted"
    )
    resolve(decision, call, "denied", make_error_message(call.call.id, tool, error, at_ms))


def finish_call(state: SessionState, stimulus: stimuli.CallFinished) -> Decision:
    """Record the result of a call."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is not None and call.program is not None:
        _end_program_calls(state, call, decision, stimulus.at_ms)
    if call is not None and _is_late(state, call, stimulus):
        _conclude_late(decision, call, stimulus.at_ms)
    elif call is not None and call.awaits and stimulus.outcome == "ok":
        if not call.report:
            decision.facts.append(facts.ChildAwaited(call.key, stimulus.message))
        else:
            deliver_child_answer(decision, call, call.report, stimulus.at_ms, untrusted=bool(state.taint))
    elif call is not None:
        name = stimulus.message.tool_name
        resets = name if name in state.ledger and _is_first_proof(state, call, stimulus) else None
        if stimulus.untrusted and not call.outside:
            take_in(state, decision, name)
        result = facts.CallResolved(call.key, stimulus.outcome, stimulus.message, stimulus.artifacts, resets)
        if call.part_of:
            result = replace(result, is_json=stimulus.is_json, untrusted=stimulus.untrusted)
        conclude(decision, call, result, (stimulus.answer_id, stimulus.by, stimulus.surface))
    if stimulus.answer_id:
        decision.instructions.append(todo.SettleAnswer(stimulus.answer_id, taken=call is not None))
    return decision


def _is_first_proof(state: SessionState, call: CallState, stimulus: stimuli.CallFinished) -> bool:
    """Whether a result is the first proof that the model can call a tool that it has not given up."""
    if call.outside or stimulus.outcome == "skipped":
        return False
    if call.phase != "open" and (call.program is None or stimulus.outcome == "aborted"):
        return False
    return not state.ledger[stimulus.message.tool_name].refused


def resolve(
    decision: Decision,
    call: CallState,
    outcome: Outcome,
    message: ToolResultMessage,
) -> None:
    """Give a call its result: in the transcript, to whoever asked, or later as a notice."""
    conclude(decision, call, facts.CallResolved(call.key, outcome, message))


def conclude(
    decision: Decision,
    call: CallState,
    result: facts.CallResolved,
    answer: tuple[str, str, str] = ("", "", ""),
) -> None:
    """Give a call its result, as :func:`resolve`.

    ``answer`` is the id of the answer that it was made of, who gave it, and where; empty = of none.
    """
    outcome, message = result.outcome, result.message
    decision.facts.append(result)
    if message.is_error and (frames := read_frames(message)):
        decision.instructions.append(todo.ReportRaised(f"tool {message.tool_name!r}", frames))
    if call.phase == "delegated":
        ended = ClientCallEnded(call.client_id, outcome, *answer)
        decision.instructions.append(todo.ToTree(ClientCallWithdrawn(ended)))
    if call.awaits and outcome in CUT_SHORT:
        # Its child may run already, also if nobody here has heard of that yet.
        decision.instructions.append(todo.ToTree(ChildWithdrawn(call.awaits, UNAWAITED)))
    if call.part_of:
        decision.instructions.append(todo.AdvanceProgram(call.part_of))
    elif call.outside:
        decision.instructions.append(todo.AnswerCall(call.call.id, outcome, message))
    elif call.parked:
        decision.facts.append(
            notice(
                f"{call.key}{OUTCOME}",
                f"The pending call {call.call.id} of {call.tool} is settled ({outcome}): {message.text}",
                message.timestamp,
                wakes=not call.cut,
                asked_by=call.asked_by,
                images=tuple(block for block in message.content if isinstance(block, ImageContent)),
            )
        )


def deliver_child_answer(
    decision: Decision, call: CallState, text: str, at_ms: int, *, untrusted: bool
) -> None:
    """Give a program's call the report of the child that it started."""
    message = ToolResultMessage(call.call.id, call.tool, (TextContent(text),), None, False, at_ms)
    conclude(
        decision,
        call,
        facts.CallResolved(call.key, "ok", message, is_json=True, untrusted=untrusted),
    )


def _end_program_calls(state: SessionState, program: CallState, decision: Decision, at_ms: int) -> None:
    """End the calls whose program has ended without waiting for them."""
    resolved = _list_resolved(decision)
    own = (call for call in state.calls.values() if call.part_of == program.key)
    ended = [call for call in own if call.key not in resolved]
    # Nobody would take their results, and a waiting call would keep its request open.
    end_calls(decision, ended, "its program has ended", at_ms)


def end_calls(decision: Decision, ended: Iterable[CallState], reason: str, at_ms: int) -> None:
    """End calls of programs, whether they wait or run."""
    running = []
    for call in ended:
        if call.phase in IDLE_PHASES:
            abort_waiting(decision, call, reason, at_ms)
        else:
            running.append(call.key)
    if running:
        decision.instructions.append(todo.AbortCalls(tuple(running), reason))


def notice(
    message_id: str,
    text: str,
    at_ms: int,
    *,
    wakes: bool = True,
    asked_by: tuple[Principal, ...] = (),
    images: tuple[ImageContent, ...] = (),
) -> facts.MessageReceived:
    """Return a message from the runtime itself, in the user's role."""
    message = UserMessage((TextContent(text), *images), at_ms, "notice")
    return facts.MessageReceived(message_id, message, steer=False, wakes=wakes, asked_by=asked_by)


def on_committed(state: SessionState, stimulus: stimuli.IntentsCommitted) -> Decision:
    """Start the calls whose intents are now durable."""
    decision = Decision()
    for key in stimulus.keys:
        call = state.calls.get(key)
        # A stop may have come while the intent was written; then the call must not start.
        if call is not None and call.phase == "intended" and state.stopping is None:
            decision.instructions.append(_execute(state, call))
    return decision


def _execute(state: SessionState, call: CallState) -> todo.ExecuteCall:
    return todo.ExecuteCall(state.ids.call(call.key), call.final, call.answered)


def on_approval_answered(state: SessionState, stimulus: stimuli.ApprovalAnswered) -> Decision:
    """Apply the decision on an approval request."""
    decision = Decision()
    found = [each for each in state.calls.values() if each.request_id == stimulus.request_id]
    # Race: the call may have ended while its answer was on the way.
    if not found or found[0].phase != "asking":
        return decision
    call = found[0]
    decision.facts.append(
        facts.ApprovalSettled(call.key, stimulus.request_id, stimulus.decision, stimulus.by, stimulus.reason)
    )
    if stimulus.decision == "approved":
        if stimulus.intended:
            _run_intended(state, decision, call)
        elif not (call.outside and state.in_turn):
            intend(decision, call.final)
    else:
        reason = f"{call.tool} was {stimulus.decision} by {stimulus.by}"
        error = PermissionDenied(
            PermissionTier(call.final.tier),
            f"{reason}: {stimulus.reason}" if stimulus.reason else reason,
            by_policy=stimulus.by in BY_POLICY,
        )
        message = make_error_message(call.call.id, call.tool, error, stimulus.at_ms)
        resolve(decision, call, "denied", message)
    return decision


def _run_intended(state: SessionState, decision: Decision, call: CallState) -> None:
    """Start a call whose intent was made durable with its approval."""
    decision.facts.append(facts.CallIntended(call.final))
    if state.stopping is None:
        decision.instructions.append(_execute(state, call))


def intend(decision: Decision, checked: CheckedCall) -> None:
    """Start an allowed call once its intent is durable."""
    decision.facts.append(facts.CallIntended(checked))
    decision.instructions.append(todo.AwaitCommit((checked.key,)))


def park(call: CallState, at_ms: int) -> facts.CallParked:
    """Let the model continue while a call waits for its approval or for an answer."""
    if call.program is not None:
        text, name = _PROGRAM_WAITS, ""
    elif call.phase == "delegated":
        text, name = PERSON_ASKED if call.to_person else DELEGATED, call.client_id
    else:
        text, name = (
            "waiting for an approval; go on with other work, the outcome will be reported",
            call.request_id,
        )
    message = make_pending_message(call.call.id, call.tool, text, name, at_ms)
    return facts.CallParked(call.key, message)


def abort_waiting(decision: Decision, call: CallState, reason: str, at_ms: int) -> None:
    """End a call that only waits for an answer.

    The tree withdraws the requests of a session that stops; that of a program's call may be the only one.
    """
    withdraw_request(decision, call, reason)
    message = make_error_message(call.call.id, call.tool, ExecutionError(reason), at_ms)
    resolve(decision, call, "aborted", message)


def withdraw_request(decision: Decision, call: CallState, reason: str) -> None:
    """Withdraw the approval request of a program's call, if it waits for one."""
    if call.phase == "asking" and call.part_of:
        decision.instructions.append(todo.ToTree(ApprovalWithdrawn(call.request_id, reason)))


def on_delegated(state: SessionState, stimulus: stimuli.CallHandedOver) -> Decision:
    """Hand an allowed call over to the creating program or a person: nobody else answers it from then on."""
    decision = Decision()
    checked = stimulus.call
    call = state.calls.get(checked.key)
    if call is None or call.phase not in {"open", "intended"} or state.stopping is not None:
        return decision
    client_id, ends_ms, to_person = stimulus.client_id, stimulus.expires_at_ms, stimulus.to_person
    asked = stimulus.input
    handed_over = facts.CallDelegated(client_id, checked, stimulus.at_ms, ends_ms, to_person, asked)
    decision.facts.append(handed_over)
    questions = None if asked is None else asked.questions
    event = ClientCallDelegated(client_id, checked, ends_ms, to_person, questions)
    decision.instructions.append(todo.ToTree(event))
    decision.instructions.append(todo.WakeSessionAt(ends_ms))
    return decision


def on_client_answered(state: SessionState, stimulus: stimuli.ClientAnswered) -> Decision:
    """Pass the program's answer to the host, which makes the result from it."""
    decision = Decision()
    found = [call for call in state.calls.values() if call.client_id == stimulus.client_id]
    if found and found[0].phase == "delegated" and state.stopping is None:
        decision.instructions.append(todo.TakeAnswer(found[0].key, stimulus.answer_id, stimulus.answer))
    else:
        decision.instructions.append(todo.SettleAnswer(stimulus.answer_id, taken=False))
    return decision


def expire_client_calls(state: SessionState, at_ms: int) -> Decision:
    """End the calls that have timed out, and ask to be woken for the next one."""
    decision = Decision()
    later: list[int] = []
    for call in state.calls.values():
        if call.phase != "delegated":
            continue
        if call.expires_at_ms > at_ms:
            later.append(call.expires_at_ms)
        else:
            resolve(decision, call, "timeout", _make_overdue_result(call, at_ms))
    if later:
        decision.instructions.append(todo.WakeSessionAt(min(later)))
    return decision


def _is_late(state: SessionState, call: CallState, stimulus: stimuli.CallFinished) -> bool:
    """Whether nobody takes what a call of a program came to: its time is over, or it was given up."""
    if stimulus.outcome in {"aborted", "skipped"}:
        return call.ends_at_ms is not None and call.ends_at_ms <= stimulus.at_ms and not call.withdrawn
    is_unwanted = call.withdrawn or call.part_of not in state.calls
    return bool(call.awaits) and stimulus.outcome == "ok" and is_unwanted


def _conclude_late(decision: Decision, call: CallState, at_ms: int) -> None:
    if call.withdrawn or call.ends_at_ms is None:
        abort_waiting(decision, call, WITHDRAWN, at_ms)
    else:
        message = make_error_message(call.call.id, call.tool, Timeout(call.timeout_s, call.tool), at_ms)
        resolve(decision, call, "timeout", message)


def expire_program_calls(state: SessionState, at_ms: int, decision: Decision) -> None:
    """End the calls that their programs wait for no longer; called when a timer rings."""
    later: list[int] = []
    running: list[str] = []
    ended = _list_resolved(decision)
    for call in state.calls.values():
        if call.ends_at_ms is None or call.key in ended or call.withdrawn:
            continue
        if call.ends_at_ms > at_ms:
            later.append(call.ends_at_ms)
        elif call.phase in IDLE_PHASES:
            withdraw_request(decision, call, "its time is over")
            _conclude_late(decision, call, at_ms)
        else:
            running.append(call.key)
    if running:
        decision.instructions.append(todo.AbortCalls(tuple(running), "its time is over"))
    if later:
        decision.instructions.append(todo.WakeSessionAt(min(later)))


def _list_resolved(decision: Decision) -> set[str]:
    """Return the keys of the calls that a decision ends; until its facts count, the state has them."""
    return {fact.key for fact in decision.facts if isinstance(fact, facts.CallResolved)}


def expire_programs(state: SessionState, at_ms: int, decision: Decision) -> None:
    """End the programs whose time is over, with all their calls; called when a timer rings."""
    for call in state.calls.values():
        program = call.program
        if program is None or program.expires_at_ms is None or program.expires_at_ms > at_ms:
            continue
        limit_s = (program.expires_at_ms - program.began_at_ms) / 1000
        _end_program_calls(state, call, decision, at_ms)
        decision.instructions.append(todo.AbortCalls((call.key,), "its time is over"))
        message = make_error_message(call.call.id, call.tool, Timeout(limit_s, call.tool), at_ms)
        resolve(decision, call, "timeout", message)


def _make_overdue_result(call: CallState, at_ms: int) -> ToolResultMessage:
    waited_s = max(0, at_ms - call.asked_at_ms) / 1000
    error = (
        ExecutionError(f"nobody answered within {waited_s:g} s; go on without an answer")
        if call.to_person
        else Timeout(waited_s, call.tool)
    )
    return make_error_message(call.call.id, call.tool, error, at_ms)


def recover_call(state: SessionState, call: CallState, at_ms: int, decision: Decision) -> None:
    """Repeat what a lost host had to do for one call; an effect that may have happened is never repeated."""
    overtaken = is_overtaken(state, call)
    if call.part_of and overtaken and call.phase in IDLE_PHASES:
        abort_waiting(decision, call, "its program has ended", at_ms)
    # What these wait for is in the state, so nothing of it was lost with the host.
    elif call.phase in {"held", "approved", "child"}:
        return
    elif call.phase in {"open", "program"} and overtaken:
        _skip(state, call, at_ms, decision)
    elif call.phase == "open":
        decision.instructions.append(todo.PrepareCall(call.key, call.call, asked_by=call.asked_by))
    elif call.phase == "program":
        decision.instructions.append(todo.AdvanceProgram(call.key))
        if call.program is not None and call.program.expires_at_ms is not None:
            decision.instructions.append(todo.WakeSessionAt(call.program.expires_at_ms))
    elif call.phase == "asking":
        asked = ApprovalAsked(call.request_id, call.final, call.asked_by)
        decision.instructions.append(todo.ToTree(asked))
    elif call.phase == "delegated":
        decision.instructions.append(todo.WakeSessionAt(call.expires_at_ms))
    elif call.final.repeatable and not overtaken:
        decision.instructions.append(_execute(state, call))
    else:
        resolve(decision, call, "unknown", make_unknown_message(call.call.id, call.tool, at_ms))


def is_overtaken(state: SessionState, call: CallState) -> bool:
    """Whether a call is not begun again: of a program's calls the program's own call decides."""
    first = _find_outermost(state, call)
    is_steered = first.key in state.reply_keys and state.steered and not first.parked
    return is_steered or call.cut or call.withdrawn or first.cut or state.stopping is not None


def _find_outermost(state: SessionState, call: CallState) -> CallState:
    """Return the call of the program around all programs that a call is part of, or the call itself."""
    while call.part_of in state.calls:
        call = state.calls[call.part_of]
    return call


def on_forked(state: SessionState, call: CallState, stimulus: stimuli.Forked, decision: Decision) -> None:
    """Settle what the other tree did or waited for: no effect is repeated, and no answer counts twice."""
    at_ms = stimulus.at_ms
    if call.phase == "intended" or (call.phase == "delegated" and _can_act_elsewhere(call)):
        resolve(
            decision, call, "unknown", make_unknown_message(call.call.id, call.tool, at_ms, UNKNOWN_IN_FORK)
        )
    elif _find_outermost(state, call).outside:
        error = ExecutionError(
            "skipped: the tree was forked before the call began, and its caller is in the other tree"
        )
        resolve(decision, call, "skipped", make_error_message(call.call.id, call.tool, error, at_ms))
    elif call.phase in {"asking", "approved"}:
        request_id = state.ids.request(call.key)
        decision.facts.append(facts.ApprovalWanted(request_id, call.final, at_ms))
        asked = ApprovalAsked(request_id, call.final, call.asked_by, runs_at_once=True)
        decision.instructions.append(todo.ToTree(asked))
    elif call.phase == "delegated":
        client_id = state.ids.client(call.key)
        ends_ms = call.expires_at_ms + stimulus.shift_ms
        handed_over = facts.CallDelegated(client_id, call.final, at_ms, ends_ms, call.to_person)
        decision.facts.append(handed_over)
        event = ClientCallDelegated(client_id, call.final, ends_ms, call.to_person)
        decision.instructions.append(todo.ToTree(event))


def _can_act_elsewhere(call: CallState) -> bool:
    """Whether a call that was handed over may have an effect that only the other tree hears of."""
    return call.needs is not None or call.final.tier > PermissionTier.READ_ONLY


def _skip(state: SessionState, call: CallState, at_ms: int, decision: Decision) -> None:
    """Give a call that was overtaken the result that says why it never started."""
    if call.cut:
        reason = "the session was interrupted"
    elif state.stopping is not None:
        reason = f"the session stops: {state.stop_reason}"
    else:
        reason = _NEW_MESSAGE
    error = ExecutionError(f"skipped: {reason}")
    resolve(decision, call, "skipped", make_error_message(call.call.id, call.call.name, error, at_ms))
