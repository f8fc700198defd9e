"""Configuration of a tree and its sessions, fixed at creation; and a tree's entry in a listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from sessiontree.contracts.kinds import (
    ExecSecurity,
    SessionKind,
    SessionStatus,
    SystemAnswer,
    Wait,
    WorkspaceAccess,
    WorkspaceChoice,
)
from sessiontree.contracts.recorded.approvals import ApprovalMode, Rule
from sessiontree.contracts.recorded.capabilities import SHELL, list_capabilities
from sessiontree.contracts.recorded.child_workspaces import WorkspaceCopy
from sessiontree.contracts.recorded.codec import declare_sparse, register_kind
from sessiontree.contracts.recorded.programs import ProgramCall
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import Budget, Limits, MessagePolicy
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

Via: TypeAlias = Literal["root", "model", "handle", "cron"]
"""Who spawned a session: nobody, a model through a tool, the creating program through a handle, or a timed
job."""


@register_kind("session_spec")
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
    """The session's first message; empty for Main."""
    label: str | None
    via: Via
    tools: tuple[str, ...]
    """Sorted names of the tools it may hold: those that parent, kind and agent all allow. A parent allows
    what it holds and what it delegates."""
    result_schema: Mapping[str, JsonValue] | None
    """JSON Schema of its final message."""
    rules: tuple[Rule, ...]
    """Its approver as data."""
    approver: str | None
    """Its approver as an importable function, ``module:name``."""
    owns_channel: bool
    """Whether approvals can be shown here."""
    budget: Budget | None
    """Budget reserved for it and everything below it; None = it uses its parent's."""
    key: str | None
    """Identifies the spawn; a repeat with the same key returns the same child."""
    system_tier: SystemAnswer = "allow"
    """What happens to its System calls: the strictest setting of its agent and of the sessions above it."""
    dedicated: bool = False
    """Whether it keeps its own host for life."""
    exec_security: ExecSecurity = "full"
    """Which commands it may run: the strictest setting of its agent and of the sessions above it."""
    asked_by: tuple[Principal, ...] = ()
    """Principals of its parent, for whom it acts in addition to its senders. They never make it an owner."""
    workspace_access: WorkspaceAccess = "rw"
    """What it may do to the workspace: the strictest setting of its agent and of the sessions above it."""
    stays_open: bool = False
    """Whether it completes only after the creating program asks for its result."""
    ttl_s: float | None = None
    """Its time to live in seconds, from its first adoption by a host; None = as long as its parent lives."""
    taint: str = ""
    """Source of the untrusted text that its parent had read before; empty = none."""
    settings: ModelSettings | None = declare_sparse(None)
    """Model settings that differ from its agent's; None = the agent's."""
    skills: tuple[str, ...] = declare_sparse(())
    """Names of the skills it may read: those that its agent names and its parent holds."""
    wait: Wait = declare_sparse("each")
    """When its result makes its parent's model continue."""
    workspace: str = declare_sparse("")
    """Name of the copy in which it works, its own or one from above; empty = the tree's workspace."""
    copy: WorkspaceCopy | None = declare_sparse(None)
    """The copy that was made for it; None = it works where its parent does."""
    exec_hosts: tuple[str, ...] = declare_sparse(())
    """Where it may run commands without confinement: what its agent and every session above it allow."""
    outside_roots: tuple[str, ...] = declare_sparse(())
    """Directories outside the workspace that it may reach: those that its agent and all above it allow."""
    delegates: tuple[str, ...] = declare_sparse(())
    """Sorted names of the tools that it may not use and its children may hold: those that its agent
    delegates, of what its parent holds or delegates."""
    first_call: ProgramCall | None = declare_sparse(None)
    """The program that it runs instead of asking a model; None = its model replies."""

    @property
    def strictness(self) -> Mapping[str, str | tuple[str, ...] | frozenset[str]]:
        """Its effective settings; sessions above it may have made its agent's settings stricter."""
        return {
            "system_tier": self.system_tier,
            "exec_security": self.exec_security,
            "workspace_access": self.workspace_access,
            "exec_hosts": frozenset(self.exec_hosts),
            "outside_roots": self.outside_roots,
        }

    @property
    def commands(self) -> ExecSecurity | None:
        """Which commands it may run; None = its kind has no shell."""
        return self.exec_security if SHELL.name in list_capabilities(self.kind) else None


@register_kind("tool_row")
@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool, as the tree machine sees it."""

    name: str
    kinds: tuple[SessionKind, ...]
    schema_digest: str
    command_in: str = ""
    """Its parameter with a command line; empty = it runs no command."""
    declared: Mapping[str, JsonValue] | None = declare_sparse(None)
    """What the client of a door declared of a tool that it hosts; None = no client hosts it."""


@register_kind("agent_row")
@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent, as the tree machine sees it."""

    name: str
    model: str
    tools: tuple[str, ...] | None
    """Tools that its sessions may hold; None = all that their kind allows."""
    system_tier: SystemAnswer = "allow"
    """What happens to its System calls."""
    exec_security: ExecSecurity = "full"
    """Which commands its sessions may run."""
    workspace_access: WorkspaceAccess = "rw"
    """What its sessions may do to the workspace."""
    skills: tuple[str, ...] = declare_sparse(())
    """Names of the skills that its sessions may read."""
    description: str = declare_sparse("")
    """What it is for, for sessions that choose an agent."""
    workspace: WorkspaceChoice = declare_sparse("shared")
    """Where its Branches work unless their spawn says so."""
    exec_hosts: tuple[str, ...] = declare_sparse(())
    """Where its sessions may run commands without confinement."""
    outside_roots: tuple[str, ...] = declare_sparse(())
    """Directories outside the workspace that its sessions may reach."""
    delegates: tuple[str, ...] = declare_sparse(())
    """Tools that children of its sessions may hold, though its sessions may not."""


