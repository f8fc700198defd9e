"""The Ray backend: the program owns a supervisor actor, which owns hosts, gateway and memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import ray

from sessiontree.backends.ray.client.progress_client import ProgressPuller
from sessiontree.backends.ray.client.serialization import add_program, pack
from sessiontree.backends.ray.client.supervisor_client import SupervisorClient
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.program_copy import ProgramCopies
from sessiontree.backends.ray.hosts.placed_nodes import PlacedNodes
from sessiontree.backends.ray.supervisor_launch import SupervisorLaunch, build_cluster_error
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.settings.placement import Placements
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.api_key import ApiKey
from sessiontree.runtime.scheduling.settings import list_hidden_places
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.supervisor.tree_resources import PackedResources, TreeResources
from sessiontree.runtime.transport.progress import ProgressBuffer
from sessiontree.runtime.transport.supervisor_api import ActorRow, SupervisorApi
from sessiontree.sandbox import detect_level

T = TypeVar("T")
HOST_BYTES: Final = 2 * 2**30


class RayBackend:
    """Runs trees in actors. The first tree joins or starts a Ray.

    Args:
        state_dir: The state directory, hidden from tools; memory is in it by default.
        journal_dir: The directory of the journal, which the supervisor locks; None = the state directory.
        slots: How many hosts each pool has at most; None = four per CPU that Ray counts
            for the node, at least eight.
        address: The cluster to connect to; None = the program's own Ray, or a private one.
        num_cpus: CPUs of a private Ray; None = as many as the machine has.
        insecure: Whether a private Ray may run without authentication.
        host_bytes: How much memory one host may use, in bytes.
        enforcement: Whether Workers run if the kernel cannot confine them.
        memory: Where memory is, and which embedder it uses.
        pass_env: Environment variables of this program that hosts get in addition to harmless ones.
        sharing: How many backends use this machine's cores; each of them keeps fewer hosts then.
        placement: Which kinds of sessions may run on other nodes of the cluster, and on which; None = none.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings, as the runtime takes them
        self,
        state_dir: Path,
        *,
        journal_dir: Path | None = None,
        slots: int | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        insecure: bool = False,
        host_bytes: int = HOST_BYTES,
        enforcement: Literal["required", "best_effort"] = "required",
        memory: MemorySettings | None = None,
        pass_env: tuple[str, ...] = (),
        sharing: int = 1,
        placement: Placements | None = None,
    ) -> None:
        """Check the settings; nothing is started yet.

        Raises:
            ConfigError: sessions are to be placed on other nodes without a cluster; or confinement is
                required, and the kernel cannot confine Workers.
        """
        level = detect_level()
        if enforcement == "required" and not level.is_full:
            raise ConfigError(
                f"can't confine Workers: this kernel offers {level}, and Landlock ABI 3 and seccomp are "
                "required; give kernel_enforcement='best_effort' to run them anyway, or use backend='local'"
            )
        self._engine = RayConnection(address, num_cpus, insecure)
        if placement is not None and address is None and not ray.is_initialized():
            raise build_cluster_error()
        self._nodes = None if placement is None else PlacedNodes(placement, self._engine, enforcement)
        memory = memory or MemorySettings()
        variable = memory.key_variable
        self._memory_key = None if variable is None else ApiKey(os.environ.get(variable, "").strip() or None)
        """Held so that no other process is given a variable with this value."""
        self._hidden = list_hidden_places(state_dir, memory)
        self._starting: asyncio.Future[SupervisorClient] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._line: SupervisorClient | None = None
        self._watches: ProgressPuller | None = None
        self._copies = ProgramCopies(state_dir)
        self._launch = SupervisorLaunch(
            engine=self._engine,
            copies=self._copies,
            state_dir=state_dir,
            journal_dir=journal_dir or state_dir,
            slots=slots,
            sharing=sharing,
            host_bytes=host_bytes,
            memory=memory,
            pass_env=pass_env,
            enforcement=enforcement,
            placements=placement,
        )

    @property
    def supervisor(self) -> SupervisorApi:
        """The API of the supervisor, for trees that are open."""
        return self._launch.get_client().supervisor

    @property
    def control(self) -> SupervisorControl:
        """What only the supervisor's program may ask it."""
        return self._launch.get_client().control

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Places hidden from tools and Workers."""
        return self._hidden

    def copy_program(self) -> Path | None:
        """Return a copy of the program's modules in their current state; None = it has none. Blocks."""
        return self._copies.take()

    def receive_program(self, files: Mapping[str, bytes]) -> Path:
        """Write a copy of the modules of a program on another node; return its directory. Blocks."""
        return self._copies.received(files)

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask a question that needs no waiting; this blocks for about a millisecond."""
        return self._launch.get_client().ask_now(question)

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future; errors as :meth:`SupervisorApi.result`."""
        return self._launch.get_client().request_result(tree_id, session)

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open in this runtime."""
        return self._launch.client is not None and self._launch.client.holds(tree_id)

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        return await (await self._ensure_started()).supervisor.read_config(tree_id)

    async def create(self, config: TreeConfig, setup: TreeResources) -> None:
        """Create a tree; durable when this returns."""
        await self._open_tree(config.tree_id, config, setup)

    async def resume(self, tree_id: str, setup: TreeResources) -> None:
        """Resume a tree from the journal."""
        await self._open_tree(tree_id, None, setup)

    async def _open_tree(self, tree_id: str, config: TreeConfig | None, setup: TreeResources) -> None:
        packed = pack(setup, hidden=(*self._hidden, *setup.hidden))
        program = await asyncio.to_thread(self.copy_program)
        await self.open_packed(tree_id, config, setup.agents, packed, program)

    async def open_packed(
        self,
        tree_id: str,
        config: TreeConfig | None,
        agents: Mapping[str, AgentConfig],
        packed: PackedResources,
        program: Path | None,
    ) -> None:
        """Create a tree, or resume it if no configuration is given.

        Args:
            tree_id: The tree.
            config: Its configuration; None = the journal has it.
            agents: Its agents.
            packed: Its tools and models.
            program: A copy of the modules of the program that packed them; None = it has no modules.
        """
        if config is not None:
            for name, place in zip(("state_dir", "memory"), self._hidden, strict=False):
                _check_apart(name, place, Path(config.workspace))
        line = await self._ensure_started()
        if config is not None and (token := self._engine.token_path) is not None:
            _check_apart("the file of Ray's token", token, Path(config.workspace))
        places = None
        if self._nodes is not None:
            scratch = self._launch.scratch
            assert scratch is not None  # noqa: S101 - the runtime has been started
            known = config or await line.supervisor.read_config(tree_id)
            places = await self._nodes.find(tree_id, Path(known.workspace), scratch, program)
        resources = add_program(packed, program, places)
        if config is None:
            opening = asyncio.ensure_future(line.control.resume(tree_id, agents, resources))
        else:
            opening = asyncio.ensure_future(line.control.create(config, agents, resources))
        # Race: the caller may give up while the supervisor opens the tree, which is released once it is open.
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(partial(_take_back, line, tree_id))
            self._on_not_opened(tree_id, places)
            raise
        except BaseException:
            self._on_not_opened(tree_id, places)
            raise
        line.opened(tree_id, agents, resources)

    def _on_not_opened(self, tree_id: str, places: bytes | None) -> None:
        if self._nodes is not None and places is not None:
            self._nodes.on_not_opened(tree_id, places)

    async def release(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        if self._nodes is not None:
            self._nodes.released(tree_id)
        if self._line is not None:
            self._line.released(tree_id)
            with contextlib.suppress(SessionTreeError):  # a supervisor that is gone holds no tree
                await self._line.let_go(tree_id)

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a reader of progress."""
        if self._watches is None:
            raise SessionTreeError("no tree is open in this runtime; open or resume one first")
        return self._watches.watch(tree_id, session)

    async def actors(self) -> list[ActorRow]:
        """Return every process of this runtime with the session that it embodies."""
        return await (await self._ensure_started()).supervisor.actors()

    async def close(self) -> None:
        """End supervisor, hosts, gateway and memory, then the private Ray if this was its last user.

        A second call waits for the first. A cancelled call still closes everything.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # Race: a start that is under way would leave a supervisor that nobody ends.
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])
        line, self._line = self._line, None
        if line is not None:
            line.closed()
            if self._watches is not None:
                await self._watches.close()
            await self._launch.end(line)
        if self._nodes is not None:
            await self._nodes.close()
        await self._launch.remove_rest(line)
        if self._copies.is_used:
            await asyncio.to_thread(self._copies.close)
        await self._engine.close()

    async def _ensure_started(self) -> SupervisorClient:
        if self._closing is not None:
            raise SessionTreeError("the runtime was closed in this process; open another one")
        if self._line is not None:
            return self._line  # on any event loop
        if self._starting is None or self._starting.done():
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> SupervisorClient:
        line = await self._launch.start()
        self._watches = ProgressPuller(line)
        self._line = line
        return line


def _take_back(line: SupervisorClient, tree_id: str, opening: asyncio.Future[Any]) -> None:
    """Release a tree whose opening was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        line.tell(SupervisorControl.release, tree_id)


def _check_apart(name: str, place: Path, workspace: Path) -> None:
    """Refuse a hidden place inside the workspace, which Workers could not read then.

    Args:
        name: What the error calls the place.
        place: Its links are resolved.
        workspace: Absolute, without links.

    Raises:
        ConfigError: the place is inside the workspace.
    """
    if place.resolve().is_relative_to(workspace):
        raise ConfigError(
            f"{name} {str(place)!r} is inside the workspace {str(workspace)!r}, and hiding it from Workers "
            "would also hide what appears next to it later; give a place outside, or leave it out"
        )
