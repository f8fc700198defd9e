"""How sessions end: by a final message, a stop or their time to live; and what their ends bring about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from sessiontree.contracts.jsonable import JsonValue, dump_readable, to_json_value
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import CancelAsked, ChildTroubled, Incoming, WorkInterrupted
from sessiontree.contracts.tree_facts import (
    BudgetSpent,
    CancelBegun,
    ChannelSaid,
    InterruptBegun,
    PostsTaken,
    ResultAwaited,
    ResultHeld,
    SessionEnded,
    SessionStirred,
    SessionTainted,
)
from sessiontree.tree.accounts import later, natural, payers_of
from sessiontree.tree.approvals import expire
from sessiontree.tree.closed_requests import cancel_client_calls, cancel_requests
from sessiontree.tree.instructions import ReleaseSession, WakeTreeAt
from sessiontree.tree.state import Session, TreeState
from sessiontree.tree.stimuli import (
    InterruptAsked,
    PostsConsumed,
    ResultAsked,
    ResultOffered,
    SessionLost,
    Stirred,
    StopAsked,
    TaintReported,
    TroubleReported,
)
from sessiontree.tree.timers import Alarm, AlarmKind
from sessiontree.tree.transaction import Draft

STOP_WORDS: dict[SessionStatus, Literal["completed", "cancelled", "expired", "failed"]] = {
    SessionStatus.COMPLETED: "completed",
    SessionStatus.CANCELLED: "cancelled",
    SessionStatus.EXPIRED: "expired",
    SessionStatus.FAILED: "failed",
}
"""How a session that was stopped will have ended, and the word it is told."""


def end(draft: Draft, session: Session, result: SessionResult[Any], *, forced: bool) -> None:
    """End a live session now, tell its parent, and stop what still lives below it."""
    spec = session.spec
    name = spec.session_id
    cancel_requests(draft, name, f"{name!r} has ended", tell_asker=False)
    cancel_client_calls(draft, name)
    draft.write(SessionEnded(name, result.status, result, draft.now_ms, forced))
    draft.tell(ReleaseSession(name, result, forced))
    if spec.parent is not None and spec.via == "model":
        _report(draft, session, result)
    orphans = draft.state.children.members(name)
    if orphans:
        begin_stop(draft, orphans, SessionStatus.CANCELLED, f"its parent {name!r} has ended")
    account = draft.state.accounts.get(name)
    if account is not None and account.above is not None:
        # What it spent beyond its budget is its parent's from now on, and may be too much there.
        over = [member for member, cap in account.caps.items() if account.used[member] > cap]
        stop_overdrawn(draft, account.above, over)
    if spec.parent is not None:
        settle(draft, spec.parent)


def settle(draft: Draft, session: str) -> None:
    """End a session, or the first living one above it, if what it waited for has come to its end."""
    for link in draft.state.chain(session):
        if link.is_live:
            if link.held is not None and may_end_with(draft.state, link, link.held.status, link.is_quiet):
                end(draft, link, final_result(link, link.held), forced=False)
            return


def may_end_with(state: TreeState, session: Session, status: SessionStatus, is_quiet: bool) -> bool:
    """Whether a session that says its last word ends by it at once."""
    if session.spec.kind is SessionKind.MAIN and session.stop is None:
        return status is not SessionStatus.COMPLETED
    is_kept = status is SessionStatus.COMPLETED and session.stop is None and state.is_kept_open(session)
    return not is_kept and _may_end(session, is_quiet=is_quiet)


def _may_end(session: Session, *, is_quiet: bool) -> bool:
    if session.stop is not None:
        return session.live_below == 0
    if session.spec.kind is SessionKind.MAIN:
        return False
    waits = session.pending + session.delegated > 0
    return is_quiet and session.live_below == 0 and session.owed == 0 and not waits


def final_result(session: Session, result: SessionResult[Any]) -> SessionResult[Any]:
    """Return the result a session ends with: one that was stopped ends as it was told to."""
    stop = session.stop
    if stop is None:
        return result
    is_finished = stop.status is SessionStatus.COMPLETED and stop.reason != ""
    return replace(result, status=stop.status, summary=stop.reason if is_finished else result.summary)


def begin_stop(draft: Draft, heads: Iterable[str], status: SessionStatus, reason: str) -> None:
    """Tell sessions and everything below them to stop; those that are stopping already go on doing so.

    Sessions that have said their last word are not asked for another: they end as soon as nothing lives
    below them. Those that only stayed open for the program end as completed.
    """
    heads = list(heads)
    _complete_kept(draft, heads)
    told = _not_stopping(draft, heads)
    _tell(draft, told, status, reason)
    _wrap_up(draft, told)


def finish(draft: Draft, head: str, last_word: str) -> None:
    """End a session as completed on its owner's behalf; what lives below it is cancelled first."""
    _complete_kept(draft, draft.state.children.members(head))
    told = _not_stopping(draft, [head])
    _tell(draft, told[:1], SessionStatus.COMPLETED, last_word)
    _tell(draft, told[1:], SessionStatus.CANCELLED, f"{head!r} is finished")
    _wrap_up(draft, told)


