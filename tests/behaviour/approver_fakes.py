"""Approver functions that Branches name as ``module:function``."""

from __future__ import annotations

import asyncio

from sessiontree import ApprovalRequest


def approves_safe(request: ApprovalRequest) -> str:
    """Approve what says ``safe``, deny what says ``never``, leave the rest to those above."""
    text = request.arguments.get("text")
    return {"safe": "approve", "never": "deny"}.get(str(text), "escalate")


def approves_owners(request: ApprovalRequest) -> str:
    """Approve what is for owners alone, deny what is for anybody else."""
    return "approve" if all(asker.is_owner for asker in request.asked_by) else "deny"


async def approves_later(request: ApprovalRequest) -> str:
    """Approve after others had their turn."""
    await asyncio.sleep(0)
    return "approve"


def breaks(request: ApprovalRequest) -> str:
    """Fail."""
    raise RuntimeError("the approver is broken")


def babbles(request: ApprovalRequest) -> str:
    """Answer none of the three words."""
    return "perhaps"


async def hangs(request: ApprovalRequest) -> str:
    """Never answer."""
    await asyncio.get_running_loop().create_future()
    return "approve"
