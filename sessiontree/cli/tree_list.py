"""The command ``sessiontree tree --list``: all trees of a workspace, and which of them a program has open."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sessiontree.cli.connect import list_live_trees
from sessiontree.cli.screen import RichScreen, format_count
from sessiontree.cli.tree import describe_outcome, describe_purpose, find_state_dir, time_text
from sessiontree.contracts.facts.tree_config import TreeSummary
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.runtime.replay.stored_trees import list_summaries


def show_list(screen: RichScreen, *, path: Path | None, state_dir: Path | None, as_json: bool) -> int:
    """Show all trees of all journals, oldest first, and return the exit code.

    With ``as_json`` one object: ``state_dir`` and ``trees``, each with what :class:`TreeSummary` has and
    ``state``: ``live``, ``left open``, how it ended, or ``damaged``.

    Raises:
        TreeNotFound: no tree ran here.
        JournalError: a journal can't be read.
        ConfigError: the workspace is not a directory.
    """
    place = find_state_dir(path, state_dir)
    if not list_journal_dirs(place):
        with Journal.open(place, read_only=True):
            pass  # it says what is wrong
    trees = list_summaries(place)
    live = asyncio.run(list_live_trees(place))
    states = {tree.tree_id: describe_outcome(tree, is_live=tree.tree_id in live) for tree in trees}
    if as_json:
        told = [{**_to_row(tree), "state": states[tree.tree_id]} for tree in trees]
        screen.raw(dump_json({"state_dir": str(place), "trees": told}))
        return 0
    rows = [
        (
            tree.tree_id,
            time_text(tree.created_at_ms),
            time_text(tree.written_at_ms),
            tree.last_seq,
            states[tree.tree_id],
            describe_purpose(tree),
        )
        for tree in trees
    ]
    screen.table(("tree", "created", "written", "facts", "outcome", "purpose"), rows)
    screen.line(f"{format_count(len(rows), 'tree')}, journal: {place}")
    return 0


def _to_row(tree: TreeSummary) -> dict[str, Any]:
    told = asdict(tree)
    return {"tree": told.pop("tree_id"), **told}
