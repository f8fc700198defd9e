"""Several supervisors behind one runtime: which of them holds a tree, and which one takes a new tree.

A shard is a backend with a journal of its own. A tree is wholly in one shard: the one with the fewest live
sessions when the tree is created, later the one whose journal holds it. Shards on other nodes come from
:class:`RemoteShards`. Not here: what a shard does; how a journal is found in a directory
(``journal/claim.py``); or questions about all shards (``sharded_backend``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sessiontree.api.runtime.backend import Backend
from sessiontree.contracts.errors import (
    JournalError,
    JournalLocked,
    SessionTreeError,
    ShardLost,
    TreeNotFound,
    describe_error,
)
from sessiontree.contracts.facts.tree_config import ShardRow
from sessiontree.contracts.tools.thread_calls import claim_in_thread
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.claim import JournalClaim, holds_tree, locate_journal
from sessiontree.journal.place import JournalPlace
from sessiontree.journal.reader import make_no_tree_error

if TYPE_CHECKING:
    from sessiontree.contracts.facts.tree_config import TreeSummary

_LOG = logging.getLogger("sessiontree")
LOST_ENDS_S = 60.0
"""How long the processes of a lost shard on a disk that is still reached may take to end."""
AGAIN_S = 0.2
COUNT_EVERY_S = 1.0
"""How often, at most, shards are asked how many live sessions they have."""
FOLLOW_S = 5.0
"""How often a runtime looks for nodes that have joined the cluster."""
COUNT_S = 1.0
"""How long they may take to answer; one that takes longer counts as the busiest until the next question."""


def count_live_sessions(backend: Backend) -> int | None:
    """Return how many sessions of a backend's open trees have not ended; None = it does not answer."""
    with suppress(SessionTreeError):  # it is lost just now, or its node does not answer
        return backend.ask_now(lambda supervisor: supervisor.live_sessions())
    return None


@dataclass(slots=True, eq=False)
class Shard:
    """One backend with its journal, and the trees that are open in it."""

    backend: Backend
    journal_dir: Path
    """On the disk of its node."""
    node: str = ""
    """Name of its node; empty = the program's."""
    claim: JournalClaim | None = None
    """Released when the runtime closes; None = somebody else releases it."""
    trees: dict[str, None] = field(default_factory=dict)
    """Ids of the open trees, in the order they were opened."""
    has_begun: bool = False
    """Whether it was asked for something, so that its supervisor runs."""

    lost: str = ""
    """Why it is lost; empty = it is not."""
    weight: float = 1
    """How many trees it takes in proportion to others; 0 = none while another one takes some."""
    sessions: float = 0
    """How many live sessions it reported; infinitely many if it did not answer in time."""
    change: int = 0
    """How many trees were created in it since then, less those that were released."""

    def load(self) -> tuple[float, int]:
        """Return what new trees are placed by: its sessions with one more, for its weight, and its trees."""
        live = max(self.sessions + self.change, len(self.trees))
        return (live + 1) / self.weight if self.weight else math.inf, len(self.trees)

    def row(self) -> ShardRow:
        """Return its place, its trees and its live sessions, for which its supervisor is asked."""
        live: int | None = None if self.lost else 0
        if self.trees and self.has_begun and not self.lost:
            live = count_live_sessions(self.backend)
        return ShardRow(str(self.journal_dir), tuple(self.trees), self.node, self.lost, live)

    def check(self) -> None:
        """Raise if the shard is lost: a new error for each caller, without old tracebacks.

        Raises:
            ShardLost: it is lost.
        """
        if self.lost:
            raise ShardLost(self.node, self.lost, tuple(self.trees))

    def note_lost(self, reason: str) -> None:
        """Note that the shard is lost; from any thread."""
        if not self.lost:
            self.lost = reason
            trees = ", ".join(self.trees) or "none was open"
            _LOG.warning("lost the shard on %s: %s; its trees: %s", self.node, reason, trees)


class RemoteShard(Backend, Protocol):
    """A shard on another node."""

    node: str
    journal_dir: Path
    weight: float
    """How many trees it takes in proportion to others."""

    def watch_loss(self, lost: Callable[[str], None]) -> None:
        """Have a function called with the reason when the shard is lost."""
        ...


