"""How sessions end: by a final message, a stop or their time to live; and the consequences of each end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.facts.session_facts import ToolGivenUp
from sessiontree.contracts.facts.stimuli import (
    CancelAsked,
    ChildTroubled,
    Incoming,
    ResultOffered,
    WorkInterrupted,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.facts.tree_facts import (
    BudgetSpent,
    CancelBegun,
    ChannelSaid,
    InterruptBegun,
    PostsTaken,
    ResultAwaited,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
    SessionTainted,
    UsageCharged,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.results import ResultCause, SessionResult
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable, to_json_value
from sessiontree.contracts.values.messages import NOTHING_USED, Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.policy.closed_result import OpenResult, derive_closed_form
from sessiontree.schema.result import compile_result, extract_text_around
from sessiontree.tree.rules.approvals import cancel_client_calls, cancel_requests, expire
from sessiontree.tree.state.budgets import add_seconds, convert_usage, find_payers, to_budget_units
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import (
    FromSession,
    InterruptAsked,
    PostsConsumed,
    RefuseStop,
    ReleaseSession,
    ResultAsked,
    SessionLost,
    Stirred,
    StopAsked,
    UsageReported,
    WakeTreeAt,
)
from sessiontree.tree.state.reach import find_session_below, make_not_below_error
from sessiontree.tree.state.state import Alarm, AlarmKind, Session, TreeState

STOP_WORDS: dict[SessionStatus, Literal["completed", "cancelled", "expired", "failed"]] = {
    SessionStatus.COMPLETED: "completed",
    SessionStatus.CANCELLED: "cancelled",
    SessionStatus.EXPIRED: "expired",
    SessionStatus.FAILED: "failed",
}
"""The word for each status that a stopped session can end with."""
_UNREPORTED = ("it ended before it could report; its last calls may have run",)
"""What a session gave up that was ended by force or lost."""


def end(draft: Draft, session: Session, result: SessionResult[Any], *, forced: bool) -> None:
    """End a live session now, inform its parent, and stop the live sessions below it."""
    spec = session.spec
    name = spec.session_id
    cancel_requests(draft, name, f"{name!r} has ended", tell_asker=False)
    cancel_client_calls(draft, name)
    draft.write(SessionEnded(name, result.status, result, draft.now_ms, forced))
    draft.tell(ReleaseSession(name, result, forced))
    if spec.parent is not None and (spec.via == "model" or draft.state.job_runs.get(spec.key or "")):
        _report(draft, session, result)
    orphans = draft.state.children.list_members(name)
    if orphans:
        begin_stop(draft, orphans, SessionStatus.CANCELLED, f"its parent {name!r} has ended")
    account = draft.state.accounts.get(name)
    # SessionEnded closed the account, which moved what it overdrew to the account above.
    if account is not None and account.above is not None:
        # Its parent now pays for what it spent beyond its budget, which may exceed the parent's budget.
        over = [member for member, cap in account.caps.items() if account.used[member] > cap]
        stop_overdrawn(draft, account.above, over)
    if spec.parent is not None:
        settle(draft, spec.parent)


def settle(draft: Draft, session: str) -> None:
    """End a session, or the first live one above it, if everything it waited for has ended."""
    for link in draft.state.list_chain(session):
        if link.is_live:
            if link.held is not None and may_end_with(draft.state, link, link.held.status, link.is_quiet):
                end(draft, link, make_final_result(link, link.held), forced=False)
            return


def may_end_with(state: TreeState, session: Session, status: SessionStatus, is_quiet: bool) -> bool:
    """Whether a session's final message ends it at once."""
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


def make_final_result(session: Session, result: SessionResult[Any]) -> SessionResult[Any]:
    """Return the result a session ends with; a stopped session ends with the status it was asked for."""
    stop = session.stop
    if stop is None:
        return result
    is_finished = stop.status is SessionStatus.COMPLETED and stop.reason != ""
    said = stop.reason if is_finished else result.summary
    return replace(result, status=stop.status, summary=said, cause=result.cause or stop.cause)


