"""The session machine: the consequences of each stimulus for a session.

``decide`` holds every rule and changes nothing; ``evolve`` changes the state and holds no rule. Hosts call
``react``, which runs both in turn. Pure: no I/O, no clock, no random numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import ApproverReturned, Stimulus, TaintReported
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.messages import TextContent, ToolCall, UserMessage
from sessiontree.schema.result import compile_result
from sessiontree.session import calls, inputs, jobs, programs, turns
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision, notice
from sessiontree.session.evolve import APPLY
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import IDLE_PHASES, SessionState

_STOPS = "the session stops and runs its approver no more"


def decide(state: SessionState, stimulus: Stimulus) -> Decision:  # noqa: C901, PLR0912 - one case for each type
    """Return the facts and instructions of a stimulus.

    Never changes the state; a stimulus that comes too late has no effect.
    """
    match stimulus:
        case stimuli.ModelAnswered():
            return turns.take_reply(state, stimulus)
        case stimuli.CallFinished():
            return calls.finish_call(state, stimulus)
        case stimuli.CallPrepared():
            return calls.on_prepared(state, stimulus)
        case stimuli.IntentsCommitted():
            return calls.on_committed(state, stimulus)
        case stimuli.Incoming():
            return _on_incoming(state, stimulus)
        case stimuli.Adopted():
            return _on_adopted(state, stimulus)
        case stimuli.Recovered():
            return _on_recovered(state, stimulus)
        case stimuli.Forked():
            return _on_forked(state, stimulus)
        case stimuli.ModelFailed():
            return turns.take_failure(state, stimulus)
        case stimuli.CallRejected():
            return calls.on_rejected(state, stimulus)
        case stimuli.CallHandedOver():
            return inputs.on_handed_over(state, stimulus)
        case stimuli.ProgramBegan():
            return programs.on_began(state, stimulus)
        case stimuli.ProgramSaid():
            return programs.on_program_said(state, stimulus)
        case stimuli.ClientAnswered():
            return inputs.take_answer(state, stimulus)
        case stimuli.HookErrorReported():
            return _hook_failed(state, stimulus)
        case stimuli.ApprovalAnswered():
            return calls.on_approval_answered(state, stimulus)
        case stimuli.CallAsked():
            return _call_asked(state, stimulus)
        case stimuli.ChildTroubled():
            return _on_child_troubled(state, stimulus)
        case stimuli.ApproverAsked():
            return _on_approver_asked(state, stimulus)
        case stimuli.ApproverAnswered():
            return _on_approver_answered(state, stimulus)
        case stimuli.CancelAsked():
            return _cancel_asked(state, stimulus)
        case stimuli.WorkInterrupted():
            return _on_work_interrupted(state, stimulus)
        case stimuli.JobBegan():
            return jobs.on_began(state, stimulus)
        case stimuli.JobOver():
            return jobs.end_job(state, stimulus)
        case stimuli.Rang():
            return _on_rang(state, stimulus)
        case _:
            assert_never(stimulus)


def react(state: SessionState, stimulus: Stimulus) -> tuple[list[SessionFact], list[SessionInstruction]]:
    """Decide on a stimulus, apply its facts, and repeat until nothing more follows.

    Returns:
        All facts and all instructions, in order. The state already includes every fact.
    """
    decision = decide(state, stimulus)
    new_facts, new_instructions = decision.facts, decision.instructions
    for fact in new_facts:
        APPLY[type(fact)](state, fact)
    # A ReadOnly call starts without a fact, so nothing changed from which a turn could follow.
    if type(stimulus) is stimuli.CallPrepared and not new_facts:
        return new_facts, new_instructions
    if type(stimulus) is stimuli.Incoming and stimulus.followed:
        return new_facts, new_instructions
    while (more := turns.advance(state, stimulus.at_ms)) is not None:
        for fact in more.facts:
            APPLY[type(fact)](state, fact)
        new_facts.extend(more.facts)
        new_instructions.extend(more.instructions)
        # Without a fact the state is the same, and the next step would be the same again.
        if not more.facts or state.asking:
            break
    return new_facts, new_instructions


def _on_adopted(state: SessionState, stimulus: stimuli.Adopted) -> Decision:
    decision = Decision()
    writer = stimulus.compaction_model
    if state.system_prompt is None:
        spec = state.spec
        prompt = build_system_prompt(spec, stimulus.prompt, stimulus.tools, stimulus.further)
        decision.facts.append(facts.Opened(prompt, stimulus.tools, stimulus.model, writer))
        if spec.task:
            message = UserMessage((TextContent(spec.task),), stimulus.at_ms, "parent")
            task = facts.MessageReceived("task", message, steer=False, wakes=True, asked_by=spec.asked_by)
            decision.facts.append(task)
    elif (stimulus.model, writer) != (state.model, state.compaction_model):
        decision.facts.append(facts.ModelChanged(stimulus.model, writer))
    return decision


def _on_recovered(state: SessionState, stimulus: stimuli.Recovered) -> Decision:
    decision = Decision()
    if state.taint:
        decision.instructions.append(todo.ToTree(TaintReported(state.taint)))
    for call in list(state.calls.values()):
        calls.recover_call(state, call, stimulus.at_ms, decision)
    if bounds := [call.ends_at_ms for call in state.calls.values() if call.ends_at_ms is not None]:
        decision.instructions.append(todo.WakeSessionAt(min(bounds)))
    jobs.lose_jobs(state, stimulus.at_ms, "its host ended, and it ended with its host", decision)
    if state.asking:
        decision.instructions.append(todo.CallModel(state.turn))
    if state.retry_at_ms is not None:
        decision.instructions.append(todo.WakeSessionAt(state.retry_at_ms, retries=True))
    for request_id, question in state.consultations.items():
        if state.stopping is not None:
            reply = facts.ApproverReplied(request_id, "escalate", _STOPS)
            decision.facts.append(reply)
            decision.instructions.append(todo.ToTree(ApproverReturned(reply)))
            continue
        decision.instructions.append(todo.RunApprover(question))
    return decision


def _on_forked(state: SessionState, stimulus: stimuli.Forked) -> Decision:
    decision = Decision()
    decision.facts.append(
        facts.SessionForked(stimulus.at_ms, stimulus.shift_ms, stimulus.rewind, stimulus.awaits)
    )
    if stimulus.rewind is not None:  # it has no other open call
        return decision
    for call in list(state.calls.values()):
        calls.on_forked(state, call, stimulus, decision)
    jobs.lose_jobs(state, stimulus.at_ms, "it ran in the tree from which this one was forked", decision)
    return decision


def _on_incoming(state: SessionState, stimulus: stimuli.Incoming) -> Decision:
    decision = Decision()
    # After a crash the tree delivers again what it does not know to be taken.
    if stimulus.message_id in state.heard or state.stopping is not None:
        return decision
    if stimulus.answers and (awaited := state.awaited.get(stimulus.answers)) is not None:
        return programs.on_reported(state, awaited, stimulus)
    # The program that started this child has ended or was given up, so nobody takes the report.
    if stimulus.answers in state.unwanted:
        return decision
    words = TextContent(stimulus.text)
    message = UserMessage((words, *stimulus.images), stimulus.at_ms, stimulus.origin)
    steer = stimulus.mode == "steer"
    # An interrupted session waits for its parent or owner; reports of its children, and what a frame sends
    # by itself or for somebody, wait with it.
    # Results that others follow join the next turn; the last of them starts it.
    wakes = not (stimulus.joins or (state.interrupted and stimulus.origin in {"child", "canvas"}))
    heard = facts.MessageReceived(
        stimulus.message_id, message, steer, wakes, stimulus.asked_by, stimulus.settings
    )
    decision.facts.append(heard)
    calls.take_in(state, decision, stimulus.taint)
    if steer and not state.asking:
        own = [state.calls[key] for key in state.reply_keys if key in state.calls]
        own = [call for call in own if not call.parked]
        waits = {call.key for call in own if call.program is not None and programs.is_waiting(state, call)}
        waiting = [call for call in own if call.phase == "asking" or call.key in waits]
        running = [call.key for call in own if call.phase not in turns.WAITS and call.key not in waits]
        # Park them now, so that an approval that comes while running calls stop can't delay the next turn.
        decision.facts.extend(calls.park(call, stimulus.at_ms) for call in waiting)
        for call in own:
            if call.phase == "delegated":
                # An answer that came later would belong to a question that the new message may have
                # overtaken.
                calls.abort_waiting(decision, call, "a new message came in", stimulus.at_ms)
        if running:
            decision.instructions.append(todo.AbortCalls(tuple(running), "a new message came in"))
    return decision


def _hook_failed(state: SessionState, stimulus: stimuli.HookErrorReported) -> Decision:
    """Record the failure; its consequence for the call comes as the call's own outcome."""
    decision = Decision()
    decision.facts.append(stimulus.failed)
    return decision


