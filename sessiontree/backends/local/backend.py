"""The local backend: supervisor, hosts, gateway and journal in one asyncio process.

It runs the same runtime as on Ray. Supervisor and host call each other directly. ``Faults`` loses, repeats,
delays and reorders frames and answers on purpose, and ends hosts; a tree must come out the same.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sessiontree.contracts.errors import TreeNotFound, WrongLoop
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.server import ControlServer
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.journal.journal import Journal
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.port import GatewayModel
from sessiontree.policy.compiled import compile_policy
from sessiontree.protected import own_places
from sessiontree.runtime.gateway.model_gateway import GatewayCore
from sessiontree.runtime.host.host import MAX_KEPT_CHARS, HostCore, HostResources, SharedSessions
from sessiontree.runtime.memory.memory_api import Ended, MemoryRight, ScopeAnswer
from sessiontree.runtime.memory.memory_peers import open_store
from sessiontree.runtime.memory.memory_service import MemoryService
from sessiontree.runtime.rights.host_services import Services
from sessiontree.runtime.scheduling.pool import PoolSize
from sessiontree.runtime.scheduling.settings import list_hidden_places, list_private_places
from sessiontree.runtime.supervisor.host_requests import answer_hosts
from sessiontree.runtime.supervisor.local_supervisor import LocalSupervisor
from sessiontree.runtime.supervisor.process.collection_interval import COLLECTIONS
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.supervisor.tree_resources import TreeResources
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.runtime.transport.frames import Frame, PollReply
from sessiontree.runtime.transport.link import HostLost
from sessiontree.runtime.transport.progress import ProgressBuffer, ProgressHub
from sessiontree.runtime.transport.rpc import make_proxy, run_synchronously
from sessiontree.runtime.transport.supervisor_api import SupervisorApi
from sessiontree.sandbox import CommandTurns
from sessiontree.web.web import OutboundWeb


@dataclass(slots=True)
class Faults:
    """Faults, each with a chance per message from 0 to 1; the random source makes them repeatable."""

    random: random.Random
    lose: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.002
    """The longest delay; delayed messages overtake each other."""
    die: float = 0.0
    """The chance per submit and poll that the host ends."""
    deaths_left: int = 0
    deaths: int = field(default=0, init=False)

    def draw_fault(self, chance: float) -> bool:
        """Whether a fault with this chance happens now."""
        return chance > 0 and self.random.random() < chance


class LocalTransport:
    """Calls the host directly, with the faults that it was given."""

    level = "structural"
    """Sessions share the program's process: only their handles confine them."""
    node = ""
    is_ready = True
    embodied: tuple[str, int] | None = None

    def __init__(
        self,
        host: HostCore,
        faults: Faults | None,
        on_close: Callable[[LocalTransport], None],
        shelf: object | None = None,
    ) -> None:
        self.pid = os.getpid()  # not that of the process that loaded this: one may be forked from it
        self.host = host
        self.shelf = shelf or self
        """Where the host keeps states of sessions; the same object = together with other hosts."""
        self._faults = faults
        self._on_close = on_close
        self._dead = False

    def submit(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Pass frames to the host."""
        faults = self._faults
        if self._dead:
            return
        if faults is None:
            self.host.receive(frames)
            return
        if self._is_doomed(faults):
            # Later, not within this call: a real host dies independently of its callers.
            asyncio.get_running_loop().call_soon(self.kill)
        for frame in frames:
            if faults.draw_fault(faults.lose):
                continue
            for _ in range(2 if faults.draw_fault(faults.repeat) else 1):
                self._pass_on(frame, faults)

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return the host's outcomes.

        Raises:
            HostLost: the host died, and its outcomes are lost.
            TimeoutError: the answer was lost.
        """
        faults = self._faults
        if faults is None:
            return await self.host.poll(after, wait_s)
        reply = await self.host.poll(after, min(wait_s, faults.delay_s * 5))
        if self._is_doomed(faults):
            self.kill()
            raise HostLost("the host died")
        if faults.draw_fault(faults.delay):
            await asyncio.sleep(faults.delay_s * faults.random.random())
        if faults.draw_fault(faults.lose):
            raise TimeoutError
        return reply

    async def ready(self) -> None:
        """Return at once: nothing has to start."""

    async def lag_s(self) -> float:
        """Return 0: a host in this process answers whenever the supervisor runs."""
        return 0.0

    def kill(self) -> None:
        """End the host at once; outcomes that it did not report are lost."""
        if not self._dead:
            self._dead = True
            self.host.close()
            self._on_close(self)

    def close(self) -> None:
        """End the host."""
        self.kill()

    async def ended(self) -> int:
        """Return how many processes of commands still ran when the host was closed."""
        await self.host.wait_for_commands()
        return self.host.killed

    def _pass_on(self, frame: tuple[int, Frame], faults: Faults) -> None:
        if faults.draw_fault(faults.delay):
            delay_s = faults.delay_s * faults.random.random()
            asyncio.get_running_loop().call_later(delay_s, self._receive, frame)
        else:
            self._receive(frame)

    def _receive(self, frame: tuple[int, Frame]) -> None:
        if not self._dead:
            self.host.receive((frame,))

    def _is_doomed(self, faults: Faults) -> bool:
        dies = not self._dead and faults.deaths_left > 0 and faults.draw_fault(faults.die)
        if dies:
            faults.deaths_left -= 1
            faults.deaths += 1
        return dies


T = TypeVar("T")
DEFAULT_SLOTS = 64
SHARED_CHARS: Final = 8 * MAX_KEPT_CHARS
"""How long the facts of all states that the hosts of this process keep may be together."""
POOL = "host"
"""All kinds share one pool, because they all run in one process."""


class LocalBackend:
    """Runs trees in this process.

    Args:
        state_dir: The state directory, hidden from tools; memory is in it by default.
        journal_dir: The directory of the journal, locked while the backend is open; None = the state
            directory.
        slots: How many sessions are embodied at a time at most; the others are rows in the journal.
        ahead: How many sessions may wait at a slot for their turn. Messages within a process cost little, so
            that none needs to.
        faults: Faults between supervisor and hosts, for tests.
        memory: Where memory is, and which embedder it uses.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        journal_dir: Path | None = None,
        slots: int = DEFAULT_SLOTS,
        ahead: int = 0,
        faults: Faults | None = None,
        memory: MemorySettings | None = None,
    ) -> None:
        """Open the journal.

        Raises:
            JournalError: the journal cannot be used.
        """
        self._journal_dir = journal_dir or state_dir
        self._journal = Journal.open(self._journal_dir)
        settings = memory or MemorySettings()
        uri = settings.uri_in(state_dir)
        self._hidden = list_hidden_places(state_dir, settings)
        self._private = list_private_places(state_dir, settings)
        self.memory = MemoryService(uri, partial(open_store, settings, uri), self)
        """The memory of this runtime."""
        self._faults = faults
        self._slots = slots
        self._ahead = ahead
        self._hub = ProgressHub()
        self._turns = CommandTurns()
        self._kept = SharedSessions(SHARED_CHARS)
        self._clock = TreeClock()
        self._models: dict[str, Mapping[str, GatewayModel]] = {}
        self.equipment: dict[str, HostResources] = {}
        """The equipment of hosts, by tree."""
        self.transports: list[LocalTransport] = []
        """The transports of living hosts."""
        self._opened: tuple[Supervisor, LocalSupervisor] | None = None
        self._control: ControlServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._holds_threshold = False

    def _let_go_threshold(self) -> None:
        """Restore the threshold; a backend may be closed twice."""
        if self._holds_threshold:
            self._holds_threshold = False
            COLLECTIONS.release()

    def _open(self) -> tuple[Supervisor, LocalSupervisor]:
        """Return the supervisor and its answers; the first use starts it on the running event loop."""
        if self._opened is None:
            self._loop = asyncio.get_running_loop()
            self._journal.start(asyncio.get_running_loop())
            COLLECTIONS.hold()
            self._holds_threshold = True
            core = Supervisor(
                self._journal,
                self._make_transport,
                pools={POOL: PoolSize(most=self._slots, usual=self._slots, ahead=self._ahead)},
                pool_of=dict.fromkeys(SessionKind, POOL),
                gateway=GatewayCore(self._get_models),
                memory=self.memory,
                hub=self._hub,
                clock=self._clock,
                resend_after_s=0.5 if self._faults is None else self._faults.delay_s * 10,
                hidden=self._private,
            )
            self._opened = core, LocalSupervisor(core)
            self._control = ControlServer(self._opened[1].answers, self._journal_dir)
            self._control.start()
        return self._opened

    @property
    def core(self) -> Supervisor:
        """The supervisor; its first use starts it on the running event loop."""
        return self._open()[0]

    @property
    def local(self) -> LocalSupervisor:
        """The supervisor's answers in this process.

        Raises:
            WrongLoop: the caller runs on another event loop than this backend.
        """
        _, local = self._opened or self._open()
        self._check_loop()
        return local

    def _check_loop(self) -> None:
        if not self._is_at_home:
            raise WrongLoop(
                f"the local runtime over {str(self._journal_dir)!r}",
                "it belongs to the event loop of its first use, and this is another one; close it and open a "
                "new one here, or stay within one asyncio.run",
            )

    @property
    def supervisor(self) -> SupervisorApi:
        """The API of the supervisor, for trees that are open; errors as for :attr:`local`."""
        return self.local.api

    @cached_property
    def services(self) -> Services:
        """The supervisor's answers to hosts."""
        services: Services = make_proxy(Services, answer_hosts(self.core))
        return services

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask a question that needs no waiting, and return the answer."""
        return run_synchronously(question(self.supervisor))

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future; errors as :meth:`SupervisorApi.result`."""
        return self.local.sessions.request_result(tree_id, session)

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open in this runtime."""
        return tree_id in self.core.trees

    @property
    def _is_at_home(self) -> bool:
        """Whether the caller is on this backend's event loop, or on none while that loop is open."""
        try:
            return self._loop in {None, asyncio.get_running_loop()}
        except RuntimeError:
            return self._loop is None or not self._loop.is_closed()

    def _make_transport(self, pool: str, name: str) -> LocalTransport:
        host = HostCore(
            self._equip,
            self.services,
            self.memory,
            self._hub,
            self._clock.now_ms,
            turns=self._turns,
            kept=self._kept,
        )
        transport = LocalTransport(host, self._faults, self.transports.remove, self._kept)
        self.transports.append(transport)
        return transport

    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Return for memory the session of each grant."""
        return await self.core.resolve_grants(wanted)

    async def list_completed_trees(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return for memory the trees among these whose Main has completed."""
        return await self.core.list_completed_trees(tree_ids)

    def _equip(self, name: str) -> HostResources:
        tree_id = name.partition("#")[0]
        equipment = self.equipment.get(tree_id)
        if equipment is None:
            raise TreeNotFound(tree_id, "is not open in this process; resume it first")
        return equipment

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        return await self.supervisor.read_config(tree_id)

    async def create(self, config: TreeConfig, setup: TreeResources) -> None:
        """Create a tree; durable when this returns."""
        self._equip_tree(config.tree_id, setup)
        self._check_loop()
        await self.core.create(config, setup.agents)

    async def resume(self, tree_id: str, setup: TreeResources) -> None:
        """Resume a tree from the journal."""
        core = self.core
        self._check_loop()
        await core.wait_until_written(tree_id)
        was_open = self.is_open(tree_id)
        if not was_open:
            self._equip_tree(tree_id, setup)
        try:
            await core.resume(tree_id, setup.agents)
        except BaseException:
            if not was_open:
                await self.release(tree_id)
            raise

    def _equip_tree(self, tree_id: str, setup: TreeResources) -> None:
        web = None if setup.web is None else OutboundWeb(setup.web)
        policy = compile_policy(setup.table.rows, setup.policy)
        hooks, configuration = HookChain.for_hosts(setup.hooks), setup.configuration
        self.equipment[tree_id] = HostResources(
            setup.table,
            setup.instant,
            (*self._hidden, *setup.hidden),
            web,
            policy,
            setup.group,
            hooks,
            own_places(),
            setup.skills,
            open_configuration=None if configuration is None else lambda: configuration,
        )
        self._models[tree_id] = setup.waiting
        self.core.servers.on_tree_opened(tree_id, setup.servers)

    def _get_models(self, tree_id: str) -> Mapping[str, GatewayModel]:
        return self._models.get(tree_id, {})

    async def release(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        core = self.core
        self._check_loop()
        core.let_go(tree_id)
        self.equipment.pop(tree_id, None)
        await _let_go(self._models.pop(tree_id, {}))

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a reader of progress."""
        return self._hub.watch(tree_id, session)

    async def close(self) -> None:
        """End hosts and supervisor, and close the journal."""
        self._let_go_threshold()
        if not self._is_at_home:
            await self._abandon()
            return
        if self._opened is not None:
            await self._opened[0].close()
        while self._models:
            await _let_go(self._models.popitem()[1])
        if self._control is not None:
            await self._control.close()
        await self._journal.close()

    async def _abandon(self) -> None:
        """Release what belongs to another event loop, which is closed; its tasks have ended with it."""
        for transport in list(self.transports):
            with suppress(RuntimeError):  # something tries to schedule a call on that loop
                transport.kill()
        if self._control is not None:
            self._control.abandon()
        with suppress(RuntimeError):
            await self.memory.close()
        await self._journal.close()


async def _let_go(models: Mapping[str, GatewayModel]) -> None:
    """Let a tree's models close their connections, where they hold any."""
    for model in models.values():
        close = getattr(model, "close", None)
        if close is not None:
            await close()
