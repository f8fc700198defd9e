"""Shards on the other nodes of a cluster, as the creating program uses them: a supervisor on each node.

Each supervisor belongs to an actor on its node (``node_actor.py``). Not here: which shard a tree is in
(``api/runtime/shards.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import shlex
import site
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.backend import RayBackend
from sessiontree.backends.ray.client.actor_client import ActorClient
from sessiontree.backends.ray.client.progress_client import ProgressPuller
from sessiontree.backends.ray.client.serialization import pack
from sessiontree.backends.ray.client.supervisor_channel import ANSWER_S, SupervisorChannel
from sessiontree.backends.ray.cluster.cluster_demand import ClusterDemand
from sessiontree.backends.ray.cluster.node_actor import (
    INCARNATION,
    NodeActor,
    NodeControl,
    NodePlan,
    ProgramFiles,
)
from sessiontree.backends.ray.commands.remote_node import release
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.program_copy import read_files
from sessiontree.backends.ray.supervisor import SUPERVISOR_CALLS
from sessiontree.contracts.errors import (
    ConfigError,
    EngineLost,
    SessionTreeError,
    ShardLost,
    SupervisorUnavailable,
    describe_error,
)
from sessiontree.contracts.facts.tree_config import TreeConfig, TreeSummary
from sessiontree.contracts.settings.placement import Placement
from sessiontree.runtime.supervisor.tree_resources import TreeResources
from sessiontree.runtime.transport.progress import ProgressBuffer
from sessiontree.runtime.transport.rpc import RpcMethod, get_method, make_proxy

START_S: Final = 120.0
"""How long the actor of a node may take to begin, on a busy machine."""
CLOSE_S: Final = 20.0
OPTIONS: Final[dict[str, Any]] = {
    "num_cpus": 0,
    "memory": 2**20,  # else an autoscaler would take the node for idle
    "max_restarts": 0,
    "max_task_retries": 0,
    "max_concurrency": SUPERVISOR_CALLS,
}
REFUSED_S: Final = 60.0
"""After how long a node that could not have a shard is looked at again."""
BEGIN_AT_ONCE: Final = 8
"""On how many nodes shards begin at the same time."""
_LOG = logging.getLogger("sessiontree")
_OF_THE_CLUSTER: Final = ("address", "num_cpus", "insecure")
"""Options that say which Ray is used; the actor of a node is in it already."""


class NodeShard(ActorClient):
    """The backend of a shard on another node, as the creating program uses it.

    Args:
        actor: The :class:`NodeActor`.
        key: The creating program's key.
        node: Name of the node.
        hidden: Places hidden from tools.
        copied: Returns the directory with the modules of the program; None = it has none.
    """

    weight: float = 1
    """How many trees it takes in proportion to others: the CPUs that Ray counts for its node."""

    def __init__(
        self, actor: Any, key: str, node: str, hidden: tuple[Path, ...], copied: Callable[[], Path | None]
    ) -> None:
        channel = SupervisorChannel(actor, key, ray.is_initialized, None)
        channel.set_incarnation(INCARNATION)
        super().__init__(channel)
        self.node = node
        self.journal_dir = Path()
        """On that node; known once the shard has begun."""
        self._hidden = hidden
        self._copied = copied
        self._trees: set[str] = set()
        self._sent: set[str] = set()
        self._watches = ProgressPuller(self)
        self._calls = channel.calls
        self._tell_lost: Callable[[str], None] = lambda reason: None
        self.node_control: NodeControl = make_proxy(NodeControl, self)
        """The node's actor, besides the supervisor there."""

    async def begin(self, plan: NodePlan) -> None:
        """Claim a journal on the node.

        Raises:
            ConfigError: the node can't have a shard.
            JournalError: the state directory can't be used there.
        """
        try:
            async with asyncio.timeout(START_S):
                self.journal_dir = await self.node_control.begin(plan)
        except TimeoutError:
            raise ConfigError(f"node {self.node} began no shard within {START_S:.0f} s") from None
        except ConfigError as error:
            raise ConfigError(f"node {self.node} can't have a shard: {error}") from None
        except ShardLost as error:
            raise ConfigError(
                f"node {self.node} can't have a shard: its process ended: {error.reason}; is sessiontree "
                "installed there?"
            ) from None

    def watch_loss(self, lost: Callable[[str], None]) -> None:
        """Have a function called, on a thread, with the reason when the shard is lost."""

        def ended(future: Any) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self.lose(_extract_reason(error))

        self._tell_lost = lost
        self.actor.stay.remote().future().add_done_callback(ended)

    def lose(self, reason: str) -> ShardLost:
        """Fail all calls; from any thread. Return the error."""
        lost = ShardLost(self.node, reason, tuple(sorted(self._trees)))
        if not self._calls.is_closed:
            self._tell_lost(reason)
        if not self._calls.is_closed and self._calls.lose(lost):
            # Ray may have called this on a thread that must be free before Ray can be asked for anything.
            threading.Thread(target=self._kill, daemon=True).start()
        return lost

    def _kill(self) -> None:
        with contextlib.suppress(Exception):  # the Ray may be gone too
            ray.kill(self.actor)  # a node that can be reached again must not go on with the trees

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask the node's actor, or the supervisor there.

        Raises:
            ShardLost: the actor's process has ended.
        """
        self._calls.check()
        try:
            answer = await self._channel.ask_actor(method, given)
        except RayError as error:
            self._calls.check()
            raise self._convert_error(error) from None
        if isinstance(answer.error, EngineLost):  # its raylet is gone, and its process ends in a moment
            raise self.lose(answer.error.died)
        return answer.unwrap()

    def call_now(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a method; this blocks for some milliseconds."""
        name = get_method(function).name
        self._calls.check()
        try:
            answer = self._channel.ask_now(name, given)
        except RayError as error:
            raise self._convert_error(error) from None
        except TimeoutError:
            asked_of = f"the shard on {self.node} to {name}"
            raise SupervisorUnavailable(asked_of, f"it did not answer within {ANSWER_S:.0f} s") from None
        return answer.unwrap()

    def _convert_error(self, error: RayError) -> SessionTreeError:
        """Return the error for a call that Ray did not complete; without the actor the shard is lost."""
        if isinstance(error, RayActorError):
            return self.lose(_extract_reason(error))
        return SupervisorUnavailable(f"the shard on {self.node}", _extract_reason(error))

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open in this runtime."""
        return tree_id in self._trees

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        return await self.node_control.read_config(tree_id)

    async def create(self, config: TreeConfig, setup: TreeResources) -> None:
        """Create a tree; durable when this returns."""
        await self._open(config.tree_id, config, setup)

    async def resume(self, tree_id: str, setup: TreeResources) -> None:
        """Resume a tree from the journal."""
        await self._open(tree_id, None, setup)

    async def _open(self, tree_id: str, config: TreeConfig | None, setup: TreeResources) -> None:
        resources = pack(setup, hidden=(*self._hidden, *setup.hidden))
        if "" in resources.keys:
            raise ConfigError(
                f"the tree would be on node {self.node}, and a key that is given as text stays on the "
                "program's node; put the key on each node and name its place, as "
                "ProviderModel(…, key='file:/run/secrets/openai')"
            )
        copy = await asyncio.to_thread(self._copied)
        program = None if copy is None else await asyncio.to_thread(_read_files, copy)
        if program is not None and program.digest in self._sent:
            program = ProgramFiles(program.digest, None)
        try:
            await self.node_control.open_tree(tree_id, config, dict(setup.agents), resources, program)
        except ConfigError as error:
            raise ConfigError(f"node {self.node} can't open the tree: {error}") from None
        if program is not None:
            self._sent.add(program.digest)
        self._trees.add(tree_id)

    async def release(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        self._trees.discard(tree_id)
        await self.node_control.release_tree(tree_id)

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a reader of progress."""
        return self._watches.watch(tree_id, session)

    async def close(self) -> None:
        """End the supervisor and the actor; a lost one has ended."""
        if self._calls.is_closed:
            return
        await self._watches.close()
        with contextlib.suppress(SessionTreeError, TimeoutError):  # it is killed in any case
            async with asyncio.timeout(CLOSE_S):
                await self.node_control.end()
        self._calls.is_closed = True
        if ray.is_initialized():
            ray.kill(self.actor)