@register_kind("removed_tools")
@dataclass(frozen=True, slots=True)
class RemovedTools:
    """The tools that the owner's policy removes from one agent's sessions of one kind."""

    agent: str
    kind: SessionKind
    tools: tuple[str, ...]
    """Sorted names of tools that the kind could hold."""


@register_kind("policy_row")
@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A tree's policy: as its owner wrote it, and compiled."""

    config: Mapping[str, JsonValue]
    """The owner's lists; they are applied again to each resumed session, so that no tool returns."""
    group: str
    """Group of Main's channel and of every session; empty = none."""
    removed: tuple[RemovedTools, ...]
    """Tools that no session is spawned with; only entries that remove a tool."""


@register_kind("fork_point")
@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a tree was forked from another one."""

    tree_id: str
    """The other tree."""
    seq: int
    """Number of the last fact that both share."""
    nonce: str
    """The other tree's nonce; it made the ids in the shared facts."""


@register_kind("tree_config", shared="tools")
@dataclass(frozen=True, slots=True)
class TreeConfig:
    """Everything fixed for the life of a tree."""

    tree_id: str
    workspace: str
    """Absolute path of the workspace root."""
    package_version: str
    rules_number: int
    """Number of the rules it was made under."""
    nonce: str
    """128 random bits, hexadecimal, which make the tree's outgoing ids unique."""
    created_at_ms: int
    model: str
    """Name of the model; the model itself is given again on resume."""
    limits: Limits
    mode: ApprovalMode
    rules: tuple[Rule, ...]
    """The owner's approver for Main."""
    smart_rules: tuple[Rule, ...]
    """Rules that mode ``smart`` applies before it asks a person."""
    owns_channel: bool
    """Whether Main can show approvals."""
    budget: Budget | None
    tools: tuple[ToolRow, ...]
    """All tools of the tree, sorted by name."""
    agents: tuple[AgentRow, ...]
    """All agents; the first is Main's."""
    purpose: str
    """Purpose of the tree, as shown in listings."""
    dedicated: bool = False
    """Whether every session keeps its own host for life."""
    policy: PolicyRow | None = None
    """Its owner's tool policy."""
    guards: tuple[str, ...] = ()
    """Names of the hooks that are required to resume it, in the order given."""
    owners: tuple[str, ...] = ()
    """Ids of the senders that Main's channel lists as owners."""
    system_tier: SystemAnswer = "allow"
    """Setting of Main's channel for System calls; no session is laxer, even if its agent is."""
    messages: tuple[MessagePolicy, ...] = ()
    """Limits on messages of Branches to people: the owner's policy, then Main's channel. All apply."""
    guidance: str = declare_sparse("")
    """What system prompts say of the workspace's AGENTS.md; empty = nothing."""
    forks: tuple[ForkPoint, ...] = declare_sparse(())
    """Where it was forked from another tree, and that tree from another one: the oldest first."""
    child_workspace: WorkspaceChoice = declare_sparse("shared")
    """Where Branches work unless their spawn or their agent says so."""


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """A tree as recorded in its journal."""

    tree_id: str
    purpose: str | None
    """Purpose given by its program; None if its first row is damaged."""
    workspace: str | None
    """Absolute path; None as above."""
    created_at_ms: int
    """Milliseconds since 1970."""
    written_at_ms: int
    """When its newest fact was written, in milliseconds since 1970."""
    last_seq: int
    """Number of its newest fact."""
    outcome: SessionStatus | None
    """Main's state: a final status once the tree has ended; None if its facts are damaged."""
    sessions: int
    """Number of all its sessions, including Main and those that have ended."""
    live: int
    """Number of sessions that have not ended."""
    forked_from: str | None = None
    """Id of the tree that it was forked from; None = it was not forked."""
    forked_at: int | None = None
    """Number of the last fact that both share."""
    task: str = ""
    """The beginning of Main's first message, or else of the task of its first child; empty = neither."""
    cost_usd: float = 0.0
    """What its sessions have cost, in US dollars, as far as prices are known."""


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard of a runtime, and the trees that the runtime has open in it."""

    journal_dir: str
    """Directory of its journal, on its node."""
    trees: tuple[str, ...]
    """Ids of its open trees, in the order they were opened."""
    node: str = ""
    """Name of its node; empty = the program's."""
    lost: str = ""
    """Why the shard is lost; empty = it is not."""
    live_sessions: int | None = None
    """How many sessions of its open trees have not ended; None = it does not answer."""