def begin_stop(
    draft: Draft, heads: Iterable[str], status: SessionStatus, reason: str, cause: ResultCause = ""
) -> None:
    """Stop sessions and everything below them; a session that is already stopping continues to stop.

    A session that has already given its final message is not asked for another. It ends as soon as no live
    session remains below it. A session that only stayed open for the program ends as completed.
    """
    heads = list(heads)
    _complete_kept(draft, heads)
    told = _find_not_stopping(draft, heads)
    _tell(draft, told, status, reason, cause)
    _wrap_up(draft, told)


def withdraw_child(draft: Draft, parent: str, key: str, reason: str) -> None:
    """Cancel the child that a session started under a key, if it was started and is live."""
    child = draft.state.keys.get((parent, key))
    if child is not None and draft.state.find_live_session(child) is not None:
        begin_stop(draft, [child], SessionStatus.CANCELLED, reason)


def finish(draft: Draft, head: str, last_word: str) -> None:
    """End a session as completed on behalf of its owner; the live sessions below it are cancelled first."""
    _complete_kept(draft, draft.state.children.list_members(head))
    told = _find_not_stopping(draft, [head])
    _tell(draft, told[:1], SessionStatus.COMPLETED, last_word)
    _tell(draft, told[1:], SessionStatus.CANCELLED, f"{head!r} is finished")
    _wrap_up(draft, told)


def await_result(draft: Draft, head: str) -> None:
    """Let a session complete, and the open sessions below it too: the program waits for its result."""
    draft.write(ResultAwaited(head))
    for name in reversed(_find_not_stopping(draft, [head])):
        settle(draft, name)


def _complete_kept(draft: Draft, heads: Iterable[str]) -> None:
    for name in reversed(_find_not_stopping(draft, heads)):
        session = draft.state.find_live_session(name)
        if session is None or session.held is None or not draft.state.is_kept_open(session):
            continue
        if session.held.status is SessionStatus.COMPLETED and _may_end(session, is_quiet=session.is_quiet):
            end(draft, session, session.held, forced=False)


def charge(draft: Draft, reported: UsageReported) -> None:
    """Charge a session's usage, even after its end. If a cap is reached, stop the sessions that use it."""
    session = draft.state.sessions.get(reported.session)
    usage = correct_usage(reported.usage)
    if session is None or usage == NOTHING_USED:
        return
    draft.write(UsageCharged(reported.session, session.account, usage))
    stop_overdrawn(draft, session.account, convert_usage(usage))


def stop_overdrawn(draft: Draft, account: str, members: Iterable[str]) -> None:
    """Stop the sessions of ``account`` and of the accounts above it that reached a cap in these members."""
    accounts = draft.state.accounts
    for member in members:
        for payer in find_payers(accounts, account, member):
            paying = accounts[payer]
            used, cap = paying.used[member], paying.caps[member]
            owner = draft.state.find_live_session(payer)
            if used >= cap and owner is not None and owner.stop is None:
                stop_spent(draft, payer, member, to_budget_units(member, used), to_budget_units(member, cap))


def correct_usage(usage: Usage) -> Usage:
    """Return a usage in which no amount is negative and the cost is finite."""
    # A provider that reports nonsense must neither return budget nor corrupt the record.
    cost_usd = usage.cost_usd
    return Usage(
        max(0, usage.input_tokens),
        max(0, usage.output_tokens),
        cost_usd if math.isfinite(cost_usd) and cost_usd > 0 else 0.0,
        max(0, usage.turns),
        max(0, usage.tool_calls),
        max(0, usage.cache_read_tokens),
        max(0, usage.cache_write_tokens),
        max(0, usage.reasoning_tokens),
        max(0, usage.unpriced_tokens),
    )


def stop_spent(draft: Draft, account: str, member: str, used: float, allowed: float) -> None:
    """Stop the session of a used-up account and everything below it."""
    limit = f"budget.{member}"
    draft.write(BudgetSpent(account, limit, used, allowed))
    reason = f"{limit} of {account!r} is {allowed:g} and {used:g} is used up"
    begin_stop(draft, [account], SessionStatus.FAILED, reason, "budget")


