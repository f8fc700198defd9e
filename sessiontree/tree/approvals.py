"""Approval requests: asked, answered by functions and people, expired. Each is decided exactly once."""

from __future__ import annotations

from typing import cast

from sessiontree.contracts.approvals import APPROVER_ERROR, Answer, Precedent
from sessiontree.contracts.errors import ApprovalClosed, PermissionDenied
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_facts import (
    ApprovalRequested,
    DecisionRefused,
    DigestDenied,
    ToolAlwaysAllowed,
)
from sessiontree.tree.accounts import later
from sessiontree.tree.bubbling import climb_from_asker, climb_on, settle_hop
from sessiontree.tree.closing import close
from sessiontree.tree.draft import Draft
from sessiontree.tree.instructions import RefuseDecision
from sessiontree.tree.state import Request, TreeState
from sessiontree.tree.stimuli import ApprovalAsked, ApproverReturned, Decided

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