def await_result(draft: Draft, head: str) -> None:
    """Let a session complete, and what stayed open below it: the program waits for its result."""
    draft.write(ResultAwaited(head))
    for name in reversed(_not_stopping(draft, [head])):
        settle(draft, name)


def _complete_kept(draft: Draft, heads: Iterable[str]) -> None:
    for name in reversed(_not_stopping(draft, heads)):
        session = draft.state.live_session(name)
        if session is None or session.held is None or not draft.state.is_kept_open(session):
            continue
        if session.held.status is SessionStatus.COMPLETED and _may_end(session, is_quiet=session.is_quiet):
            end(draft, session, session.held, forced=False)


def stop_overdrawn(draft: Draft, account: str, members: Iterable[str]) -> None:
    """Stop the sessions of every account above or at ``account`` that reached its cap in these members."""
    accounts = draft.state.accounts
    for member in members:
        for payer in payers_of(accounts, account, member):
            paying = accounts[payer]
            used, cap = paying.used[member], paying.caps[member]
            owner = draft.state.live_session(payer)
            if used >= cap and owner is not None and owner.stop is None:
                stop_spent(draft, payer, member, natural(member, used), natural(member, cap))


def stop_spent(draft: Draft, account: str, member: str, used: float, allowed: float) -> None:
    """Stop the session of a used-up account and everything below it."""
    limit = f"budget.{member}"
    draft.write(BudgetSpent(account, limit, used, allowed))
    reason = f"{limit} of {account!r} is {allowed:g} and {used:g} is used up"
    begin_stop(draft, [account], SessionStatus.FAILED, reason)


def _tell(draft: Draft, told: Sequence[str], status: SessionStatus, reason: str) -> None:
    if not told:
        return
    force_at_ms = later(draft.now_ms, draft.state.limits.cancel_grace_s)
    draft.write(CancelBegun(tuple(told), reason, status, force_at_ms))
    draft.tell(WakeTreeAt(force_at_ms))
    word = STOP_WORDS[status]
    for name in told:
        cancel_requests(draft, name, f"{name!r} is stopping: {reason}", tell_asker=True)
        cancel_client_calls(draft, name)
        if draft.state.sessions[name].held is None:
            draft.post(name, lambda _: CancelAsked(draft.now_ms, reason, word))


def _wrap_up(draft: Draft, told: Sequence[str]) -> None:
    # Leaves first: one that has said its last word already ends now, and so may those above it.
    for name in reversed(told):
        settle(draft, name)


def _not_stopping(draft: Draft, heads: Iterable[str]) -> list[str]:
    # Below a session that is stopping or has ended, everything is stopping already.
    found: list[str] = []
    level: Sequence[str] = list(heads)
    while level:
        below: list[str] = []
        for name in level:
            session = draft.state.live_session(name)
            if session is not None and session.stop is None:
                found.append(name)
                below += draft.state.children.members(name)
        level = below
    return found


