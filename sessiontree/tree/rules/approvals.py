"""Approval requests: a request climbs from the asking session towards the root until a session decides it.

Each session on the way is asked in three ways, in this order: its rules (data; no session is woken), its
approver function (runs in that session; the request waits there), and its channel (a person; the request
waits there). The first session with a channel is the last one asked.
"""

from __future__ import annotations

from typing import cast

from sessiontree.contracts.errors import AnswerTooLate, PermissionDenied
from sessiontree.contracts.facts.session_facts import ApproverReplied
from sessiontree.contracts.facts.stimuli import ApprovalAnswered, ApprovalAsked, ApproverAsked
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalStepRecorded,
    ApprovalWaiting,
    ClientCallEnded,
    DecisionRefused,
    DenialLifted,
    DigestDenied,
    ToolAlwaysAllowed,
)
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import (
    APPROVER_ERROR,
    ApprovalQuestion,
    Decision,
    Precedent,
    Rule,
    RuleAnswer,
    answer_by_rules,
)
from sessiontree.tree.state.budgets import add_seconds
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import Decided, FromSession, LiftAsked, RefuseDecision, WakeTreeAt
from sessiontree.tree.state.state import Request, Session, TreeState


def climb_from_asker(draft: Draft, request_id: str) -> None:
    """Begin the climb of a new request.

    A session never approves its own calls: its rules and its function are skipped. Its channel is asked,
    because a person answers there. Main's rules come from the owner, so they also apply to Main itself.
    """
    asker = draft.state.sessions[draft.state.requests[request_id].question.session]
    _climb(draft, request_id, asker, skip_approver=asker.spec.kind is not SessionKind.MAIN)


def climb_on(draft: Draft, request_id: str, session: Session) -> None:
    """Continue after a session's function escalated: ask its channel next, then its parent."""
    _climb(draft, request_id, session, skip_approver=True)


def settle_hop(
    draft: Draft,
    request_id: str,
    session: str,
    answer: RuleAnswer,
    by: str,
    reason: str,
    *,
    person: tuple[str, str] = ("", ""),
) -> None:
    """Record a session's answer, and the decision if it is one; ``person`` is who decided, and where."""
    draft.write(ApprovalStepRecorded(request_id, session, answer, by, reason))
    if answer != "escalate":
        name, surface = person
        decision: Decision = "approved" if answer == "approve" else "denied"
        close(draft, request_id, decision, name or by, reason, surface=surface)


def _climb(draft: Draft, request_id: str, start: Session, *, skip_approver: bool) -> None:
    request = draft.state.requests[request_id]
    top, session = start, cast("Session | None", start)
    while session is not None:
        if not skip_approver and _try_approver(draft, request, session):
            return
        if session.spec.owns_channel:
            _show(draft, request, session)
            return
        if not skip_approver:
            settle_hop(draft, request_id, session.spec.session_id, "escalate", "rule", "")
        skip_approver = False
        top, session = session, draft.state.find_parent(session)
    if _answer_by_mode(draft, request, top):
        return
    reason = (
        f"{request.question.call.tool!r} needs an approval and nobody above {request.question.session!r} can "
        "give one: "
        "no rule or function answered, and no session on the way owns a channel"
    )
    close(draft, request_id, "denied", "nobody", reason)


def _try_approver(draft: Draft, request: Request, session: Session) -> bool:
    if _apply_rules(draft, request, session, session.spec.rules, "rule"):
        return True
    if session.spec.approver is None:
        return False
    if _let_wait(draft, request, session, "consult"):
        asked = ApproverAsked(draft.now_ms, request.question)
        draft.post(session.spec.session_id, lambda _: asked)
    return True


def _show(draft: Draft, request: Request, session: Session) -> None:
    if not _answer_by_mode(draft, request, session):
        _let_wait(draft, request, session, "show")