class RemoteShards(Protocol):
    """The other nodes of a cluster."""

    own_weight: float
    """That of the program's node; known once the others have begun."""

    async def join(self) -> Sequence[RemoteShard]:
        """Start a shard on each node that has joined since; one that can't have any is logged."""
        ...

    async def ask_for(self, trees: int) -> None:
        """Let the cluster know how many trees are open, so that it gets nodes for them."""
        ...

    async def begin(self) -> Sequence[RemoteShard]:
        """Start a shard on each node that has none; return the new ones.

        Raises:
            ConfigError: a node can't have one; says which and why.
        """
        ...

    async def find_shard(self, tree_id: str) -> RemoteShard | None:
        """Return the shard whose journal holds a tree; None = no shard on another node writes it."""
        ...

    async def trees(self, purpose: str | None) -> list[TreeSummary]:
        """Return the trees in the state directories of the other nodes that can be reached."""
        ...

    async def close(self) -> None:
        """Let go of the cluster, after the shards were closed."""
        ...


class ShardMap:
    """Knows the shard of each tree: chooses one for a new tree, and finds the journal of another.

    Args:
        state_dir: The state directory, which holds all journals.
        first: The first shard.
        most: Maximum shards on this node for new trees; a tree to resume may need one more.
        make: Makes the backend over a journal of this node.
        remote: Makes the shards of the other nodes, from the first backend; None = one node only.
    """

    def __init__(
        self,
        state_dir: Path,
        first: Shard,
        most: int,
        make: Callable[[Path], Backend],
        remote: Callable[[Any], RemoteShards] | None,
    ) -> None:
        self.all = [first]
        """Those that were begun; lost ones stay."""
        self._state_dir = state_dir
        self._most = most
        self._make = make
        self._remote = None if remote is None else remote(first.backend)
        self._has_remote = remote is None
        self._following: asyncio.Task[None] | None = None
        self._places: dict[str, Shard] = {}
        self._choosing = asyncio.Lock()
        """Race: two trees that open at once could begin two shards over one journal. They take turns."""
        self._counted_at = -math.inf

    def find_known(self, tree_id: str) -> Shard | None:
        """Return the shard of a tree that was opened or looked up here; it may be lost. None = neither."""
        return self._places.get(tree_id)

    def begun(self) -> list[Shard]:
        """Return the shards whose supervisors run."""
        return [shard for shard in self.all if shard.has_begun and not shard.lost]

    def get_shard(self, tree_id: str) -> Shard:
        """Return the shard of a tree that this runtime opened or looked up.

        Raises:
            TreeNotFound: the tree was not looked up here.
            ShardLost: the shard is lost.
        """
        shard = self._places.get(tree_id)
        if shard is None:
            raise TreeNotFound(tree_id, "is not open in this runtime; resume it first")
        shard.check()
        return shard

    async def list_remote_trees(self, purpose: str | None) -> list[TreeSummary]:
        """Return the trees on the disks of other nodes.

        Raises:
            ConfigError: a node can't have a shard.
        """
        if self._remote is None:
            return []
        async with self._choosing:
            await self._reach_remote()
        return await self._remote.trees(purpose)

    async def close(self) -> None:
        """Close every shard, then raise the first error that one of them raised."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        closing = [asyncio.ensure_future(shard.backend.close()) for shard in self.all]
        try:
            await asyncio.wait(closing)
        finally:
            for shard in self.all:
                if shard.claim is not None:
                    shard.claim.release()
            if self._remote is not None:
                await self._remote.close()
        for each in closing:
            each.result()

    async def assign(self, tree_id: str) -> tuple[Shard, bool]:
        """Return the shard of a tree that is to be created, and whether it was chosen now.

        The tree counts from now on; :meth:`forget` takes it back.
        """
        async with self._choosing:
            shard = self._places.get(tree_id)
            if shard is not None:
                return shard, False
            shard = await self._choose_shard()
            shard.trees[tree_id] = None
            shard.change += 1
            self._places[tree_id] = shard
            return shard, True

    def forget(self, tree_id: str) -> None:
        """Note that a tree is open here no more."""
        shard = self._places.pop(tree_id, None)
        if shard is not None:
            shard.trees.pop(tree_id, None)
            shard.change -= 1

    async def _reach_remote(self) -> None:
        """Start a shard on each other node, the first time."""
        if self._remote is not None and not self._has_remote:
            self._add(await self._remote.begin())
            self.all[0].weight = self._remote.own_weight
            self._has_remote = True
            if self._following is None:
                self._following = asyncio.create_task(self._follow())

    def _add(self, begun: Sequence[RemoteShard]) -> None:
        for each in begun:
            shard = Shard(each, each.journal_dir, each.node, weight=each.weight)
            self.all.append(shard)
            each.watch_loss(shard.note_lost)

    async def _follow(self) -> None:
        failed = ""
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                await self.follow_cluster()
                failed = ""
            except Exception as error:  # noqa: BLE001 - the trees go on; the cluster is asked again
                if failed != describe_error(error):
                    failed = describe_error(error)
                    _LOG.warning("can't look for new nodes, and look again in %g s: %s", FOLLOW_S, failed)

    async def follow_cluster(self) -> None:
        """Take in the nodes that have joined the cluster, and let it know how many trees are open."""
        if self._remote is not None and self._has_remote:
            self._add(await self._remote.join())
            await self._remote.ask_for(sum(len(shard.trees) for shard in self.all if not shard.lost))

    async def _choose_shard(self) -> Shard:
        await self._reach_remote()
        own = [shard for shard in self.all if not shard.node]
        if len(own) < self._most and all(shard.trees for shard in own):
            claim = await claim_in_thread(partial(JournalClaim.take, self._state_dir), JournalClaim.release)
            return self._begin(claim)
        shards = [each for each in self.all if not each.lost]
        if len(shards) > 1 and all(shard.trees for shard in shards):
            await self._count_sessions(shards)
        return min(shards, key=Shard.load)

    async def _count_sessions(self, shards: Sequence[Shard]) -> None:
        """Ask shards how many live sessions they have, unless they were asked a moment ago.

        One whose first tree is still being opened can't be asked; it has the trees that were given to it.
        """
        if time.monotonic() - self._counted_at < COUNT_EVERY_S:
            return
        begun = [shard for shard in shards if shard.has_begun]
        if not begun:
            return
        asking = {asyncio.create_task(shard.backend.supervisor.live_sessions()): shard for shard in begun}
        try:
            await asyncio.wait(asking, timeout=COUNT_S)
        finally:
            for each, shard in asking.items():
                shard.change, shard.sessions = 0, math.inf
                if each.done() and not each.cancelled() and each.exception() is None:
                    shard.sessions = each.result()
                each.cancel()
        self._counted_at = time.monotonic()

    def _begin(self, claim: JournalClaim) -> Shard:
        try:
            shard = Shard(self._make(claim.directory), claim.directory, claim=claim)
        except BaseException:
            claim.release()
            raise
        self.all.append(shard)
        return shard

    async def find(self, tree_id: str) -> Shard:
        """Return the shard whose journal holds a tree; begin one if no shard here writes that journal.

        Raises:
            TreeNotFound: no journal holds it.
            JournalLocked: another program writes the journal that holds it.
        """
        async with self._choosing:
            place = self._places.get(tree_id)
            if place is not None and not place.lost:
                return place
            await self._reach_remote()
            shard = await self._find_shard(tree_id)
            self.forget(tree_id)
            self._places[tree_id] = shard
            return shard

    async def _find_shard(self, tree_id: str) -> Shard:
        journal = await asyncio.to_thread(self._own_journal, tree_id)
        for shard in self.all:
            if not shard.node and shard.journal_dir == journal:
                return shard
        found = await self._find_remote_shard(tree_id)
        if found is not None:
            return found
        if isinstance(journal, JournalError):
            raise journal
        return self._begin(await self._claim_journal(journal, tree_id))

    def _own_journal(self, tree_id: str) -> Path | JournalError:
        """Return the directory of the journal on this disk that holds a tree, or why it has none. Blocks."""
        try:
            directory = locate_journal(self._state_dir, tree_id)
            if self._remote is None or holds_tree(directory, tree_id):
                return directory
        except JournalError as error:
            return error
        return make_no_tree_error(str(JournalPlace(directory).database), tree_id)

    async def _claim_journal(self, directory: Path, tree_id: str) -> JournalClaim:
        """Claim the journal of a tree; wait for the processes of a lost shard to end."""
        place = self._places.get(tree_id)
        deadline = asyncio.get_running_loop().time() + (0.0 if place is None else LOST_ENDS_S)
        while True:
            try:
                take = partial(JournalClaim.take, directory, tree_id)
                return await claim_in_thread(take, JournalClaim.release)
            except JournalLocked:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def _find_remote_shard(self, tree_id: str) -> Shard | None:
        if self._remote is None:
            return None
        found = await self._remote.find_shard(tree_id)
        if found is None and any(shard.lost for shard in self.all):
            # A lost node may have come back. A node that can't have a shard, or that goes away now, must not
            # keep a tree of another node from its program.
            self._add(await self._remote.join())
            found = await self._remote.find_shard(tree_id)
        return next((shard for shard in self.all if shard.backend is found), None)