def _tell(
    draft: Draft, told: Sequence[str], status: SessionStatus, reason: str, cause: ResultCause = ""
) -> None:
    if not told:
        return
    force_at_ms = add_seconds(draft.now_ms, draft.state.limits.cancel_grace_s)
    draft.write(CancelBegun(tuple(told), reason, status, force_at_ms, cause))
    draft.tell(WakeTreeAt(force_at_ms))
    word = STOP_WORDS[status]
    for name in told:
        cancel_requests(draft, name, f"{name!r} is stopping: {reason}", tell_asker=True)
        cancel_client_calls(draft, name)
        # A session that has given its final message is not woken to stop: it ends when nothing lives below
        # it.
        if draft.state.sessions[name].held is None:
            draft.post(name, lambda _: CancelAsked(draft.now_ms, reason, word))


def _wrap_up(draft: Draft, told: Sequence[str]) -> None:
    # Leaves first: one that has already given its final message ends now, and so may those above it.
    for name in reversed(told):
        settle(draft, name)


def _find_not_stopping(draft: Draft, heads: Iterable[str]) -> list[str]:
    # Everything below a stopping or ended session is already stopping.
    found: list[str] = []
    level: Sequence[str] = list(heads)
    while level:
        below: list[str] = []
        for name in level:
            session = draft.state.find_live_session(name)
            if session is not None and session.stop is None:
                found.append(name)
                below += draft.state.children.list_members(name)
        level = below
    return found


def _report(draft: Draft, child: Session, result: SessionResult[Any]) -> None:
    spec = child.spec
    parent = None if spec.parent is None else draft.state.find_live_session(spec.parent)
    # A stopping parent that has given its final message takes in nothing more.
    if parent is None or (parent.stop is not None and parent.held is not None):
        return
    told: dict[str, JsonValue] = {
        "session": spec.session_id,
        "label": spec.label,
        "status": result.status.value,
    }
    if result.cause:
        told["cause"] = result.cause
    closed = extract_closed_output(spec, result) if child.taint else None
    if closed is None:
        _add_words(told, result)
    else:
        told["output"] = closed.value
    text = dump_readable(told)
    taint = find_taint_source(child) if closed is None else ""
    joins = _must_join(parent, child, result)
    draft.post(
        parent.spec.session_id,
        lambda post_id: Incoming(
            draft.now_ms,
            post_id,
            text,
            mode="follow_up",
            origin="child",
            asked_by=spec.asked_by,
            taint=taint,
            joins=joins,
            answers=spec.key or "",
        ),
    )


def _add_words(told: dict[str, JsonValue], result: SessionResult[Any]) -> None:
    """Add all that a child gave: its value, the text around it, files and what it gave up."""
    output = None if result.output is None else to_json_value(result.output)
    words = result.summary if output is None else extract_text_around(result.summary, output)
    if words or output is None:
        told["summary"] = words
    if output is not None:
        told["output"] = output
    paths: list[JsonValue] = [artifact.path for artifact in result.artifacts if artifact.path is not None]
    if paths:
        told["artifacts"] = paths
    if result.given_up:
        told["given_up"] = list(result.given_up)


def _must_join(parent: Session, child: Session, result: SessionResult[Any]) -> bool:
    """Whether a child's result waits for those of the children that its parent started in the same run.

    The last of them starts the parent's next turn, and so does whatever else reaches the parent meanwhile.
    """
    wait = child.spec.wait
    if wait == "each" or parent.reporting.get(child.joined, 0) == 0:
        return False
    owes_more = parent.pending + parent.delegated > 0 or result.status is not SessionStatus.COMPLETED
    return wait == "all" or not owes_more


@dataclass(frozen=True, slots=True)
class ClosedOutput:
    """A child's value that was built again from the form of its schema."""

    value: JsonValue


