"""Session machines with one planted bug each, by the rule they break."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import ResultOffered, Stimulus, TroubleReported
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.senders import join_principals
from sessiontree.contracts.settings.settings import Limits
from sessiontree.session import calls, turns
from sessiontree.session import instructions as todo
from sessiontree.session.calls import Decision
from sessiontree.session.decide import decide, react
from sessiontree.session.evolve import evolve
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import SessionState
from tests.unit.session.machine_fixtures import Advance, Machine, broken, rebuild

S = TypeVar("S")
F = TypeVar("F")
Each = Callable[[SessionState, Any, Any], Iterator[Any]]
"""Given state, cause, and one fact or instruction: what is in its place."""


def decided(new_facts: Iterable[SessionFact] = (), told: Iterable[SessionInstruction] = ()) -> Decision:
    """Return a decision."""
    decision = Decision()
    decision.facts.extend(new_facts)
    decision.instructions.extend(told)
    return decision


def changed(each: Each) -> Machine:
    """Return a machine that says something else in the place of some facts and instructions."""

    def rewrite(state: SessionState, cause: Any, decision: Decision) -> Decision:
        return decided(
            (new for fact in decision.facts for new in each(state, cause, fact)),
            (new for one in decision.instructions for new in each(state, cause, one)),
        )

    def changed_decide(state: SessionState, stimulus: Stimulus) -> Decision:
        return rewrite(state, stimulus, decide(state, stimulus))

    def changed_advance(state: SessionState, at_ms: int) -> Decision | None:
        decision = turns.advance(state, at_ms)
        return None if decision is None else rewrite(state, None, decision)

    return broken(decide=changed_decide, advance=changed_advance)


def without(*kinds: type[Any]) -> Machine:
    """Return a machine that never says some things."""

    def each(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
        if not isinstance(one.event if isinstance(one, todo.ToTree) else one, kinds):
            yield one

    return changed(each)


def deaf(*kinds: type[Any]) -> Machine:
    """Return a machine that takes no notice of some stimuli."""

    def deaf_decide(state: SessionState, stimulus: Stimulus) -> Decision:
        return Decision() if isinstance(stimulus, kinds) else decide(state, stimulus)

    return broken(decide=deaf_decide)


def instead(kind: type[S], other: Callable[[SessionState, S], Decision]) -> Machine:
    """Return a machine that decides otherwise on one kind of stimulus."""

    def other_decide(state: SessionState, stimulus: Stimulus) -> Decision:
        return other(state, stimulus) if isinstance(stimulus, kind) else decide(state, stimulus)

    return broken(decide=other_decide)


def evolving(kind: type[F], after: Callable[[SessionState, F], None]) -> Machine:
    """Return a machine that does something more once it has taken one kind of fact in."""

    def more(state: SessionState, fact: SessionFact) -> SessionState:
        evolve(state, fact)
        if isinstance(fact, kind):
            after(state, fact)
        return state

    return broken(evolve=more)


def advancing(before: Callable[[SessionState, int, Advance], Decision | None]) -> Machine:
    """Return a machine that goes on otherwise."""
    return broken(advance=lambda state, at_ms: before(state, at_ms, turns.advance))


# Attempts.


def _trouble_in(one: Any) -> facts.ToolGivenUp | None:
    """Return what a fact or an instruction says of a tool that was given up."""
    if isinstance(one, todo.ToTree) and isinstance(one.event, TroubleReported):
        return one.event.trouble
    return one if isinstance(one, facts.ToolGivenUp) else None


def _patient(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    """The same mistake twice running does not end it."""
    if isinstance(one, facts.ArgumentsRejected) and one.attempt < 3:
        yield replace(one, final=False)
    elif not ((trouble := _trouble_in(one)) is not None and trouble.attempts < 3):
        yield one


def _generous(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    """A fourth attempt is allowed."""
    if isinstance(one, facts.ArgumentsRejected) and one.attempt == 3:
        yield replace(one, final=False)
    elif not ((trouble := _trouble_in(one)) is not None and trouble.attempts == 3):
        yield one


def _count_each(state: SessionState, fact: facts.ArgumentsRejected) -> None:
    state.ledger[fact.tool].turn = -1


def _forgive(state: SessionState, fact: facts.ToolGivenUp) -> None:
    state.ledger.clear()


def _forgetful(spec: SessionSpec, limits: Limits, known: Iterable[SessionFact]) -> SessionState:
    state = rebuild(spec, limits, known)
    state.ledger.clear()
    return state


def _outside_counts(state: SessionState, fact: facts.CallOpened) -> None:
    state.ledger.pop(fact.tool, None)


def _run_rejected(state: SessionState, stimulus: stimuli.CallRejected) -> Decision:
    call = state.calls.get(stimulus.call.key)
    if call is None or call.phase != "open":
        return Decision()
    checked = CheckedCall(call.key, stimulus.call.tool, call.call.arguments, "", 0, repeatable=False)
    run = todo.ExecuteCall(call.key, checked)
    return decided(told=[run])


# Calls and results.


def _twice(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    yield one
    if isinstance(one, todo.ExecuteCall):
        yield one


def _as_they_come(state: SessionState, fact: SessionFact) -> SessionState:
    """Results stand in the order they came."""
    if isinstance(fact, facts.CallResolved) and len(state.reply_keys) > 1:
        state.reply_keys = (fact.key, *(key for key in state.reply_keys if key != fact.key))
    return evolve(state, fact)


def _resolve_again(state: SessionState, stimulus: stimuli.CallFinished) -> Decision:
    if stimulus.key in state.calls:
        return decide(state, stimulus)
    return decided([facts.CallResolved(stimulus.key, stimulus.outcome, stimulus.message)])


def _leave_unknown(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if not (isinstance(one, facts.CallResolved) and one.outcome == "unknown"):
        yield one


def _decide_again(state: SessionState, stimulus: stimuli.ApprovalAnswered) -> Decision:
    for call in state.calls.values():
        if call.request_id == stimulus.request_id and call.phase == "intended":
            answered = facts.ApprovalSettled(call.key, call.request_id, stimulus.decision, "x", "")
            return decided([answered])
    return decide(state, stimulus)


def _time_says_yes(state: SessionState, stimulus: stimuli.ApprovalAnswered) -> Decision:
    decision = decide(state, stimulus)
    if stimulus.decision != "expired" or not decision.facts:
        return decision
    call = next(each for each in state.calls.values() if each.request_id == stimulus.request_id)
    decision = decided(decision.facts[:1])
    calls.intend(decision, call.final)
    return decision


def _do_again(state: SessionState, stimulus: stimuli.Recovered) -> Decision:
    intended = [call for call in state.calls.values() if call.phase == "intended"]
    return decided(told=[todo.ExecuteCall(call.key, call.final) for call in intended])


def _at_once(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    yield one
    if isinstance(one, todo.AwaitCommit) and isinstance(cause, stimuli.CallPrepared):
        yield todo.ExecuteCall(cause.call.key, cause.call)


def _hold_nothing(state: SessionState, stimulus: stimuli.CallPrepared) -> Decision:
    decision = decide(state, stimulus)
    if not any(isinstance(fact, facts.CallHeld) for fact in decision.facts):
        return decision
    return decided([facts.CallIntended(stimulus.call)], [todo.AwaitCommit((stimulus.call.key,))])


def _never_release(state: SessionState, at_ms: int, advance: Advance) -> Decision | None:
    decision = advance(state, at_ms)
    held = decision is not None and any(isinstance(fact, facts.CallHeld) for fact in decision.facts)
    return None if held else decision


def _never_park(state: SessionState, at_ms: int, advance: Advance) -> Decision | None:
    decision = advance(state, at_ms)
    parks = decision is not None and any(isinstance(fact, facts.CallParked) for fact in decision.facts)
    return None if parks else decision


def _ignore_expiry(state: SessionState, stimulus: stimuli.ApprovalAnswered) -> Decision:
    return Decision() if stimulus.decision == "expired" else decide(state, stimulus)


def _join_silently(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    notice = isinstance(one, facts.MessageReceived) and one.message_id.endswith(":outcome")
    if not notice:
        yield one


def _rush(state: SessionState, stimulus: stimuli.Rang) -> Decision:
    decision = calls.expire_client_calls(state, stimulus.at_ms)
    turns.lose_patience(state, stimulus.at_ms + 10**9, decision)
    return decision


def _forget_who_spoke_before(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if isinstance(one, facts.ActsFor):
        one = replace(one, askers=join_principals(*(waiting.asked_by for waiting in state.inbox)))
    yield one


def _lose_who_asked(state: SessionState, fact: facts.TurnReplied) -> None:
    for call in state.calls.values():
        call.asked_by = ()


def _for_nobody(kind: type[Any]) -> Machine:
    def each(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
        is_news = isinstance(one, facts.MessageReceived) and not one.message_id.endswith(":outcome")
        yield replace(one, asked_by=()) if isinstance(one, kind) and not is_news else one

    return changed(each)


# Turns and messages.


def _skip_a_number(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    yield replace(one, turn=one.turn + 1) if isinstance(one, facts.TurnStarted | todo.CallModel) else one


def _ask_again(state: SessionState, stimulus: stimuli.Incoming | stimuli.Recovered) -> Decision:
    decision = decide(state, stimulus)
    if state.asking:
        decision.instructions.append(todo.CallModel(state.turn))
    return decision


def _forgive_failures(state: SessionState, fact: facts.TurnFailed) -> None:
    state.model_failures = 0


def _sleep_on(state: SessionState, stimulus: stimuli.Rang) -> Decision:
    at_ms, state.retry_at_ms = state.retry_at_ms, None
    decision = decide(state, stimulus)
    state.retry_at_ms = at_ms
    return decision


def _endless(state: SessionState, at_ms: int, advance: Advance) -> Decision | None:
    state.run_turns = min(state.run_turns, 1)
    return advance(state, at_ms)


def _newest_first(state: SessionState, fact: facts.MessageReceived) -> None:
    state.inbox.insert(0, state.inbox.pop())


def _hear_again(state: SessionState, stimulus: stimuli.Incoming) -> Decision:
    known = state.heard
    state.heard = {}
    decision = decide(state, stimulus)
    state.heard = known
    return decision


def _strict(state: SessionState, fact: facts.ResultRejected) -> None:
    state.result_attempts = 0


def _take_any_result(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if isinstance(one, facts.ResultRejected):
        yield facts.RunFinished("done", tuple(state.unanswered), None, "done", has_result=True)
    elif not (isinstance(one, facts.MessageReceived) and one.message_id.endswith(":result")):
        yield one


def _forget_answers(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if isinstance(one, facts.RunFinished):
        yield replace(one, answers=())
    elif not isinstance(one, todo.AnswerMessages):
        yield one


# Endings.


def _hasty(state: SessionState, at_ms: int, advance: Advance) -> Decision | None:
    decision = advance(state, at_ms)
    if decision is None and state.calls and not state.reply_keys and state.offer is not None:
        pending, state.calls = state.calls, {}
        decision = advance(state, at_ms)
        state.calls = pending
    return decision


def _always_cancelled(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    yield replace(one, status="cancelled") if isinstance(one, facts.Stopping) else one


def _stop_nothing(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if not (isinstance(one, todo.AbortCalls) and isinstance(cause, stimuli.CancelAsked)):
        yield one


def _interrupt_nothing(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if not (isinstance(one, todo.AbortCalls) and isinstance(cause, stimuli.WorkInterrupted)):
        yield one


def _owe_a_turn(state: SessionState, fact: facts.CallResolved) -> None:
    state.owes_turn = state.owes_turn or (state.interrupted and not state.reply_keys)


def _wake(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    yield replace(one, wakes=True) if isinstance(one, facts.MessageReceived) else one


def _leave_unanswered(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if not (isinstance(one, todo.AnswerMessages) and one.interrupted):
        yield one


def _end_for_good(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    offers = isinstance(one, todo.ToTree) and isinstance(one.event, ResultOffered)
    yield replace(one, event=replace(one.event, stays=False)) if offers else one


def _recover_as_ever(state: SessionState, stimulus: stimuli.Recovered) -> Decision:
    stopping, state.stopping = state.stopping, None
    decision = decide(state, stimulus)
    state.stopping = stopping
    return decision


# State.


def _remember_by_heart(state: SessionState, stimulus: stimuli.Incoming) -> Decision:
    state.heard[stimulus.message_id] = None
    return decide(state, stimulus)


def _beside_the_facts(
    state: SessionState, stimulus: Stimulus
) -> tuple[list[SessionFact], list[SessionInstruction]]:
    both = react(state, stimulus)
    state.result_attempts = 0
    return both


def _by_identity(state: SessionState, fact: facts.CallIntended) -> None:
    """What is the same object is not kept twice."""
    call = state.calls.get(fact.call.key)
    if call is not None and call.final.arguments is call.call.arguments:
        call.checked = replace(call.final, arguments={})


# Jobs.


def _begin_job_again(state: SessionState, stimulus: stimuli.JobBegan) -> Decision:
    decision = decide(state, stimulus)
    return decision if decision.facts else decided([stimulus.started])


def _lose_in_silence(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    if not (isinstance(one, facts.MessageReceived) and one.message_id.startswith("job.")):
        yield one


def _find_again(state: SessionState, cause: Any, one: Any) -> Iterator[Any]:
    """A process with the number of a lost job's is taken for the job."""
    lost = isinstance(cause, stimuli.Recovered) and isinstance(one, facts.JobEnded)
    if not (lost and state.jobs[one.job_id].pid % 2):
        yield one


