"""How facts change a session's state. Total, and without rules: those are in ``decide``.

``evolve`` owns the given state: it changes it in place and returns it, so a conversation of n messages costs
O(n) and not O(n²). A caller that needs the old state replays its facts.

Long because each kind of fact is applied here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts.rewind import AwaitedAgain, RecordedCalls, Rewind
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.handles.jobs import MAX_KEPT_JOBS
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.programs import MAX_PROGRAM_CALLS, compute_expiry_ms, make_program_key
from sessiontree.contracts.settings.model_settings import merge_settings
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.contracts.values.messages import (
    NOTHING_USED,
    AssistantMessage,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from sessiontree.contracts.values.truncation import cut_line
from sessiontree.session.compaction import compact_transcript
from sessiontree.session.cut_messages import shorten_messages
from sessiontree.session.state import CUT_SHORT, Attempts, CallState, ProgramState, SessionState

REMEMBERED_MESSAGES = 4096


MAX_GIVEN_UP_CHARS = 300
NOTHING_SAID = "(the model said nothing)"
"""The summary of a run whose final message is empty."""
_CUT = {
    "asking": "waited for an approval, which was withdrawn; did not run",
    "delegated": "waited for the creating program's answer",
    "intended": "was cut short; may have run in part",
    "program": "was cut short; some of its calls may have run",
    "child": "no longer waits for its child",
}
"""What became of a call in a session that stopped, by its phase."""


def evolve(state: SessionState, fact: SessionFact) -> SessionState:
    """Apply one fact. Amortised O(1) in the length of the conversation."""
    APPLY[type(fact)](state, fact)
    return state


@lru_cache(maxsize=64)
def _share_text(text: str) -> str:
    """Return the text: sessions with equal prompts hold one object."""
    return text


def _on_opened(state: SessionState, fact: facts.Opened) -> None:
    state.system_prompt = _share_text(fact.system_prompt)
    state.tools = fact.tools
    state.model = fact.model
    state.compaction_model = fact.compaction_model
    if fact.task is not None:
        _on_received(state, fact.task)
    if fact.turn is not None:
        _turn_started(state, fact.turn)


def _on_model_changed(state: SessionState, fact: facts.ModelChanged) -> None:
    state.model = fact.model
    state.compaction_model = fact.compaction_model
    if state.compacting is not None and state.compacting.model:
        state.compacting = replace(state.compacting, model=fact.compaction_model)


def _on_forked(state: SessionState, fact: facts.SessionForked) -> None:
    state.consultations.clear()
    # These children were started under ids of the other tree.
    state.awaited = {call_id: key for call_id, key in fact.awaits if key}
    state.unwanted = {call_id: None for call_id, key in fact.awaits if not key}
    for call_id, key in state.awaited.items():
        if (waiting := state.calls.get(key)) is not None:
            waiting.awaits = call_id
    if fact.rewind is not None:
        _rewind(state, fact.rewind, fact.at_ms)
        return
    if state.retry_at_ms is not None:
        state.retry_at_ms += fact.shift_ms
    for call in state.calls.values():
        call.asked_at_ms += fact.shift_ms
        call.expires_at_ms += fact.shift_ms
        if call.ends_at_ms is not None:
            call.ends_at_ms += fact.shift_ms
        if call.program is not None and call.program.expires_at_ms is not None:
            call.program.expires_at_ms += fact.shift_ms


def _rewind(state: SessionState, rewind: Rewind, at_ms: int) -> None:
    """Go on from an earlier message; what was used since stays counted."""
    state.transcript = [*state.transcript[: rewind.upto], *rewind.again]
    state.calls.clear()
    state.awaited.clear()
    state.results = {}
    state.reply_keys = ()
    state.ledger.clear()
    state.asking = state.owes_turn = False
    state.retry_at_ms = state.offer = state.compacting = None
    state.run_turns = 0
    program = rewind.program
    if program is None:
        return
    made_in = state.transcript[-1]
    turn = program.call.key.partition(".")[0]
    others = {each.tool_call_id: each for each in program.results}
    calls = made_in.tool_calls if isinstance(made_in, AssistantMessage) else ()
    for index, call in enumerate(calls):
        key = f"{turn}.{index}"
        if key == program.call.key:
            began_ms = program.began_at_ms
            held = ProgramState(began_ms, compute_expiry_ms(program.call.arguments, at_ms))
            held.recorded = RecordedCalls.of(program)
            state.awaited.update({each.call_id: key for each in program.awaited})
            state.calls[key] = CallState(
                key, call, "program", checked=program.call, asked_by=state.asked_by, program=held
            )
        else:
            state.results[key] = others[call.id]
    state.reply_keys = tuple(f"{turn}.{index}" for index in range(len(calls)))


def _on_received(state: SessionState, fact: facts.MessageReceived) -> None:
    state.inbox.append(fact)
    _remember(state, fact.message_id)
    if fact.wakes:
        state.offer = None
        state.interrupted = False
    if fact.turn is not None:
        _turn_started(state, fact.turn)


def _on_acts_for(state: SessionState, fact: facts.ActsFor) -> None:
    state.asked_by = fact.askers


def _remember(state: SessionState, name: str) -> None:
    state.heard[name] = None
    if len(state.heard) > REMEMBERED_MESSAGES:
        del state.heard[next(iter(state.heard))]


def _turn_started(state: SessionState, fact: facts.TurnStarted) -> None:
    state.turn = fact.turn
    state.run_turns = 1 if fact.fresh_run else state.run_turns + 1
    state.asking = True
    state.model_failures = 0
    state.failure_cause = ""
    state.owes_turn = False
    state.offer = None
    if fact.fresh_run:
        state.ledger.clear()
        state.compaction_failures = 0
        state.result_attempts = 0
        state.cut_text = ""
        state.asked_again = False
    if fact.took:
        for waiting in state.inbox[: fact.took]:
            state.transcript.append(waiting.message)
            if waiting.wakes:
                state.unanswered.append(waiting.message_id)
            if waiting.settings is not None:
                state.settings = merge_settings(state.settings, waiting.settings)
        del state.inbox[: fact.took]


def _turn_replied(state: SessionState, fact: facts.TurnReplied) -> None:
    state.asking = False
    message = fact.message
    state.transcript.append(message)
    calls = message.tool_calls
    _charge(state, message.usage)
    state.shared_context = fact.context_tokens
    state.compactions = 0
    state.avoids_compaction_model = False
    state.summary_limit = None
    state.compaction_problem = ""
    state.calls_made += len(calls)
    if calls:
        keys = []
        for index, call in enumerate(calls):
            key = f"{fact.turn}.{index}"
            keys.append(key)
            state.calls[key] = CallState(key, call, asked_by=state.asked_by)
        state.reply_keys = tuple(keys)
    if fact.finished is not None:
        _on_run_finished(state, fact.finished)


def _charge(state: SessionState, usage: Usage) -> None:
    if usage is not NOTHING_USED:
        state.reported += usage
    state.replies += 1


def _reply_cut(state: SessionState, fact: facts.ReplyCut) -> None:
    state.cut_text += fact.text


def _reply_empty(state: SessionState, fact: facts.ReplyEmpty) -> None:
    state.asked_again = True


def _turn_failed(state: SessionState, fact: facts.TurnFailed) -> None:
    state.asking = False
    state.retry_at_ms = fact.retry_at_ms
    state.model_failures += 1
    if fact.is_final:
        state.failure_cause = "provider"
    elif fact.cause not in {"", "provider"}:
        state.failure_cause = "budget"
    if fact.overflow:
        state.overflow = fact.reason
        state.owes_turn = True
        state.run_turns -= 1  # the turn is asked again, after a compaction


def _turn_retried(state: SessionState, fact: facts.TurnRetried) -> None:
    state.asking = True
    state.retry_at_ms = None


def _turn_cut(state: SessionState, fact: facts.TurnCut) -> None:
    state.asking = False
    state.retry_at_ms = None
    state.compacting = None


def _on_context_filled(state: SessionState, fact: facts.ContextFilled) -> None:
    state.is_crowded = True


def _on_compaction_begun(state: SessionState, fact: facts.CompactionBegun) -> None:
    state.turn = fact.turn
    state.asking = True
    state.model_failures = 0
    state.owes_turn = True
    state.offer = None
    state.compacting = fact
    state.compactions += 1


def _on_context_compacted(state: SessionState, fact: facts.ContextCompacted) -> None:
    _charge(state, fact.usage)
    state.asking = False
    state.compacting = None
    state.is_crowded = False
    state.overflow = ""
    state.compaction_failures = 0
    state.compaction_problem = ""
    state.summary_limit = None
    state.transcript, state.summary_at = compact_transcript(state.transcript, fact)


def _on_compaction_failed(state: SessionState, fact: facts.CompactionFailed) -> None:
    if fact.usage is not None:
        _charge(state, fact.usage)
    state.asking = False
    state.compacting = None
    state.compaction_problem = fact.reason
    if fact.model:
        state.avoids_compaction_model = True
        return
    state.is_crowded = False
    state.compaction_failures += 1
    state.summary_limit = fact.summary_limit


def _on_messages_shortened(state: SessionState, fact: facts.MessagesShortened) -> None:
    state.overflow = ""
    state.shared_context = None
    state.transcript = shorten_messages(state.transcript, fact)


def _call_opened(state: SessionState, fact: facts.CallOpened) -> None:
    call = ToolCall(fact.call_id, fact.tool, fact.arguments)
    state.calls[fact.key] = CallState(fact.key, call, outside=True)
    _remember(state, fact.key)


def _call_held(state: SessionState, fact: facts.CallHeld) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        call.phase = "held" if fact.held else "open"


def _bind(state: SessionState, checked: CheckedCall) -> CallState | None:
    call = state.calls.get(checked.key)
    if call is not None:
        tried = state.ledger.get(checked.tool)
        if call.phase == "open" and not call.outside and tried is not None and not tried.is_program:
            del state.ledger[checked.tool]
        call.checked = checked
    return call


def _call_intended(state: SessionState, fact: facts.CallIntended) -> None:
    call = _bind(state, fact.call)
    if call is not None:
        call.phase = "intended"


def _on_approval_wanted(state: SessionState, fact: facts.ApprovalWanted) -> None:
    call = _bind(state, fact.call)
    if call is not None:
        call.phase = "asking"
        call.request_id = fact.request_id
        call.asked_at_ms = fact.at_ms


def _on_approval_settled(state: SessionState, fact: facts.ApprovalSettled) -> None:
    call = state.calls.get(fact.key)
    if call is not None and fact.decision == "approved" and call.phase == "asking":
        call.phase = "approved"  # otherwise its intent was made durable with the answer, earlier


def _call_delegated(state: SessionState, fact: facts.CallDelegated) -> None:
    call = _bind(state, fact.call)
    if call is not None:
        call.phase = "delegated"
        call.client_id = fact.client_id
        call.asked_at_ms = fact.at_ms
        call.expires_at_ms = fact.expires_at_ms
        call.to_person = fact.to_person
        call.needs = fact.input
        call.rounds += fact.input is not None


def _on_input_given(state: SessionState, fact: facts.InputGiven) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        call.phase = "intended"
        # Cleared, so that a late second answer to this round finds no call that waits for it.
        call.needs, call.answered = None, fact.input
        call.client_id, call.to_person = "", False


def _call_parked(state: SessionState, fact: facts.CallParked) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        call.parked = True
    _place(state, fact.key, fact.message)


def _on_arguments_rejected(state: SessionState, fact: facts.ArgumentsRejected) -> None:
    call = state.calls.get(fact.key)
    made_by = None if call is None else state.calls.get(call.part_of)
    program = None if made_by is None else made_by.program
    asked = 0 if program is None else len(program.asked)
    tried = state.ledger.get(fact.tool)
    is_program = (call is not None and call.program is not None) or (tried is not None and tried.is_program)
    state.ledger[fact.tool] = Attempts(fact.attempt, state.turn, fact.digest, fact.final, asked, is_program)


def _call_resolved(state: SessionState, fact: facts.CallResolved) -> None:
    call = state.calls.pop(fact.key, None)
    _note_unfinished(state, call, fact)
    if fact.resets is not None:
        state.ledger.pop(fact.resets, None)
    if fact.artifacts:
        state.artifacts.extend(fact.artifacts)
    for each in () if call is None or call.program is None else call.program.recorded.awaited:
        state.awaited.pop(each.call_id, None)
        state.unwanted[each.call_id] = None
    if call is not None and call.part_of:
        _answer_program(state, call, fact)
    elif call is not None and not call.outside and not call.parked:
        _place(state, fact.key, fact.message)
    if fact.turn is not None:
        _turn_started(state, fact.turn)


def _answer_program(state: SessionState, call: CallState, fact: facts.CallResolved) -> None:
    """Give a program a result, if it has not ended before."""
    if call.awaits:
        state.awaited.pop(call.awaits, None)
        if fact.outcome in CUT_SHORT:
            state.unwanted[call.awaits] = None
            # Children that never report must not make the state grow without a bound.
            if len(state.unwanted) > MAX_PROGRAM_CALLS:
                del state.unwanted[next(iter(state.unwanted))]
    made_by = state.calls.get(call.part_of)
    if made_by is not None and made_by.program is not None:
        made_by.program.answers.append(fact)
        made_by.program.untrusted = made_by.program.untrusted or fact.untrusted


def _on_program_started(state: SessionState, fact: facts.ProgramStarted) -> None:
    call = state.calls.get(fact.call.key)
    if call is not None:
        # Nothing is known of its text yet, so the attempts at its tool are still counted.
        call.checked = fact.call
        call.phase = "program"
        ends_ms = compute_expiry_ms(fact.call.arguments, fact.at_ms, fact.source)
        call.program = ProgramState(fact.at_ms, ends_ms, fact.source)


def _on_program_advanced(state: SessionState, fact: facts.ProgramAdvanced) -> None:
    made_by = state.calls.get(fact.key)
    if made_by is None or made_by.program is None:
        return
    program = made_by.program
    program.notes += len(fact.notes)
    before = len(program.asked)
    for number, asked in enumerate(fact.calls, start=before):
        key = make_program_key(fact.key, number)
        program.asked.append(compute_digest(asked.tool, asked.arguments))
        call = ToolCall(f"{made_by.call.id}/{number}", asked.tool, asked.arguments)
        state.calls[key] = CallState(
            key,
            call,
            asked_by=made_by.asked_by,
            part_of=fact.key,
            asked_after=before,
            line=asked.line,
            awaits=state.ids.call(key) if asked.awaits else "",
        )
        if asked.awaits:
            state.awaited[state.ids.call(key)] = key
        if program.recorded:
            _serve(state, program, number, state.calls[key])
        if asked.timeout_s is not None:
            state.calls[key].timeout_s = asked.timeout_s
            state.calls[key].ends_at_ms = fact.at_ms + int(asked.timeout_s * 1000)
    for number in fact.withdrawn:
        if (given_up := state.calls.get(make_program_key(fact.key, number))) is not None:
            given_up.withdrawn = True
    state.calls_made += len(fact.calls)


def _serve(state: SessionState, program: ProgramState, number: int, call: CallState) -> None:
    """Use up what a run before recorded of an equal call."""
    found = program.recorded.find(number, program.asked[-1])
    if found is not None:
        program.recorded.use(found)
    if isinstance(found, AwaitedAgain):
        state.awaited.pop(call.awaits, None)
        state.awaited[found.call_id] = call.key
        call.awaits, call.phase = found.call_id, "child"


def _on_child_awaited(state: SessionState, fact: facts.ChildAwaited) -> None:
    call = state.calls.get(fact.key)
    if call is not None:
        call.phase = "child"


def _on_child_reported(state: SessionState, fact: facts.ChildReported) -> None:
    _remember(state, fact.message_id)
    call = state.calls.get(fact.key)
    if call is not None and fact.answers and call.program is not None:
        call.program.early[fact.answers] = fact.text
    elif call is not None:
        call.report = fact.text


def _note_unfinished(state: SessionState, call: CallState | None, fact: facts.CallResolved) -> None:
    """Keep for the result which calls were cut, and that a tool which was given up works again."""
    tool = fact.message.tool_name
    if fact.outcome == "ok":
        state.given_up.pop(tool, None)
    elif fact.outcome == "unknown":
        state.given_up[fact.key] = f"{tool}: its process was lost; it may have run"
    elif fact.outcome in CUT_SHORT and state.stopping is not None and call is not None:
        state.given_up[fact.key] = f"{tool}: {_CUT.get(call.phase, 'did not finish')}"


def _place(state: SessionState, key: str, message: ToolResultMessage) -> None:
    """Results are kept in call order: they join the transcript together, once the last one is there."""
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
    # An interrupted session waits for its parent or owner, whatever its last calls return.
    state.owes_turn = not state.interrupted


def _on_tainted(state: SessionState, fact: facts.Tainted) -> None:
    state.taint = fact.source


def _hook_failed(state: SessionState, fact: facts.HookFailed) -> None:
    """Change nothing: the fact is for readers of the journal."""


def _on_tool_given_up(state: SessionState, fact: facts.ToolGivenUp) -> None:
    """The parent is informed, and the ledger already refuses the tool; the result tells of it, too."""
    where = f" at {fact.field}" if fact.field else ""
    reason = cut_line(fact.reason, MAX_GIVEN_UP_CHARS)
    state.given_up[fact.tool] = f"{fact.tool}: no valid call in {fact.attempts} attempts{where}: {reason}"


def _on_child_trouble_noted(state: SessionState, fact: facts.ChildTroubleNoted) -> None:
    """Change nothing: the fact is for the event stream, and its text is in the inbox as a separate notice."""


def _on_approver_consulted(state: SessionState, fact: facts.ApproverConsulted) -> None:
    state.consultations[fact.question.request_id] = fact.question


def _on_approver_replied(state: SessionState, fact: facts.ApproverReplied) -> None:
    state.consultations.pop(fact.request_id, None)


def _on_job_started(state: SessionState, fact: facts.JobStarted) -> None:
    state.jobs[fact.job_id] = fact


def _on_job_ended(state: SessionState, fact: facts.JobEnded) -> None:
    began = state.jobs.pop(fact.job_id, None)
    if began is not None:
        state.past_jobs[fact.job_id] = (began, fact)
        if len(state.past_jobs) > MAX_KEPT_JOBS:
            del state.past_jobs[next(iter(state.past_jobs))]


def _on_result_rejected(state: SessionState, fact: facts.ResultRejected) -> None:
    state.result_attempts = fact.attempt


def _on_run_finished(state: SessionState, fact: facts.RunFinished) -> None:
    state.unanswered = [each for each in state.unanswered if each not in fact.answers]
    status = "failed" if fact.error is not None else "completed"
    said = NOTHING_SAID if fact.is_empty else fact.text
    state.offer = (status, said if fact.error is None else fact.error, fact.result)
    state.owes_turn = False
    state.settings = None
    state.cut_text = ""
    state.overflow = ""
    state.compactions = 0
    state.summary_limit = None
    state.compaction_problem = ""
    state.avoids_compaction_model = False


def _on_interrupted(state: SessionState, fact: facts.Interrupted) -> None:
    _remember(state, fact.post_id)
    state.interrupted = True
    state.owes_turn = False
    # What waited is read with the next message, and must not start a turn on its own.
    state.inbox = [replace(each, steer=False, wakes=False) for each in state.inbox]
    for call in state.calls.values():
        call.cut = True


def _on_stopping(state: SessionState, fact: facts.Stopping) -> None:
    state.stopping = fact.status
    state.stop_reason = fact.reason
    state.asking = False
    state.retry_at_ms = None
    state.compacting = None


APPLY: dict[type[Any], Callable[[SessionState, Any], None]] = {
    facts.Opened: _on_opened,
    facts.ModelChanged: _on_model_changed,
    facts.SessionForked: _on_forked,
    facts.MessageReceived: _on_received,
    facts.ActsFor: _on_acts_for,
    facts.TurnStarted: _turn_started,
    facts.TurnReplied: _turn_replied,
    facts.ReplyCut: _reply_cut,
    facts.ReplyEmpty: _reply_empty,
    facts.TurnFailed: _turn_failed,
    facts.TurnRetried: _turn_retried,
    facts.TurnCut: _turn_cut,
    facts.ContextFilled: _on_context_filled,
    facts.CompactionBegun: _on_compaction_begun,
    facts.ContextCompacted: _on_context_compacted,
    facts.CompactionFailed: _on_compaction_failed,
    facts.MessagesShortened: _on_messages_shortened,
    facts.CallOpened: _call_opened,
    facts.CallHeld: _call_held,
    facts.CallIntended: _call_intended,
    facts.ApprovalWanted: _on_approval_wanted,
    facts.ApprovalSettled: _on_approval_settled,
    facts.CallDelegated: _call_delegated,
    facts.InputGiven: _on_input_given,
    facts.CallParked: _call_parked,
    facts.ArgumentsRejected: _on_arguments_rejected,
    facts.CallResolved: _call_resolved,
    facts.ProgramStarted: _on_program_started,
    facts.ProgramAdvanced: _on_program_advanced,
    facts.ChildAwaited: _on_child_awaited,
    facts.ChildReported: _on_child_reported,
    facts.Tainted: _on_tainted,
    facts.HookFailed: _hook_failed,
    facts.ToolGivenUp: _on_tool_given_up,
    facts.ChildTroubleNoted: _on_child_trouble_noted,
    facts.ApproverConsulted: _on_approver_consulted,
    facts.ApproverReplied: _on_approver_replied,
    facts.JobStarted: _on_job_started,
    facts.JobEnded: _on_job_ended,
    facts.ResultRejected: _on_result_rejected,
    facts.RunFinished: _on_run_finished,
    facts.Interrupted: _on_interrupted,
    facts.Stopping: _on_stopping,
}
"""How each type of fact is applied; every fact of a session has an entry."""