def _call_asked(state: SessionState, stimulus: stimuli.CallAsked) -> Decision:
    decision = Decision()
    key = f"call.{stimulus.call_id}"
    # The same call may be asked for again, such as after a crash; it must not run twice.
    if key not in state.heard and state.stopping is None:
        fact = facts.CallOpened(key, stimulus.call_id, stimulus.tool, stimulus.arguments)
        decision.facts.append(fact)
        call = ToolCall(stimulus.call_id, stimulus.tool, stimulus.arguments)
        decision.instructions.append(todo.PrepareCall(key, call))
    return decision


def _on_child_troubled(state: SessionState, stimulus: stimuli.ChildTroubled) -> Decision:
    decision = Decision()
    if stimulus.post_id not in state.heard:
        trouble = stimulus.trouble
        decision.facts.append(facts.ChildTroubleNoted(stimulus.child, trouble))
        where = f" at {trouble.field}" if trouble.field else ""
        text = (
            f"Session {stimulus.child} could not call {trouble.tool} in {trouble.attempts} attempts"
            f"{where}: {trouble.reason}"
        )
        decision.facts.append(notice(stimulus.post_id, text, stimulus.at_ms, wakes=False))
        calls.take_in(state, decision, stimulus.taint)
    return decision


def _on_approver_asked(state: SessionState, stimulus: stimuli.ApproverAsked) -> Decision:
    decision = Decision()
    question = stimulus.question
    if question.request_id in state.consultations:
        return decision
    if state.stopping is not None:
        reply = facts.ApproverReplied(question.request_id, "escalate", _STOPS)
        decision.instructions.append(todo.ToTree(ApproverReturned(reply)))
    else:
        decision.facts.append(facts.ApproverConsulted(question))
        decision.instructions.append(todo.RunApprover(question))
    return decision


