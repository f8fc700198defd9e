"""What memory and supervisor say to each other, and what a store offers to memory.

Source of the roles: the supervisor alone knows whom a grant stands for; memory alone writes the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, MemoryScope, NewRecord, Selection
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.runtime.session_reports import ActorRow

MemoryRight: TypeAlias = Literal["recall", "remember", "forget"]


@dataclass(frozen=True, slots=True)
class Ended:
    """A tree whose Main has completed: what it left is for later trees of the same agent and workspace."""

    tree_id: str
    agent_id: str
    workspace: str
    ended_at_ms: int


def ended_of(config: TreeConfig, ended_at_ms: int) -> Ended:
    """Return what memory is told of a tree whose Main has completed."""
    return Ended(config.tree_id, config.agents[0].name, config.workspace, ended_at_ms)


def scope_of(config: TreeConfig, session: str) -> MemoryScope:
    """Return who a session of a tree is to memory."""
    return MemoryScope(config.tree_id, session, config.agents[0].name, config.workspace)


Whose: TypeAlias = "MemoryScope | Exception"
"""Whom a grant stands for, or why it does not count for what was asked."""


@dataclass(frozen=True, slots=True)
class ScopeAnswer:
    """What a supervisor answers about grants."""

    answers: Sequence[Whose]
    """One for each."""
    ended: tuple[Ended, ...] = ()
    """Trees that ended before this answer, which memory may not have heard of: whoever asks after a tree has
    ended finds what it left."""


class Supervision(Protocol):
    """What memory asks of its supervisor."""

    async def whose(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Say for each grant whom it stands for now, if it covers the right."""
        ...

    async def ended_of(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return those trees of the journal whose Main has completed."""
        ...


class MemoryStore(Protocol):
    """Records on a disk, written by this process alone.

    Raises (every method):
        MemoryFailed: it can't be read or written now; nothing acknowledged is lost.
    """

    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Return the records' ids once they are durable; the same key in one tree adds them once."""
        ...

    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[Hit]:
        """Return what fits a query best among what a scope may see."""
        ...

    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return what a selection names among what a scope may see, oldest first."""
        ...

    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove it; returns the ids of what was removed."""
        ...

    async def mark_finished(self, tree_id: str, *, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Note that a tree's Main has completed; again changes nothing."""
        ...

    def unfinished_trees(self) -> set[str]:
        """Return the trees with records that are not marked so."""
        ...

    async def close(self) -> None:
        """Write what is to be written and let the store go."""
        ...


class MemoryService(Protocol):
    """What a host may ask of memory while a call executes; a grant says for whom.

    Raises (every method):
        SessionClosed: the grant does not count now.
        PermissionDenied: it does not cover what is asked.
        ValidationError: what is asked for does not fit.
        MemoryFailed: memory can't be reached, read or written now.
    """

    async def search(self, grant: str, query: MemoryQuery) -> list[Hit]:
        """Return the records that fit a query best."""
        ...

    async def select(self, grant: str, selection: Selection, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names."""
        ...

    async def store(self, grant: str, records: Sequence[NewRecord], key: str) -> list[str]:
        """Store records once for a key; returns their ids when they are durable."""
        ...

    async def forget(self, grant: str, selection: Selection, key: str) -> list[str]:
        """Remove the records a selection names; returns their ids."""
        ...


class MemoryPort(Protocol):
    """The supervisor's way to memory. What returns nothing returns at once."""

    def revoked(self, grant: str) -> None:
        """Say that a grant counts no more."""
        ...

    def ended(self, end: Ended) -> None:
        """Say that a tree's Main has completed; durable by now."""
        ...

    def actors(self) -> list[ActorRow]:
        """Return memory's process, where it has one of its own and runs."""
        ...

    async def close(self) -> None:
        """End memory."""
        ...


class MemoryProcess(Protocol):
    """A process that memory has for itself, as its supervisor holds it."""

    @property
    def way(self) -> Any:
        """What hosts need to ask it."""
        ...

    def tell(self, name: str, *given: Any) -> None:
        """Tell it something, without waiting."""
        ...

    async def end(self) -> None:
        """Let it write what is to be written, then end it."""
        ...
