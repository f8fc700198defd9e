"""Rules for tool calls: attempts, intents, approvals, results. Called by ``decide``; changes nothing."""

from __future__ import annotations

from sessiontree.contracts import session_facts as facts
from sessiontree.contracts import stimuli
from sessiontree.contracts.client_tool import DELEGATED
from sessiontree.contracts.codec import Outcome
from sessiontree.contracts.error_results import error_message, pending_message, unknown_message
from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage, UserMessage
from sessiontree.contracts.results import Artifact
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.session_facts import SessionFact
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.session import instructions as todo
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import CallState, SessionState

MAX_ATTEMPTS = 3
_NEW_MESSAGE = "a new message came in before the call began"


class Decision:
    """Facts and instructions of one decision, in order."""

    __slots__ = ("facts", "instructions")

    def __init__(self) -> None:
        self.facts: list[SessionFact] = []
        self.instructions: list[SessionInstruction] = []


def take_in(state: SessionState, decision: Decision, source: str) -> None:
    """Note that the session has taken in untrusted text; once, for it stays so for life."""
    if source and not state.taint:
        decision.facts.append(facts.Tainted(source))
        decision.instructions.append(todo.ReportTaint(source))


def prepared(state: SessionState, stimulus: stimuli.CallPrepared) -> Decision:
    """A call may run now, after its intent is durable, or after an approval."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is None or call.phase != "open" or state.stopping is not None:
        return decision
    attempts = state.ledger.get(stimulus.tool)
    if attempts is not None and attempts.refused and not call.outside:
        _refuse_given_up(decision, call, stimulus.tool, stimulus.tier, stimulus.at_ms)
    elif call.outside and state.in_turn and stimulus.tier > PermissionTier.READ_ONLY:
        decision.facts.append(facts.CallHeld(stimulus.key, held=True))
    elif stimulus.needs_approval:
        _want_approval(state, decision, call, stimulus)
    elif stimulus.tier == PermissionTier.READ_ONLY:
        decision.instructions.append(
            todo.ExecuteCall(
                stimulus.key,
                state.ids.call(stimulus.key),
                stimulus.tool,
                stimulus.arguments,
                stimulus.digest,
            )
        )
    else:
        decision.facts.append(
            facts.CallIntended(
                stimulus.key,
                stimulus.tool,
                stimulus.arguments,
                stimulus.digest,
                stimulus.tier,
                stimulus.repeatable,
            )
        )
        decision.instructions.append(todo.AwaitCommit((stimulus.key,)))
    return decision


def _want_approval(
    state: SessionState, decision: Decision, call: CallState, stimulus: stimuli.CallPrepared
) -> None:
    same = [
        other
        for other in state.calls.values()
        if other.digest == stimulus.digest and other.phase == "asking" and not other.outside
    ]
    if same and not call.outside:
        # A repeat of a pending call joins it: one request, one prompt, at most one effect.
        request_id = same[0].request_id
        text = f"the same call {same[0].call.id} already waits for an approval; its outcome is this one's too"
        message = pending_message(call.call.id, stimulus.tool, text, request_id, stimulus.at_ms)
        resets = stimulus.tool if stimulus.tool in state.ledger else None
        decision.facts.append(facts.CallResolved(call.key, "pending", message, (), resets))
        return
    request_id = state.ids.request(call.key)
    decision.facts.append(
        facts.ApprovalWanted(
            call.key,
            request_id,
            stimulus.tool,
            stimulus.arguments,
            stimulus.digest,
            stimulus.tier,
            stimulus.repeatable,
            stimulus.at_ms,
        )
    )
    decision.instructions.append(
        todo.AskApproval(
            request_id,
            call.key,
            stimulus.tool,
            stimulus.arguments,
            stimulus.digest,
            stimulus.tier,
            _intent_of(call, stimulus),
            call.asked_by,
        )
    )


def _intent_of(call: CallState, checked: stimuli.CallPrepared) -> facts.CallIntended | None:
    """Return the intent of a call that runs as soon as it is allowed; one from outside may have to wait."""
    if call.outside:
        return None
    return facts.CallIntended(
        call.key, checked.tool, checked.arguments, checked.digest, checked.tier, checked.repeatable
    )


def rejected(state: SessionState, stimulus: stimuli.CallRejected) -> Decision:
    """Validation retry: at most three attempts, two when the same mistake is made twice running."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is None or call.phase != "open":
        return decision
    if call.outside:
        error = ValidationError(stimulus.message, stimulus.field)
        message = error_message(call.call.id, stimulus.tool, error, stimulus.at_ms, schema=stimulus.schema)
        resolve(decision, call, "invalid", message)
        return decision
    previous = state.ledger.get(stimulus.tool)
    if previous is not None and previous.refused:
        _refuse_given_up(decision, call, stimulus.tool, PermissionTier.READ_ONLY, stimulus.at_ms)
        return decision
    same_reply = previous is not None and previous.turn == state.turn
    count = 1 if previous is None else previous.count + (0 if same_reply else 1)
    identical = previous is not None and not same_reply and previous.digest == stimulus.digest
    final = count >= MAX_ATTEMPTS or identical
    _reject(decision, call, stimulus, count, final=final, identical=identical)
    return decision


