"""A memory for one tool at a time: words count, not meaning, and everything is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sessiontree.contracts.memory import (
    Hit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
    Source,
)

SCOPE = MemoryScope("tree", "main", "default", "/workspace")


@dataclass(slots=True)
class PlainMemory:
    """Keeps records in a list; answers as memory does, without a store behind it.

    Args:
        failure: Raised instead of answering, where given.
    """

    failure: Exception | None = None
    records: list[MemoryRecord] = field(default_factory=list)
    """In the order they were stored."""
    stores: dict[str, list[str]] = field(default_factory=dict)
    """Key to ids; a repeated key adds none."""

    async def search(self, query: MemoryQuery) -> list[Hit]:
        """Return records that hold a word of the query, by the share of its words they hold."""
        self._check()
        words = query.text.casefold().split()
        hits = [
            Hit(record, sum(word in record.text.casefold() for word in words) / len(words))
            for record in self.records
            if (not query.types or record.type in query.types) and _is_at(record, query.path)
        ]
        found = [hit for hit in hits if hit.score > 0 and hit.score >= query.min_score]
        return sorted(found, key=lambda hit: -hit.score)[: query.limit]

    async def select(self, selection: Selection, *, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names, oldest first."""
        self._check()
        return self._selected(selection)[:limit]

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Keep records once for a key; ids count up."""
        self._check()
        if key not in self.stores:
            first = len(self.records)
            made = [
                MemoryRecord(
                    f"{first + at:032x}", new.type, new.text, new.source, new.trust, SCOPE, first + at
                )
                for at, new in enumerate(records)
            ]
            self.records += made
            self.stores[key] = [record.id for record in made]
        return list(self.stores[key])

    async def forget(self, selection: Selection, *, key: str) -> list[str]:
        """Drop the records a selection names; returns their ids."""
        self._check()
        gone = [record.id for record in self._selected(selection)]
        self.records = [record for record in self.records if record.id not in gone]
        return gone

    def _selected(self, selection: Selection) -> list[MemoryRecord]:
        first, last = selection.first or 1, selection.last or 10**9
        return [
            record
            for record in self.records
            if (not selection.ids or record.id in selection.ids)
            and _is_at(record, selection.path)
            and (selection.path is None or Source.of(record.source or "-").overlaps(first, last))
        ]

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


def _is_at(record: MemoryRecord, path: str | None) -> bool:
    if path is None:
        return True
    if record.source is None:
        return False
    found = Source.of(record.source).path
    return found == path or found.startswith(f"{path.rstrip('/')}/")
