"""The session machine: what follows from what happens to a session.

``decide`` holds every rule and changes nothing; ``evolve`` changes and holds no rule; ``react`` is the two
in turn, and what a host calls. Pure: no I/O, no clock, no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessiontree.contracts import session_facts as facts
from sessiontree.contracts import stimuli
from sessiontree.contracts.messages import TextContent, ToolCall, UserMessage
from sessiontree.contracts.session_facts import SessionFact
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.session import calls, turns
from sessiontree.session import client_calls as delegating
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision, notice
from sessiontree.session.evolve import APPLY
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.prompt import system_prompt
from sessiontree.session.state import SessionState

_STOPS = "the session stops and runs its approver no more"


def decide(state: SessionState, stimulus: Stimulus) -> Decision:
    """Return what a stimulus means for a session. Never changes the state; late ones mean nothing."""
    return _DECIDE[type(stimulus)](state, stimulus)


def react(state: SessionState, stimulus: Stimulus) -> tuple[list[SessionFact], list[SessionInstruction]]:
    """Decide on a stimulus, evolve the state, and go on until nothing follows any more.

    Returns:
        All facts and all instructions, in order. The state has taken every fact in.
    """
    decision = _DECIDE[type(stimulus)](state, stimulus)
    new_facts, new_instructions = decision.facts, decision.instructions
    for fact in new_facts:
        APPLY[type(fact)](state, fact)
    if type(stimulus) is stimuli.CallPrepared and not new_facts:
        return new_facts, new_instructions
    while (more := turns.advance(state, stimulus.at_ms)) is not None:
        for fact in more.facts:
            APPLY[type(fact)](state, fact)
        new_facts.extend(more.facts)
        new_instructions.extend(more.instructions)
        if not more.facts or state.asking:
            break
    return new_facts, new_instructions


def _adopted(state: SessionState, stimulus: stimuli.Adopted) -> Decision:
    decision = Decision()
    if state.system_prompt is None:
        spec = state.spec
        prompt = system_prompt(spec, stimulus.prompt, stimulus.tools)
        names = tuple(tool.name for tool in stimulus.tools)
        decision.facts.append(facts.Opened(prompt, names, stimulus.model))
        if spec.task:
            message = UserMessage((TextContent(spec.task),), stimulus.at_ms, "parent")
            task = facts.Heard("task", message, steer=False, wakes=True, asked_by=spec.asked_by)
            decision.facts.append(task)
    return decision


def _recovered(state: SessionState, stimulus: stimuli.Recovered) -> Decision:
    decision = Decision()
    if state.taint:
        decision.instructions.append(todo.ReportTaint(state.taint))
    for call in list(state.calls.values()):
        calls.recovered(state, call, stimulus.at_ms, decision)
    if state.asking:
        decision.instructions.append(todo.CallModel(state.turn))
    for request_id, asked in state.consultations.items():
        if state.stopping is not None:
            decision.facts.append(facts.ApproverReplied(request_id, "escalate", _STOPS))
            decision.instructions.append(todo.ReturnAnswer(request_id, "escalate", _STOPS))
            continue
        decision.instructions.append(
            todo.RunApprover(
                request_id, asked.requester, asked.tool, asked.arguments, asked.tier, asked.asked_by
            )
        )
    return decision


def _incoming(state: SessionState, stimulus: stimuli.Incoming) -> Decision:
    decision = Decision()
    if stimulus.message_id in state.heard or state.stopping is not None:
        return decision
    message = UserMessage((TextContent(stimulus.text),), stimulus.at_ms, stimulus.origin)
    steer = stimulus.mode == "steer"
    # An interrupted session waits for whoever directs it; what its children report waits with it.
    wakes = not (state.interrupted and stimulus.origin == "child")
    heard = facts.Heard(stimulus.message_id, message, steer=steer, wakes=wakes, asked_by=stimulus.asked_by)
    decision.facts.append(heard)
    calls.take_in(state, decision, stimulus.taint)
    if steer and not state.asking:
        own = [state.calls[key] for key in state.reply_keys if key in state.calls]
        waiting = [call for call in own if not call.parked and call.phase == "asking"]
        running = [call.key for call in own if not call.parked and call.phase not in turns.WAITS]
        # Parked at once: an approval that comes while running calls still stop delays the next turn no more.
        decision.facts.extend(calls.park(call, stimulus.at_ms) for call in waiting)
        for call in own:
            if call.phase == "delegated" and not call.parked:
                calls.abort_waiting(decision, call, "a new message came in", stimulus.at_ms)
        if running:
            decision.instructions.append(todo.AbortCalls(tuple(running), "a new message came in"))
    return decision


def _hook_failed(state: SessionState, stimulus: stimuli.HookErrorReported) -> Decision:
    """What follows for the call comes as the call's own outcome."""
    decision = Decision()
    fact = facts.HookFailed(stimulus.key, stimulus.hook, stimulus.point, stimulus.reason)
    decision.facts.append(fact)
    return decision


def _call_asked(state: SessionState, stimulus: stimuli.CallAsked) -> Decision:
    decision = Decision()
    key = f"call.{stimulus.call_id}"
    if key not in state.heard and state.stopping is None:
        fact = facts.CallOpened(key, stimulus.call_id, stimulus.tool, stimulus.arguments)
        decision.facts.append(fact)
        call = ToolCall(stimulus.call_id, stimulus.tool, stimulus.arguments)
        decision.instructions.append(todo.PrepareCall(key, call))
    return decision