def _answer_by_mode(draft: Draft, request: Request, session: Session) -> bool:
    """Have mode ``smart`` answer where a person would be asked next, or where nobody is left to ask."""
    config = draft.state.charter
    return config.mode == "smart" and (
        _apply_rules(draft, request, session, config.smart_rules, "mode")
        or _approve_harmless(draft, request, session)
    )


def _apply_rules(draft: Draft, request: Request, session: Session, rules: tuple[Rule, ...], by: str) -> bool:
    call = request.question.call
    answer = answer_by_rules(rules, call.tool, dict(call.arguments))
    if answer == "escalate":
        return False
    name = session.spec.session_id
    request_id = request.question.request_id
    settle_hop(draft, request_id, name, answer, by, f"a rule of session {name!r} says {answer}")
    return True


def _approve_harmless(draft: Draft, request: Request, session: Session) -> bool:
    precedent = request.precedent
    if precedent is None or not precedent.is_harmless:
        return False
    reason = f"the command is known to change nothing: {', '.join(precedent.shapes)}"
    settle_hop(draft, request.question.request_id, session.spec.session_id, "approve", "mode", reason)
    return True


def _let_wait(draft: Draft, request: Request, session: Session, how: str) -> bool:
    """Let a request wait at a session, or deny it: a request that does not wait yet needs room.

    Nobody could answer thousands one by one, and each of them is kept and shown until it is answered.

    Returns:
        Whether it waits.
    """
    most = draft.state.limits.max_open_approvals
    waiting = draft.state.open_requests - 1  # all but this one
    if most is not None and request.rests_at is None and waiting >= most:
        reason = (
            f"{waiting} approval requests of this tree wait for an answer, and its limit max_open_approvals "
            f"is {most}. Nobody was asked about this call. Wait until some are answered, then call "
            f"{request.question.call.tool!r} again if it is still needed"
        )
        close(draft, request.question.request_id, "denied", "limit", reason)
        return False
    draft.write(ApprovalWaiting(request.question.request_id, session.spec.session_id, how))
    draft.tell(WakeTreeAt(request.expires_at_ms))
    return True


SAID_NO = "a person said no to this same call before"
OWNERS_DECIDE = "it waits for one that Main's channel lists among its owners"
ANSWERS = ("approve", "deny", "escalate")


def ask(draft: Draft, stimulus: FromSession, asked: ApprovalAsked) -> None:
    """Accept a request and start its climb; a request with a known id changes nothing."""
    state = draft.state
    session = state.find_live_session(stimulus.session)
    is_known = asked.request_id in state.requests or asked.request_id in state.decisions
    if session is None or is_known:
        return
    expires_at_ms = add_seconds(draft.now_ms, state.limits.approval_expiry_s)
    question = ApprovalQuestion(asked.request_id, stimulus.session, asked.call, asked.asked_by)
    draft.write(ApprovalRequested(question, expires_at_ms, draft.now_ms, stimulus.precedent))
    if session.stop is not None:
        close(draft, asked.request_id, "cancelled", "stop", f"{question.session!r} is stopping")
    elif not _apply_standing_answer(draft, question, stimulus.precedent):
        climb_from_asker(draft, asked.request_id)


def hear_function(draft: Draft, session: str, returned: ApproverReplied) -> None:
    """Apply an approver function's answer if the request still waits for it.

    Anything but the three known answers counts as a denial.
    """
    request = draft.state.requests.get(returned.request_id)
    # Race: while the function ran, the request may have expired, or a person may have settled its like.
    if request is None or request.how != "consult" or request.rests_at != session:
        return
    if returned.answer in ANSWERS:
        answer, reason = cast("RuleAnswer", returned.answer), returned.reason
    else:
        answer = "deny"
        reason = f"the approver function of {session!r} answered {returned.answer!r}, which is not one of "
        reason += ", ".join(ANSWERS) + (f": {returned.reason}" if returned.reason else "")
    settle_hop(draft, returned.request_id, session, answer, "function", reason)
    if answer == "escalate":
        climb_on(draft, returned.request_id, draft.state.sessions[session])


