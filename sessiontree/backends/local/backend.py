"""The local backend: supervisor, hosts, gateway and journal in one asyncio process.

The same runtime as on Ray; only the way between supervisor and host is a direct call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sessiontree.backends.local.transport import Faults, LocalTransport
from sessiontree.contracts.errors import TreeNotFound, WrongLoop
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.control.server import ControlServer
from sessiontree.dispatch.hooks import HookChain
from sessiontree.journal.journal import Journal
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.port import GatewayModel
from sessiontree.policy.compiled import compiled
from sessiontree.protected import own_places
from sessiontree.runtime.clock import TreeClock
from sessiontree.runtime.host import HostCore, HostEquipment
from sessiontree.runtime.memory_peers import open_store
from sessiontree.runtime.memory_protocol import Ended, MemoryRight, ScopeAnswer
from sessiontree.runtime.memory_service import MemoryCore
from sessiontree.runtime.model_gateway import GatewayCore
from sessiontree.runtime.progress import ProgressHub, ProgressReader
from sessiontree.runtime.scheduler import PoolSize
from sessiontree.runtime.settings import hidden_places
from sessiontree.runtime.supervisor import SupervisorCore
from sessiontree.runtime.supervisor_api import Owner
from sessiontree.runtime.tree_resources import TreeSetup
from sessiontree.web.web import OutboundWeb

DEFAULT_SLOTS = 64
POOL = "host"
"""All kinds share one pool: what they run in is one process anyway."""


class LocalBackend:
    """Runs trees in this process.

    Args:
        state_dir: Hidden from tools; memory lies there.
        journal_dir: Where the journal lies, locked while the backend is open; None = in the state directory.
        slots: Most sessions embodied at a time; others are rows in the journal meanwhile.
        faults: What goes wrong between supervisor and hosts, on purpose.
        memory: Where memory lies, and what embeds its texts.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        journal_dir: Path | None = None,
        slots: int = DEFAULT_SLOTS,
        faults: Faults | None = None,
        memory: MemorySettings | None = None,
    ) -> None:
        """Open the journal.

        Raises:
            JournalError: it cannot be used.
        """
        self._journal_dir = journal_dir or state_dir
        self._journal = Journal.open(self._journal_dir)
        settings = memory or MemorySettings()
        uri = settings.uri_in(state_dir)
        self._hidden = hidden_places(state_dir, settings)
        self.memory = MemoryCore(uri, partial(open_store, settings, uri), self)
        """What sessions remember."""
        self._faults = faults
        self._slots = slots
        self._hub = ProgressHub()
        self._clock = TreeClock()
        self._models: dict[str, GatewayModel] = {}
        self.equipment: dict[str, HostEquipment] = {}
        """What hosts are given, by tree."""
        self.transports: list[LocalTransport] = []
        """Hosts that live."""
        self._supervisor: SupervisorCore | None = None
        self._owner: Owner | None = None
        self._control: ControlServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def supervisor(self) -> SupervisorCore:
        """The supervisor, started with the first use on the running loop."""
        if self._supervisor is None:
            self._loop = asyncio.get_running_loop()
            self._journal.start(asyncio.get_running_loop())
            self._supervisor = SupervisorCore(
                self._journal,
                self._make_transport,
                pools={POOL: PoolSize(most=self._slots, usual=self._slots)},
                pool_of=_pool_of,
                gateway=GatewayCore(self._models.get),
                memory=self.memory,
                hub=self._hub,
                clock=self._clock,
                resend_after_s=0.5 if self._faults is None else self._faults.delay_s * 10,
            )
            self._control = ControlServer(Owner(self._supervisor), self._journal_dir)
            self._control.start()
        return self._supervisor

    @property
    def owner(self) -> Owner:
        """What may be asked about trees that are open.

        Raises:
            WrongLoop: by whoever runs on another loop than this backend's.
        """
        if self._owner is None:
            self._owner = Owner(self.supervisor)
        if not self._is_at_home:
            raise WrongLoop(
                f"the local runtime over {str(self._journal_dir)!r}",
                "it lives in the event loop of its first use, and this is another one; close it and open a "
                "new one here, or stay within one asyncio.run",
            )
        return self._owner

    @property
    def _is_at_home(self) -> bool:
        """Whether this is the loop it runs on, or none, such as a plain call between two turns."""
        try:
            return self._loop in {None, asyncio.get_running_loop()}
        except RuntimeError:
            return self._loop is None or not self._loop.is_closed()

    def _make_transport(self, pool: str, name: str) -> LocalTransport:
        host = HostCore(self._equip, self.supervisor, self.memory, self._hub, self._clock.now_ms)
        transport = LocalTransport(host, self._faults, self.transports.remove)
        self.transports.append(transport)
        return transport

    async def whose(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Say for memory whom grants stand for."""
        return ScopeAnswer(await self.supervisor.whose(wanted))

    async def ended_of(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return for memory those trees whose Main has completed."""
        return await self.supervisor.ended_of(tree_ids)

    def _equip(self, name: str) -> HostEquipment:
        tree_id = name.partition("#")[0]
        equipment = self.equipment.get(tree_id)
        if equipment is None:
            raise TreeNotFound(tree_id, "is not open in this process")
        return equipment

    async def config_of(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        return await self.owner.config_of(tree_id)

    async def create(self, config: TreeConfig, setup: TreeSetup) -> None:
        """Create a tree; durable when this returns."""
        self._equip_tree(config.tree_id, setup)
        await self.owner.create(config, setup.agents)

    async def resume(self, tree_id: str, setup: TreeSetup) -> None:
        """Take up a tree from the journal."""
        was_open = self.owner.is_open(tree_id)
        if not was_open:
            self._equip_tree(tree_id, setup)
        try:
            await self.owner.resume(tree_id, setup.agents)
        except BaseException:
            if not was_open:
                self.release(tree_id)
            raise

    def _equip_tree(self, tree_id: str, setup: TreeSetup) -> None:
        web = None if setup.web is None else OutboundWeb(setup.web)
        policy = compiled(setup.table.rows, setup.policy)
        hooks = HookChain.for_hosts(setup.hooks)
        self.equipment[tree_id] = HostEquipment(
            setup.table,
            setup.instant,
            self._hidden,
            web,
            policy,
            setup.group,
            setup.model_name,
            hooks,
            own_places(),
        )
        if setup.waiting is not None:
            self._models[tree_id] = setup.waiting

    def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        self.owner.release(tree_id)
        self.equipment.pop(tree_id, None)
        self._models.pop(tree_id, None)

    def watch(self, tree_id: str, session: str | None) -> ProgressReader:
        """Return a reader of progress."""
        return self._hub.watch(tree_id, session)

    async def close(self) -> None:
        """End hosts and supervisor and let the journal go."""
        if not self._is_at_home:
            await self._abandon()
            return
        if self._supervisor is not None:
            await self._supervisor.close()
        if self._control is not None:
            await self._control.close()
        await self._journal.close()

    async def _abandon(self) -> None:
        """Let go of what another loop, which is closed, had: what ran there has ended with it."""
        for transport in list(self.transports):
            with suppress(RuntimeError):  # whatever still wants to be told on that loop
                transport.kill()
        if self._control is not None:
            self._control.abandon()
        with suppress(RuntimeError):
            await self.memory.close()
        await self._journal.close()


def _pool_of(kind: SessionKind) -> str:
    return POOL
