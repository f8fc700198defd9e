"""The actor on a node of a cluster that owns a supervisor there, as a program does.

A supervisor, its hosts and its journal belong to one node, and so does much of what its program does for it:
the claim of the journal, private directories, the watch over processes that start. So an actor on the node is
the supervisor's program. It passes on what the creating program asks; sessions do not need it to run.

Not here: the creating program's end (``node_shards.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sessiontree.backends.ray.backend import RayBackend
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.commands.remote_node import compare_releases
from sessiontree.contracts.errors import ConfigError, PermissionDenied, SessionTreeError
from sessiontree.contracts.facts.tree_config import TreeConfig, TreeSummary
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.thread_calls import claim_in_thread
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import tidy
from sessiontree.journal.claim import JournalClaim, holds_tree, state_dir_of_journal
from sessiontree.models.api_key import ApiKey
from sessiontree.runtime.replay.stored_trees import list_summaries
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.supervisor.process.supervisor_process import SequenceGate
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.rpc import RpcResponse, collect_methods, is_same_key, respond, rpc

INCARNATION: Final = ""
"""Of every actor of a node: Ray starts none of them again."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What the actor of a node is to begin."""

    state_dir: Path
    release: tuple[str, str, str]
    """Of sessiontree, Python and Ray in the creating program."""
    options: Mapping[str, Any]
    """As for the backend of this node."""


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """The modules of the creating program, for a node whose disk does not have them."""

    digest: str
    files: Mapping[str, bytes] | None
    """By path; None = the node has them already."""


class NodeControl(Protocol):
    """What the creating program asks of the actor of a node, besides questions to the supervisor there."""

    @rpc()
    async def begin(self, plan: NodePlan) -> Path:
        """Claim a journal; return its directory."""
        ...

    @rpc(waits=True)
    async def open_tree(
        self,
        tree_id: str,
        config: TreeConfig | None,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        program: ProgramFiles | None,
    ) -> None:
        """Create a tree; without a configuration, resume it from the journal."""
        ...

    @rpc()
    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        ...

    @rpc()
    async def release_tree(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        ...

    @rpc()
    async def has_tree(self, tree_id: str) -> bool:
        """Whether the journal of the node holds a tree."""
        ...

    @rpc()
    async def list_stored(self, state_dir: Path, purpose: str | None) -> list[TreeSummary]:
        """Return the trees in a state directory of the node."""
        ...

    @rpc()
    async def end(self) -> None:
        """End the supervisor and release the journal."""
        ...


class NodeProgram(NodeControl):
    """Owns a supervisor, as a program does."""

    def __init__(self) -> None:
        self._backend: RayBackend | None = None
        self._claim: JournalClaim | None = None
        self._programs: dict[str, Path] = {}
        self._keys: dict[str, ApiKey] = {}
        """The keys at this node's places, by name: no host is given a variable with the value of one."""

    def get_backend(self) -> RayBackend:
        """Return the backend of this node.

        Raises:
            SessionTreeError: it has not begun, or was closed.
        """
        if self._backend is None:
            raise SessionTreeError("the shard has not begun, or it was closed")
        return self._backend

    async def begin(self, plan: NodePlan) -> Path:
        """Claim a journal; return its directory."""
        found = compare_releases(plan.release)
        if found is not None:
            raise ConfigError(f"it has {found}; install the same on every node")
        take = partial(JournalClaim.take, plan.state_dir)
        claim = self._claim = await claim_in_thread(take, JournalClaim.release)
        root = state_dir_of_journal(claim.directory)
        try:
            self._backend = RayBackend(root, journal_dir=claim.directory, **plan.options)
        except BaseException:
            claim.release()
            raise
        return claim.directory

    async def open_tree(
        self,
        tree_id: str,
        config: TreeConfig | None,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        program: ProgramFiles | None,
    ) -> None:
        """Create a tree; without a configuration, resume it from the journal."""
        if config is not None and not await asyncio.to_thread(Path(config.workspace).is_dir):
            raise ConfigError(f"workspace {config.workspace!r} is not a directory there; put a copy in place")
        await asyncio.to_thread(self._find_keys, resources.keys)
        place = None if program is None else await asyncio.to_thread(self._place_program, program)
        await self.get_backend().open_packed(tree_id, config, agents, resources, place)

    def _find_keys(self, names: Sequence[str]) -> None:
        """Refuse a tree whose model has no key here: its first question would fail instead."""
        for name in names:
            self._keys[name] = ApiKey.named(name, "a key of its model")  # it may be another one by now

    def _place_program(self, program: ProgramFiles) -> Path:
        if program.digest not in self._programs:
            if program.files is None:
                raise SessionTreeError("the node does not have the program's modules; open the tree again")
            self._programs[program.digest] = self.get_backend().receive_program(program.files)
        return self._programs[program.digest]

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        return await self.get_backend().read_config(tree_id)

    async def release_tree(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        await self.get_backend().release(tree_id)

    async def has_tree(self, tree_id: str) -> bool:
        """Whether the journal of the node holds a tree."""
        assert self._claim is not None  # noqa: S101 - the shard has begun
        return await asyncio.to_thread(holds_tree, self._claim.directory, tree_id)

    async def list_stored(self, state_dir: Path, purpose: str | None) -> list[TreeSummary]:
        """Return the trees in a state directory of the node."""
        return await asyncio.to_thread(list_summaries, state_dir, purpose)

    async def end(self) -> None:
        """End the supervisor and release the journal."""
        backend, self._backend = self._backend, None
        try:
            if backend is not None:
                await backend.close()
        finally:
            if self._claim is not None:
                self._claim.release()


class NodeActor:
    """The program of one supervisor on its node.

    Args:
        key: Identifies the creating program.
    """

    def __init__(self, key: str) -> None:
        tidy()
        self._key = key
        self._turns = SequenceGate()
        self._program = NodeProgram()

    async def stay(self) -> None:
        """Return never: the call fails when this process ends."""
        await asyncio.get_running_loop().create_future()

    async def ask(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        """Answer the creating program; numbered calls begin in order.

        Cancelled, it cancels what it was asked for.
        """
        if not is_same_key(key, self._key):
            reason = f"asked the shard to {name!r} without the key of the creating program"
            refusal = PermissionDenied(PermissionTier.ELEVATED, reason)
            return dump_value(RpcResponse(INCARNATION, None, refusal))
        if turn is not None:
            await self._turns.reach(turn[1])
        answering = asyncio.ensure_future(respond(INCARNATION, self._call, (name, given)))
        if turn is not None:
            self._turns.advance(turn[1])
        return dump_value(await answering)

    async def command(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        """Answer a control call; the supervisor, not this actor, serves it before others."""
        return await self.ask(key, name, given, turn)

    def _call(self, name: str, given: bytes) -> Awaitable[Any]:
        return self._find_function(name)(*load_value(given))

    def _find_function(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name in collect_methods(NodeControl):
            owner: object = self._program
        elif name in collect_methods(SupervisorControl):
            owner = self._program.get_backend().control
        else:
            owner = self._program.get_backend().supervisor
        function: Callable[..., Awaitable[Any]] = getattr(owner, name)
        return function
