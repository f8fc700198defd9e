"""Unfinished: which survey of a state directory can be taken up again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sessiontree.contracts.errors import ConfigError, JournalError
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.journal.claim import journal_dirs, journal_holding
from sessiontree.journal.journal import Journal
from sessiontree.runtime.supervisor import load_tree
from sessiontree.survey.run import out_of


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A survey that was left."""

    config: TreeConfig
    out: str
    last_seq: int
    """Number of its last good fact."""


def find_unfinished(state_dir: Path, tree_id: str | None) -> Unfinished:
    """Return the named survey, or the newest that is not finished.

    Raises:
        JournalError: there is no journal, or none of that name, or it can't be read.
        ConfigError: the named tree is no survey or is finished, or there is no unfinished one.
    """
    if tree_id is not None:
        with Journal.open(journal_holding(state_dir, tree_id), read_only=True) as journal:
            return _named(journal, tree_id)
    left: list[tuple[int, Unfinished]] = []
    for place in journal_dirs(state_dir) or (state_dir,):
        with Journal.open(place, read_only=True) as journal:
            left += _newest_in(journal)
    if left:
        return max(left, key=lambda each: each[0])[1]
    raise ConfigError(f"no unfinished survey lies in {str(state_dir)!r}; start one with `sessiontree survey`")


def _newest_in(journal: Journal) -> list[tuple[int, Unfinished]]:
    """Return when the newest survey of a journal that is not finished was begun, and the survey."""
    for row in reversed(journal.trees()):
        try:
            return [(row.created_ms, _named(journal, row.tree_id))]
        except (ConfigError, JournalError):  # finished, or nothing of it can be read: the next older one
            continue
    return []


def _named(journal: Journal, tree_id: str) -> Unfinished:
    config, state, _ = load_tree(journal, tree_id)
    out = out_of(config)
    if out is None:
        raise ConfigError(f"tree {tree_id} is no survey; the program that made it resumes it")
    main = state.sessions["main"]
    if not main.is_live:
        raise ConfigError(f"survey {tree_id} ended {main.status}; there is nothing to resume")
    return Unfinished(config, out, journal.last_seq(tree_id))
