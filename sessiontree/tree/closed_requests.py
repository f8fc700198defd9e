"""Closing what waits for somebody: an approval request gets one decision, a call of the program one end."""

from __future__ import annotations

from sessiontree.contracts.approvals import Decision
from sessiontree.contracts.stimuli import ApprovalAnswered
from sessiontree.contracts.tree_facts import ApprovalDecided, ClientCallEnded
from sessiontree.tree.transaction import Draft

CANCELLED = "cancelled"
"""How a client call ended whose session stopped or ended."""


def close(
    draft: Draft, request_id: str, decision: Decision, by: str, reason: str, *, tell_asker: bool = True
) -> None:
    """Decide an open request and tell the session that asked, if it lives."""
    request = draft.state.requests[request_id]
    draft.write(ApprovalDecided(request_id, decision, by, reason))
    if tell_asker:
        answer = ApprovalAnswered(draft.now_ms, request_id, decision, by, reason)
        draft.post(request.session, lambda _: answer)


def cancel_requests(draft: Draft, session: str, reason: str, *, tell_asker: bool) -> None:
    """Cancel every open request of a session that stops, which is told, or ends, which is not."""
    for request_id in draft.state.requests_of.members(session):
        close(draft, request_id, "cancelled", "stop", reason, tell_asker=tell_asker)


def cancel_client_calls(draft: Draft, session: str) -> None:
    """Take back what the creating program was to answer for a session that stops, or ends."""
    if draft.state.sessions[session].delegated:
        own = [name for name, call in draft.state.client_calls.items() if call.session == session]
        for name in own:
            draft.write(ClientCallEnded(name, CANCELLED, ""))