def _extract_reason(error: BaseException) -> str:
    """Return the last line of an error; before it, Ray describes the actor."""
    return describe_error(error).splitlines()[-1].strip()


def _read_files(directory: Path) -> ProgramFiles:
    """Return the files of a copy of the program's modules. Blocks."""
    files = read_files(directory)
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    return ProgramFiles(digest.hexdigest(), files)


def find_program_python() -> str | None:
    """Return this interpreter if its environment is over another one, as that of a suite is; else None."""
    own = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    return None if own.issuperset(site.PREFIXES) else sys.executable


def _is_file(path: str) -> bool:
    return Path(path).is_file()


async def _check_python(python: str, name: str, options: Mapping[str, Any]) -> None:
    """Check that a node has an interpreter.

    Raises:
        ConfigError: it has not, or it does not answer.
    """
    looking: Any = ray.remote(_is_file)
    where = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": options["scheduling_strategy"]}
    try:
        async with asyncio.timeout(START_S):
            has_it = await looking.options(**where).remote(python)
    except (TimeoutError, RayError) as error:
        reason = (
            f"it did not answer within {START_S:.0f} s"
            if isinstance(error, TimeoutError)
            else _extract_reason(error)
        )
        raise ConfigError(f"node {name} can't have a shard: {reason}") from None
    if not has_it:
        raise ConfigError(
            f"node {name} can't have a shard: the program runs in the environment {sys.prefix!r}, which that "
            "node does not have; prepare it there with `sessiontree bench prepare SUITE --address ADDRESS`"
        )


