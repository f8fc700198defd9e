"""Last words: what a session offers, what wakes it again, and what it takes of what it is owed."""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import ChildTroubled
from sessiontree.contracts.tree_facts import (
    ChannelSaid,
    PostsTaken,
    ResultHeld,
    SessionStirred,
    SessionTainted,
)
from sessiontree.tree.draft import Draft
from sessiontree.tree.ending import await_result, end, final_result, may_end_with, settle, source_of
from sessiontree.tree.stimuli import (
    PostsConsumed,
    ResultAsked,
    ResultOffered,
    SessionLost,
    Stirred,
    TaintReported,
    TroubleReported,
)


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
