"""The trees of a state directory, open or not, as programs list, export, load, fork, replay and erase them.

Light: the journal is loaded when it is first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sessiontree.api.runtime.paths import make_absolute, resolve_state_dir
from sessiontree.api.runtime.runtime import PURPOSE
from sessiontree.contracts.settings.given_values import TEXT
from sessiontree.memory.settings import MemorySettings

if TYPE_CHECKING:
    from sessiontree.contracts.facts.tree_config import TreeSummary
    from sessiontree.contracts.reports.dry_run import DryRun
    from sessiontree.contracts.reports.replay_report import ReplayReport
    from sessiontree.contracts.settings.model_settings import ModelPrice


class StoredTrees:
    """The trees whose journals are in one state directory: list, export, load, fork, replay and erase them.

    No tree needs to be open, and none is started. Trees that programs run are listed, exported, forked and
    replayed too, as far as their facts are durable; they are not erased.

    Args:
        state_dir: The state directory, or the directory of one of its journals; None = that of the working
            directory.

    Raises:
        ConfigError: the directory is not a path.
    """

    def __init__(self, state_dir: str | Path | None = None) -> None:
        self._state_dir = resolve_state_dir(state_dir)

    @property
    def state_dir(self) -> Path:
        """The directory."""
        return self._state_dir

    async def export(self, tree_id: str, path: str | Path) -> int:
        """Write a tree's durable facts to a file, whether the tree is open or closed.

        The file is NDJSON in which each line carries a hash, and only its owner may read it. It holds
        everything that sessions read and wrote, and the configuration of the tree; memory is not part of it.

        Args:
            tree_id: The tree.
            path: Replaced once the export is whole.

        Returns:
            How many facts it holds.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalError: its journal can't be read.
            OSError: the file can't be written; the earlier file is unchanged.
        """
        from sessiontree.api.stored.tree_export import export_tree

        tree_id, out = TEXT.take(tree_id, "tree_id"), make_absolute(path, "path")
        return (await asyncio.to_thread(export_tree, self._state_dir, tree_id, out)).records

    async def load(self, path: str | Path, *, damaged: bool = False) -> str:
        """Write an exported tree into a journal, whole or not at all; ``SessionTree.resume`` then opens it.

        The tree keeps its id, its facts and its configuration: workspace, limits, rights and rules. Load
        files you trust. Resume only one of several copies: they know nothing of each other's effects.

        Args:
            path: A file that :meth:`export` wrote.
            damaged: Accept the export of a damaged tree, which holds only its good beginning.

        Returns:
            The tree's id.

        Raises:
            JournalCorrupt: the file is not an export, is cut or altered, or is the export of a damaged tree.
            JournalTooNew: a later release wrote it.
            JournalError: the file is not a regular file or can't be read, or the state directory holds the
                tree already or can't be read.
            JournalUnwritable: the state directory can't be written.
        """
        from sessiontree.api.stored.tree_export import import_tree

        load = partial(import_tree, make_absolute(path, "path"), self._state_dir, damaged=damaged)
        return (await asyncio.to_thread(load)).tree_id

    async def fork(
        self, tree_id: str, *, at: int | None = None, replace: Mapping[str, str] | None = None
    ) -> str:
        """Write a new tree that shares the first facts of another one; ``SessionTree.resume`` then opens it.

        As :meth:`SessionTree.fork`, of a tree that need not be open; another program may run it meanwhile.

        Args:
            tree_id: The other tree.
            at: Number of the last shared fact; None = the newest.
            replace: New tasks of children that have reported, by session id, as in :meth:`SessionTree.fork`.

        Returns:
            The new tree's id.

        Raises:
            TreeNotFound: no journal here holds the tree.
            ConfigError: no tree can be forked at this fact, which says where it can; or a child can't be
                replaced.
            JournalError: the journal can't be read or written.
        """
        from sessiontree.api.stored.journaled_trees import fork_tree

        tree_id = TEXT.take(tree_id, "tree_id")
        return (await asyncio.to_thread(fork_tree, self._state_dir, tree_id, at, replace)).tree_id

    async def dry_resume(self, tree_id: str, *, prices: Mapping[str, ModelPrice] | None = None) -> DryRun:
        """Say what a resume of a tree would do at once: what runs again, what the journal serves, what waits.

        The rules that a resume applies decide on a copy of the tree. Nothing is written, started or asked.

        Args:
            tree_id: The tree.
            prices: Prices of models' tokens, by agent; what other agents' replies cost is not known.

        Returns:
            Sessions with their open calls, questions and costs. What follows from the replies is not in it,
            nor what has become overdue meanwhile.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalError: it can't be read.
        """
        from sessiontree.api.stored.journaled_trees import dry_resume

        tree_id = TEXT.take(tree_id, "tree_id")
        return await asyncio.to_thread(dry_resume, self._state_dir, tree_id, prices)

    async def dry_fork(
        self,
        tree_id: str,
        *,
        at: int | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        replace: Mapping[str, str] | None = None,
    ) -> DryRun:
        """Say what a fork of a tree would do at once, as :meth:`dry_resume`.

        Args:
            tree_id: The other tree.
            at: Number of the last shared fact; None = the newest.
            prices: Prices of models' tokens, by agent; what other agents' replies cost is not known.
            replace: As in :meth:`fork`.

        Returns:
            The same as for a resume, and what the fork itself settles.

        Raises:
            TreeNotFound: no journal here holds the tree.
            ConfigError: no tree can be forked at this fact; says where it can.
            JournalError: it can't be read.
        """
        from sessiontree.api.stored.journaled_trees import dry_fork

        tree_id = TEXT.take(tree_id, "tree_id")
        return await asyncio.to_thread(dry_fork, self._state_dir, tree_id, at, prices, replace)

    async def replay(self, tree_id: str) -> ReplayReport:
        """Apply the rules of this release again to what a tree recorded, and compare every fact.

        Nothing is asked, called or written: what models, tools and people answered is in the facts. The tree
        may be open; its facts up to now are compared. A tree of another release is only read.

        Args:
            tree_id: The tree.

        Returns:
            What was compared, and the first difference.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalError: it can't be read.
        """
        from sessiontree.api.stored.journaled_trees import replay_tree

        tree_id = TEXT.take(tree_id, "tree_id")
        return await asyncio.to_thread(replay_tree, self._state_dir, tree_id)

    async def erase(
        self, tree_id: str, *, memory: MemorySettings | None = None, keep_memory: bool = False
    ) -> int:
        """Erase a tree that no program runs: its facts, and the records its sessions stored in memory.

        Exports of the tree, and files in its workspace, stay.

        Args:
            tree_id: The tree.
            memory: Where memory is; None = in the state directory.
            keep_memory: Leave memory as it is.

        Returns:
            How many records of memory were erased.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalLocked, MemoryFailed: a program writes its journal, or memory; nothing was erased.
            JournalError, MemoryFailed: the journal or memory can't be written.
        """
        from sessiontree.api.stored.journaled_trees import erase_tree

        uri = None if keep_memory else (memory or MemorySettings()).uri_in(self._state_dir)
        return await erase_tree(self._state_dir, TEXT.take(tree_id, "tree_id"), uri)

    async def prune(
        self,
        *,
        older_than_s: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        unfinished: bool = True,
    ) -> Sequence[str]:
        """Erase old trees from the journals that no program writes now; what they stored in memory stays.

        A tree must meet every condition that is given.

        Args:
            older_than_s: Only trees whose newest fact is older than this, in seconds.
            keep: Leave out this many of the most recently written trees.
            max_bytes: Only the least recently written trees, until the facts of all that are left take so
                many bytes at most.
            unfinished: Also trees that were left open, which could be resumed, and damaged ones.

        Returns:
            The ids of the erased trees.

        Raises:
            ConfigError: no condition is given, or one is out of bounds.
            JournalError: a journal can't be read or written.
        """

        def run() -> Sequence[str]:
            from sessiontree.api.stored.journaled_trees import plan_prune, prune

            plan = plan_prune(
                self._state_dir,
                older_than_s=older_than_s,
                keep=keep,
                max_bytes=max_bytes,
                unfinished=unfinished,
            )
            return prune(plan)

        return await asyncio.to_thread(run)

    async def list(self, purpose: str | None = None) -> Sequence[TreeSummary]:
        """Return every tree of the state directory, oldest first, including those that programs run.

        Args:
            purpose: Only those opened with exactly this ``purpose``; None = all.

        Raises:
            ConfigError: the purpose is not text.
            JournalError: a journal can't be read.
        """
        from sessiontree.runtime.replay.stored_trees import list_summaries

        PURPOSE.take(purpose, "purpose")
        return await asyncio.to_thread(list_summaries, self._state_dir, purpose)
