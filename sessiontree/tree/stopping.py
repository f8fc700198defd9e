"""Stops and interrupts somebody asked for, and stops that time brings."""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import WorkInterrupted
from sessiontree.contracts.tree_facts import InterruptBegun
from sessiontree.tree.alarms import Alarm, AlarmKind
from sessiontree.tree.approvals import expire
from sessiontree.tree.closing import cancel_client_calls, cancel_requests
from sessiontree.tree.draft import Draft
from sessiontree.tree.ending import STOP_WORDS, begin_stop, end, final_result, finish, stop_spent
from sessiontree.tree.state import Session
from sessiontree.tree.stimuli import InterruptAsked, StopAsked


def stop(draft: Draft, asked: StopAsked) -> None:
    """Tell a session and everything below it to stop; one that has ended, or is stopping, is left alone.

    Raises:
        ValueError: the status is not a final one.
    """
    if asked.status not in STOP_WORDS:
        raise ValueError(f"can't stop session {asked.session!r} as {asked.status}: that is no final state")
    if asked.status is SessionStatus.COMPLETED:
        finish(draft, asked.session, asked.reason)
    else:
        begin_stop(draft, [asked.session], asked.status, asked.reason)


def interrupt(draft: Draft, asked: InterruptAsked) -> None:
    """Tell a session to drop what it does and to live on, and reach everything below it.

    What the creating program spawned below is told the same. What a model spawned works for a run that is
    over now, and nobody else speaks with it: it is told to stop. One that stops already goes on stopping, and
    one that has said its last word and waits for nothing has nothing to drop.
    """
    kept: list[str] = []
    over: list[str] = []
    level = [asked.session]
    while level:
        below: list[str] = []
        for name in level:
            session = draft.state.live_session(name)
            if session is None or session.stop is not None:
                continue
            if session.spec.via == "model" and name != asked.session:
                over.append(name)
            elif not _rests(session):
                kept.append(name)
                below += draft.state.children.members(name)
        level = below
    if not kept:
        return
    draft.write(InterruptBegun(tuple(kept), asked.reason))
    for name in kept:
        # First, so that no request's end begins another turn.
        draft.post(name, lambda post_id: WorkInterrupted(draft.now_ms, post_id, asked.reason))
        cancel_requests(draft, name, f"{name!r} was interrupted: {asked.reason}", tell_asker=True)
        cancel_client_calls(draft, name)
    begin_stop(draft, over, SessionStatus.CANCELLED, f"{asked.session!r} was interrupted: {asked.reason}")


def _rests(session: Session) -> bool:
    # Main's word may stand while it already hears the next message.
    waits = session.live_below + session.owed + session.pending + session.delegated > 0
    return session.held is not None and not waits and session.spec.kind is not SessionKind.MAIN


def ring(draft: Draft, alarm: Alarm) -> None:
    """Do what an alarm was set for, if it still means something."""
    if not draft.state.still_means(alarm):
        return
    if alarm.kind is AlarmKind.APPROVAL:
        expire(draft, alarm.ident)
    elif alarm.kind is AlarmKind.LIFE:
        begin_stop(
            draft, [alarm.ident], SessionStatus.EXPIRED, f"the time to live of {alarm.ident!r} is over"
        )
    elif alarm.kind is AlarmKind.WALL:
        _stop_at_wall(draft, alarm.ident)
    else:
        _force(draft, alarm.ident)


def _stop_at_wall(draft: Draft, name: str) -> None:
    session = draft.state.sessions[name]
    budget = session.spec.budget
    if budget is not None and budget.wall_s is not None:
        used_s = (draft.now_ms - session.spawned_at_ms) / 1000
        stop_spent(draft, name, "wall_s", used_s, budget.wall_s)


def _force(draft: Draft, name: str) -> None:
    # Alarms of one time ring from the leaves up, and nobody below was told later than who is above.
    session = draft.state.sessions[name]
    if session.stop is not None:
        grace_s = draft.state.limits.cancel_grace_s
        summary = f"ended after {grace_s:g} s without wrapping up: {session.stop.reason}"
        result: SessionResult[Any] = SessionResult(session.stop.status, summary, usage=session.usage)
        end(draft, session, final_result(session, result), forced=True)
