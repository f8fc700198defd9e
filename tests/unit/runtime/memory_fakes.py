"""A store in a list, and a supervisor in a few lines: what memory is tested between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.values.memory import (
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
)
from sessiontree.runtime.memory.memory_api import Ended, MemoryRight, ScopeAnswer, Whose


@dataclass(slots=True)
class ListStore:
    """Keeps records in a list, and what was asked for whom.

    Args:
        failure: Raised by what writes, while it is set.
    """

    failure: Exception | None = None
    records: list[MemoryRecord] = field(default_factory=list)
    asked: list[tuple[str, MemoryScope | None]] = field(default_factory=list)
    finished: dict[str, Ended] = field(default_factory=dict)
    is_closed: bool = False

    async def store(self, records: Sequence[NewRecord], scope: MemoryScope, key: str) -> list[str]:
        """Add what is not there yet."""
        self._note("store", scope)
        if self.failure is not None:
            raise self.failure
        ids = [f"{scope.tree_id}/{key}/{at}" for at in range(len(records))]
        known = {record.id for record in self.records}
        self.records += [
            MemoryRecord(record_id, new.type, new.text, new.source, new.trust, scope, 0)
            for record_id, new in zip(ids, records, strict=True)
            if record_id not in known
        ]
        return ids

    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[MemoryHit]:
        """Return everything."""
        self._note("search", scope)
        return [MemoryHit(record, 1.0) for record in self.records][: query.limit]

    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return what has one of the ids."""
        self._note("select", scope)
        return [record for record in self.records if record.id in selection.ids][:limit]

    async def forget(self, selection: Selection, scope: MemoryScope | None) -> list[str]:
        """Remove what has one of the ids."""
        self._note("forget", scope)
        if self.failure is not None:
            raise self.failure
        gone = [record.id for record in self.records if record.id in selection.ids]
        self.records = [record for record in self.records if record.id not in gone]
        return gone

    async def mark_finished(self, tree_id: str, agent_id: str, workspace: str, ended_at_ms: int) -> None:
        """Note it."""
        self.finished[tree_id] = Ended(tree_id, agent_id, workspace, ended_at_ms)

    async def list_unfinished_trees(self) -> set[str]:
        """Return those with records that are not noted."""
        return {record.scope.tree_id for record in self.records} - self.finished.keys()

    async def close(self) -> None:
        """Note it."""
        self.is_closed = True

    def _note(self, name: str, scope: MemoryScope | None) -> None:
        assert not self.is_closed
        self.asked.append((name, scope))


Check = Callable[[str, MemoryRight], MemoryScope]


@dataclass(slots=True)
class Supervisor:
    """Answers for grants as ``check`` says.

    Args:
        check: Returns a grant's scope, or raises why it does not count.
    """

    check: Check
    trees: dict[str, Ended] = field(default_factory=dict)
    """Whose Main has completed."""
    questions: list[tuple[tuple[str, MemoryRight], ...]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first question."""
    answer: asyncio.Event | None = None
    """Where set, no question is answered before it."""
    untold: tuple[Ended, ...] = ()
    """Whose end it tells with every answer."""
    failure: Exception | None = None
    """Raised instead of saying which trees have ended."""

    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Answer each."""
        self.questions.append(tuple(wanted))
        self.asked.set()
        answers: list[Whose] = []
        for token, right in wanted:
            try:
                answers.append(self.check(token, right))
            except SessionTreeError as error:
                answers.append(error)
        if self.answer is not None:
            await self.answer.wait()
        return ScopeAnswer(answers, tuple(self.untold))

    async def list_completed_trees(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return those that have ended."""
        if self.failure is not None:
            raise self.failure
        return [self.trees[tree_id] for tree_id in tree_ids if tree_id in self.trees]