def extract_closed_output(spec: SessionSpec, result: SessionResult[Any]) -> ClosedOutput | None:
    """Return the value of a Worker's result that holds no free text; None = the result taints as any other.

    The host that sent the result is not trusted here: the value is checked against the schema once more, and
    built again from its form. A result with files or notes of what was given up is text, as is an error.
    """
    is_plain = result.status is SessionStatus.COMPLETED and not (result.artifacts or result.given_up)
    if spec.kind is not SessionKind.WORKER or spec.result_schema is None or not is_plain:
        return None
    try:
        checked = compile_result(spec.result_schema)
        form = derive_closed_form(checked.schema)
        if isinstance(form, OpenResult):
            return None
        # Built again and not passed on: a value that only passed the check may hold more than the form names.
        return ClosedOutput(form.rebuild(checked.validate(to_json_value(result.output))))
    except (ValueError, ConfigError, ValidationError):
        return None


def find_taint_source(child: Session) -> str:
    """Return the taint source that a parent takes over with a child's message; empty for a clean child."""
    return f"session {child.spec.session_id}" if child.taint else ""


def offer(draft: Draft, stimulus: FromSession, offered: ResultOffered) -> None:
    """End the session with its final message, or keep the message until nothing of its own is pending.

    Raises:
        ValueError: the result's status is not a final one.
    """
    name, result = stimulus.session, offered.result
    book = draft.state.visions.get(name)
    if book is not None:  # the session itself counts what its own model and its calls used
        result = replace(result, usage=result.usage + book.usage)
    quiet = stimulus.quiet and not offered.stays
    if not result.status.is_final:
        raise ValueError(f"can't end session {name!r} as {result.status}: that is not a final state")
    session = draft.state.find_live_session(name)
    if session is None:
        return
    if may_end_with(draft.state, session, result.status, quiet):
        end(draft, session, make_final_result(session, result), forced=False)
    # A host repeats its offer after a crash; an equal one must not make the journal grow.
    elif (session.held, session.is_quiet) != (result, quiet):
        draft.write(ResultHeld(name, result, quiet))


def want_result(draft: Draft, asked: ResultAsked) -> None:
    """Let a session that stayed open for the program complete: its result is requested."""
    session = draft.state.find_live_session(asked.session)
    if session is not None and session.spec.stays_open and not session.is_awaited:
        await_result(draft, asked.session)


def stir(draft: Draft, stirred: Stirred) -> None:
    """Withdraw the final message a session offered, because it has new input; a stop stays in force."""
    session = draft.state.find_live_session(stirred.session)
    if session is not None and session.held is not None and session.stop is None:
        draft.write(SessionReactivated(stirred.session))


def lose(draft: Draft, lost: SessionLost) -> None:
    """End a session that cannot continue."""
    session = draft.state.find_live_session(lost.session)
    if session is not None:
        # Nobody is left to report, so the result is made of what the tree itself knows.
        summary = f"session {lost.session!r} crashed: {lost.reason}"
        result: SessionResult[Any] = SessionResult(
            SessionStatus.FAILED, summary, usage=session.usage, given_up=_UNREPORTED, cause="lost"
        )
        end(draft, session, result, forced=True)


def take(draft: Draft, consumed: PostsConsumed) -> None:
    """Remove the posts that a session took; ids that are not posted to it are ignored."""
    posts = draft.state.posts
    taken = []
    # What a session is owed is a number, so a post that is named twice may count only once.
    for post_id in dict.fromkeys(consumed.post_ids):
        post = posts.get(post_id)
        if post is not None and post.session == consumed.session:
            taken.append(post_id)
    if taken:
        draft.write(PostsTaken(consumed.session, tuple(taken)))
        settle(draft, consumed.session)


def taint(draft: Draft, name: str, source: str) -> None:
    """Record that a session has taken in untrusted text; the first reported source is kept."""
    session = draft.state.find_live_session(name)
    if session is not None and not session.taint:
        draft.write(SessionTainted(name, source))


