"""Shards on other nodes: trees are found on the right disk, and a lost shard takes only its own trees along.

The other node is a second local backend over another directory, as if that were another machine's disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sessiontree import (
    ConfigError,
    FunctionModel,
    ModelRequest,
    Runtime,
    SessionTree,
    SessionTreeError,
    ShardLost,
    TreeNotFound,
)
from sessiontree.api.runtime.sharded_backend import ShardedBackend
from sessiontree.api.runtime.shards import COUNT_EVERY_S, COUNT_S, RemoteShard, Shard
from sessiontree.backends.local.backend import LocalBackend
from sessiontree.contracts.facts.tree_config import TreeConfig, TreeSummary
from sessiontree.journal.claim import holds_tree
from sessiontree.runtime.replay.stored_trees import list_summaries
from sessiontree.runtime.supervisor.tree_resources import TreeResources
from sessiontree.runtime.transport.rpc import RpcMethod, make_proxy
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

T = TypeVar("T")


def done(request: ModelRequest) -> str:
    """The only answer."""
    return "done"


MODEL = FunctionModel(done)


class SilentPort:
    """Answers as a shard does that never says how many live sessions it has."""

    def __init__(self, supervisor: SupervisorApi) -> None:
        self._supervisor = supervisor
        self.counts = 0

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Pass every other question on."""
        if method.name == "live_sessions":
            self.counts += 1
            await asyncio.Event().wait()
        return await getattr(self._supervisor, method.name)(*given)


class OtherShard(LocalBackend):
    """A shard on another node."""

    node = "other"
    weight: float = 1

    def __init__(self, journal_dir: Path) -> None:
        super().__init__(journal_dir)
        self.journal_dir = journal_dir
        self.lose: Callable[[str], None] = lambda reason: None
        self.is_gone = False
        self.port: SilentPort | None = None

    @property
    def supervisor(self) -> Any:
        """The API of the supervisor, or of the port in its place."""
        return super().supervisor if self.port is None else make_proxy(SupervisorApi, self.port)

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask; a port in its place answers nothing in time."""
        if self.port is not None:
            raise SessionTreeError("it did not answer within 30 s; try again")
        return super().ask_now(question)

    def watch_loss(self, lost: Callable[[str], None]) -> None:
        """Keep what is to be called."""
        self.lose = lost


class OpeningShard(OtherShard):
    """A shard that can't be asked anything before its first tree is open, as one on Ray."""

    def __init__(self, journal_dir: Path) -> None:
        super().__init__(journal_dir)
        self.asked = asyncio.Event()
        self.is_opened = False

    @property
    def supervisor(self) -> Any:
        """The API of the supervisor, once there is one."""
        if not self.is_opened:
            raise SessionTreeError("no tree is open in this runtime; open or resume one first")
        return super().supervisor

    async def create(self, *given: Any) -> None:
        """Take until the others were placed."""
        await self.asked.wait()
        self.is_opened = True
        await super().create(*given)


class OtherNode:
    """Another node: one shard at a time over its disk."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self.shards: list[OtherShard] = []
        self.is_up = True
        self.waiting: list[OtherShard] = []
        """Shards that begin first."""
        self.own_weight: float = 1
        self.asked_for: list[int] = []
        self.refuses = False

    async def join(self) -> Sequence[RemoteShard]:
        """Start a shard if none runs; leave the node alone if it can't have any."""
        return [] if self.refuses else await self.begin()

    async def ask_for(self, trees: int) -> None:
        """Note it."""
        self.asked_for.append(trees)

    async def begin(self) -> Sequence[RemoteShard]:
        """Start a shard if none runs.

        Raises:
            ConfigError: it can't have any.
        """
        if self.refuses:
            raise ConfigError("node other can't have a shard: its process ended")
        if self.waiting:
            return [self.waiting.pop()]
        if not self.is_up or any(not each.is_gone for each in self.shards):
            return []
        self.shards.append(OtherShard(self.disk))
        return self.shards[-1:]

    async def fail(self) -> None:
        """End the node."""
        self.is_up = False
        self.shards[-1].is_gone = True
        await self.shards[-1].close()
        self.shards[-1].lose("its raylet ended")

    async def find_shard(self, tree_id: str) -> RemoteShard | None:
        """Return the shard that runs, if the disk has the tree."""
        held = [each for each in self.shards if not each.is_gone and holds_tree(self.disk, tree_id)]
        return held[0] if held else None

    async def trees(self, purpose: str | None) -> list[TreeSummary]:
        """Return the trees on the disk."""
        return list_summaries(self.disk, purpose)

    async def close(self) -> None:
        """Do nothing; the shards are closed."""


