"""Kinds of sessions, how sessions end, and permission tiers."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Literal, TypeAlias


class SessionKind(StrEnum):
    """Purpose of a session; it decides which handles the session's context has."""

    MAIN = "main"
    """Talks to a person through a channel; the root, depth 0."""
    BRANCH = "branch"
    """Thinks and acts on behalf of its parent."""
    WORKER = "worker"
    """A read-only leaf."""


ChildKind: TypeAlias = Literal["branch", "worker"]
"""Kinds that can be spawned, as a program writes them."""


class SessionStatus(StrEnum):
    """State of a session. The last four are final."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """Whether the session can never run again."""
        return self not in {SessionStatus.ACTIVE, SessionStatus.SUSPENDED}


SystemAnswer: TypeAlias = Literal["allow", "ask", "deny"]
"""What happens to System calls, from lax to strict: they run, need an approval, or are refused."""

Wait: TypeAlias = Literal["", "all", "each"]
"""When a child's result makes its parent's model continue. ``all``: once every child that the parent started
in the same run has ended. ``each``: at once. Empty: as ``all``, unless the child failed or the parent waits
for an approval, too."""

WorkspaceAccess: TypeAlias = Literal["rw", "ro"]
"""What a session may do to the workspace, from lax to strict: read and write, or only read."""

WorkspaceChoice: TypeAlias = Literal["shared", "own"]
"""Where a child works: in its parent's workspace, or in a copy of it that is its own."""

ExecSecurity: TypeAlias = Literal["full", "safe-bin", "paranoid"]
"""Which commands a session may run, from lax to strict; all are confined.

``full``: any command. ``safe-bin``: one program known to be harmless, with arguments known to be harmless,
from the system's directories, without a shell. ``paranoid``: as ``safe-bin``, with a read-only workspace.
"""


TierLabel: TypeAlias = Literal["ReadOnly", "Workspace", "System", "Elevated"]
"""A tier by its wire name."""


class PermissionTier(IntEnum):
    """How much a call may change, ordered: a higher tier includes the lower ones."""

    READ_ONLY = 0
    """Observes, never changes anything."""
    WORKSPACE = 1
    """Changes things inside the agent's workspace."""
    SYSTEM = 2
    """Changes things outside the workspace: commands, messages, requests."""
    ELEVATED = 3
    """Irreversible or of high impact; a person must approve it first."""

    @property
    def label(self) -> str:
        """The tier's wire name: ``ReadOnly``, ``Workspace``, ``System`` or ``Elevated``."""
        return _LABELS[self]

    @classmethod
    def from_label(cls, label: str) -> PermissionTier:
        """Return the tier whose wire name is ``label``.

        Raises:
            ValueError: no tier has that name.
        """
        for tier, name in _LABELS.items():
            if name == label:
                return tier
        raise ValueError(f"no permission tier is called {label!r}; there are {', '.join(_LABELS.values())}")


_LABELS = {
    PermissionTier.READ_ONLY: "ReadOnly",
    PermissionTier.WORKSPACE: "Workspace",
    PermissionTier.SYSTEM: "System",
    PermissionTier.ELEVATED: "Elevated",
}
