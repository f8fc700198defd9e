"""Facts on their way into the journal and out of it, and rows of trees."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.tree_facts import Fact
from sessiontree.contracts.recorded.codec import list_wire_parts
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.replay import read_fact, read_facts

FACTS = (session_facts, tree_facts)
"""Modules whose import makes every kind of fact known."""
_KIND = re.compile(r'\{"kind":"(\w+)"')


def read_kind(text: str) -> str:
    """Return a fact's kind; empty if the text does not begin as a fact."""
    found = _KIND.match(text)
    return "" if found is None else found[1]


class Packed(NamedTuple):
    """One fact to be written. It is a tuple, because one is made per fact."""

    cause: str
    """Id of the stimulus that caused it; any text."""
    at_ms: int
    """Milliseconds since the epoch, within 64 bits."""
    text: str
    """Compact ASCII JSON object on one line; stored unchanged and not parsed."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One entry of a tree's journal: its number, session, cause and time, and a fact."""

    seq: int
    """Position in its tree, from 1, without gaps."""
    session: str
    """Session id, or empty for the tree itself."""
    cause: str
    at_ms: int
    text: str

    @property
    def fact(self) -> Fact:
        """The fact, in the form of this release; it may hold those that followed in the same step.

        Raises:
            JournalTooNew: a later release wrote it.
            JournalCorrupt: no release ever wrote it.
        """
        fact: Fact = read_fact(self.text)
        return fact

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The single facts that it holds, in their order; most records hold one.

        Raises:
            JournalTooNew, JournalCorrupt: as :attr:`fact`.
        """
        return read_facts(self.text)

    def to_json(self) -> dict[str, Any]:
        """Return the fact as a JSON object.

        Raises:
            JournalCorrupt: the text is not a JSON object.
        """
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise JournalCorrupt(f"record {self.seq}", f"its text is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise JournalCorrupt(f"record {self.seq}", "its text is not a JSON object")
        return value

    def to_row(self) -> dict[str, Any]:
        """Return the record as a row of a table: its number, session, time, kind, and fact as a JSON object.

        Raises:
            JournalCorrupt: the text is not a JSON object.
        """
        return {
            "seq": self.seq, "session": self.session, "at_ms": self.at_ms, "kind": read_kind(self.text),
            "fact": self.to_json(),
        }  # fmt: skip

    def to_json_parts(self) -> list[dict[str, Any]]:
        """Return the single facts that it holds as JSON objects, in their order.

        Raises:
            JournalCorrupt: the text is not a JSON object.
        """
        return list_wire_parts(self.to_json())

    def ends(self, session: str) -> bool:
        """Whether it is the fact of the tree that a session has ended."""
        if self.session != "" or read_kind(self.text) != "session_ended":
            return False
        return bool(self.to_json()["session"] == session)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One tree of a journal, as listed."""

    tree_id: str
    created_ms: int
    """Milliseconds since the epoch."""
    row0: dict[str, JsonValue] | None
    """The configuration it was created with; None = it is damaged."""
    last_seq: int
    """As last written; :meth:`Journal.verify` checks whether all of it is still good."""
    written_ms: int
    """When facts were last committed, or the tree created."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a complete check of one tree found."""

    tree_id: str
    last_good_seq: int
    """Every record up to this one is as it was written; 0 = no record is."""
    bad_segment: int | None = None
    """Number of the first segment that is missing or altered; 0 = the tree's row 0; None = all good."""
    reason: str | None = None
    index_good: bool = True
    """False: the session index differs from the segments; reads do not use it then."""

    @property
    def ok(self) -> bool:
        """True when nothing at all is damaged."""
        return self.bad_segment is None and self.index_good