class ClusterShards:
    """The other nodes of a cluster that take trees: those that it has, and those that join later.

    Args:
        state_dir: The state directory, on every node.
        options: As for the backend of this node.
        first: The backend of this node.
        wanted: What a node must have to take trees.
        tree_cpus: How many CPUs each open tree reserves in the cluster.
    """

    def __init__(
        self,
        state_dir: Path,
        options: Mapping[str, Any],
        first: RayBackend,
        wanted: Placement,
        tree_cpus: float,
    ) -> None:
        own = {name: options[name] for name in _OF_THE_CLUSTER if name in options}
        self._engine = RayConnection(**own)
        self._first = first
        self._state_dir = state_dir
        self._options = {name: value for name, value in options.items() if name not in own}
        if "memory" in options:  # a directory on each node, which needs none of a remote store's keys
            self._options["memory"] = options["memory"].with_options({})
        self._wanted = wanted
        self._demand = ClusterDemand(tree_cpus)
        self.own_weight: float = 1
        """That of this node; known once the others have begun."""
        self._shards: dict[str, NodeShard] = {}
        """By node, lost ones too."""
        self._refused: dict[str, float] = {}
        """When nodes that could not have a shard are looked at again."""
        self._is_watched = False
        self._changing = asyncio.Lock()

    async def begin(self) -> Sequence[NodeShard]:
        """Start a shard on each other node that fits and has none, or a lost one; return the new shards.

        A node that goes away meanwhile is left out: Ray lists a node that died for some seconds more.

        Raises:
            ConfigError: a node can't have one; says which and why.
        """
        async with self._changing:
            if not self._is_watched:
                await self._engine.start()
                self._engine.lost.add_done_callback(self._lose_all)
                self._is_watched = True
            found = await self._begin_all(await self._free_nodes())
            failures = {name: each for name, each in found.items() if isinstance(each, Exception)}
            if failures:
                there = {row["NodeID"] for row in await self._free_nodes()}
                failures = {name: each for name, each in failures.items() if name in there}
            if failures:
                for each in found.values():
                    if isinstance(each, NodeShard):  # the next call begins it again
                        await each.close()
                raise next(iter(failures.values()))
            return self._keep(found)

    async def join(self) -> Sequence[NodeShard]:
        """Start a shard on each node that has joined, or whose shard is lost; return the new shards.

        A node that can't have one is logged, and looked at again a minute later.
        """
        async with self._changing:
            now = time.monotonic()
            free = [each for each in await self._free_nodes() if self._refused.get(each["NodeID"], 0) <= now]
            found = await self._begin_all(free)
            for node_id, each in found.items():
                if isinstance(each, Exception):
                    self._refused[node_id] = time.monotonic() + REFUSED_S
                    _LOG.warning("a node takes no trees: %s", describe_error(each))
            return self._keep(found)

    async def ask_for(self, trees: int) -> None:
        """Reserve CPUs of the cluster for so many open trees."""
        await asyncio.to_thread(self._demand.ask_for, trees)

    async def _free_nodes(self) -> list[dict[str, Any]]:
        """Return the other nodes that fit and have no shard; note what this node weighs."""
        rows: list[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
        free = []
        for row in sorted(rows, key=lambda each: str(each["NodeID"])):
            fits = row["Alive"] and self._wanted.fits(row.get("Labels", {}), row["Resources"])
            if row["NodeID"] == self._engine.node_id:
                self.own_weight = _get_weight(row) if fits else 0
            elif fits and (row["NodeID"] not in self._shards or self._shards[row["NodeID"]].is_lost):
                free.append(row)
        return free

    async def _begin_all(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, NodeShard | Exception]:
        """Begin shards on nodes, some at a time; return each, or why it can't be, by node."""
        places = asyncio.Semaphore(BEGIN_AT_ONCE)

        async def begin(row: Mapping[str, Any]) -> NodeShard | Exception:
            async with places:
                try:
                    return await self._begin(row)
                except Exception as error:  # noqa: BLE001 - the caller says what becomes of the node
                    return error

        async with asyncio.TaskGroup() as group:
            begun = {str(row["NodeID"]): group.create_task(begin(row)) for row in rows}
        return {node_id: each.result() for node_id, each in begun.items()}

    def _keep(self, found: Mapping[str, NodeShard | Exception]) -> list[NodeShard]:
        begun = {name: each for name, each in found.items() if isinstance(each, NodeShard)}
        self._shards |= begun
        return list(begun.values())

    def _lose_all(self, lost: Future[EngineLost]) -> None:
        if not lost.cancelled():
            for shard in list(self._shards.values()):
                shard.lose(lost.result().died)

    async def _begin(self, row: Mapping[str, Any]) -> NodeShard:
        node_id, name, key = str(row["NodeID"]), str(row["NodeName"]), secrets.token_hex(16)
        where = NodeAffinitySchedulingStrategy(node_id, soft=False)
        options = {**OPTIONS, "scheduling_strategy": where}
        python = find_program_python()
        if python is not None:
            await _check_python(python, name, options)
            options["runtime_env"] = {"py_executable": shlex.quote(python)}
        make: Any = ray.remote(NodeActor)
        actor = make.options(**options).remote(key)
        shard = NodeShard(actor, key, f"{name} ({node_id[:8]})", self._first.hidden, self._first.copy_program)
        shard.weight = _get_weight(row)
        try:
            await shard.begin(NodePlan(self._state_dir, release(), self._options))
        except BaseException:
            ray.kill(actor)
            raise
        return shard

    async def find_shard(self, tree_id: str) -> NodeShard | None:
        """Return the shard whose journal holds a tree; None = no shard on another node writes it."""
        for shard in self._shards.values():
            with contextlib.suppress(ShardLost):
                if await shard.node_control.has_tree(tree_id):
                    return shard
        return None

    async def trees(self, purpose: str | None) -> list[TreeSummary]:
        """Return the trees in the state directories of the other nodes that can be reached."""
        found: dict[str, TreeSummary] = {}
        for shard in self._shards.values():
            with contextlib.suppress(ShardLost):
                rows = await shard.node_control.list_stored(self._state_dir, purpose)
                found |= {each.tree_id: each for each in rows}
        return list(found.values())

    async def close(self) -> None:
        """Let go of the cluster; the shards were closed before."""
        if ray.is_initialized():
            await asyncio.to_thread(self._demand.ask_for, 0)
        await self._engine.close()


def _get_weight(row: Mapping[str, Any]) -> float:
    return float(row["Resources"].get("CPU", 0.0))
