"""The supervisor in its own process: who may ask for what, and in which order calls begin."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from sessiontree.contracts.errors import JournalLocked, PermissionDenied, SessionTreeError, TreeNotFound
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.runtime.gateway.model_gateway import GatewayLink
from sessiontree.runtime.memory.memory_api import (
    MemoryLink,
    MemoryProcess,
    MemoryRight,
    ScopeAnswer,
    Supervision,
)
from sessiontree.runtime.rights.host_services import Services
from sessiontree.runtime.scheduling.settings import COPIES, Settings, assign_pools, list_private_places
from sessiontree.runtime.supervisor.supervisor import SupervisorCore
from sessiontree.runtime.supervisor.supervisor_service import SupervisorService
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.runtime.transport.link import Transport
from sessiontree.runtime.transport.progress import Progress, ProgressBuffer, ProgressHub, Push
from sessiontree.runtime.transport.result_push import ResultAnswer, ResultChange, ResultPush
from sessiontree.runtime.transport.rpc import RpcResponse, collect_methods, make_portable, rpc

PATIENCE_S = 5.0
"""How long a request waits for earlier ones, any of which may have been lost."""


class SequenceGate:
    """Begins numbered requests in order; numbers begin at 1."""

    def __init__(self) -> None:
        self._passed = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def reach(self, number: int) -> None:
        """Wait until every earlier number has passed, or for ``PATIENCE_S``."""
        if number <= self._passed + 1:
            return
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(number, None)

    def passed(self, number: int) -> None:
        """Note that a request has begun; it is the next one's turn."""
        self._passed = max(self._passed, number)
        turn = self._waiting.get(self._passed + 1)
        if turn is not None and not turn.done():
            turn.set_result(None)


RESEND_AFTER_S: Final = 3.0
MAX_LOSSES: Final = 2
ORPHAN_S: Final = 30.0
"""How long a supervisor may take to end after its program was killed; a busy machine needs seconds."""
ORPHAN_RETRY_S: Final = 0.1
FOR_GRANTS: Final = frozenset({*collect_methods(Services), "last_words"})
"""What hosts may ask for the session that they embody."""
FOR_MEMORY: Final = frozenset({*collect_methods(Supervision), "begun"})
"""What memory may ask."""


class SideService(Protocol):
    """A service that runs alongside a supervisor."""

    def start(self) -> None:
        """Start on the running loop."""
        ...

    async def close(self) -> None:
        """End the service, after the supervisor has ended."""
        ...


class SupervisorLifecycle(Protocol):
    """Requests to a supervisor's process that only the creating program may make."""

    @rpc()
    async def open(self) -> int:
        """Open the journal and start the first hosts; return the id of the process.

        Raises:
            JournalError: the state directory can't be used.
        """
        ...

    @rpc()
    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Create a tree; durable when this returns. ``again``: it may have been created already."""
        ...

    @rpc()
    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Resume a tree from the journal. ``again``: it may have been resumed already."""
        ...

    @rpc()
    async def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        ...

    @rpc()
    async def watch(self, tree_id: str, session: str | None) -> str:
        """Begin to watch progress; return the name of the watch."""
        ...

    @rpc()
    async def unwatch(self, name: str) -> None:
        """End a watch."""
        ...

    @rpc(waits=True)
    async def progress(self, name: str, wait_s: float) -> tuple[tuple[Progress, ...], int]:
        """Return what a watch holds, waiting for the first event, and how many it has dropped so far."""
        ...

    @rpc()
    async def offered(self, name: str) -> int:
        """Return how many events a watch was offered so far."""
        ...

    @rpc()
    async def close(self) -> None:
        """End hosts and gateway, and release the journal."""
        ...


