"""Short ways to say what tests of the tree say often."""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.approvals import ApprovalMode, Precedent, Rule
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.limits import Budget, Limits
from sessiontree.contracts.message_policy import MessagePolicy
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.tree_config import AgentRow, PolicyRow, RemovedTools, ToolRow, TreeConfig

MAIN, BRANCH, WORKER = SessionKind.MAIN, SessionKind.BRANCH, SessionKind.WORKER
TOOLS = (
    ToolRow("deploy", (MAIN, BRANCH), "1"),
    ToolRow("owner_only", (MAIN,), "2"),
    ToolRow("read", (MAIN, BRANCH, WORKER), "3"),
    ToolRow("search", (MAIN, BRANCH, WORKER), "4"),
    ToolRow("write", (MAIN, BRANCH), "5"),
)
AGENTS = (
    AgentRow("default", "m", None),
    AgentRow("reader", "m", ("read", "search")),
    AgentRow("writer", "m", ("owner_only", "read", "write")),
    AgentRow("careful", "m", None, "ask", "safe-bin"),
    AgentRow("shut", "m", None, "deny", "paranoid"),
)

LOOKS = Precedent(True, ("ls",), "")
REMOVES = Precedent(False, ("ls", "rm x"), "")
IN_DOUBT = Precedent(False, (), "what it does is not known")
"""Commands, as far as they are known."""

POLICY = PolicyRow({}, "", (RemovedTools("careful", BRANCH, ("deploy", "write")),))
"""The owner's lists leave careful Branches less than kind and agent would."""


def config(
    *,
    limits: Limits | None = None,
    mode: ApprovalMode = "always",
    rules: tuple[Rule, ...] = (),
    smart_rules: tuple[Rule, ...] = (),
    owns_channel: bool = True,
    budget: Budget | None = None,
    messages: tuple[MessagePolicy, ...] = (),
) -> TreeConfig:
    """Return a configuration with five tools and five agents."""
    return TreeConfig(
        tree_id="t1",
        workspace="/somewhere",
        package_version="0",
        created_at_ms=0,
        model="m",
        limits=limits or Limits(),
        mode=mode,
        rules=rules,
        smart_rules=smart_rules,
        owns_channel=owns_channel,
        budget=budget,
        tools=TOOLS,
        agents=AGENTS,
        purpose="testing",
        policy=POLICY,
        messages=messages,
    )


def result(status: str = "completed", summary: str = "done", **more: Any) -> SessionResult[Any]:
    """Return a result."""
    return SessionResult(SessionStatus(status), summary, **more)
