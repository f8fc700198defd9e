"""What the comparison of a stored tree with its rules found."""

from __future__ import annotations

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first recorded fact that the rules of this release do not lead to."""

    session: str
    """Session id; empty = the tree itself."""
    seq: int
    """Number of the fact; one after the last if a fact is missing at the end."""
    kind: str
    """Kind of the recorded fact; empty if no fact is recorded."""
    field: str
    """JSON pointer into the fact; empty = the whole fact."""
    expected: JsonValue
    """What the rules lead to; None also if they lead to no fact here."""
    found: JsonValue
    """What is recorded; None also if no fact is recorded."""
    reason: str
    """What is wrong, as a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay of a tree compared."""

    tree_id: str
    release: str
    """The release that made the tree."""
    is_decided: bool
    """Whether the rules were applied; False = another release made the tree, so its facts were only read."""
    facts: int
    """Number of facts that were read."""
    compared: int
    """Number of facts that the rules led to again, up to the first difference."""
    given: int
    """Number of facts that were taken as recorded, because nothing in the tree says what led to them."""
    damage: str | None
    """What is damaged in the journal; the replay ends before it. None = nothing."""
    difference: ReplayDifference | None
    """The first difference; None = no fact differs."""

    @property
    def matches(self) -> bool:
        """Whether the journal is whole and no fact differs."""
        return self.damage is None and self.difference is None
