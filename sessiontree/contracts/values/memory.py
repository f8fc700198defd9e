"""Values of memory: records, queries, scopes and selections.

Source: ADR-0006, typed records and one store for writing and recall.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

RecordType: TypeAlias = Literal["decision", "fact", "identity", "preference", "free"]
"""What a record of memory is about."""
RECORD_TYPES: Final[tuple[RecordType, ...]] = ("decision", "fact", "identity", "preference", "free")
Trust: TypeAlias = Literal["owner", "session", "foreign"]
"""Who vouches for a record: the owner, the session that stored it, or nobody (text from outside)."""
TRUSTS: Final[tuple[Trust, ...]] = ("owner", "session", "foreign")

MAX_TEXT_CHARS: Final = 20_000
"""Maximum characters of one record."""
MAX_SOURCE_CHARS: Final = 4_096
MAX_STORED_AT_ONCE: Final = 1_000
"""Maximum records in one call of ``store``."""
MAX_HITS: Final = 100
MEMORY_SCHEME: Final = "memory:"
"""Prefix of a record's address in artifacts; the record's id follows."""

_SOURCE = re.compile(r"(?P<path>.+?)(?:#L(?P<first>[1-9]\d{0,8})(?:-L(?P<last>[1-9]\d{0,8}))?)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a record's text comes from: a path, and its lines if they are known."""

    path: str
    first: int | None = None
    """First line, from 1; None = the whole file."""
    last: int | None = None
    """Last line, inclusive."""

    @classmethod
    def of(cls, text: str) -> Source:
        """Return the source that a text such as ``src/app.py#L3-L9`` names.

        Raises:
            ValueError: the text is empty, or its last line is before its first.
        """
        match = _SOURCE.fullmatch(text)
        if match is None:
            raise ValueError("a source is a path, optionally followed by #L3 or #L3-L9")
        first = match["first"] and int(match["first"])
        last = int(match["last"]) if match["last"] else first
        if first and last and last < first:
            raise ValueError(f"source {text!r} ends before it begins")
        return cls(match["path"], first or None, last or None)

    def __str__(self) -> str:
        """Return the text that names it."""
        if self.first is None:
            return self.path
        return f"{self.path}#L{self.first}" + ("" if self.last == self.first else f"-L{self.last}")

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether it shares a line with a range; a whole file overlaps every range."""
        return self.first is None or (self.first <= last and first <= (self.last or self.first))


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record that a session wants to store."""

    text: str
    """1 to 20,000 characters."""
    type: RecordType = "free"
    source: str | None = None
    """A text that :meth:`Source.of` accepts."""
    trust: Trust = "session"


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """Identity of the session that uses memory; it decides what is visible and marks stored records."""

    tree_id: str
    session: str
    """Path in the tree, such as ``main/b2``."""
    agent_id: str
    """Agent of the tree's Main; a finished tree's records are visible to later Mains of that agent."""
    workspace: str
    """Absolute path of the workspace."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One record, as it was stored."""

    id: str
    """32 hex digits; the same for a repeated store of the same call."""
    type: RecordType
    text: str
    source: str | None
    trust: Trust
    scope: MemoryScope
    """Who stored it."""
    created_at_ms: int
    is_own: bool = field(default=False, compare=False)
    """Whether the reading session stored it."""

    @property
    def is_trusted(self) -> bool:
        """Whether no other party wrote it: it is the session's own record, or the owner vouches for it."""
        return self.is_own or self.trust == "owner"


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A search of memory. Filters apply before hits are ranked."""

    text: str
    limit: int = 10
    """1 to 100."""
    types: tuple[RecordType, ...] = ()
    """Empty = all."""
    path: str | None = None
    """Only records of this source path, or of files below it."""
    min_score: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A record that was found."""

    record: MemoryRecord
    score: float
    """From 0 to 1: reciprocal rank fusion of meaning and words, divided by the highest possible value.

    1 is first in both rankings, about 0.5 is first in one of them alone. A record that shares no word with
    the query, and is no more similar to it than chance makes texts be, is no hit.
    """


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of records by conditions: at least one must be given, and all that are given must hold."""

    ids: tuple[str, ...] = ()
    path: str | None = None
    """Only records of this source path, or of files below it."""
    first: int | None = None
    """With ``path``: first line of the range that records must overlap."""
    last: int | None = None
    tree_id: str | None = None

    def to_wire(self) -> dict[str, JsonValue]:
        """Return the conditions that are given."""
        members: dict[str, JsonValue] = {
            "ids": list(self.ids) or None,
            "path": self.path,
            "first": self.first,
            "last": self.last,
            "tree_id": self.tree_id,
        }
        return {name: value for name, value in members.items() if value is not None}
