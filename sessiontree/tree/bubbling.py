"""Bubbling: an approval request climbs, strictly upward, until somebody entitled answers.

A session is asked in three ways, in this order: its rules (data, nobody is woken), its approver function
(run in that session; the climb rests there), its channel (a person; the climb rests there). The first
session with a channel is the last one asked.
"""

from __future__ import annotations

from sessiontree.contracts.approvals import Answer, Rule, answer_by_rules
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.stimuli import ApproverAsked
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_facts import ApprovalHopped, ApprovalWaiting
from sessiontree.tree.closing import close
from sessiontree.tree.draft import Draft
from sessiontree.tree.instructions import ShowApproval, WakeAt
from sessiontree.tree.state import Request, Session


def climb_from_asker(draft: Draft, request_id: str) -> None:
    """Begin the climb of a new request.

    A session never answers for itself: its rules and its function are left out, and its channel counts
    only because a person sits there. Main's rules are the owner's, so they answer for Main too.
    """
    asker = draft.state.sessions[draft.state.requests[request_id].session]
    _climb(draft, request_id, asker, skip_approver=asker.spec.kind is not SessionKind.MAIN)


def climb_on(draft: Draft, request_id: str, session: Session) -> None:
    """Go on after a session's function escalated: its channel is next, then its parent."""
    _climb(draft, request_id, session, skip_approver=True)


def settle_hop(
    draft: Draft, request_id: str, session: str, answer: Answer, by: str, reason: str, *, name: str = ""
) -> None:
    """Book a session's answer, and the decision where it is one; ``name`` says who decided, if a person."""
    draft.write(ApprovalHopped(request_id, session, answer, by, reason))
    if answer != "escalate":
        close(draft, request_id, "approved" if answer == "approve" else "denied", name or by, reason)


def _climb(draft: Draft, request_id: str, start: Session, *, skip_approver: bool) -> None:
    request = draft.state.requests[request_id]
    session: Session | None = start
    while session is not None:
        if not skip_approver and _approver_took(draft, request, session):
            return
        if session.spec.owns_channel:
            _show(draft, request, session)
            return
        if not skip_approver:
            settle_hop(draft, request_id, session.spec.session_id, "escalate", "rule", "")
        skip_approver = False
        session = draft.state.parent_of(session)
    reason = (
        f"{request.tool!r} needs an approval and nobody above {request.session!r} can give one: "
        "no rule or function answered, and no session on the way owns a channel"
    )
    close(draft, request_id, "denied", "nobody", reason)


def _approver_took(draft: Draft, request: Request, session: Session) -> bool:
    if _rules_answered(draft, request, session, session.spec.rules, "rule"):
        return True
    if session.spec.approver is None:
        return False
    _rest(draft, request, session, "consult")
    asked = ApproverAsked(
        draft.now_ms,
        request.request_id,
        request.session,
        request.tool,
        request.arguments,
        PermissionTier(request.tier).label,
        request.asked_by,
    )
    draft.post(session.spec.session_id, lambda _: asked)
    return True


def _show(draft: Draft, request: Request, session: Session) -> None:
    config = draft.state.charter
    if config.mode == "smart" and (
        _rules_answered(draft, request, session, config.smart_rules, "mode")
        or _known_harmless(draft, request, session)
    ):
        return
    _rest(draft, request, session, "show")
    draft.tell(ShowApproval(request.request_id, session.spec.session_id))


def _rules_answered(
    draft: Draft, request: Request, session: Session, rules: tuple[Rule, ...], by: str
) -> bool:
    answer = answer_by_rules(rules, request.tool, dict(request.arguments))
    if answer == "escalate":
        return False
    name = session.spec.session_id
    settle_hop(draft, request.request_id, name, answer, by, f"a rule of session {name!r} says {answer}")
    return True


def _known_harmless(draft: Draft, request: Request, session: Session) -> bool:
    precedent = request.precedent
    if precedent is None or not precedent.is_harmless:
        return False
    reason = f"the command is known to change nothing: {', '.join(precedent.shapes)}"
    settle_hop(draft, request.request_id, session.spec.session_id, "approve", "mode", reason)
    return True


def _rest(draft: Draft, request: Request, session: Session, how: str) -> None:
    draft.write(ApprovalWaiting(request.request_id, session.spec.session_id, how))
    draft.tell(WakeAt(request.expires_at_ms))
