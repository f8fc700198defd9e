"""Rules for programs: what one may ask for, when it goes on, and how the report of a child is its answer.

A program's calls are ordinary calls; ``calls.py`` has their rules. Only the way of their results is another
one: to the program, in the order in which they came, which a replay keeps.
"""

from __future__ import annotations

from sessiontree.contracts import session_facts as facts
from sessiontree.contracts import stimuli
from sessiontree.contracts.messages import ToolCall
from sessiontree.contracts.programs import expiry_ms, key_in_program
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision, child_answered, take_in
from sessiontree.session.state import SessionState


def began(state: SessionState, stimulus: stimuli.ProgramBegan) -> Decision:
    """Start a program; a repeat changes nothing."""
    decision = Decision()
    call = state.calls.get(stimulus.call.key)
    if call is not None and call.phase in {"open", "intended"} and state.stopping is None:
        decision.facts.append(facts.ProgramStarted(stimulus.call, stimulus.at_ms))
        decision.instructions.append(todo.AdvanceProgram(call.key))
        ends_ms = expiry_ms(stimulus.call.arguments, stimulus.at_ms)
        if ends_ms is not None:
            decision.instructions.append(todo.WakeSessionAt(ends_ms))
    return decision


def advanced(state: SessionState, stimulus: stimuli.ProgramSaid) -> Decision:
    """Record what a program asks for, and have its calls checked; a repeat changes nothing."""
    decision = Decision()
    call = state.calls.get(stimulus.key)
    if call is None or call.program is None or call.cut or state.stopping is not None:
        return decision
    program = call.program
    asked = stimulus.calls if stimulus.first == len(program.asked) else ()
    notes = stimulus.notes[max(0, program.notes - stimulus.noted) :]
    if not asked and not notes:
        return decision
    decision.facts.append(facts.ProgramAdvanced(call.key, asked, notes, len(program.asked)))
    given_up = tuple(name for name, tried in state.ledger.items() if tried.refused) if state.ledger else ()
    for number, each in enumerate(asked, start=stimulus.first):
        wanted = ToolCall(f"{call.call.id}/{number}", each.tool, each.arguments)
        key = key_in_program(call.key, number)
        decision.instructions.append(todo.PrepareCall(key, wanted, given_up, call.asked_by))
    return decision


def reported(state: SessionState, key: str, stimulus: stimuli.Incoming) -> Decision:
    """Take the report of a child that a program waits for: the answer of the call that started it."""
    decision = Decision()
    call = state.calls[key]
    take_in(state, decision, stimulus.taint)
    if call.phase == "child":
        decision.facts.append(facts.ChildReported(key, stimulus.message_id))
        child_answered(decision, call, stimulus.text, stimulus.at_ms, untrusted=bool(stimulus.taint))
    else:
        # The call's own result is still to come, and so is the child's id.
        decision.facts.append(facts.ChildReported(key, stimulus.message_id, stimulus.text))
    return decision
