"""Asking a session's approver function on the session's behalf."""

from __future__ import annotations

from collections.abc import Callable

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.stimuli import ApproverAnswered
from sessiontree.runtime.approver_function import run_approver
from sessiontree.session.instructions import RunApprover


async def consult(path: str, asked: RunApprover, session: str, now_ms: Callable[[], int]) -> ApproverAnswered:
    """Return what a session's approver function says to a request, as a stimulus for that session."""
    request = ApprovalRequest(
        asked.request_id,
        asked.requester,
        asked.tool,
        asked.arguments,
        "",
        asked.tier,
        0,
        session,
        asked_by=asked.asked_by,
    )
    answer, reason = await run_approver(path, request)
    return ApproverAnswered(now_ms(), asked.request_id, answer, reason)
