"""A tree in a few words, as listings tell of it."""

from __future__ import annotations

from dataclasses import dataclass

from sessiontree.contracts.kinds import SessionStatus


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """A tree as its journal tells of it."""

    tree_id: str
    purpose: str | None
    """What it was for, as its program said; None where its first row is damaged."""
    workspace: str | None
    """Absolute path; None as above."""
    created_at_ms: int
    """Milliseconds since 1970."""
    written_at_ms: int
    """When its newest fact was written."""
    last_seq: int
    """Number of its newest fact."""
    outcome: SessionStatus | None
    """How Main stands: a final status once the tree has ended; None where its facts are damaged."""
    sessions: int
    """All there ever were, Main included."""
    live: int
    """Those of them that have not ended."""
