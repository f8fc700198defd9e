"""Replays of every tree that a test left in its journals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sessiontree.api.stored.journaled_trees import replay_tree
from sessiontree.contracts.errors import JournalError
from sessiontree.contracts.reports.replay_report import ReplayReport
from sessiontree.journal.journal import Journal


def replays_of(directory: Path) -> Iterator[ReplayReport]:
    """Yield the replay of each tree below a directory; journals that a test damaged are left out."""
    for place in sorted({found.parent for found in directory.rglob("journal.db")}):
        try:
            with Journal.open(place, read_only=True) as journal:
                trees = [row.tree_id for row in journal.trees()]
            yield from [replay_tree(place, tree_id) for tree_id in trees]
        except JournalError:
            continue
