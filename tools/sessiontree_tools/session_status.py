"""``session_status``: tells a session how it stands."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import ALL_KINDS, Tool


class SessionStatusParams(BaseModel):
    """Nothing: a session asks about itself."""

    model_config = ConfigDict(extra="forbid")


class SessionStatusTool(Tool[SessionStatusParams]):
    """Reports the session's own standing."""

    name = "session_status"
    description = (
        "Show how this session stands: id, kind, depth, model, turns, what it used, what budget is left, "
        "until when it lives, its live children and open approval requests, the confinement in force, how "
        "approvals are answered, which System calls and commands it may make, and whether it has taken in "
        "untrusted text."
    )
    Params: ClassVar[type[BaseModel]] = SessionStatusParams
    label = "Session status"
    section = "sessions"
    profiles = frozenset({"minimal", "coding", "messaging"})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS

    async def execute(self, params: SessionStatusParams, ctx: ToolContext) -> ToolResult:
        """Return the report as an object; its members are those of ``SessionReport``."""
        report = await ctx.status.report()
        used = f"{report.turns} turns, {report.usage.tokens} tokens"
        return ToolResult(output=_object(report), display=f"{report.session_id}: {report.status}, {used}")


def _object(report: SessionReport) -> JsonValue:
    return {
        "session_id": report.session_id,
        "kind": str(report.kind),
        "status": str(report.status),
        "depth": report.depth,
        "model": report.model,
        "turns": report.turns,
        "usage": {
            "input_tokens": report.usage.input_tokens,
            "output_tokens": report.usage.output_tokens,
            "cost_usd": report.usage.cost_usd,
            "turns": report.usage.turns,
            "tool_calls": report.usage.tool_calls,
        },
        "children": list(report.children),
        "pending_approvals": report.pending_approvals,
        "budget_left": dict(report.budget_left),
        "expires_at_ms": report.expires_at_ms,
        "confinement": report.confinement,
        "approval_mode": report.approval_mode,
        "system_tier": report.system_tier,
        "exec_security": report.exec_security,
        "taint": report.taint,
        "after_untrusted": report.after_untrusted,
    }