def _end_all(state: SessionState, stimulus: stimuli.JobOver) -> Decision:
    return decided([facts.JobEnded(job_id, stimulus.ended.status) for job_id in state.jobs])


PLANTED: dict[str, tuple[str, Machine]] = {
    "the same mistake may be made three times": ("P21", changed(_patient)),
    "a fourth attempt is allowed": ("P21", changed(_generous)),
    "failures of one reply count one by one": ("P26", evolving(facts.ArgumentsRejected, _count_each)),
    "the count is lost with the host": ("P26", broken(rebuild=_forgetful)),
    "calls of the program reset the count": ("P26", evolving(facts.CallOpened, _outside_counts)),
    "a tool given up is taken up again": ("P24", evolving(facts.ToolGivenUp, _forgive)),
    "nobody learns that a tool is given up": ("P24", without(TroubleReported)),
    "what does not fit runs": ("P22", instead(stimuli.CallRejected, _run_rejected)),
    "every call is begun twice": ("P25", changed(_twice)),
    "what fits does not run": ("P25", without(todo.ExecuteCall)),
    "results stand as they come": ("P33", broken(evolve=_as_they_come)),
    "a result may come twice": ("P33", instead(stimuli.CallFinished, _resolve_again)),
    "what a lost host ran has no result": ("P33", changed(_leave_unknown)),
    "an approval is decided again": ("S14", instead(stimuli.ApprovalAnswered, _decide_again)),
    "an expired approval counts as given": ("S16", instead(stimuli.ApprovalAnswered, _time_says_yes)),
    "a new host begins intended calls again": ("S42", instead(stimuli.Recovered, _do_again)),
    "effects do not wait for their intent": ("S43", changed(_at_once)),
    "outside calls do not wait for the turn": ("HELD", instead(stimuli.CallPrepared, _hold_nothing)),
    "held calls are never let go": ("HELD", advancing(_never_release)),
    "the program gets no answer": ("HELD", without(todo.AnswerCall)),
    "the model waits for approvals for ever": ("S20", advancing(_never_park)),
    "approvals are not waited for": ("S20", instead(stimuli.Rang, _rush)),
    "nobody wakes the session": ("S20", without(todo.WakeSessionAt)),
    "expiry leaves the call waiting": ("S20", instead(stimuli.ApprovalAnswered, _ignore_expiry)),
    "a late outcome is not reported": ("NOTICE", changed(_join_silently)),
    "who spoke before is forgotten": ("ASKER", changed(_forget_who_spoke_before)),
    "every turn acts for the program": ("ASKER", without(facts.ActsFor)),
    "every call is the program's": ("ASKER", _for_nobody(todo.PrepareCall)),
    "a call forgets whom it is for": ("ASKER", evolving(facts.TurnReplied, _lose_who_asked)),
    "a late outcome is nobody's": ("ASKER", _for_nobody(facts.MessageReceived)),
    "a job begins twice": ("JOB", instead(stimuli.JobBegan, _begin_job_again)),
    "a job that is over runs on": ("JOB", deaf(stimuli.JobOver)),
    "one end of a job ends them all": ("JOB", instead(stimuli.JobOver, _end_all)),
    "a lost job is never recorded": ("JOB", deaf(stimuli.Recovered)),
    "a lost job is matched to another process": ("JOB", changed(_find_again)),
    "nobody hears of a lost job": ("JOB", changed(_lose_in_silence)),
    "a job is nobody's": ("JOB", _for_nobody(facts.JobStarted)),
    "a turn's number is skipped": ("TURN", changed(_skip_a_number)),
    "the model is asked twice": ("TURN", instead(stimuli.Incoming, _ask_again)),
    "a new host does not ask the model": ("TURN", deaf(stimuli.Recovered)),
    "a new host asks the model twice": ("TURN", instead(stimuli.Recovered, _ask_again)),
    "a failed model is asked again for ever": ("RETRY", evolving(facts.TurnFailed, _forgive_failures)),
    "a failed model is never asked again": ("RETRY", instead(stimuli.Rang, _sleep_on)),
    "nobody wakes the session for its model": ("RETRY", without(todo.WakeSessionAt)),
    "a new host does not wait for the retry": ("RETRY", deaf(stimuli.Recovered)),
    "turns are not limited": ("MAX", advancing(_endless)),
    "steering stops nothing": ("STEER", without(todo.AbortCalls)),
    "steering waits for the model": ("STEER", without(facts.TurnCut)),
    "the newest message comes first": ("S45", evolving(facts.MessageReceived, _newest_first)),
    "a message counts as often as it comes": ("S46", instead(stimuli.Incoming, _hear_again)),
    "a typed result may be tried for ever": ("RESULT", evolving(facts.ResultRejected, _strict)),
    "any text is a typed result": ("RESULT", changed(_take_any_result)),
    "a final message answers nobody": ("ANSWER", changed(_forget_answers)),
    "a result is offered while calls run": ("OFFER", advancing(_hasty)),
    "every stop is a cancel": ("STOP", changed(_always_cancelled)),
    "a stop lets calls run on": ("STOP", changed(_stop_nothing)),
    "an interrupt lets calls run on": ("CUT", changed(_interrupt_nothing)),
    "an interrupt asks on": ("CUT", without(facts.TurnCut)),
    "an interrupt lets the model go on": ("CUT", without(todo.WithdrawQuestion)),
    "aborted calls begin a turn": ("CUT", evolving(facts.CallResolved, _owe_a_turn)),
    "a child's report ends the rest": ("CUT", changed(_wake)),
    "who waits does not hear of an interrupt": ("ANSWER", changed(_leave_unanswered)),
    "an interrupt ends the session": ("CUT", changed(_end_for_good)),
    "a new host goes on though it is to stop": ("STOP", instead(stimuli.Recovered, _recover_as_ever)),
    "a fork waits for what it has not begun": ("FORK", deaf(stimuli.Forked)),
    "deciding remembers": ("S38", instead(stimuli.Incoming, _remember_by_heart)),
    "something changes alongside the facts": ("S38", Machine(react=_beside_the_facts)),
    "replay counts otherwise": ("S38", evolving(facts.CallIntended, _by_identity)),
}
