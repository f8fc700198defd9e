"""Permission tiers: how much a tool call may change.

Source: ADR-0004, PermissionTier.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias

SystemAnswer: TypeAlias = Literal["allow", "ask", "deny"]
"""What happens to System calls: they run, need an approval, or are refused; from lax to strict."""

WorkspaceAccess: TypeAlias = Literal["rw", "ro"]
"""What a session may do to the workspace: read and write, or read alone; from lax to strict."""

ExecSecurity: TypeAlias = Literal["full", "safe-bin", "paranoid"]
"""Which commands a session may run, all of them confined; from lax to strict.

``full``: any. ``safe-bin``: one program of those known to be harmless, with arguments known to be harmless,
from the system's directories, without a shell. ``paranoid``: the same, and the workspace is read-only.
"""


class PermissionTier(IntEnum):
    """How much a call may change, ordered: a higher tier includes the lower ones."""

    READ_ONLY = 0
    """Observes, never changes anything."""
    WORKSPACE = 1
    """Changes things inside the agent's workspace."""
    SYSTEM = 2
    """Changes things outside the workspace: commands, messages, requests."""
    ELEVATED = 3
    """Irreversible or of high impact; a human says yes first."""

    @property
    def label(self) -> str:
        """The tier's wire name: ``ReadOnly``, ``Workspace``, ``System`` or ``Elevated``."""
        return _LABELS[self]

    @classmethod
    def from_label(cls, label: str) -> PermissionTier:
        """Return the tier of a wire name.

        Raises:
            ValueError: no tier is called that.
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