def report_trouble(draft: Draft, name: str, trouble: ToolGivenUp) -> None:
    """Tell a session's parent that the session's model gave up a tool; for Main, tell its channel."""
    session = draft.state.find_live_session(name)
    if session is None:
        return
    if session.spec.parent is None:
        if session.spec.owns_channel:
            draft.write(ChannelSaid(name, name, _describe_trouble(trouble), draft.now_ms))
        return
    draft.post(
        session.spec.parent,
        lambda post_id: ChildTroubled(draft.now_ms, post_id, name, trouble, find_taint_source(session)),
    )


def _describe_trouble(trouble: ToolGivenUp) -> str:
    where = f" at {trouble.field}" if trouble.field else ""
    return (
        f"The model could not call {trouble.tool} in {trouble.attempts} attempts{where}: "
        f"{trouble.reason}. It continues without that tool until the next message."
    )


def stop(draft: Draft, asked: StopAsked) -> None:
    """Stop a session and everything below it; a session that has ended or is stopping does not change.

    A session that asks reaches only the sessions below it.

    Raises:
        ValueError: the status is not a final one.
    """
    if asked.status not in STOP_WORDS:
        raise ValueError(f"can't stop session {asked.session!r} as {asked.status}: that is not a final state")
    name = asked.session
    if asked.by is not None:
        found = find_session_below(draft.state, asked.by, name)
        if found is None:
            draft.tell(RefuseStop(make_not_below_error(name)))
            return
        name = found.spec.session_id
    if asked.status is SessionStatus.COMPLETED:
        finish(draft, name, asked.reason)
    else:
        begin_stop(draft, [name], asked.status, asked.reason)


def interrupt(draft: Draft, asked: InterruptAsked) -> None:
    """Interrupt a session and everything below it: it drops its current work and stays alive.

    Sessions below that the creating program spawned are interrupted in the same way. Sessions that a model or
    a timed job spawned are stopped: their run is over, and no other caller talks to them. A session that is
    already stopping continues to stop. A session that has given its final message and waits for nothing has
    no work to drop.
    """
    kept: list[str] = []
    over: list[str] = []
    level = [asked.session]
    while level:
        below: list[str] = []
        for name in level:
            session = draft.state.find_live_session(name)
            if session is None or session.stop is not None:
                continue
            if session.spec.via in {"model", "cron"} and name != asked.session:
                over.append(name)
            elif not _is_at_rest(session):
                kept.append(name)
                below += draft.state.children.list_members(name)
        level = below
    if not kept:
        return
    draft.write(InterruptBegun(tuple(kept), asked.reason))
    for name in kept:
        # First, so that the end of a request does not begin another turn.
        draft.post(name, lambda post_id: WorkInterrupted(draft.now_ms, post_id, asked.reason))
        cancel_requests(draft, name, f"{name!r} was interrupted: {asked.reason}", tell_asker=True)
        cancel_client_calls(draft, name)
    begin_stop(draft, over, SessionStatus.CANCELLED, f"{asked.session!r} was interrupted: {asked.reason}")


def _is_at_rest(session: Session) -> bool:
    # Main may hold a final message while it already processes the next message.
    waits = session.live_below + session.owed + session.pending + session.delegated > 0
    return session.held is not None and not waits and session.spec.kind is not SessionKind.MAIN


def ring(draft: Draft, alarm: Alarm) -> None:
    """Carry out an alarm if it is still valid."""
    if not draft.state.is_still_valid(alarm):
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
    # Alarms of one time ring from the leaves up; a session is never asked to stop later than those above it.
    session = draft.state.sessions[name]
    if session.stop is not None:
        grace_s = draft.state.limits.cancel_grace_s
        summary = f"ended after {grace_s:g} s without wrapping up: {session.stop.reason}"
        result: SessionResult[Any] = SessionResult(
            session.stop.status, summary, usage=session.usage, given_up=_UNREPORTED
        )
        end(draft, session, make_final_result(session, result), forced=True)
