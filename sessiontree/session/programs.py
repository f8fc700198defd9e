"""Rules for programs: what one may ask for, when it goes on, and how the report of a child is its answer.

A program's calls are ordinary calls; ``calls.py`` has their rules. Only the way of their results is another
one: to the program, in the order in which they came, which a replay keeps.
"""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.rewind import RecordedCall, ServedAnswer
from sessiontree.contracts.recorded.programs import STARTS_CHILDREN, compute_expiry_ms, make_program_key
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.contracts.values.messages import TextContent, ToolCall, ToolResultMessage
from sessiontree.session import instructions as todo
from sessiontree.session.calls import WITHDRAWN, Decision, deliver_child_answer, end_calls, take_in
from sessiontree.session.state import IDLE_PHASES, CallState, SessionState


def is_waiting(state: SessionState, program: CallState) -> bool:
    """Whether a program has open calls and all of them wait; programs within it count as their calls."""
    below = f"{program.key}/"
    asked_by: set[str] = set()
    nested: list[str] = []
    for call in state.calls.values():
        if not call.key.startswith(below):
            continue
        if call.program is not None:
            nested.append(call.key)
        elif call.phase not in IDLE_PHASES:
            return False
        asked_by.add(call.part_of)
    return program.key in asked_by and all(key in asked_by for key in nested)


def on_began(state: SessionState, stimulus: stimuli.ProgramBegan) -> Decision:
    """Start a program; a repeat changes nothing."""
    decision = Decision()
    call = state.calls.get(stimulus.call.key)
    if call is not None and call.phase in {"open", "intended"} and state.stopping is None:
        decision.facts.append(facts.ProgramStarted(stimulus.call, stimulus.at_ms, stimulus.source))
        decision.instructions.append(todo.AdvanceProgram(call.key))
        ends_ms = compute_expiry_ms(stimulus.call.arguments, stimulus.at_ms, stimulus.source)
        if ends_ms is not None:
            decision.instructions.append(todo.WakeSessionAt(ends_ms))
    return decision


def on_program_said(state: SessionState, stimulus: stimuli.ProgramSaid) -> Decision:
    """Record what a program asks for, and have its calls checked; a repeat changes nothing."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is None or call.program is None or call.cut or state.stopping is not None:
        return decision
    program = call.program
    # A program that runs again after a crash repeats what it asked for; only what follows directly is new.
    asked = stimulus.calls if stimulus.first == len(program.asked) else ()
    notes = stimulus.notes[max(0, program.notes - stimulus.noted) :]
    given_up_now = _find_given_up(state, stimulus, range(len(program.asked), len(program.asked) + len(asked)))
    if not asked and not notes and not given_up_now:
        return decision
    bounds = [each.timeout_s for each in asked if each.timeout_s is not None]
    at_ms = stimulus.at_ms if bounds else 0
    advanced = facts.ProgramAdvanced(call.key, asked, notes, len(program.asked), given_up_now, at_ms)
    decision.facts.append(advanced)
    if bounds:
        decision.instructions.append(todo.WakeSessionAt(at_ms + int(min(bounds) * 1000)))
    open_before = (state.calls.get(make_program_key(call.key, number)) for number in given_up_now)
    end_calls(decision, [each for each in open_before if each], WITHDRAWN, stimulus.at_ms)
    given_up = tuple(name for name, tried in state.ledger.items() if tried.refused) if state.ledger else ()
    used: set[int] = set()
    for number, each in enumerate(asked, start=stimulus.first):
        recorded = program.recorded
        found = recorded.find(number, compute_digest(each.tool, each.arguments), used) if recorded else None
        if found is not None:
            used.add(found.number)
            result = _make_recorded_result(state, call, number, found, stimulus.at_ms)
            if result is not None:
                decision.facts.append(result)
                decision.instructions.append(todo.AdvanceProgram(call.key))
            continue
        wanted = ToolCall(f"{call.call.id}/{number}", each.tool, each.arguments)
        key = make_program_key(call.key, number)
        decision.instructions.append(todo.PrepareCall(key, wanted, given_up, call.asked_by))
    return decision


def _make_recorded_result(
    state: SessionState, program: CallState, number: int, found: RecordedCall, at_ms: int
) -> facts.CallResolved | None:
    """Return the result that a call gets from the journal; None = it waits for a child."""
    call_id, key = f"{program.call.id}/{number}", make_program_key(program.key, number)
    if isinstance(found, ServedAnswer):
        message = replace(found.message, tool_call_id=call_id)
        return facts.CallResolved(
            key, found.outcome, message, is_json=found.is_json, untrusted=found.untrusted
        )
    text = None if program.program is None else program.program.early.get(found.call_id)
    if text is None:
        return None
    message = ToolResultMessage(call_id, STARTS_CHILDREN, (TextContent(text),), None, False, at_ms)
    return facts.CallResolved(key, "ok", message, is_json=True, untrusted=bool(state.taint))


def _find_given_up(state: SessionState, stimulus: stimuli.ProgramSaid, asked: range) -> tuple[int, ...]:
    """Return the numbers of the calls that a program gives up now; a repeat gives up nothing."""
    numbers = []
    for number in stimulus.withdrawn:
        known = state.calls.get(make_program_key(stimulus.key, number))
        if number in asked if known is None else not known.withdrawn:
            numbers.append(number)
    return tuple(numbers)


def on_reported(state: SessionState, key: str, stimulus: stimuli.Incoming) -> Decision:
    """Take the report of a child that a program waits for: the answer of the call that started it."""
    decision = Decision()
    call = state.calls[key]
    take_in(state, decision, stimulus.taint)
    if call.program is not None:  # it runs again, and has not asked for that call yet
        early = facts.ChildReported(key, stimulus.message_id, stimulus.text, stimulus.answers)
        decision.facts.append(early)
    elif call.phase == "child":
        decision.facts.append(facts.ChildReported(key, stimulus.message_id))
        deliver_child_answer(decision, call, stimulus.text, stimulus.at_ms, untrusted=bool(stimulus.taint))
    else:
        # The call's own result is still to come, and so is the child's id.
        decision.facts.append(facts.ChildReported(key, stimulus.message_id, stimulus.text))
    return decision
