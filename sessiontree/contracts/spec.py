"""What a session is made from, fixed at its spawn and never widened afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.contracts.approvals import Rule
from sessiontree.contracts.capabilities import SHELL, capabilities_of
from sessiontree.contracts.codec import added, recorded
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.limits import Budget
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.tiers import ExecSecurity, SystemAnswer, WorkspaceAccess

Via: TypeAlias = Literal["root", "model", "handle"]
"""Who spawned a session: nobody, a model through a tool, or the creating program through a handle."""


@recorded("session_spec")
@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session's identity, task and rights."""

    session_id: str
    """Path in the tree: ``main``, ``main/b2``, ``main/b2/w7``; numbers count per parent."""
    kind: SessionKind
    parent: str | None
    depth: int
    agent: str
    """Name of its agent."""
    task: str
    """First message; empty for Main."""
    label: str | None
    via: Via
    tools: tuple[str, ...]
    """Names of the tools it may hold at most, sorted: what parent, kind and agent have in common."""
    result_schema: Mapping[str, JsonValue] | None
    """JSON Schema its final text must satisfy."""
    rules: tuple[Rule, ...]
    """Its approver as data."""
    approver: str | None
    """Its approver as an importable function, ``module:name``."""
    owns_channel: bool
    """Whether approvals can be shown here."""
    budget: Budget | None
    """What was set aside for it and everything below it; None = it draws on its parent's."""
    expires_at_ms: int | None
    """When its time to live ends, in a tree of a release that counted it from the spawn; else None."""
    key: str | None
    """Names the spawn; a repeat with the same key is the same child."""
    system_tier: SystemAnswer = "allow"
    """What happens to its System calls: the strictest its agent or any session above it says."""
    dedicated: bool = added(False)
    """Whether it has a host of its own for life."""
    exec_security: ExecSecurity = added("full")  # noqa: RUF009 - a declaration
    """Which commands it may run: the strictest its agent or any session above it says."""
    asked_by: tuple[Principal, ...] = added(())
    """Whom it acts for, besides whoever speaks to it: those its parent acted for. Never makes it an owner."""
    workspace_access: WorkspaceAccess = added("rw")  # noqa: RUF009 - a declaration
    """What it may do to the workspace: the strictest its agent or any session above it says."""
    stays_open: bool = added(False)
    """Whether it completes only once the creating program has asked for its result."""
    ttl_s: float | None = added(None)
    """Its time to live, which begins when a host first embodies it; None = as long as its parent lives."""
    taint: str = added("")
    """Where untrusted text came from that its parent had taken in before; empty = from nowhere."""

    @property
    def strictness(self) -> Mapping[str, str]:
        """What its agent's settings are here, which those above it may have made stricter."""
        return {
            "system_tier": self.system_tier,
            "exec_security": self.exec_security,
            "workspace_access": self.workspace_access,
        }

    @property
    def commands(self) -> ExecSecurity | None:
        """Which commands it may run; None = none, its kind holds no shell."""
        return self.exec_security if SHELL.name in capabilities_of(self.kind) else None