def _report(draft: Draft, child: Session, result: SessionResult[Any]) -> None:
    spec = child.spec
    parent = None if spec.parent is None else draft.state.live_session(spec.parent)
    if parent is None or (parent.stop is not None and parent.held is not None):
        return
    told: dict[str, JsonValue] = {
        "session": spec.session_id,
        "label": spec.label,
        "status": result.status.value,
        "summary": result.summary,
    }
    if result.output is not None:
        told["output"] = to_json_value(result.output)
    paths: list[JsonValue] = [artifact.path for artifact in result.artifacts if artifact.path is not None]
    if paths:
        told["artifacts"] = paths
    text = dump_readable(told)
    draft.post(
        parent.spec.session_id,
        lambda post_id: Incoming(
            draft.now_ms,
            post_id,
            text,
            mode="follow_up",
            origin="child",
            asked_by=spec.asked_by,
            taint=source_of(child),
        ),
    )


def source_of(child: Session) -> str:
    """Return what a parent takes in with a child's words, where that has taken in untrusted text."""
    return f"session {child.spec.session_id}" if child.taint else ""


def offer(draft: Draft, offered: ResultOffered) -> None:
    """End the session by its last word, or keep that word until nothing of its own is pending.

    Raises:
        ValueError: the result's status is not a final one.
    """
    result = offered.result
    if not result.status.is_final:
        raise ValueError(f"can't end session {offered.session!r} as {result.status}: that is no final state")
    session = draft.state.live_session(offered.session)
    if session is None:
        return
    if may_end_with(draft.state, session, result.status, offered.quiet):
        end(draft, session, final_result(session, result), forced=False)
    elif (session.held, session.is_quiet) != (result, offered.quiet):
        draft.write(ResultHeld(offered.session, result, offered.quiet))


def want_result(draft: Draft, asked: ResultAsked) -> None:
    """Let a session that stayed open for the program complete: its result is asked for."""
    session = draft.state.live_session(asked.session)
    if session is not None and session.spec.stays_open and not session.is_awaited:
        await_result(draft, asked.session)


def stir(draft: Draft, stirred: Stirred) -> None:
    """Withdraw the word a session had given, for it was given something new; a stop stands."""
    session = draft.state.live_session(stirred.session)
    if session is not None and session.held is not None and session.stop is None:
        draft.write(SessionStirred(stirred.session))


def lose(draft: Draft, lost: SessionLost) -> None:
    """End a session that cannot go on."""
    session = draft.state.live_session(lost.session)
    if session is not None:
        summary = f"session {lost.session!r} crashed: {lost.reason}"
        result: SessionResult[Any] = SessionResult(SessionStatus.FAILED, summary, usage=session.usage)
        end(draft, session, result, forced=True)


def take(draft: Draft, consumed: PostsConsumed) -> None:
    """Strike out what a session took; ids that are not owed to it are passed over."""
    posts = draft.state.posts
    taken = []
    for post_id in dict.fromkeys(consumed.post_ids):
        post = posts.get(post_id)
        if post is not None and post.session == consumed.session:
            taken.append(post_id)
    if taken:
        draft.write(PostsTaken(consumed.session, tuple(taken)))
        settle(draft, consumed.session)


def taint(draft: Draft, reported: TaintReported) -> None:
    """Note that a session has taken in untrusted text; the first that is said of it stands."""
    session = draft.state.live_session(reported.session)
    if session is not None and not session.taint:
        draft.write(SessionTainted(reported.session, reported.source))


def report_trouble(draft: Draft, reported: TroubleReported) -> None:
    """Tell a session's parent that the session's model gave a tool up; for Main, its channel."""
    session = draft.state.live_session(reported.session)
    if session is None:
        return
    if session.spec.parent is None:
        if session.spec.owns_channel:
            draft.write(ChannelSaid(reported.session, reported.session, _words(reported), draft.now_ms))
        return
    draft.post(
        session.spec.parent,
        lambda post_id: ChildTroubled(
            draft.now_ms,
            post_id,
            reported.session,
            reported.tool,
            reported.attempts,
            reported.field,
            reported.message,
            source_of(session),
        ),
    )


def _words(reported: TroubleReported) -> str:
    where = f" at {reported.field}" if reported.field else ""
    return (
        f"The model could not call {reported.tool} in {reported.attempts} attempts{where}: "
        f"{reported.message}. It goes on without that tool until the next message."
    )


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