class SupervisorServer(SupervisorLifecycle):
    """Answers the creating program, identified by a key, and hosts, identified by a grant.

    Args:
        key: Identifies the creating program.
        settings: The runtime's settings.
        start_host: Starts a host of a pool; the host gets a key for the trees' resources.
        start_gateway: Starts the gateway, which gets a key for the models.
        start_memory: Starts memory, which gets a key for its requests.
        make_side_service: Makes a service that runs alongside the open supervisor: the control socket.
        security: Looks up how the engine is protected.
        on_places: Called when the nodes that may be used have changed, before a session is placed by them.
    """

    def __init__(  # noqa: PLR0913 - what it starts and is asked, each by a function
        self,
        key: str,
        settings: Settings,
        start_host: Callable[[str, str], Transport],
        start_gateway: Callable[[str], Transport],
        start_memory: Callable[[], MemoryProcess],
        make_side_service: Callable[[SupervisorService], SideService],
        security: Callable[[], Mapping[str, JsonValue]],
        on_places: Callable[[], None] = lambda: None,
    ) -> None:
        self.incarnation = secrets.token_hex(8)
        self._key = key
        self._host_key = secrets.token_hex(16)
        self._gateway_key = secrets.token_hex(16)
        self._memory_key = secrets.token_hex(16)
        self._memory = MemoryLink(start_memory)
        self._settings = settings
        self._start_host = start_host
        self._start_gateway = start_gateway
        self._make_side_service = make_side_service
        self._security = security
        self._on_places = on_places
        self._side_service: SideService | None = None
        self._hub = ProgressHub()
        self._clock = TreeClock()
        self._resources: dict[str, PackedResources] = {}
        self._turns = SequenceGate()
        self._readers: dict[str, ProgressBuffer] = {}
        self._opening = asyncio.Lock()
        self._core: SupervisorCore | None = None
        self._service: SupervisorService | None = None

    async def ask(
        self, key: str, name: str, given: tuple[Any, ...], turn: tuple[str, int] | None = None
    ) -> RpcResponse:
        """Answer the creating program. Requests numbered for this incarnation begin in that order."""
        if not _is_same(key, self._key):
            return self._make_refusal(name)
        number = turn[1] if turn is not None and turn[0] == self.incarnation else None
        if number is None:
            return await self._answer(self._answer_program, (name, given))
        await self._turns.reach(number)
        answering = asyncio.ensure_future(self._answer(self._answer_program, (name, given)))
        self._turns.passed(number)
        return await answering

    async def follow(
        self, key: str, name: str, push: Push, has_room: Callable[[], Awaitable[None]]
    ) -> RpcResponse:
        """Push the events of a watch to the creating program, as they come; returns only a refusal.

        Args:
            key: The program's key.
            name: The watch.
            push: As for :meth:`ProgressBuffer.follow`.
            has_room: The same.
        """
        if not _is_same(key, self._key):
            return self._make_refusal("follow")
        return await self._answer(self._follow, (name, push, has_room))

    def make_result_push(self, send: Callable[[tuple[ResultAnswer, ...]], None]) -> ResultPush:
        """Return what pushes results over a line to the creating program.

        Args:
            send: Sends answers over the line.
        """

        async def ask(tree_id: str, session: str) -> RpcResponse:
            return await self._answer(self._answer_program, ("result", (tree_id, session)))

        def make_response(result: SessionResult[Any] | None, error: Exception | None) -> RpcResponse:
            return RpcResponse(self.incarnation, result, None if error is None else make_portable(error))

        return ResultPush(lambda: self._service, ask, make_response, send)

    async def follow_results(self, key: str, results: ResultPush) -> RpcResponse:
        """Push results until this is cancelled, with the end of the line; returns only a refusal."""
        if _is_same(key, self._key):
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                results.close()
        return self._make_refusal("follow_results")

    def await_results(self, key: str, results: ResultPush, changes: Sequence[ResultChange]) -> None:
        """Await more results, or some no more; without the program's key, nothing changes."""
        if _is_same(key, self._key):
            results.change(changes)

    async def _follow(self, name: str, push: Push, has_room: Callable[[], Awaitable[None]]) -> None:
        await self._find_reader(name).follow(push, has_room)

    def show(self, events: Sequence[Progress]) -> None:
        """Show events of the gateway to those who watch."""
        for each in events:
            self._hub.emit(each.tree_id, each.session, each.event)

    def _make_refusal(self, name: str) -> RpcResponse:
        reason = f"asked the supervisor to {name!r} without the key of the creating program"
        return RpcResponse(self.incarnation, None, PermissionDenied(PermissionTier.ELEVATED, reason))

    async def serve(self, token: str, name: str, given: tuple[Any, ...]) -> RpcResponse:
        """Answer a host for the session of its grant, and gateway and memory by their keys."""
        if name in FOR_GRANTS and self._core is not None:
            return await self._answer(getattr(self._core, name), (token, *given))
        if name == "memory" and self._core is not None:
            return await self._answer(self._connect_to_memory, (token,))
        # Models hold provider keys and go to the gateway alone; tools go to hosts.
        key = {"resources": self._host_key, "model": self._gateway_key}.get(name)
        if key is not None and _is_same(token, key):
            return await self._answer(self._find_packed, (name, *given))
        if name in FOR_MEMORY and _is_same(token, self._memory_key):
            return await self._answer(self._answer_memory, (name, *given))
        reason = f"asked the supervisor to {name!r} without a grant for it"
        return RpcResponse(self.incarnation, None, PermissionDenied(PermissionTier.ELEVATED, reason))

    async def _answer(self, function: Callable[..., Any], given: tuple[Any, ...]) -> RpcResponse:
        try:
            value = function(*given)
            if asyncio.iscoroutine(value):
                value = await value
        except Exception as error:  # noqa: BLE001 - the error is raised in the caller's process
            return RpcResponse(self.incarnation, None, make_portable(error))
        return RpcResponse(self.incarnation, value)

    def _answer_program(self, name: str, given: tuple[Any, ...]) -> Any:
        if name in collect_methods(SupervisorLifecycle):
            return getattr(self, name)(*given)
        if self._service is None or name not in collect_methods(type(self._service)):
            raise SessionTreeError(
                f"the supervisor can't {name!r}: it is not open yet, or has no such method; open it first"
            )
        return getattr(self._service, name)(*given)

    async def open(self) -> int:
        """Open the journal and start the first hosts; return the id of this process.

        Raises:
            JournalError: the state directory can't be used.
        """
        async with self._opening:
            if self._core is None:
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
            except JournalLocked:
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
            self._start_gateway, self._hub, self._get_equipment, resend_after_s=RESEND_AFTER_S
        )
        self._core = SupervisorCore(
            journal,
            self._start_host,
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
        self._service = SupervisorService(self._core, self._security)
        self._side_service = self._make_side_service(self._service)
        self._side_service.start()
        for name in dict.fromkeys(pools.values()):
            if name not in settings.placed_pools:  # where those run, the trees say
                for _ in range(settings.warm):
                    self._core.scheduler.warm(name)

    @property
    def host_key(self) -> str:
        """The key by which hosts get a tree's tools."""
        return self._host_key

    @property
    def gateway_key(self) -> str:
        """The key by which the gateway gets a tree's model."""
        return self._gateway_key

    @property
    def memory_key(self) -> str:
        """The key by which supervisor and memory identify themselves to each other."""
        return self._memory_key

    def _opened(self) -> tuple[SupervisorCore, SupervisorService]:
        if self._core is None or self._service is None:
            raise SessionTreeError("the supervisor is not open yet; open it first")
        return self._core, self._service

    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Create a tree; with ``again``, resume it if it was created before."""
        core, service = self._opened()
        if again and any(row.tree_id == config.tree_id for row in core.journal.trees()):
            await self.resume(config.tree_id, agents, resources, again)
            return
        self._keep(config.tree_id, resources)
        try:
            await service.create(config, agents)
        except BaseException:
            self._let_go(config.tree_id)
            raise

    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Resume a tree; with ``again``, do nothing if it is open."""
        core, service = self._opened()
        await service.written(tree_id)
        was_open = tree_id in core.trees
        if again and was_open:
            return
        if not was_open:
            self._keep(tree_id, resources)
        try:
            await service.resume(tree_id, agents)
        except BaseException:
            if not was_open:
                self._let_go(tree_id)
            raise

    async def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        self._let_go(tree_id)

    def _keep(self, tree_id: str, resources: PackedResources) -> None:
        self._resources[tree_id] = resources
        core, _ = self._opened()
        core.servers.on_tree_opened(tree_id, resources.servers)
        if resources.places is not None:
            self._on_places()

    def places(self) -> tuple[bytes, ...]:
        """Return on which nodes the hosts of each open tree may run whose Main has not ended."""
        return tuple(
            each.places
            for tree_id, each in self._resources.items()
            if each.places is not None and not self._has_ended(tree_id)
        )

    def _has_ended(self, tree_id: str) -> bool:
        controller = None if self._core is None else self._core.trees.get(tree_id)
        return controller is not None and controller.state.sessions[MAIN].status.is_final

    def _let_go(self, tree_id: str) -> None:
        _, service = self._opened()
        service.release(tree_id)
        self._resources.pop(tree_id, None)

    def _get_equipment(self, tree_id: str) -> str | None:
        resources = self._resources.get(tree_id)
        core, _ = self._opened()
        return None if resources is None or resources.for_gateway is None else core.tree(tree_id).equipment

    def _find_packed(self, name: str, equipment: str) -> bytes:
        tree_id = equipment.partition("#")[0]
        core, _ = self._opened()
        resources = self._resources.get(tree_id)
        if resources is None or core.tree(tree_id).equipment != equipment:
            raise TreeNotFound(tree_id, "is not open here any more")
        packed = resources.for_hosts if name == "resources" else resources.for_gateway
        if packed is None:
            raise TreeNotFound(tree_id, "has no model that waits")
        return packed

    def _connect_to_memory(self, token: str) -> Any:
        core, _ = self._opened()
        core.grants.check(token, "recall")
        return self._memory.connection()

    async def _answer_memory(self, name: str, *given: Any) -> Any:
        core, _ = self._opened()
        if name == "begun":
            return self._memory.begun(*given)
        if name == "list_completed_trees":
            return await core.list_completed_trees(*given)
        return await self._whose(core, *given)

    async def _whose(self, core: SupervisorCore, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        return self._memory.answer_scopes(wanted, await core.resolve_grants(wanted))

    async def watch(self, tree_id: str, session: str | None) -> str:
        """Begin to watch progress; return the name of the watch."""
        core, _ = self._opened()
        core.tree(tree_id).watch(+1)
        name = secrets.token_hex(8)
        self._readers[name] = self._hub.watch(tree_id, session)
        return name

    async def unwatch(self, name: str) -> None:
        """End a watch."""
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
            core, _ = self._opened()
            if reader.tree_id in core.trees:
                core.tree(reader.tree_id).watch(-1)

    async def progress(self, name: str, wait_s: float) -> tuple[tuple[Progress, ...], int]:
        """Return what a reader holds, waiting for the first, and how many it has dropped so far."""
        reader = self._find_reader(name)
        try:
            async with asyncio.timeout(wait_s):
                first = await reader.next()
        except TimeoutError:
            return (), reader.dropped
        return (first, *reader.drain()), reader.dropped

    async def offered(self, name: str) -> int:
        """Return how many events a reader was offered so far."""
        return self._find_reader(name).offered

    def _find_reader(self, name: str) -> ProgressBuffer:
        reader = self._readers.get(name)
        if reader is None:
            raise SessionTreeError("this watch is over: the supervisor was restarted since, or it was closed")
        return reader

    async def close(self) -> None:
        """End hosts and gateway, and release the journal."""
        if self._core is not None:
            core, self._core, self._service = self._core, None, None
            await core.close()
            if self._side_service is not None:
                await self._side_service.close()
            await core.journal.close()


def _is_same(shown: object, own: str) -> bool:
    """Whether somebody shows the right key, in the same time whatever is shown."""
    return isinstance(shown, str) and hmac.compare_digest(shown.encode("utf-8", "replace"), own.encode())