def _child_troubled(state: SessionState, stimulus: stimuli.ChildTroubled) -> Decision:
    decision = Decision()
    if stimulus.post_id not in state.heard:
        decision.facts.append(
            facts.ChildTroubleNoted(
                stimulus.child, stimulus.tool, stimulus.attempts, stimulus.field, stimulus.message
            )
        )
        where = f" at {stimulus.field}" if stimulus.field else ""
        text = (
            f"Session {stimulus.child} could not call {stimulus.tool} in {stimulus.attempts} attempts"
            f"{where}: {stimulus.message}"
        )
        decision.facts.append(notice(stimulus.post_id, text, stimulus.at_ms, wakes=False))
        calls.take_in(state, decision, stimulus.taint)
    return decision


def _approver_asked(state: SessionState, stimulus: stimuli.ApproverAsked) -> Decision:
    decision = Decision()
    if state.stopping is not None and stimulus.request_id not in state.consultations:
        decision.instructions.append(todo.ReturnAnswer(stimulus.request_id, "escalate", _STOPS))
    elif stimulus.request_id not in state.consultations:
        request = (
            stimulus.request_id,
            stimulus.requester,
            stimulus.tool,
            stimulus.arguments,
            stimulus.tier,
            stimulus.asked_by,
        )
        decision.facts.append(facts.ApproverConsulted(*request))
        decision.instructions.append(todo.RunApprover(*request))
    return decision


def _approver_answered(state: SessionState, stimulus: stimuli.ApproverAnswered) -> Decision:
    decision = Decision()
    if stimulus.request_id in state.consultations:
        answer = (stimulus.request_id, stimulus.answer, stimulus.reason)
        decision.facts.append(facts.ApproverReplied(*answer))
        decision.instructions.append(todo.ReturnAnswer(*answer))
    return decision


def _cancel_asked(state: SessionState, stimulus: stimuli.CancelAsked) -> Decision:
    decision = Decision()
    if state.stopping is not None:
        return decision
    decision.facts.append(facts.Stopping(stimulus.reason, stimulus.status))
    running = []
    for call in state.calls.values():
        if call.phase in {"asking", "held", "approved", "delegated"}:
            calls.abort_waiting(decision, call, f"the session stops: {stimulus.reason}", stimulus.at_ms)
        else:
            running.append(call.key)
    if running:
        decision.instructions.append(todo.AbortCalls(tuple(running), stimulus.reason))
    if state.unanswered:
        decision.instructions.append(
            todo.AnswerMessages(tuple(state.unanswered), "", f"the session stops: {stimulus.reason}")
        )
    return decision


def _work_interrupted(state: SessionState, stimulus: stimuli.WorkInterrupted) -> Decision:
    decision = Decision()
    if stimulus.post_id in state.heard or state.stopping is not None:
        return decision
    problem = f"the session was interrupted: {stimulus.reason}"
    if state.asking:
        decision.facts.append(facts.TurnCut(state.turn, stimulus.reason))
        decision.instructions.append(todo.WithdrawQuestion(state.turn))
    running = []
    for call in state.calls.values():
        if call.phase in {"asking", "held", "approved", "delegated"}:
            calls.abort_waiting(decision, call, problem, stimulus.at_ms)
        else:
            running.append(call.key)
    said = [each for each in state.inbox if each.wakes and each.message.origin != "notice"]
    answers = (*state.unanswered, *(each.message_id for each in said))
    # Behind what the calls above tell: none of it wakes the session.
    decision.facts.append(facts.Interrupted(stimulus.post_id, stimulus.reason))
    if state.offer is None or state.calls:
        decision.facts.append(facts.Rested("", answers, problem, None, has_result=False, interrupted=True))
    if running:
        decision.instructions.append(todo.AbortCalls(tuple(running), problem))
    if answers:
        decision.instructions.append(todo.AnswerMessages(answers, "", problem, interrupted=True))
    return decision


def _rang(state: SessionState, stimulus: stimuli.Rang) -> Decision:
    """Answers that are overdue come no more; for others the model may have waited long enough."""
    decision = delegating.expire(state, stimulus.at_ms)
    turns.lose_patience(state, stimulus.at_ms, decision)
    return decision


_DECIDE: dict[type[Any], Callable[[SessionState, Any], Decision]] = {
    stimuli.Adopted: _adopted,
    stimuli.Recovered: _recovered,
    stimuli.Incoming: _incoming,
    stimuli.ModelAnswered: turns.answered,
    stimuli.ModelFailed: turns.failed,
    stimuli.CallPrepared: calls.prepared,
    stimuli.CallRejected: calls.rejected,
    stimuli.CallFinished: calls.finished,
    stimuli.CallHandedOver: delegating.delegated,
    stimuli.ClientAnswered: delegating.answered,
    stimuli.HookErrorReported: _hook_failed,
    stimuli.IntentsCommitted: calls.committed,
    stimuli.ApprovalAnswered: calls.approval_answered,
    stimuli.CallAsked: _call_asked,
    stimuli.ChildTroubled: _child_troubled,
    stimuli.ApproverAsked: _approver_asked,
    stimuli.ApproverAnswered: _approver_answered,
    stimuli.CancelAsked: _cancel_asked,
    stimuli.WorkInterrupted: _work_interrupted,
    stimuli.Rang: _rang,
}
