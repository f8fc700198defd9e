"""One backend over several shards, as a runtime uses it.

A question about one tree goes to the shard that holds the tree; another one goes to all of them. Not here:
which shard holds a tree (``shards``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sessiontree.api.runtime.backend import Backend
from sessiontree.api.runtime.shards import RemoteShards, Shard, ShardMap
from sessiontree.contracts.errors import ShardLost
from sessiontree.contracts.facts.tree_config import ShardRow
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.transport.rpc import RpcMethod, make_proxy, run_synchronously
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

if TYPE_CHECKING:
    from sessiontree.contracts.facts.tree_config import TreeConfig, TreeSummary
    from sessiontree.runtime.supervisor.tree_resources import TreeResources
    from sessiontree.runtime.transport.progress import ProgressBuffer

T = TypeVar("T")
_TREE = "tree_id"
"""The first parameter of every question about one tree."""


class ShardedBackend:
    """Runs trees in several shards; the program sees one backend.

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
        remote: Callable[[Any], RemoteShards] | None = None,
    ) -> None:
        self.shards = ShardMap(state_dir, first, most, make, remote)
        self._all: SupervisorApi = make_proxy(SupervisorApi, _SupervisorOfTree(self.shards))
        self._all_now: SupervisorApi = make_proxy(SupervisorApi, _SupervisorOfTreeNow(self.shards))

    @property
    def supervisor(self) -> SupervisorApi:
        """The supervisors of all shards; a question about a tree is answered by the tree's."""
        return self._all

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask a question that needs no waiting, and return its answer without an event loop."""
        return run_synchronously(question(self._all_now))

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future; errors as :meth:`SupervisorApi.result`."""
        return self.shards.get_shard(tree_id).backend.request_result(tree_id, session)

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open in this runtime."""
        shard = self.shards.find_known(tree_id)
        return shard is not None and not shard.lost and shard.backend.is_open(tree_id)

    def rows(self) -> list[ShardRow]:
        """Return the shards that were begun, with their open trees; lost ones too."""
        return [shard.row() for shard in self.shards.all]

    def find_journal(self, tree_id: str) -> Path | None:
        """Return the directory of a tree's journal; None = it is on another node, or unknown."""
        shard = self.shards.find_known(tree_id)
        return None if shard is None or shard.node else shard.journal_dir

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration, from whichever shard holds the tree."""
        shard = await self.shards.find(tree_id)
        try:
            config = await shard.backend.read_config(tree_id)
        except BaseException:
            if tree_id not in shard.trees:
                self.shards.forget(tree_id)
            raise
        shard.has_begun = True
        return config

    async def create(self, config: TreeConfig, setup: TreeResources) -> None:
        """Create a tree in the shard with the fewest live sessions; durable when this returns."""
        shard, is_new = await self.shards.assign(config.tree_id)
        try:
            await shard.backend.create(config, setup)  # raises what is wrong with a tree that is known
        except BaseException:
            if is_new:
                self.shards.forget(config.tree_id)
            raise
        shard.has_begun = True

    async def resume(self, tree_id: str, setup: TreeResources) -> None:
        """Resume a tree in the shard whose journal holds it."""
        shard = await self.shards.find(tree_id)
        await shard.backend.resume(tree_id, setup)
        shard.has_begun = True
        shard.trees[tree_id] = None

    async def release(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        shard = self.shards.find_known(tree_id)
        self.shards.forget(tree_id)
        if shard is not None and not shard.lost:
            await shard.backend.release(tree_id)

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a reader of progress."""
        return self.shards.get_shard(tree_id).backend.watch(tree_id, session)

    async def list_remote_trees(self, purpose: str | None) -> list[TreeSummary]:
        """Return the trees on the disks of other nodes.

        Raises:
            ConfigError: a node can't have a shard.
        """
        return await self.shards.list_remote_trees(purpose)

    async def follow_cluster(self) -> None:
        """Take in the nodes that have joined the cluster, and let it know how many trees are open."""
        await self.shards.follow_cluster()

    async def close(self) -> None:
        """Close every shard, then raise the first error that one of them raised."""
        await self.shards.close()


class _SupervisorOfTree:
    """Passes a question about a tree to the tree's supervisor, and another one to all supervisors."""

    def __init__(self, shards: ShardMap) -> None:
        self._shards = shards

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Return the supervisor's answer, or the answers of all of them in one."""
        if _TREE in method.parameters:
            shard = self._shards.get_shard(given[0])
            return await getattr(shard.backend.supervisor, method.name)(*given)
        found = []
        for shard in self._shards.begun():
            with suppress(ShardLost):  # a shard that is lost meanwhile has no answer
                found.append(await getattr(shard.backend.supervisor, method.name)(*given))
        return _join_answers(found)


class _SupervisorOfTreeNow:
    """As :class:`_SupervisorOfTree`, for questions that need no waiting."""

    def __init__(self, shards: ShardMap) -> None:
        self._shards = shards

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Return the answer; the calling thread may block until it is there."""

        def asked(supervisor: SupervisorApi) -> Coroutine[Any, Any, Any]:
            asking: Coroutine[Any, Any, Any] = getattr(supervisor, method.name)(*given)
            return asking

        if _TREE in method.parameters:
            return self._shards.get_shard(given[0]).backend.ask_now(asked)
        found = []
        for shard in self._shards.begun():
            with suppress(ShardLost):  # a shard that is lost meanwhile has no answer
                found.append(shard.backend.ask_now(asked))
        return _join_answers(found)


def _join_answers(found: list[Any]) -> Any:
    """Return the lists of several supervisors as one list; for other values, the first one."""
    if found and not isinstance(found[0], list):
        return found[0]
    return list(chain.from_iterable(found))