def _on_approver_answered(state: SessionState, stimulus: stimuli.ApproverAnswered) -> Decision:
    decision = Decision()
    if stimulus.reply.request_id in state.consultations:
        decision.facts.append(stimulus.reply)
        decision.instructions.append(todo.ToTree(ApproverReturned(stimulus.reply)))
    return decision


def _cancel_asked(state: SessionState, stimulus: stimuli.CancelAsked) -> Decision:
    decision = Decision()
    if state.stopping is not None:
        return decision
    decision.facts.append(facts.Stopping(stimulus.reason, stimulus.status))
    running = []
    for call in state.calls.values():
        if call.phase in IDLE_PHASES:
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


def _on_work_interrupted(state: SessionState, stimulus: stimuli.WorkInterrupted) -> Decision:
    decision = Decision()
    if stimulus.post_id in state.heard or state.stopping is not None:
        return decision
    problem = f"the session was interrupted: {stimulus.reason}"
    if state.is_waiting_for_model:
        decision.facts.append(facts.TurnCut(state.turn, stimulus.reason))
        decision.instructions.append(todo.WithdrawQuestion(state.turn))
    running = []
    for call in state.calls.values():
        if call.phase in IDLE_PHASES:
            calls.abort_waiting(decision, call, problem, stimulus.at_ms)
        else:
            running.append(call.key)
    said = [each for each in state.inbox if each.wakes and each.message.origin != "notice"]
    answers = (*state.unanswered, *(each.message_id for each in said))
    # After the facts of the calls above: none of those wakes the session.
    decision.facts.append(facts.Interrupted(stimulus.post_id, stimulus.reason))
    if state.offer is None or state.calls:
        decision.facts.append(
            facts.RunFinished("", answers, problem, None, has_result=False, interrupted=True)
        )
    if running:
        decision.instructions.append(todo.AbortCalls(tuple(running), problem))
    if answers:
        decision.instructions.append(todo.AnswerMessages(answers, "", problem, interrupted=True))
    return decision


