"""Bubbling: an approval request climbs, strictly upward, until somebody entitled answers.

A session is asked in three ways, in this order: its rules (data, nobody is woken), its approver function
(run in that session; the climb rests there), its channel (a person; the climb rests there). The first
session with a channel is the last one asked.
"""

from __future__ import annotations

from typing import cast

from sessiontree.contracts.approvals import APPROVER_ERROR, Answer, Precedent, Rule, answer_by_rules
from sessiontree.contracts.errors import ApprovalClosed, PermissionDenied
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.stimuli import ApproverAsked
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_facts import (
    ApprovalHopped,
    ApprovalRequested,
    ApprovalWaiting,
    DecisionRefused,
    DigestDenied,
    ToolAlwaysAllowed,
)
from sessiontree.tree.accounts import later
from sessiontree.tree.closed_requests import close
from sessiontree.tree.instructions import RefuseDecision, WakeTreeAt
from sessiontree.tree.state import Request, Session, TreeState
from sessiontree.tree.stimuli import ApprovalAsked, ApproverReturned, Decided
from sessiontree.tree.transaction import Draft


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
    draft.tell(WakeTreeAt(request.expires_at_ms))


SAID_NO = "a person said no to this same call before"
OWNERS_DECIDE = "it waits for one that Main's channel lists among its owners"
ANSWERS = ("approve", "deny", "escalate")


def ask(draft: Draft, asked: ApprovalAsked) -> None:
    """Take a request in and let it climb; one whose id is known changes nothing."""
    state = draft.state
    session = state.live_session(asked.session)
    is_known = asked.request_id in state.requests or asked.request_id in state.decisions
    if session is None or is_known:
        return
    expires_at_ms = later(draft.now_ms, state.limits.approval_expiry_s)
    draft.write(
        ApprovalRequested(
            asked.request_id,
            asked.session,
            asked.key,
            asked.tool,
            asked.arguments,
            asked.digest,
            asked.tier,
            expires_at_ms,
            draft.now_ms,
            asked.precedent,
            asked.asked_by,
        )
    )
    if session.stop is not None:
        close(draft, asked.request_id, "cancelled", "stop", f"{asked.session!r} is stopping")
    elif not _standing_answer(draft, asked):
        climb_from_asker(draft, asked.request_id)


def hear_function(draft: Draft, returned: ApproverReturned) -> None:
    """Take an approver function's answer, if it is still waited for; anything but the three words is no."""
    request = draft.state.requests.get(returned.request_id)
    if request is None or request.how != "consult" or request.rests_at != returned.session:
        return
    if returned.answer in ANSWERS:
        answer, reason = cast("Answer", returned.answer), returned.reason
    else:
        answer = "deny"
        reason = (
            f"the approver function of {returned.session!r} answered {returned.answer!r}, which is none of "
        )
        reason += ", ".join(ANSWERS) + (f": {returned.reason}" if returned.reason else "")
    settle_hop(draft, returned.request_id, returned.session, answer, "function", reason)
    if answer == "escalate":
        climb_on(draft, returned.request_id, draft.state.sessions[returned.session])


def hear_person(draft: Draft, decided: Decided) -> None:
    """Take a person's answer to a request that is shown; any other is refused and changes nothing."""
    state = draft.state
    request = state.requests.get(decided.request_id)
    if request is None or request.how != "show" or request.rests_at is None:
        how = "waiting for a function" if request is not None else state.decisions.get(decided.request_id)
        draft.tell(RefuseDecision(ApprovalClosed(decided.request_id, how or "unknown to this tree")))
        return
    if decided.asker is not None and not decided.asker.is_owner:
        draft.write(DecisionRefused(decided.request_id, decided.asker, decided.approve))
        reason = (
            f"{decided.asker.id!r} answered approval {decided.request_id}, and owns nothing: {OWNERS_DECIDE}"
        )
        draft.tell(RefuseDecision(PermissionDenied(PermissionTier.ELEVATED, reason)))
        return
    answer: Answer = "approve" if decided.approve else "deny"
    failed = decided.asker is None and decided.by == APPROVER_ERROR
    by, name = (decided.by, "") if failed else ("person", decided.by)
    settle_hop(draft, decided.request_id, request.rests_at, answer, by, decided.reason, name=name)
    if failed:
        return
    if not decided.approve:
        _bind_denial(draft, request.digest, request.session, request.rests_at)
    elif decided.always:
        _allow_always(draft, request, decided.by)


def expire(draft: Draft, request_id: str) -> None:
    """End a request nobody answered in time; it counts as denied."""
    if request_id in draft.state.requests:
        waited_s = draft.state.limits.approval_expiry_s
        close(draft, request_id, "expired", "time", f"nobody answered within {waited_s:g} s")


def _standing_answer(draft: Draft, asked: ApprovalAsked) -> bool:
    """Whether the mode, a person's earlier no, or an owner's earlier always already answers."""
    state = draft.state
    mode = state.charter.mode
    denied_at = _denied_at(state, asked.digest, asked.session)
    if mode == "never":
        close(draft, asked.request_id, "denied", "mode", "the tree's approval mode is 'never'")
    elif denied_at is not None:
        settle_hop(draft, asked.request_id, denied_at, "deny", "denial", SAID_NO)
    elif mode == "auto":
        close(draft, asked.request_id, "approved", "mode", "the tree's approval mode is 'auto'")
    elif (allowed := _always_allowed(state, asked.tool, asked.precedent)) is not None:
        close(draft, asked.request_id, "approved", "always", f"the owner always allows {allowed}")
    else:
        return False
    return True


def _allow_always(draft: Draft, request: Request, by: str) -> None:
    """Book what an owner's always covers, and settle what waits and is covered.

    Of a tool that runs commands it covers those of the same shape; one that can't be judged has none.
    """
    covers = None if request.precedent is None else request.precedent.shapes
    if covers == ():
        return
    draft.write(ToolAlwaysAllowed(request.tool, covers))
    for other in draft.state.requests_for.members(request.tool):
        allowed = _always_allowed(draft.state, request.tool, draft.state.requests[other].precedent)
        if allowed is not None:
            _settle_resting(draft, other, "approve", "always", f"{by} always allows {allowed}")


def _always_allowed(state: TreeState, tool: str, precedent: Precedent | None) -> str | None:
    """Return what an owner always allows that covers a call, None where nothing does."""
    if tool in state.always:
        return repr(tool)
    if precedent is None or not precedent.shapes:
        return None
    if all(f"{tool}: {shape}" in state.always for shape in precedent.shapes):
        return f"{tool!r} to run {', '.join(precedent.shapes)}"
    return None


def _bind_denial(draft: Draft, digest: str, asker: str, shown_at: str) -> None:
    path: list[str] = []
    for session in draft.state.chain(asker):
        path.append(session.spec.session_id)
        if session.spec.session_id == shown_at:
            break
    draft.write(DigestDenied(digest, tuple(path)))
    for other in draft.state.requests_like.members(digest):
        request = draft.state.requests[other]
        if _denied_at(draft.state, digest, request.session) is not None:
            _settle_resting(draft, other, "deny", "denial", SAID_NO)


def _settle_resting(draft: Draft, request_id: str, answer: Answer, by: str, reason: str) -> None:
    rests_at = draft.state.requests[request_id].rests_at
    if rests_at is not None:
        settle_hop(draft, request_id, rests_at, answer, by, reason)


def _denied_at(state: TreeState, digest: str, session: str) -> str | None:
    """Return the lowest session, from this one up, where a person said no to this call."""
    for link in state.chain(session):
        if (digest, link.spec.session_id) in state.denied:
            return link.spec.session_id
    return None