def _reject(
    decision: Decision,
    call: CallState,
    stimulus: stimuli.CallRejected,
    count: int,
    *,
    final: bool,
    identical: bool,
) -> None:
    decision.facts.append(
        facts.ArgumentsRejected(
            stimulus.key,
            stimulus.tool,
            count,
            stimulus.field,
            stimulus.message,
            stimulus.digest,
            final,
        )
    )
    if final:
        same = "these very arguments were refused just before; " if identical else ""
        advice = f"{same}{stimulus.tool} is refused until the next message; go on without it"
    else:
        advice = f"attempt {count} of {MAX_ATTEMPTS}; correct the arguments and call again"
    message = error_message(
        call.call.id,
        stimulus.tool,
        ValidationError(stimulus.message, stimulus.field),
        stimulus.at_ms,
        schema=stimulus.schema,
        extra={"attempt": count, "advice": advice},
    )
    resolve(decision, call, "invalid", message)
    if final:
        decision.facts.append(facts.ToolGivenUp(stimulus.tool, count, stimulus.field, stimulus.message))
        decision.instructions.append(
            todo.ReportTrouble(stimulus.tool, count, stimulus.field, stimulus.message)
        )


def _refuse_given_up(decision: Decision, call: CallState, tool: str, tier: int, at_ms: int) -> None:
    error = PermissionDenied(
        PermissionTier(tier), f"{tool} is refused until the next message: its arguments never fitted"
    )
    resolve(decision, call, "denied", error_message(call.call.id, tool, error, at_ms))


def finished(state: SessionState, stimulus: stimuli.CallFinished) -> Decision:
    """A call has its result."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is not None:
        name = stimulus.message.tool_name
        resets = name if name in state.ledger and _proves_valid(state, call, stimulus) else None
        if stimulus.untrusted and not call.outside:
            take_in(state, decision, name)
        resolve(
            decision,
            call,
            stimulus.outcome,
            stimulus.message,
            stimulus.artifacts,
            resets,
            answer_id=stimulus.answer_id,
        )
    if stimulus.answer_id:
        decision.instructions.append(todo.SettleAnswer(stimulus.answer_id, taken=call is not None))
    return decision


def _proves_valid(state: SessionState, call: CallState, stimulus: stimuli.CallFinished) -> bool:
    """Whether a result is the first proof that the model can call a tool; too late once it is given up."""
    if call.outside or call.phase != "open" or stimulus.outcome == "skipped":
        return False
    return not state.ledger[stimulus.message.tool_name].refused


def resolve(
    decision: Decision,
    call: CallState,
    outcome: Outcome,
    message: ToolResultMessage,
    artifacts: tuple[Artifact, ...] = (),
    resets: str | None = None,
    *,
    answer_id: str = "",
) -> None:
    """Give a call its result: in the transcript, to the program that asked, or late as a notice."""
    decision.facts.append(facts.CallResolved(call.key, outcome, message, artifacts, resets))
    if call.phase == "delegated":
        decision.instructions.append(todo.WithdrawCall(call.client_id, outcome, answer_id))
    if call.outside:
        decision.instructions.append(todo.AnswerCall(call.call.id, outcome, message))
    elif call.parked:
        decision.facts.append(
            notice(
                f"{call.key}:outcome",
                f"The pending call {call.call.id} of {call.tool} is settled ({outcome}): {message.text}",
                message.timestamp,
                wakes=not call.cut,
                asked_by=call.asked_by,
                images=tuple(block for block in message.content if isinstance(block, ImageContent)),
            )
        )


def notice(
    message_id: str,
    text: str,
    at_ms: int,
    *,
    wakes: bool = True,
    asked_by: tuple[Principal, ...] = (),
    images: tuple[ImageContent, ...] = (),
) -> facts.Heard:
    """Return a message from the runtime itself, in the user's role."""
    message = UserMessage((TextContent(text), *images), at_ms, "notice")
    return facts.Heard(message_id, message, steer=False, wakes=wakes, asked_by=asked_by)


