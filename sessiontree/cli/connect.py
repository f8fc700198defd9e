"""Reaching: the runtime that has a tree open, and what to say where none has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sessiontree.cli.tree import journal_of, newest_tree
from sessiontree.cli.tree_report import portrait_of
from sessiontree.contracts.errors import (
    ConfigError,
    JournalError,
    SessionClosed,
    SessionTreeError,
    TreeNotFound,
)
from sessiontree.control.client import ControlClient
from sessiontree.journal.claim import journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.runtime.replay import fact_of

HOW_TO_RESUME = "take it up first: with `sessiontree resume` a survey, with SessionTree.resume any other"
WAIT_S = 20.0
"""How long one question for news may wait."""


async def live_journal(state_dir: Path, tree_id: str | None) -> Path:
    """Return the directory of the journal that a program at work writes: the one that holds a tree.

    Where no tree is named it is the only one with open trees, or that of the newest tree.

    Raises:
        TreeNotFound: no journal holds the tree.
        JournalError: a journal can't be read.
        ConfigError: trees of several programs are open, and none is named.
    """
    dirs = journal_dirs(state_dir)
    if tree_id is not None or len(dirs) <= 1:
        return journal_of(state_dir, tree_id)
    open_trees: dict[Path, list[str]] = {}
    for each in dirs:
        client = await ControlClient.find(each)
        if client is not None:
            async with client:
                trees = await client.open_trees()
            if trees:
                open_trees[each] = list(trees)
    if len(open_trees) > 1:
        named = ", ".join(tree for trees in open_trees.values() for tree in trees)
        raise ConfigError(f"trees of {len(open_trees)} programs are open, name one with --tree: {named}")
    return next(iter(open_trees), None) or journal_of(state_dir, None)


async def open_tree(client: ControlClient | None, place: Path, tree_id: str | None) -> str:
    """Return the id of a tree that a runtime has open: the one named, else the only one.

    Args:
        client: The runtime of the state directory; None = there is none.
        place: The state directory.
        tree_id: The tree's id; None = not named.

    Raises:
        TreeNotFound: nobody has it open, or there is no such tree.
        SessionClosed: it has ended.
        JournalError: there is no journal, or it can't be read.
        ConfigError: several trees are open and none is named, or there is no tree yet.
    """
    trees = [] if client is None else await client.open_trees()
    if tree_id is None and len(trees) > 1:
        raise ConfigError(f"{len(trees)} trees are open, name one with --tree: {', '.join(trees)}")
    if tree_id is None and trees:
        return trees[0]
    if tree_id is not None and tree_id in trees:
        return tree_id
    raise _absent(place, tree_id)


def _absent(place: Path, tree_id: str | None) -> SessionTreeError:
    """Return the error that says why a tree can't be reached.

    Raises:
        JournalError, ConfigError: as its journal can't tell.
    """
    with Journal.open(place, read_only=True) as journal:
        portrait = portrait_of(journal, newest_tree(journal, place) if tree_id is None else tree_id)
    named, main = portrait.config.tree_id, portrait.state.sessions["main"]
    if portrait.is_finished:
        return SessionClosed("main", f"tree {named} ended {main.status}; there is nobody to reach")
    return TreeNotFound(named, f"no runtime has it open; {HOW_TO_RESUME}")


async def news_of(client: ControlClient, tree_id: str, after_seq: int) -> AsyncIterator[Any]:
    """Yield a tree's own facts after a number as they become durable; ends when the tree is let go.

    Raises:
        SessionTreeError: they can't be read.
    """
    while True:
        try:
            records = await client.read_tree(tree_id, after_seq, WAIT_S)
        except TreeNotFound:
            return
        except JournalError:
            if client.is_connected:
                raise
            return
        for record in records:
            after_seq = record.seq
            yield fact_of(record.text)
