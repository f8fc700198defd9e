"""What the tree machine decides on each stimulus: the facts it writes and the instructions that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessiontree.contracts.tree_facts import (
    ClientCallEnded,
    ClientCallOpened,
    LeftoversEnded,
    OutsideHookFailed,
    SessionStirred,
    TreeFact,
)
from sessiontree.tree.approvals import ask, hear_function, hear_person
from sessiontree.tree.budgets import charge
from sessiontree.tree.channel import say
from sessiontree.tree.closed_requests import CANCELLED
from sessiontree.tree.evolve import evolve
from sessiontree.tree.instructions import TreeInstruction, WakeTreeAt
from sessiontree.tree.lifecycle import (
    interrupt,
    lose,
    offer,
    report_trouble,
    ring,
    stir,
    stop,
    taint,
    take,
    want_result,
)
from sessiontree.tree.spawn import adopt, open_tree, spawn
from sessiontree.tree.state import TreeState
from sessiontree.tree.stimuli import (
    ApprovalAsked,
    ApproverReturned,
    ClientCallDelegated,
    ClientCallWithdrawn,
    ClockRang,
    Decided,
    HookFailedOutside,
    InterruptAsked,
    LeftoversFound,
    PostsConsumed,
    ResultAsked,
    ResultOffered,
    SayAsked,
    SessionEmbodied,
    SessionLost,
    SpawnAsked,
    Stirred,
    StopAsked,
    TaintReported,
    TreeOpened,
    TreeStimulus,
    TroubleReported,
    UsageReported,
)
from sessiontree.tree.transaction import Draft


def delegate(draft: Draft, delegated: ClientCallDelegated) -> None:
    """Owe a live session's call to the program; one whose id is known changes nothing."""
    state = draft.state
    name = delegated.client_id
    session = state.live_session(delegated.session)
    if session is None or name in state.client_calls or name in state.client_ends:
        return
    draft.write(
        ClientCallOpened(
            name, delegated.session, delegated.tool, delegated.arguments, delegated.expires_at_ms
        )
    )
    if session.stop is not None:
        draft.write(ClientCallEnded(name, CANCELLED, ""))


def withdraw(draft: Draft, withdrawn: ClientCallWithdrawn) -> None:
    """Owe a call no more; its session goes on, so that a last word it had given counts no more."""
    state = draft.state
    call = state.client_calls.get(withdrawn.client_id)
    if call is None:
        return
    draft.write(ClientCallEnded(withdrawn.client_id, withdrawn.how, withdrawn.answer_id))
    session = state.live_session(call.session)
    if session is not None and session.held is not None and session.stop is None:
        draft.write(SessionStirred(call.session))


def decide(state: TreeState, stimulus: TreeStimulus) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Return what a stimulus leads to.

    The tree's time is the latest of all it has seen. Whatever is due by then happens first, so that a
    stimulus which comes too late finds it done. Stimuli may come in any order and more than once.

    Returns:
        Facts in the order they are to be booked, and instructions in the order they are to be carried
        out once the facts are durable. Nothing that was decided depends on an instruction succeeding.

    Raises:
        ConfigError: a tree is opened without an agent.
        ValueError: a result or stop carries a status no session can end in.

    Contract: pure; never changes the state. Costs what the facts cost, not what the tree holds.
    """
    draft = Draft(state, stimulus.at_ms)
    for alarm in state.alarms.due(draft.now_ms):
        ring(draft, alarm)
    _RULES[type(stimulus)](draft, stimulus)
    if isinstance(stimulus, ClockRang):
        # A bell may ring early when clocks step back; the next time is asked for again at every one.
        next_ms = state.alarms.next_after(draft.now_ms)
        if next_ms is not None:
            draft.tell(WakeTreeAt(next_ms))
    return draft.facts, draft.instructions()


def react(state: TreeState, stimulus: TreeStimulus) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Decide on a stimulus and book its facts into the state, which is changed in place."""
    facts, instructions = decide(state, stimulus)
    for fact in facts:
        evolve(state, fact)
    return facts, instructions


def _only_time(_draft: Draft, _rang: ClockRang) -> None:
    """What a bell leads to is what is due."""


def _note_hook(draft: Draft, failed: HookFailedOutside) -> None:
    draft.write(OutsideHookFailed(failed.session, failed.hook, failed.point, failed.reason))


def _note_leftovers(draft: Draft, found: LeftoversFound) -> None:
    if found.session in draft.state.sessions and found.count > 0:
        draft.write(LeftoversEnded(found.session, found.count))


_RULES: Mapping[type[Any], Callable[[Draft, Any], None]] = {
    TreeOpened: open_tree,
    SpawnAsked: spawn,
    SessionEmbodied: adopt,
    Stirred: stir,
    ResultAsked: want_result,
    ResultOffered: offer,
    SessionLost: lose,
    ApprovalAsked: ask,
    ApproverReturned: hear_function,
    Decided: hear_person,
    ClientCallDelegated: delegate,
    ClientCallWithdrawn: withdraw,
    TroubleReported: report_trouble,
    TaintReported: taint,
    UsageReported: charge,
    PostsConsumed: take,
    StopAsked: stop,
    InterruptAsked: interrupt,
    SayAsked: say,
    HookFailedOutside: _note_hook,
    LeftoversFound: _note_leftovers,
    ClockRang: _only_time,
}