class LateBackend(LocalBackend):
    """Its supervisor can be asked nothing before the first tree is open, as on Ray."""

    has_tree = False
    opening: frozenset[object] = frozenset()
    """The tasks that open trees, to which it answers."""

    @property
    def supervisor(self) -> Any:
        """The API of the supervisor."""
        if not self.has_tree and asyncio.current_task() not in self.opening:
            raise SessionTreeError("no tree is open in this runtime; open or resume one first")
        return super().supervisor

    async def create(self, config: TreeConfig, setup: TreeResources) -> None:
        """Create a tree."""
        self.opening |= {asyncio.current_task()}
        await super().create(config, setup)
        self.has_tree = True


class TwoNodes(Runtime):
    """A runtime with a shard here and one on the other node."""

    def __init__(self, state_dir: Path, node: OtherNode, first: type[LocalBackend] = LocalBackend) -> None:
        self.node = node
        self._first = first
        super().__init__(state_dir, backend="local")

    def _backend(self, *given: Any) -> ShardedBackend:
        first = Shard(self._first(self.state_dir, journal_dir=self.journal_dir), self.journal_dir)
        self._sharded = ShardedBackend(self.state_dir, first, 1, LocalBackend, lambda backend: self.node)
        return self._sharded


@pytest.fixture
def node(tmp_path: Path) -> OtherNode:
    """Another node with an empty disk."""
    return OtherNode(tmp_path / "other")


async def test_trees_of_another_disk_are_listed_and_resumed_there(tmp_path: Path, node: OtherNode) -> None:
    """A journal on the program's disk does not stand in for one on another disk."""
    async with TwoNodes(tmp_path / "state", node) as runtime:
        trees = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        assert [row.node for row in runtime.shards()] == ["", "other"]
        ids = {each.tree_id for each in trees}
        assert {each.tree_id for each in await runtime.trees()} == ids
    async with TwoNodes(tmp_path / "state", OtherNode(node.disk)) as runtime:
        again = await SessionTree.resume(trees[1].tree_id, model=MODEL, runtime=runtime)
        assert await again.main.send("go") == "done"
        assert [row.trees for row in runtime.shards()] == [(), (again.tree_id,)]
        with pytest.raises(TreeNotFound):
            await SessionTree.resume("0" * 32, model=MODEL, runtime=runtime)


async def test_trees_are_placed_while_a_shard_opens_its_first(tmp_path: Path, node: OtherNode) -> None:
    """It is not asked for its sessions before."""
    shard = OpeningShard(node.disk)
    node.shards.append(shard)
    node.waiting.append(shard)
    async with TwoNodes(tmp_path / "state", node) as runtime:
        trees = [SessionTree(tmp_path, model=MODEL, runtime=runtime) for _ in range(4)]
        starting = [asyncio.create_task(tree.start()) for tree in trees]
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sum(len(row.trees) for row in runtime.shards()) == len(trees)
        shard.asked.set()
        for each in starting:
            await each
        assert [await tree.main.send("go") for tree in trees] == ["done"] * 4


async def test_lost_shard_takes_only_its_own_trees_until_its_node_is_back(
    tmp_path: Path, node: OtherNode
) -> None:
    """Its trees raise, new trees go elsewhere, and the tree is resumed once the disk is reached again."""
    async with TwoNodes(tmp_path / "state", node) as runtime:
        trees = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        await node.fail()
        with pytest.raises(ShardLost, match=r"other.*its raylet ended") as found:
            await trees[1].main.send("are you there?")
        assert (found.value.node, found.value.trees) == ("other", (trees[1].tree_id,))
        assert [(row.lost, row.trees, row.live_sessions) for row in runtime.shards()] == [
            ("", (trees[0].tree_id,), 1),
            ("its raylet ended", (trees[1].tree_id,), None),
        ]
        assert await trees[0].main.send("go on") == "done"
        more = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        assert runtime.shards()[0].trees == tuple(each.tree_id for each in (trees[0], *more))
        with pytest.raises(TreeNotFound):
            await SessionTree.resume(trees[1].tree_id, model=MODEL, runtime=runtime)
        node.is_up = True
        again = await SessionTree.resume(trees[1].tree_id, model=MODEL, runtime=runtime)
        assert await again.main.send("and now?") == "done"
        assert [row.trees for row in runtime.shards()][1:] == [(), (again.tree_id,)]


