"""Opening and closing a supervisor in its process, and its trees with the resources that they came with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from sessiontree.contracts.errors import JournalLocked, SessionTreeError, TreeNotFound
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.runtime.gateway.model_gateway import GatewayLink
from sessiontree.runtime.memory.memory_api import MemoryPort, MemoryProcess
from sessiontree.runtime.scheduling.settings import COPIES, Settings, assign_pools, list_private_places
from sessiontree.runtime.supervisor.host_requests import answer_hosts
from sessiontree.runtime.supervisor.local_supervisor import LocalSupervisor
from sessiontree.runtime.supervisor.process.supervisor_control import TreeControl
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.runtime.transport.link import Transport
from sessiontree.runtime.transport.progress import ProgressHub
from sessiontree.runtime.transport.rpc import RpcAnswers

RESEND_AFTER_S: Final = 3.0
MAX_LOSSES: Final = 2
ORPHAN_S: Final = 30.0
"""How long a supervisor may take to end after its program was killed; a busy machine needs seconds."""
ORPHAN_RETRY_S: Final = 0.1


class SideService(Protocol):
    """A service that runs alongside a supervisor."""

    def start(self) -> None:
        """Start on the running loop."""
        ...

    async def close(self) -> None:
        """End the service, after the supervisor has ended."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessStarts:
    """What a supervisor starts, and what it looks up outside."""

    host: Callable[[str, str], Transport]
    """Starts a host of a pool; the host gets a key for the trees' resources."""
    gateway: Callable[[str], Transport]
    """Starts the gateway, which gets a key for the models."""
    spare_gateway: Callable[[Sequence[str]], None]
    """Starts a process that becomes the gateway at the first question; until then it loads these libraries
    and asks nobody for anything."""
    memory: Callable[[], MemoryProcess]
    """Starts memory, which gets a key for its requests."""
    side_service: Callable[[RpcAnswers], SideService]
    """Makes a service that runs alongside the open supervisor: the control socket."""
    security: Callable[[], Mapping[str, JsonValue]]
    """Looks up how the engine is protected."""
    on_places: Callable[[], None] = lambda: None
    """Called when the nodes that may be used have changed, before a session is placed by them."""


