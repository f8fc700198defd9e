"""Reports on a tree's state: receipts, requests as people see them, and what is left after a restart."""

from __future__ import annotations

from typing import NamedTuple

from sessiontree.contracts.errors import SessionNotFound
from sessiontree.contracts.kinds import PermissionTier, SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.recorded.client_calls import read_question
from sessiontree.contracts.recorded.questions import QuestionRequest
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.protocol import Deliver, ReleaseSession, TreeInstruction, WakeTreeAt, WatchJobs
from sessiontree.tree.state.reach import walk_below
from sessiontree.tree.state.state import TreeState


class ReceiptLine(NamedTuple):
    """The state of one session."""

    session_id: str
    kind: SessionKind
    status: SessionStatus
    forced: bool
    """Whether it was ended before it could wrap up."""
    summary: str
    """Its final message; empty while it is live."""
    leftovers: int = 0
    """Number of processes its tools left running, which were ended when it left its host."""
    usage: Usage = Usage()
    """Its own usage; the usage of its children is in their lines."""
    agent: str = ""
    """The agent that it ran as."""
    model: str = ""
    """Name of its agent's model."""


def build_receipt(state: TreeState, session: str) -> tuple[ReceiptLine, ...]:
    """Return the state of a session and of every descendant it ever had.

    Returns:
        One line per session in path order: parents before their children, Branches before Workers, by number.

    Raises:
        SessionNotFound: the session does not exist.
    """
    if session not in state.sessions:
        raise SessionNotFound(session, "no session of that path exists in this tree")
    models = {row.name: row.model for row in state.charter.agents}
    lines = []
    for found in (state.sessions[session], *walk_below(state, session)):
        summary = "" if found.result is None else found.result.summary
        spec, how = found.spec, (found.spec.kind, found.status, found.was_forced)
        ran = (spec.agent, models.get(spec.agent, ""))
        lines.append(ReceiptLine(spec.session_id, *how, summary, found.leftovers, found.usage, *ran))
    return tuple(lines)


def show_request(state: TreeState, request_id: str) -> ApprovalRequest | None:
    """Return an open request as it is shown to people, or None if it is not shown."""
    request = state.requests.get(request_id)
    if request is None or request.how != "show" or request.rests_at is None:
        return None
    question, call = request.question, request.question.call
    return ApprovalRequest(
        request_id=request_id,
        session_id=question.session,
        tool=call.tool,
        arguments=call.arguments,
        digest=call.digest,
        tier=PermissionTier(call.tier).label,
        expires_at_ms=request.expires_at_ms,
        asked=request.rests_at,
        covers=None if request.precedent is None else request.precedent.shapes,
        asked_by=question.asked_by,
        opens="" if request.precedent is None else request.precedent.opens,
    )


def find_question(state: TreeState, question_id: str) -> QuestionRequest | None:
    """Return a question that waits for a person as it is shown, or None if it does not wait."""
    call = state.client_calls.get(question_id)
    return None if call is None else read_question(call)


def collect_owed(state: TreeState) -> list[TreeInstruction]:
    """Return every instruction that may not have been carried out although its facts are durable.

    Returns:
        First the ends of sessions, leaves before the sessions above them, so that no session waits for one
        that is over; then everything that live sessions have not taken, in the order it was posted; last one
        timer for every time at which something is due, earliest first, and one for all timed jobs. All of
        them are harmless when repeated. Whoever shows requests to people reads them from the facts.
    """
    instructions: list[TreeInstruction] = []
    ended = [
        (session.spec.session_id, session.result, session.was_forced)
        for session in state.sessions.values()
        if session.result is not None
    ]
    # Sessions are kept in the order of their spawns, so the reverse has leaves before those above them.
    instructions += [ReleaseSession(name, result, forced) for name, result, forced in reversed(ended)]
    instructions += [Deliver(post.session, post_id, post.mail) for post_id, post in state.posts.items()]
    bells = {alarm.at_ms for alarm in state.alarms if state.is_still_valid(alarm)}
    instructions += [WakeTreeAt(at_ms) for at_ms in sorted(bells)]
    if any(state.jobs.values()):
        instructions.append(WatchJobs())
    return instructions