async def test_node_that_can_have_no_shard_refuses_no_tree_of_another(
    tmp_path: Path, node: OtherNode
) -> None:
    """The first tree reports it; later on it may be one that Ray has not yet missed."""
    async with TwoNodes(tmp_path / "state", node) as runtime:
        trees = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        await trees[0].close()
        await node.fail()
        node.refuses = True
        again = await SessionTree.resume(trees[0].tree_id, model=MODEL, runtime=runtime)
        assert await again.main.send("go") == "done"
        with pytest.raises(TreeNotFound):
            await SessionTree.resume(trees[1].tree_id, model=MODEL, runtime=runtime)
    async with TwoNodes(tmp_path / "state", node) as runtime:
        with pytest.raises(ConfigError, match="can't have a shard"):
            await SessionTree(tmp_path, model=MODEL, runtime=runtime).start()


async def test_node_that_comes_back_gets_trees_in_the_same_runtime(tmp_path: Path, node: OtherNode) -> None:
    """Nobody asks for a lost tree: the cluster is looked at again and again, and hears what is open."""
    async with TwoNodes(tmp_path / "state", node) as runtime:
        assert isinstance(runtime.backend, ShardedBackend)
        await runtime.backend.follow_cluster()
        assert node.asked_for == [], "before the first tree nothing is reached"
        held = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        await node.fail()
        await runtime.backend.follow_cluster()
        held.append(await SessionTree(tmp_path, model=MODEL, runtime=runtime).start())
        assert [len(row.trees) for row in runtime.shards()] == [2, 1]
        node.is_up = True
        await runtime.backend.follow_cluster()
        more = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        assert [row.trees for row in runtime.shards()][2] == tuple(each.tree_id for each in more)
        assert node.asked_for == [1, 2]
        assert len(held) == 3


@pytest.mark.parametrize(
    ("own", "other", "placed"), [(1, 3, [2, 6]), (2, 2, [4, 4]), (0, 1, [0, 8]), (0, 0, [4, 4])]
)
async def test_nodes_get_trees_by_their_weight(
    tmp_path: Path, node: OtherNode, own: float, other: float, placed: list[int]
) -> None:
    """In proportion; one without weight gets none while another one takes some."""
    shard = OtherShard(node.disk)
    shard.weight, node.own_weight = other, own
    node.shards.append(shard)
    node.waiting.append(shard)
    async with TwoNodes(tmp_path / "state", node) as runtime:
        held = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(8)]
        assert [len(row.trees) for row in runtime.shards()] == placed
        assert len(held) == sum(placed)


async def test_trees_that_open_at_the_same_time_wait_for_no_supervisor(
    tmp_path: Path, node: OtherNode
) -> None:
    """Shards whose first trees are being opened are not asked how many sessions they have."""
    async with TwoNodes(tmp_path / "state", node, LateBackend) as runtime:
        trees = [SessionTree(tmp_path, model=MODEL, runtime=runtime) for _ in range(6)]
        async with asyncio.TaskGroup() as group:
            for tree in trees:
                group.create_task(tree.start())
        assert [len(row.trees) for row in runtime.shards()] == [3, 3]


async def test_shard_that_does_not_answer_gets_no_new_tree(tmp_path: Path, node: OtherNode) -> None:
    """It counts as the busiest, and is not asked again for every tree."""
    async with TwoNodes(tmp_path / "state", node) as runtime:
        trees = [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(2)]
        port = node.shards[0].port = SilentPort(node.shards[0].supervisor)
        began = time.monotonic()
        trees += [await SessionTree(tmp_path, model=MODEL, runtime=runtime).start() for _ in range(4)]
        assert [(len(row.trees), row.live_sessions) for row in runtime.shards()] == [(5, 5), (1, None)]
        assert 1 <= port.counts <= 1 + (time.monotonic() - began) / (COUNT_S + COUNT_EVERY_S)


class GonePort:
    """Answers as a shard does that is lost while it is asked."""

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Raise.

        Raises:
            ShardLost: always.
        """
        raise ShardLost("other", "its raylet ended")


class GoneShard(OtherShard):
    """A shard that is lost whenever it is asked, before anybody noticed."""

    @property
    def supervisor(self) -> Any:
        """The API of a supervisor that is gone."""
        return make_proxy(SupervisorApi, GonePort())


async def test_question_about_all_trees_leaves_out_a_shard_that_is_just_lost(
    tmp_path: Path, node: OtherNode
) -> None:
    """The other shards' answer is not lost with it."""
    async with TwoNodes(tmp_path / "state", node) as runtime:
        tree = await SessionTree(tmp_path, model=MODEL, runtime=runtime).start()
        gone = GoneShard(tmp_path / "gone")
        assert isinstance(runtime.backend, ShardedBackend)
        runtime.backend.shards.all.append(Shard(gone, gone.journal_dir, "gone", has_begun=True))
        assert await runtime.backend.supervisor.open_trees() == [tree.tree_id]