def committed(state: SessionState, stimulus: stimuli.IntentsCommitted) -> Decision:
    """Intents are durable: their calls may run."""
    decision = Decision()
    for key in stimulus.keys:
        call = state.calls.get(key)
        if call is not None and call.phase == "intended" and state.stopping is None:
            decision.instructions.append(_execute(state, call))
    return decision


def _execute(state: SessionState, call: CallState) -> todo.ExecuteCall:
    return todo.ExecuteCall(call.key, state.ids.call(call.key), call.tool, call.arguments, call.digest)


def approval_answered(state: SessionState, stimulus: stimuli.ApprovalAnswered) -> Decision:
    """An approval request is decided."""
    decision = Decision()
    found = [each for each in state.calls.values() if each.request_id == stimulus.request_id]
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
            intend(decision, call)
    else:
        reason = f"{call.tool} was {stimulus.decision} by {stimulus.by}"
        error = PermissionDenied(
            PermissionTier(call.tier), f"{reason}: {stimulus.reason}" if stimulus.reason else reason
        )
        message = error_message(call.call.id, call.tool, error, stimulus.at_ms)
        resolve(decision, call, "denied", message)
    return decision


def _run_intended(state: SessionState, decision: Decision, call: CallState) -> None:
    """Let a call run whose intent was made durable with its approval."""
    decision.facts.append(
        facts.CallIntended(call.key, call.tool, call.arguments, call.digest, call.tier, call.repeatable)
    )
    if state.stopping is None:
        decision.instructions.append(_execute(state, call))


def intend(decision: Decision, call: CallState) -> None:
    """Let a call run that was allowed, once its intent is durable."""
    decision.facts.append(
        facts.CallIntended(call.key, call.tool, call.arguments, call.digest, call.tier, call.repeatable)
    )
    decision.instructions.append(todo.AwaitCommit((call.key,)))


def park(call: CallState, at_ms: int) -> facts.CallParked:
    """Let the model go on while a call waits for its approval, or for the program's answer."""
    if call.phase == "delegated":
        text, name = DELEGATED, call.client_id
    else:
        text, name = (
            "waiting for an approval; go on with other work, the outcome will be told",
            call.request_id,
        )
    message = pending_message(call.call.id, call.tool, text, name, at_ms)
    return facts.CallParked(call.key, message)


def abort_waiting(decision: Decision, call: CallState, reason: str, at_ms: int) -> None:
    """End a call that only waits for somebody."""
    message = error_message(call.call.id, call.tool, ExecutionError(reason), at_ms)
    resolve(decision, call, "aborted", message)


def recovered(state: SessionState, call: CallState, at_ms: int, decision: Decision) -> None:
    """Do again what a lost host owed for one call; an effect that may have happened is never repeated."""
    if call.phase in {"held", "approved"}:
        return
    is_steered = call.key in state.reply_keys and state.steered
    overtaken = is_steered or call.cut or state.stopping is not None
    if call.phase == "open":
        if overtaken:
            _skip(state, call, at_ms, decision)
        else:
            decision.instructions.append(todo.PrepareCall(call.key, call.call, asked_by=call.asked_by))
    elif call.phase == "asking":
        decision.instructions.append(
            todo.AskApproval(
                call.request_id,
                call.key,
                call.tool,
                call.arguments,
                call.digest,
                call.tier,
                asked_by=call.asked_by,
            )
        )
    elif call.phase == "delegated":
        decision.instructions.append(todo.WakeSessionAt(call.expires_at_ms))
    elif call.repeatable and not overtaken:
        decision.instructions.append(_execute(state, call))
    else:
        resolve(decision, call, "unknown", unknown_message(call.call.id, call.tool, at_ms))


def _skip(state: SessionState, call: CallState, at_ms: int, decision: Decision) -> None:
    """Give a call that something overtook the result that says why it is never begun."""
    if call.cut:
        reason = "the session was interrupted"
    elif state.stopping is not None:
        reason = f"the session stops: {state.stop_reason}"
    else:
        reason = _NEW_MESSAGE
    error = ExecutionError(f"skipped: {reason}")
    resolve(decision, call, "skipped", error_message(call.call.id, call.call.name, error, at_ms))
