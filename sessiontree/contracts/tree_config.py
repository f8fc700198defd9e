"""What a tree is made from; the first row of its journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.codec import added, recorded
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.limits import Budget, Limits
from sessiontree.contracts.message_policy import MessagePolicy
from sessiontree.contracts.tiers import ExecSecurity, SystemAnswer, WorkspaceAccess


@recorded("tool_row")
@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool as the tree machine knows it."""

    name: str
    kinds: tuple[SessionKind, ...]
    schema_digest: str
    command_in: str = added("")
    """Its parameter that holds a command line; empty = it runs none."""


@recorded("agent_row")
@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent as the tree machine knows it."""

    name: str
    model: str
    tools: tuple[str, ...] | None
    """Tools its sessions may hold at most; None = all their kind allows."""
    system_tier: SystemAnswer = "allow"
    """What happens to its System calls."""
    exec_security: ExecSecurity = added("full")  # noqa: RUF009 - a declaration
    """Which commands its sessions may run."""
    workspace_access: WorkspaceAccess = added("rw")  # noqa: RUF009 - a declaration
    """What its sessions may do to the workspace."""


@recorded("removed_tools")
@dataclass(frozen=True, slots=True)
class RemovedTools:
    """What the owner's policy takes from one agent's sessions of one kind."""

    agent: str
    kind: SessionKind
    tools: tuple[str, ...]
    """Names of tools that the kind could hold, sorted."""


@recorded("policy_row")
@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A tree's policy: as its owner wrote it, and compiled."""

    config: Mapping[str, JsonValue]
    """The owner's lists; judges again each session that is taken up, so that nothing comes back."""
    group: str
    """Group Main's channel belongs to, and with it every session; empty = none."""
    removed: tuple[RemovedTools, ...]
    """What no session is ever spawned with; only where there is something to remove."""


@recorded("tree_config")
@dataclass(frozen=True, slots=True)
class TreeConfig:
    """Everything fixed for the life of a tree."""

    tree_id: str
    workspace: str
    """Absolute path of the workspace root."""
    package_version: str
    created_at_ms: int
    model: str
    """Name of the model; the model itself is given again on resume."""
    limits: Limits
    mode: ApprovalMode
    rules: tuple[Rule, ...]
    """The owner's approver for Main."""
    smart_rules: tuple[Rule, ...]
    """What mode ``smart`` answers before a person is asked."""
    owns_channel: bool
    """Whether Main can show approvals."""
    budget: Budget | None
    tools: tuple[ToolRow, ...]
    """All tools of the tree, sorted by name."""
    agents: tuple[AgentRow, ...]
    """All agents; the first is Main's."""
    purpose: str
    """What the tree was made for, as shown in listings."""
    dedicated: bool = added(False)
    """Whether every session has a host of its own for life."""
    policy: PolicyRow | None = added(None)  # noqa: RUF009 - a declaration, as above
    """What its owner says about tools."""
    guards: tuple[str, ...] = added(())
    """Names of the hooks without which nobody may take it up, in the order given."""
    owners: tuple[str, ...] = added(())
    """Ids of the senders that Main's channel lists as owners."""
    system_tier: SystemAnswer = added("allow")  # noqa: RUF009 - a declaration, as above
    """What Main's channel says of System calls; no session is laxer, whatever its agent says."""
    nonce: str = added("")
    """128 random bits, hexadecimal: they make the ids that leave the tree its own. Empty = a tree of an
    earlier release."""
    messages: tuple[MessagePolicy, ...] = added(())
    """What Branches may send to people: what the owner's policy says, then Main's channel. All count."""