def hear_person(draft: Draft, decided: Decided) -> None:
    """Apply a person's answer to a request that is shown; any other answer is refused and changes nothing."""
    state = draft.state
    request = state.requests.get(decided.request_id)
    asked = state.client_calls.get(decided.request_id)
    is_strange = decided.asker is not None and not decided.asker.is_owner
    if is_strange and asked is not None and asked.asked:
        _refuse_stranger(draft, decided, "question")
        return
    if request is None or request.how != "show" or request.rests_at is None:
        how = "waiting for a function" if request is not None else state.decisions.get(decided.request_id)
        draft.tell(
            RefuseDecision(AnswerTooLate("approval", decided.request_id, how or "unknown to this tree"))
        )
        return
    if is_strange:
        _refuse_stranger(draft, decided, "approval")
        return
    answer: RuleAnswer = "approve" if decided.approve else "deny"
    failed = decided.asker is None and decided.by == APPROVER_ERROR
    # A callable approver that failed is not a person's no: only that one is remembered for equal calls.
    by, name = (decided.by, "") if failed else ("person", decided.by)
    person = (name, decided.surface)
    settle_hop(draft, decided.request_id, request.rests_at, answer, by, decided.reason, person=person)
    if failed:
        return
    if not decided.approve:
        question = request.question
        _bind_denial(draft, question, request.rests_at)
    elif decided.always:
        _allow_always(draft, request, decided.by)


def _refuse_stranger(draft: Draft, decided: Decided, what: str) -> None:
    """Record that somebody answered who does not own the tree, and tell them."""
    assert decided.asker is not None  # noqa: S101 - only a person who is named is a stranger
    draft.write(DecisionRefused(decided.request_id, decided.asker, decided.approve, decided.surface))
    reason = f"{decided.asker.id!r} answered {what} {decided.request_id}, and owns nothing: {OWNERS_DECIDE}"
    draft.tell(RefuseDecision(PermissionDenied(PermissionTier.ELEVATED, reason)))


def expire(draft: Draft, request_id: str) -> None:
    """End a request that was not answered in time; it counts as denied."""
    if request_id in draft.state.requests:
        waited_s = draft.state.limits.approval_expiry_s
        close(draft, request_id, "expired", "time", f"nobody answered within {waited_s:g} s")


def _apply_standing_answer(draft: Draft, question: ApprovalQuestion, precedent: Precedent | None) -> bool:
    """Whether the mode, a person's earlier no, or an owner's earlier always already decides the request."""
    state, request_id = draft.state, question.request_id
    mode = state.charter.mode
    denied_at = _find_denying_session(state, question.call.digest, question.session)
    # The order is the rule: mode `never` overrules everybody, and a person's earlier no overrules mode `auto`
    # and what the owner always allows.
    if mode == "never":
        close(draft, request_id, "denied", "mode", "the tree's approval mode is 'never'")
    elif denied_at is not None:
        settle_hop(draft, request_id, denied_at, "deny", "denial", SAID_NO)
    elif mode == "auto":
        close(draft, request_id, "approved", "mode", "the tree's approval mode is 'auto'")
    elif (allowed := _find_permission(state, question.call.tool, precedent)) is not None:
        close(draft, request_id, "approved", "always", f"the owner always allows {allowed}")
    else:
        return False
    return True


def _allow_always(draft: Draft, request: Request, by: str) -> None:
    """Record what an owner allows always, and settle the waiting requests that this covers.

    For a tool that runs commands, it covers commands of the same shape. A command that can't be judged has no
    shape.
    """
    covers = None if request.precedent is None else request.precedent.shapes
    if covers == ():
        return
    tool = request.question.call.tool
    draft.write(ToolAlwaysAllowed(tool, covers))
    # `members` returns a new list, so requests may be settled while it is walked.
    for other in draft.state.requests_for.list_members(tool):
        allowed = _find_permission(draft.state, tool, draft.state.requests[other].precedent)
        if allowed is not None:
            _settle_resting(draft, other, "approve", "always", f"{by} always allows {allowed}")


