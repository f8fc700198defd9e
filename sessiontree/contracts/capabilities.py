"""Capabilities: typed names for the handles a tool may need.

A tool asks ``ctx.require(WRITER)`` and holds a :class:`~sessiontree.contracts.ports.Writer`, or is refused:
where a kind of session lacks the handle there is nothing behind the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.ports import (
    Channel,
    Memory,
    MemoryWriter,
    Reader,
    Sessions,
    Shell,
    Web,
    Writer,
)
from sessiontree.contracts.tiers import PermissionTier

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Capability(Generic[H]):
    """The name of a handle, its type, and the tier whose work it does."""

    name: str
    tier: PermissionTier


READER: Capability[Reader] = Capability("reader", PermissionTier.READ_ONLY)
MEMORY: Capability[Memory] = Capability("memory", PermissionTier.READ_ONLY)
WEB: Capability[Web] = Capability("web", PermissionTier.READ_ONLY)
WRITER: Capability[Writer] = Capability("writer", PermissionTier.WORKSPACE)
SHELL: Capability[Shell] = Capability("shell", PermissionTier.SYSTEM)
CHANNEL: Capability[Channel] = Capability("channel", PermissionTier.SYSTEM)
MEMORY_WRITER: Capability[MemoryWriter] = Capability("memory_writer", PermissionTier.WORKSPACE)
SESSIONS: Capability[Sessions] = Capability("sessions", PermissionTier.WORKSPACE)

CAPABILITIES: tuple[str, ...] = (
    "reader",
    "memory",
    "web",
    "writer",
    "shell",
    "channel",
    "memory_writer",
    "sessions",
)
"""Every capability's name."""

OBSERVING: frozenset[str] = frozenset({"reader", "memory", "web"})
"""What a kind that may change nothing can hold."""


def capabilities_of(kind: SessionKind) -> frozenset[str]:
    """Return the names of all handles a kind may ever hold.

    Source: ADR-0004, tool availability per session kind.
    """
    return OBSERVING if kind is SessionKind.WORKER else frozenset(CAPABILITIES)
