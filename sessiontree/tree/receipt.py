"""Accounts of a tree for people and programs: who ended how, and what waits for an approval."""

from __future__ import annotations

from typing import NamedTuple

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.errors import SessionNotFound
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.usage import Usage
from sessiontree.tree.state import TreeState


class ReceiptLine(NamedTuple):
    """How one session stands."""

    session_id: str
    kind: SessionKind
    status: SessionStatus
    forced: bool
    """Whether it ended without its own wrap-up."""
    summary: str
    """Its last words; empty while it lives."""
    leftovers: int = 0
    """Processes that its tools left running and that were ended when it left its host."""
    usage: Usage = Usage()
    """What it used itself; its children's use is in their lines."""


def receipt(state: TreeState, session: str) -> tuple[ReceiptLine, ...]:
    """Return a session and every descendant it ever had.

    Returns:
        One line each in path order: parents before their children, Branches before Workers, by number.

    Raises:
        SessionNotFound: there is no such session.
    """
    if session not in state.sessions:
        raise SessionNotFound(session, "no session of that path exists in this tree")
    lines = []
    ahead = [session]
    while ahead:
        name = ahead.pop()
        found = state.sessions[name]
        summary = "" if found.result is None else found.result.summary
        how = (found.spec.kind, found.status, found.was_forced)
        lines.append(ReceiptLine(name, *how, summary, found.leftovers, found.usage))
        ahead += [f"{name}/w{number}" for number in range(found.workers, 0, -1)]
        ahead += [f"{name}/b{number}" for number in range(found.branches, 0, -1)]
    return tuple(lines)


def request_of(state: TreeState, request_id: str) -> ApprovalRequest | None:
    """Return an open request as it is to be shown, None where nobody is shown it."""
    request = state.requests.get(request_id)
    if request is None or request.how != "show" or request.rests_at is None:
        return None
    return ApprovalRequest(
        request_id=request.request_id,
        session_id=request.session,
        tool=request.tool,
        arguments=request.arguments,
        digest=request.digest,
        tier=PermissionTier(request.tier).label,
        expires_at_ms=request.expires_at_ms,
        asked=request.rests_at,
        covers=None if request.precedent is None else request.precedent.shapes,
        asked_by=request.asked_by,
    )
