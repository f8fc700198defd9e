"""Capabilities: typed names for the handles a tool may need.

A tool asks ``ctx.require(WRITER)`` and holds a :class:`~sessiontree.contracts.ports.Writer`, or is refused:
where a kind of session lacks the handle there is nothing behind the name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

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

_ALL: Final[tuple[Capability[Any], ...]] = (
    READER,
    MEMORY,
    WEB,
    WRITER,
    SHELL,
    CHANNEL,
    MEMORY_WRITER,
    SESSIONS,
)
_BY_NAME: Final = {each.name: each for each in _ALL}

CAPABILITIES: Final = tuple(_BY_NAME)
"""Every capability's name."""

OBSERVING: Final = frozenset(each.name for each in _ALL if each.tier is PermissionTier.READ_ONLY)
"""What a kind that may change nothing can hold."""


def capability_names(given: Iterable[str | Capability[Any]] | Capability[Any]) -> frozenset[str]:
    """Return the names of capabilities given by value or by name; one alone needs no list around it."""
    if isinstance(given, str | Capability):
        given = (given,)
    return frozenset(each.name if isinstance(each, Capability) else each for each in given)


def capabilities_of(kind: SessionKind) -> frozenset[str]:
    """Return the names of all handles a kind may ever hold.

    Source: ADR-0004, tool availability per session kind.
    """
    return OBSERVING if kind is SessionKind.WORKER else frozenset(CAPABILITIES)


def highest_of(names: Iterable[str]) -> Capability[Any] | None:
    """Return which of the named capabilities does the work of the highest tier; None where none is named."""
    found = [_BY_NAME[name] for name in sorted(names)]
    return max(found, key=lambda capability: capability.tier, default=None)