def _find_permission(state: TreeState, tool: str, precedent: Precedent | None) -> str | None:
    """Return the owner's permanent permission that covers a call; None if none does."""
    if tool in state.always:
        return repr(tool)
    if precedent is None or not precedent.shapes:
        return None
    if all(f"{tool}: {shape}" in state.always for shape in precedent.shapes):
        return f"{tool!r} to run {', '.join(precedent.shapes)}"
    return None


def lift_denial(draft: Draft, asked: LiftAsked) -> None:
    """Lift the denial of a request, so that the same call is asked about again."""
    if asked.request_id in draft.state.denials:
        draft.write(DenialLifted(asked.request_id, asked.by))
        return
    state = draft.state.decisions.get(asked.request_id) or "unknown to this tree"
    draft.tell(RefuseDecision(AnswerTooLate("approval", asked.request_id, state)))


def _bind_denial(draft: Draft, question: ApprovalQuestion, shown_at: str) -> None:
    path: list[str] = []
    digest = question.call.digest
    for session in draft.state.list_chain(question.session):
        path.append(session.spec.session_id)
        if session.spec.session_id == shown_at:
            break
    draft.write(DigestDenied(digest, tuple(path), question.request_id))
    for other in draft.state.requests_like.list_members(digest):
        request = draft.state.requests[other]
        if _find_denying_session(draft.state, digest, request.question.session) is not None:
            _settle_resting(draft, other, "deny", "denial", SAID_NO)


def _settle_resting(draft: Draft, request_id: str, answer: RuleAnswer, by: str, reason: str) -> None:
    rests_at = draft.state.requests[request_id].rests_at
    if rests_at is not None:
        settle_hop(draft, request_id, rests_at, answer, by, reason)


def _find_denying_session(state: TreeState, digest: str, session: str) -> str | None:
    """Return the lowest session, from this one up, at which a person denied this call, or None."""
    for link in state.list_chain(session):
        if (digest, link.spec.session_id) in state.denied:
            return link.spec.session_id
    return None


CANCELLED = "cancelled"
"""The status of a client call whose session stopped or ended."""


def close(
    draft: Draft,
    request_id: str,
    decision: Decision,
    by: str,
    reason: str,
    *,
    tell_asker: bool = True,
    surface: str = "",
) -> None:
    """Decide an open request, and inform the asking session if it is live."""
    request = draft.state.requests[request_id]
    draft.write(ApprovalDecided(request_id, decision, by, reason, surface))
    if tell_asker:
        answer = ApprovalAnswered(draft.now_ms, request_id, decision, by, reason)
        draft.post(request.question.session, lambda _: answer)


def withdraw_request(draft: Draft, session: str, request_id: str, reason: str) -> None:
    """Cancel a request of a session that waits for its answer no more, if it is open."""
    # A session may withdraw its own requests only.
    if request_id in draft.state.requests_of.list_members(session):
        close(draft, request_id, "cancelled", "stop", reason, tell_asker=False)


def cancel_requests(draft: Draft, session: str, reason: str, *, tell_asker: bool) -> None:
    """Cancel every open request of a session that stops or ends.

    Only a session that stops is informed.
    """
    for request_id in draft.state.requests_of.list_members(session):
        close(draft, request_id, "cancelled", "stop", reason, tell_asker=tell_asker)


def cancel_client_calls(draft: Draft, session: str) -> None:
    """Withdraw the calls of a stopping or ending session that the creating program has not answered."""
    # Every ending session comes here, and most have handed over nothing: the table need not be walked.
    if draft.state.sessions[session].delegated:
        own = [name for name, call in draft.state.client_calls.items() if call.session_id == session]
        for name in own:
            draft.write(ClientCallEnded(name, CANCELLED, ""))
