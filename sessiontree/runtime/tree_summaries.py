"""Every tree of a state directory in a few words: what it was for, and how it stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.contracts.session_ids import MAIN
from sessiontree.contracts.tree_summary import TreeSummary
from sessiontree.journal.claim import journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import TreeRow
from sessiontree.runtime.supervisor import load_tree


def summaries_of(state_dir: Path, purpose: str | None = None) -> list[TreeSummary]:
    """Return the trees of all journals, oldest first; blocks while it reads each tree's own facts.

    Args:
        state_dir: A state directory, or the directory of one of its journals.
        purpose: Only trees whose program said exactly this; None = all.

    Raises:
        JournalError: a journal can't be read.
    """
    found = [each for place in journal_dirs(state_dir) for each in _in_journal(place, purpose)]
    return sorted(found, key=lambda each: (each.created_at_ms, each.tree_id))


def _in_journal(place: Path, purpose: str | None) -> Iterator[TreeSummary]:
    with Journal.open(place, read_only=True) as journal:
        for row in journal.trees():
            said = None if row.row0 is None else str(row.row0.get("purpose", ""))
            if purpose is None or said == purpose:
                yield _summary(journal, row, said)


def _summary(journal: Journal, row: TreeRow, purpose: str | None) -> TreeSummary:
    outcome, sessions, live = None, 0, 0
    try:
        _, state, _ = load_tree(journal, row.tree_id)
    except (JournalCorrupt, JournalTooNew):
        pass  # a tree that can't be read is listed all the same
    else:
        outcome, sessions, live = state.sessions[MAIN].status, state.total, state.live
    return TreeSummary(
        row.tree_id,
        purpose,
        None if row.row0 is None else str(row.row0.get("workspace")),
        row.created_ms,
        row.written_ms,
        row.last_seq,
        outcome,
        sessions,
        live,
    )
