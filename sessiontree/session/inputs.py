"""Rules for calls that need a person's input while they run: asked, answered, and run again.

They never change the state.
"""

from __future__ import annotations

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import ClientCallWithdrawn
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from sessiontree.contracts.recorded.results import make_error_message
from sessiontree.contracts.recorded.tool_inputs import AnsweredInput
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.session import calls
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision
from sessiontree.session.state import CallState, SessionState

_TOO_LATE = "the call needs a person's answer, but its session goes on without it"


def on_handed_over(state: SessionState, stimulus: stimuli.CallHandedOver) -> Decision:
    """Hand a call over to whoever answers it; one that asks after it was overtaken ends instead."""
    call = state.calls.get(stimulus.call.key)
    if stimulus.input is None or call is None or not calls.is_overtaken(state, call):
        return calls.on_delegated(state, stimulus)
    decision = Decision()
    error = ExecutionError(_TOO_LATE)
    message = make_error_message(call.call.id, call.tool, error, stimulus.at_ms)
    calls.resolve(decision, call, "aborted", message)
    return decision


def take_answer(state: SessionState, stimulus: stimuli.ClientAnswered) -> Decision:
    """Take an answer: it is the call's result, or the input with which the call runs again."""
    found = [call for call in state.calls.values() if call.client_id == stimulus.client_id]
    call = found[0] if found else None
    answers = _read_answers(stimulus)
    if call is None or call.needs is None or call.phase != "delegated" or state.stopping is not None:
        return calls.on_client_answered(state, stimulus)
    decision = Decision()
    if answers is None:
        decision.instructions.append(todo.SettleAnswer(stimulus.answer_id, taken=False))
        return decision
    by, surface = stimulus.answer.by, stimulus.answer.surface
    # The call runs again only when the answer is durable: a crash would else ask the person twice.
    taken = AnsweredInput(call.needs.state, answers)
    decision.facts.append(facts.InputGiven(call.key, taken, by, surface))
    ended = ClientCallEnded(call.client_id, "ok", stimulus.answer_id, by, surface)
    decision.instructions += [
        todo.ToTree(ClientCallWithdrawn(ended)),
        todo.SettleAnswer(stimulus.answer_id, taken=True),
        todo.AwaitCommit((call.key,)),
    ]
    return decision


def derive_client_id(state: SessionState, call: CallState) -> str:
    """Return the id by which the next answer to a call refers to it; each round of one call has another."""
    return state.ids.client(call.key if not call.rounds else f"{call.key}#{call.rounds}")


def _read_answers(stimulus: stimuli.ClientAnswered) -> tuple[JsonValue, ...] | None:
    result = stimulus.answer.result
    output = None if result is None else result.output
    answers = output.get("answers") if isinstance(output, dict) else None
    return tuple(answers) if isinstance(answers, list) else None