class SupervisorLifetime(TreeControl):
    """Opens and closes the supervisor of a process, and its trees.

    Args:
        settings: The runtime's settings.
        starts: What it starts.
        memory: Reaches memory.
        hub: Hands out progress.
    """

    def __init__(
        self, settings: Settings, starts: ProcessStarts, memory: MemoryPort, hub: ProgressHub
    ) -> None:
        self._settings = settings
        self._starts = starts
        self._memory = memory
        self._hub = hub
        self._clock = TreeClock()
        self._side_service: SideService | None = None
        self._opening = asyncio.Lock()
        self.resources: dict[str, PackedResources] = {}
        """Of each open tree, what it came with."""
        self.supervisor: Supervisor | None = None
        """None = it is not open."""
        self.local: LocalSupervisor | None = None
        """Answers the program and its peers."""
        self.hosts: RpcAnswers | None = None
        """Answers hosts."""

    def get_supervisor(self) -> Supervisor:
        """Return the supervisor.

        Raises:
            SessionTreeError: it is not open.
        """
        if self.supervisor is None:
            raise SessionTreeError("the supervisor is not open yet; open it first")
        return self.supervisor

    async def open(self) -> int:
        """Open the journal and start the first hosts; return the id of this process.

        Raises:
            JournalError: the state directory can't be used.
        """
        async with self._opening:  # Race: the program may ask again before the journal is open
            if self.supervisor is None:
                self._begin(await self._open_journal())
        return os.getpid()

    async def _open_journal(self) -> Journal:
        """Open the journal; wait for a writer whose program was killed to end."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ORPHAN_S
        while True:
            try:
                return Journal.open(settings.journal_dir, program_pid=settings.program_pid)
            except JournalLocked:  # Race: the supervisor of a program that was killed may be about to end
                if not JournalPlace(settings.journal_dir).is_orphaned or loop.time() > deadline:
                    raise
            await asyncio.sleep(ORPHAN_RETRY_S)

    def _begin(self, journal: Journal) -> None:
        journal.start(asyncio.get_running_loop())
        settings = self._settings
        # Workers are confined when they start, and can be let through to a directory only if it exists then.
        (settings.journal_dir / COPIES).mkdir(mode=0o700, exist_ok=True)
        pools = assign_pools(settings.placements)
        gateway = GatewayLink(
            self._starts.gateway, self._hub, self.get_equipment, resend_after_s=RESEND_AFTER_S
        )
        self.supervisor = Supervisor(
            journal,
            self._starts.host,
            pools=dict.fromkeys(pools.values(), settings.pool),
            pool_of=pools,
            gateway=gateway,
            memory=self._memory,
            hub=self._hub,
            clock=self._clock,
            resend_after_s=RESEND_AFTER_S,
            most_losses=MAX_LOSSES,
            hidden=list_private_places(settings.state_dir, settings.memory),
        )
        self.local = LocalSupervisor(self.supervisor, self._starts.security)
        self.hosts = answer_hosts(self.supervisor)
        self._side_service = self._starts.side_service(self.local.answers)
        self._side_service.start()
        # Where placed pools run, the trees say.
        here = [name for name in dict.fromkeys(pools.values()) if name not in settings.placed_pools]
        self.supervisor.scheduler.warm([name for name in here for _ in range(settings.warm)])

    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Create a tree; with ``again``, resume it if it was created before."""
        supervisor = self.get_supervisor()
        if again and any(row.tree_id == config.tree_id for row in supervisor.journal.trees()):
            await self.resume(config.tree_id, agents, resources, again)
            return
        self._keep(config.tree_id, resources)
        try:
            await supervisor.create(config, agents)
        except BaseException:
            self._let_go(config.tree_id)
            raise
        self._expect_questions(resources)

    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Resume a tree; with ``again``, do nothing if it is open."""
        supervisor = self.get_supervisor()
        await supervisor.wait_until_written(tree_id)
        was_open = tree_id in supervisor.trees
        if again and was_open:
            return
        if not was_open:
            self._keep(tree_id, resources)
        try:
            await supervisor.resume(tree_id, agents)
        except BaseException:
            if not was_open:
                self._let_go(tree_id)
            raise
        self._expect_questions(resources)

    def _expect_questions(self, resources: PackedResources) -> None:
        if resources.for_gateway is not None:
            self._starts.spare_gateway(resources.libraries)

    async def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        self._let_go(tree_id)

    def _keep(self, tree_id: str, resources: PackedResources) -> None:
        self.resources[tree_id] = resources
        supervisor = self.get_supervisor()
        supervisor.servers.on_tree_opened(tree_id, resources.servers)
        if resources.places is not None:
            self._starts.on_places()

    def places(self) -> tuple[bytes, ...]:
        """Return on which nodes the hosts of each open tree may run whose Main has not ended."""
        return tuple(
            each.places
            for tree_id, each in self.resources.items()
            if each.places is not None and not self._has_ended(tree_id)
        )

    def _has_ended(self, tree_id: str) -> bool:
        controller = None if self.supervisor is None else self.supervisor.trees.get(tree_id)
        return controller is not None and controller.state.sessions[MAIN].status.is_final

    def _let_go(self, tree_id: str) -> None:
        supervisor = self.get_supervisor()
        supervisor.let_go(tree_id)
        self.resources.pop(tree_id, None)

    def get_equipment(self, tree_id: str) -> str | None:
        """Return the name of a tree's model that waits; None = it has none."""
        resources = self.resources.get(tree_id)
        supervisor = self.get_supervisor()
        return (
            None if resources is None or resources.for_gateway is None else supervisor.tree(tree_id).equipment
        )

    def find_packed(self, name: str, equipment: str) -> bytes:
        """Return the packed resources of a tree, for hosts or for the gateway."""
        tree_id = equipment.partition("#")[0]
        supervisor = self.get_supervisor()
        resources = self.resources.get(tree_id)
        if resources is None or supervisor.tree(tree_id).equipment != equipment:
            raise TreeNotFound(tree_id, "is not open here any more")
        packed = resources.for_hosts if name == "resources" else resources.for_gateway
        if packed is None:
            raise TreeNotFound(tree_id, "has no model that waits")
        return packed

    async def close(self) -> None:
        """End hosts and gateway, and release the journal."""
        if self.supervisor is not None:
            # Race: questions come while it closes; from now on they are refused.
            supervisor, self.supervisor, self.local, self.hosts = self.supervisor, None, None, None
            await supervisor.close()
            if self._side_service is not None:
                await self._side_service.close()
            await supervisor.journal.close()
