"""How sessions end: leaves before what is above them, and nothing of theirs stays pending.

Ending one session may end its parent, and stopping one stops everything below it; the rules for both
therefore stand in one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from sessiontree.contracts.jsonable import JsonValue, dump_readable, to_json_value
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import CancelAsked, Incoming
from sessiontree.contracts.tree_facts import BudgetSpent, CancelBegun, ResultAwaited, SessionEnded
from sessiontree.tree.accounts import later, natural, payers_of
from sessiontree.tree.closing import cancel_client_calls, cancel_requests
from sessiontree.tree.draft import Draft
from sessiontree.tree.instructions import ReleaseSession, WakeAt
from sessiontree.tree.state import Session, TreeState

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
    draft.tell(WakeAt(force_at_ms))
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
