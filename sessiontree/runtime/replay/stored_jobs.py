"""Timed jobs of the trees of a state directory, as their journals hold them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import JournalError
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import read_kind
from sessiontree.runtime.replay.stored_trees import load_tree
from sessiontree.tree.state.state import TreeState

_SAVED: Final = "cron_job_saved"
"""The kind of fact that every tree with timed jobs has."""


@dataclass(frozen=True, slots=True)
class ScheduledTree:
    """A tree that has, or had, timed jobs."""

    place: Path
    """Directory of its journal."""
    config: TreeConfig
    state: TreeState
    """Its state after its durable facts."""


def list_scheduled_trees(
    state_dir: Path, tree_id: str | None = None
) -> Iterator[ScheduledTree | tuple[str, JournalError]]:
    """Yield the trees with timed jobs of all journals; blocks while it reads each tree's own facts.

    A tree, or a directory, that can't be read comes as its name and the error: the others do not suffer.

    Args:
        state_dir: A state directory, or the directory of one of its journals.
        tree_id: Only this tree; None = all.
    """
    for place in list_journal_dirs(state_dir):
        try:
            with Journal.open(place, read_only=True) as journal:
                ids = [row.tree_id for row in journal.trees() if tree_id in {None, row.tree_id}]
                for each in ids:
                    found = _read(journal, place, each)
                    if found is not None:
                        yield found
        except JournalError as error:
            yield str(place), error


def _read(journal: Journal, place: Path, tree_id: str) -> ScheduledTree | tuple[str, JournalError] | None:
    try:
        if all(read_kind(record.text) != _SAVED for record in journal.read_session(tree_id, "")):
            return None
        config, state, _ = load_tree(journal, tree_id)
    except JournalError as error:
        return tree_id, error
    return ScheduledTree(place, config, state)
