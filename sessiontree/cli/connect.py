"""Connection to the runtime that has a tree open, and the error if no runtime has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sessiontree.cli.tree import find_journal, find_newest_tree, read_tree
from sessiontree.contracts.errors import (
    ConfigError,
    JournalError,
    SessionClosed,
    SessionTreeError,
    TreeNotFound,
)
from sessiontree.control.client import ControlClient
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_fact

HOW_TO_RESUME = (
    "continue it first: with `sessiontree resume` a survey or a tree of `run`, with `sessiontree chat` and "
    "--model a chat, with SessionTree.resume a tree of a program"
)
WAIT_S = 20.0
"""Seconds that one request for new facts may wait."""


async def find_live_journal(state_dir: Path, tree_id: str | None) -> Path:
    """Return the directory of the journal, written by a live program, that holds a tree.

    If no tree is named, it is the only journal with open trees, or that of the newest tree.

    Raises:
        TreeNotFound: no journal holds the tree.
        JournalError: a journal can't be read.
        ConfigError: trees of several programs are open, and none is named.
    """
    dirs = list_journal_dirs(state_dir)
    if tree_id is not None or len(dirs) <= 1:
        return find_journal(state_dir, tree_id)
    open_trees: dict[Path, list[str]] = {}
    for each in dirs:
        client = await ControlClient.find(each)
        if client is not None:
            async with client:
                trees = await client.supervisor.open_trees()
            if trees:
                open_trees[each] = list(trees)
    if len(open_trees) > 1:
        named = ", ".join(tree for trees in open_trees.values() for tree in trees)
        raise ConfigError(f"trees of {len(open_trees)} programs are open, name one with --tree: {named}")
    return next(iter(open_trees), None) or find_journal(state_dir, None)


async def list_live_trees(state_dir: Path) -> frozenset[str]:
    """Return the ids of all trees that a program has open.

    A program that does not answer counts as having all trees of its journal open.

    Raises:
        JournalError: a journal can't be read.
    """
    found: set[str] = set()
    for each in list_journal_dirs(state_dir):
        try:
            client = await ControlClient.find(each)
            if client is not None:
                async with client:
                    found |= set(await client.supervisor.open_trees())
        except SessionTreeError:
            with Journal.open(each, read_only=True) as journal:
                found |= {row.tree_id for row in journal.trees()}
    return frozenset(found)


async def open_tree(client: ControlClient | None, place: Path, tree_id: str | None) -> str:
    """Return the id of a tree that a runtime has open: the one named, else the only one.

    Args:
        client: The runtime of the state directory; None = none is live.
        place: The state directory.
        tree_id: The tree's id; None = not named.

    Raises:
        TreeNotFound: nobody has it open, or it does not exist.
        SessionClosed: it has ended.
        JournalError: the journal does not exist or can't be read.
        ConfigError: several trees are open and none is named, or no tree was made yet.
    """
    trees = [] if client is None else await client.supervisor.open_trees()
    if tree_id is None and len(trees) > 1:
        raise ConfigError(f"{len(trees)} trees are open, name one with --tree: {', '.join(trees)}")
    if tree_id is None and trees:
        return trees[0]
    if tree_id is not None and tree_id in trees:
        return tree_id
    raise _make_absent_error(place, tree_id)


def _make_absent_error(place: Path, tree_id: str | None) -> SessionTreeError:
    """Return the error that says why a tree can't be reached.

    Raises:
        JournalError, ConfigError: as its journal can't tell.
    """
    with Journal.open(place, read_only=True) as journal:
        portrait = read_tree(journal, find_newest_tree(journal, place) if tree_id is None else tree_id)
    named, main = portrait.config.tree_id, portrait.state.sessions["main"]
    if portrait.is_finished:
        return SessionClosed("main", f"tree {named} ended as {main.status}; none of its sessions is live")
    return TreeNotFound(named, f"no runtime has it open; {HOW_TO_RESUME}")


async def follow_facts(client: ControlClient, tree_id: str, after_seq: int) -> AsyncIterator[Any]:
    """Yield a tree's own facts after a number as they become durable; ends when the tree is let go.

    Raises:
        SessionTreeError: they can't be read.
    """
    while True:
        try:
            records = await client.supervisor.read_tree(tree_id, after_seq, WAIT_S)
        except TreeNotFound:
            return
        except JournalError:
            if client.is_connected:
                raise
            return
        for record in records:
            after_seq = record.seq
            yield read_fact(record.text)