def _on_rang(state: SessionState, stimulus: stimuli.Rang) -> Decision:
    """End the calls whose answers are overdue, and let the model continue if it has waited long enough."""
    decision = calls.expire_client_calls(state, stimulus.at_ms)
    calls.expire_programs(state, stimulus.at_ms, decision)
    calls.expire_program_calls(state, stimulus.at_ms, decision)
    turns.lose_patience(state, stimulus.at_ms, decision)
    turns.retry(state, stimulus.at_ms, decision)
    return decision


_ROLES = {
    SessionKind.MAIN: (
        "You are the Main session: you talk to a person and answer for the whole tree. "
        "Hand larger parts of the work to Branch sessions and pure reading to Worker sessions."
    ),
    SessionKind.BRANCH: (
        "You are a Branch session, working on behalf of your parent. Do the task you were given; "
        "your last reply without tool calls is your report to the parent."
    ),
    SessionKind.WORKER: (
        "You are a Worker session: you read and report, you cannot change anything and have no children. "
        "Your last reply without tool calls is your report to the parent."
    ),
}


_TOOLS = "Your tools: "


def build_system_prompt(spec: SessionSpec, prompt: str, tools: Sequence[str], further: str = "") -> str:
    """Return the system prompt of a session; deterministic, with the tools in the given order."""
    parts = [prompt, _ROLES[spec.kind], f"Your session is {spec.session_id} at depth {spec.depth}."]
    if tools:
        parts.append(_format_tools_line(tools))
    else:
        parts.append("You hold no tools.")
    if spec.delegates:
        parts.append(f"Your children may use these tools, which you may not: {', '.join(spec.delegates)}.")
    parts.append(further)
    if spec.result_schema is not None:
        parts.append(compile_result(spec.result_schema).demand)
    return "\n\n".join(part for part in parts if part)


def find_given_parts(spec: SessionSpec, tools: Sequence[str], system_prompt_text: str) -> tuple[str, str]:
    """Return the two parts of a system prompt that were given when it was made: of the agent, and further."""
    own = build_system_prompt(replace(spec, result_schema=None), "", tools)
    demand = "" if spec.result_schema is None else compile_result(spec.result_schema).demand
    prompt, found, further = system_prompt_text.partition(own)
    if not found:
        return "", ""
    return prompt.removesuffix("\n\n"), further.removesuffix(demand).strip("\n") if demand else further[2:]


def remove_tool_names(prompt: str, gone: Collection[str]) -> str:
    """Return a system prompt without the names of these tools."""
    parts = prompt.split("\n\n")
    for at, part in enumerate(parts):
        if part.startswith(_TOOLS):
            names = part.removeprefix(_TOOLS).removesuffix(".").split(", ")
            parts[at] = _format_tools_line(name for name in names if name not in gone)
    return "\n\n".join(parts)


def _format_tools_line(names: Iterable[str]) -> str:
    return f"{_TOOLS}{', '.join(names)}."
