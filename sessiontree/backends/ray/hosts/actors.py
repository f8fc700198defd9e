"""The actors next to the supervisor: session hosts, the model gateway and memory, and how they call it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, Generic, Literal, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from sessiontree.backends.ray.client.key_server import fetch_key, fetch_options, hide_memory, take_variables
from sessiontree.backends.ray.client.serialization import (
    dump_value,
    load_value,
    open_for_gateway,
    open_for_host,
    set_copy_folder,
)
from sessiontree.backends.ray.client.socket_rpc import Methods, SocketRpc, connect_line
from sessiontree.backends.ray.hosts.process_start import ActorRestarter
from sessiontree.contracts.errors import MemoryFailed, describe_error
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import tidy
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.api_key import ask_for_keys_by
from sessiontree.models.port import GatewayModel
from sessiontree.models.providers.provider_model import load
from sessiontree.runtime.gateway.model_gateway import Ask, GatewayHost
from sessiontree.runtime.host.host import HostCore, HostResources
from sessiontree.runtime.host.host_process import OwnProcess, measure_resident_bytes
from sessiontree.runtime.memory.memory_api import MemoryClient, MemoryProcessAuthority, MemoryStore
from sessiontree.runtime.memory.memory_peers import open_store
from sessiontree.runtime.memory.memory_service import MemoryService
from sessiontree.runtime.rights.host_services import Services
from sessiontree.runtime.supervisor.tree_resources import ResourceCache
from sessiontree.runtime.timing.clock import TreeClock, read_monotonic_ms
from sessiontree.runtime.transport.frames import Adopt, Hello, HostHealth
from sessiontree.runtime.transport.link import HostLost
from sessiontree.runtime.transport.progress import Progress, ProgressHub
from sessiontree.runtime.transport.rpc import (
    RpcAnswers,
    RpcMethod,
    RpcResponse,
    get_method,
    is_same_key,
    make_proxy,
    respond,
)
from sessiontree.sandbox import read_level_in_force, run_self_test
from sessiontree.sandbox.launcher import REAPER_VARIABLE, forget_variables

LAST_WORDS_S = 2.0
_SPAWN = get_method(Services.spawn)
ABANDONED_S = 60.0
"""After how long a host on another node ends if its supervisor, which polls every few seconds, is silent."""


class SupervisorPort:
    """The way to the supervisor's actor, with one actor call for each question.

    Args:
        supervisor: The supervisor's actor.
        key: The key of this process, for questions that are not about a session.
    """

    def __init__(self, supervisor: Any, key: str) -> None:
        self._supervisor = supervisor
        self._key = key
        self._spawns: list[tuple[tuple[str, str, tuple[Any, ...]], asyncio.Future[str]]] = []
        """The spawns of this turn of the event loop, which go together."""
        self._sending: set[asyncio.Task[None]] = set()
        self.services: Services = make_proxy(Services, self)
        """The requests of a host; a grant, the first argument of each, identifies the session."""

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask the supervisor for the session of the grant that is the first argument."""
        grant, *rest = given
        if method is _SPAWN:
            return await self._spawn(grant, tuple(rest))
        return await self._ask(grant, method.name, *rest)

    async def _spawn(self, grant: str, given: tuple[Any, ...]) -> str:
        # The spawns of one turn of the event loop share one actor call.
        loop = asyncio.get_running_loop()
        if not self._spawns:
            loop.call_soon(self._send_spawns)
        session: asyncio.Future[str] = loop.create_future()
        self._spawns.append(((grant, _SPAWN.name, given), session))
        return await session

    def _send_spawns(self) -> None:
        spawns, self._spawns = self._spawns, []
        sending = asyncio.create_task(self._ask_spawns(spawns))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _ask_spawns(
        self, spawns: Sequence[tuple[tuple[str, str, tuple[Any, ...]], asyncio.Future[str]]]
    ) -> None:
        try:
            data = await self._supervisor.serve_all.remote(dump_value(tuple([asked for asked, _ in spawns])))
            answers: tuple[RpcResponse, ...] = load_value(data)
        except Exception as error:  # noqa: BLE001 - whoever spawns gets it, as with a call of its own
            for _, session in spawns:
                if not session.done():  # race: its call was cancelled while the answer was on its way
                    session.set_exception(error)
            return
        for (_, session), answer in zip(spawns, answers, strict=True):
            if not session.done():
                try:
                    session.set_result(answer.unwrap())
                except Exception as error:  # noqa: BLE001 - as above
                    session.set_exception(error)

    async def fetch_resources(self, equipment: str) -> bytes:
        """Return a tree's resources for hosts."""
        packed: bytes = await self._ask(self._key, "resources", equipment)
        return packed

    async def fetch_model(self, equipment: str) -> bytes:
        """Return a tree's model for the gateway."""
        packed: bytes = await self._ask(self._key, "model", equipment)
        return packed

    async def find_memory(self, grant: str) -> RemoteMemory:
        """Return a client of memory."""
        return RemoteMemory(await self._ask(grant, "memory"))

    def last_words(self, grant: str, reason: str) -> None:
        """Report, from a thread, why this process is about to end."""
        ray.get(
            self._supervisor.serve.remote(grant, "last_words", dump_value((reason,))), timeout=LAST_WORDS_S
        )

    async def _ask(self, token: str, name: str, *given: Any) -> Any:
        answer: RpcResponse = load_value(await self._supervisor.serve.remote(token, name, dump_value(given)))
        return answer.unwrap()


class OwnPort:
    """The way to the supervisor for what a process asks for itself, by its key.

    Args:
        port: The way for the grants of sessions.
        key: The key of this process.
    """

    def __init__(self, port: SupervisorPort, key: str) -> None:
        self._port = port
        self._key = key

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask the supervisor."""
        return await self._port.ask(method, (self._key, *given))


class RemoteMemory:
    """The way to memory's actor, with one actor call for each question.

    Args:
        actor: Memory's actor.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Return memory's answer.

        Raises:
            HostLost: memory's process was lost meanwhile.
            MemoryFailed: the process runs and cannot answer.
        """
        try:
            data = await self._actor.answer.remote(method.name, dump_value(given))
        except RayActorError as error:
            raise HostLost(describe_error(error).splitlines()[0]) from None
        except RayTaskError as error:
            reason = (
                f"its process cannot begin: {describe_error(error.cause)}; try again, or go on without memory"
            )
            raise MemoryFailed(method.name, reason) from None
        answer: RpcResponse = load_value(data)
        return answer.unwrap()


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of one host, gateway or memory process."""

    key: str
    """The key with which it asks the supervisor for a tree's resources."""
    supervisor_pid: int
    most_bytes: int
    victims: Path | None
    """Files that it must fail to change before it serves; None = the host may write."""
    enforcement: Literal["required", "best_effort"] = "required"
    """Whether it refuses to serve when the kernel offers less than full confinement."""
    keys: Path | None = None
    """Where the program hands over keys and variables; None = to this process none."""
    lines: Path | None = None
    """Where the supervisor accepts lines; None = from this process none."""
    node_id: str | None = None
    """The supervisor's node, where the process may run on another one; None = it is on the same."""
    copies: Path | None = None
    """Where copies of the program's modules are on another node."""
    libraries: tuple[str, ...] = ()
    """What it loads at once, each as ``module:name``."""


Core = TypeVar("Core", HostCore, GatewayHost)


class FrameActor(Generic[Core]):
    """What hosts and the gateway share: frames come in, and numbered answers are polled.

    Its process ends with the supervisor's.
    """

    _process: OwnProcess
    _core: Core
    _resources: ResourceCache[Any]
    _line: SocketRpc | None = None

    def __init__(self, supervisor: Any, settings: HostSettings) -> None:
        """Keep the settings; nothing runs before the first call."""
        tidy()
        own = ray.get_runtime_context().get_node_id()
        self._is_elsewhere = settings.node_id not in {None, own}
        """Whether the process runs on another node than the supervisor."""
        self._settings = settings
        self._supervisor = SupervisorPort(supervisor, settings.key)
        self._heard_s = time.monotonic()

    @ray.method(num_returns=0)
    async def submit(self, data: bytes) -> None:
        """Receive frames, once everything that they need is loaded."""
        self._heard_s = time.monotonic()
        await self._receive(load_value(data))

    async def _receive(self, frames: tuple[tuple[int, Any], ...]) -> None:
        await self._resources.fetch(frame.equipment for _, frame in frames if isinstance(frame, Adopt | Ask))
        self._core.receive(frames)

    async def poll(self, after: int, wait_s: float) -> bytes:
        """Return the answers after a number."""
        self._heard_s = time.monotonic()
        return dump_value(await self._core.poll(after, wait_s))

    @ray.method(num_returns=0)
    async def open_line(self) -> None:
        """Open a line over which the supervisor may submit and poll, if it runs on this machine."""
        settings = self._settings
        methods: Methods = {"submit": self._receive, "poll": self._core.poll}
        if settings.lines is not None and not self._is_elsewhere:
            self._line = await connect_line(settings.lines, settings.supervisor_pid, methods)

    @ray.method(concurrency_group="control")
    async def health(self) -> HostHealth:
        """Return the state of the process, also while its event loop is blocked."""
        self._heard_s = time.monotonic()
        lag_s = await self._process.lag_s()
        return HostHealth(os.getpid(), lag_s, self._get_embodied(), measure_resident_bytes())

    def _get_embodied(self) -> tuple[str, int] | None:
        return None


class HostActor(FrameActor[HostCore]):
    """A host of sessions. Its process also ends when its session does what it must not do."""

    def __init__(self, supervisor: Any, settings: HostSettings) -> None:
        super().__init__(supervisor, settings)
        forget_variables(("RAY_AUTH_TOKEN",))  # Ray has read it: this process is connected
        self._ready = ThreadPoolExecutor(1)
        self._ready.submit(os.getpid).result()

    async def node(self) -> str:
        """Return Ray's id of the node on which this process runs."""
        return str(ray.get_runtime_context().get_node_id())

    async def hello(self, passed_ms: int | None = None) -> Hello:
        """Test the confinement, begin, and return the state.

        Args:
            passed_ms: The supervisor's monotonic time now, if it is on another machine.
        """
        ahead_ms = 0 if passed_ms is None else passed_ms - read_monotonic_ms()
        victims, level = self._settings.victims, "structural"
        try:
            if victims is not None:
                in_force = read_level_in_force()
                level = str(in_force)
                if in_force.is_full or self._settings.enforcement == "required":
                    run_self_test(victims, self._ready).require()
            self._begin(ahead_ms)
        except Exception as error:  # noqa: BLE001 - the supervisor gets the reason, and starts another host
            return Hello(os.getpid(), level, f"{type(error).__name__}: {error}")
        return Hello(os.getpid(), level, reaper=self._process.reaper)

    def _begin(self, ahead_ms: int) -> None:
        sys.setswitchinterval(0.0005)

        def measure_passed_ms() -> int:
            return read_monotonic_ms() + ahead_ms

        settings, clock = self._settings, TreeClock(passed_ms=measure_passed_ms)
        reaper = int(os.environ.get(REAPER_VARIABLE, "0"))
        given = (settings.most_bytes, self._say_last_words, reaper)
        if self._is_elsewhere:
            self._heard_s = time.monotonic()
            self._process = OwnProcess(None, *given, self._is_abandoned)
        else:
            self._process = OwnProcess(settings.supervisor_pid, *given)
        equipment: ResourceCache[HostResources] = ResourceCache(self._fetch_equipment, open_for_host)
        self._resources = equipment
        memory = MemoryClient(self._supervisor.find_memory).memory
        self._core = HostCore(
            equipment.of,
            self._supervisor.services,
            memory,
            ProgressHub(),
            clock.now_ms,
            self._process,
            measure_passed_ms,
        )

    def _is_abandoned(self) -> bool:
        """Whether the supervisor was silent for so long that others may do this session's work by now."""
        return time.monotonic() - self._heard_s > ABANDONED_S

    async def _fetch_equipment(self, name: str) -> bytes:
        packed_here = await self._supervisor.fetch_resources(name)
        copies = self._settings.copies
        return (
            set_copy_folder(packed_here, copies) if self._is_elsewhere and copies is not None else packed_here
        )

    def _get_embodied(self) -> tuple[str, int] | None:
        return self._core.embodied

    def _say_last_words(self, reason: str) -> None:
        self._supervisor.last_words(self._core.grant, reason)


class GatewayActor(FrameActor[GatewayHost]):
    """The model gateway of one supervisor."""

    def __init__(self, supervisor: Any, settings: HostSettings) -> None:
        super().__init__(supervisor, settings)
        hide_memory()
        self._has_variables = False
        if settings.keys is not None:
            ask_for_keys_by(partial(fetch_key, settings.keys))
        if settings.libraries:
            # In a thread, so that the loop serves meanwhile; an early question waits for the same modules.
            Thread(target=_load_libraries, args=(settings.libraries,), name="libraries", daemon=True).start()

    async def hello(self) -> Hello:
        """Begin, and return the state."""
        settings = self._settings
        self._process = OwnProcess(settings.supervisor_pid, settings.most_bytes, lambda reason: None)
        models: ResourceCache[Mapping[str, GatewayModel]] = ResourceCache(
            self._fetch_models, open_for_gateway
        )
        self._resources = models
        self._core = GatewayHost(models.of)
        self._core.push = self._push
        return Hello(os.getpid(), "structural")

    def _push(self, events: Sequence[Progress]) -> bool:
        line = self._line
        if line is None or not line.is_open or line.is_full:
            return False
        line.tell("progress", events)
        return True

    async def _fetch_models(self, name: str) -> bytes:
        """Return packed models; the first time with the variables that they may read when they are opened."""
        if not self._has_variables and self._settings.keys is not None:
            await asyncio.to_thread(take_variables, self._settings.keys)
            self._has_variables = True
        return await self._supervisor.fetch_model(name)


def _load_libraries(places: Sequence[str]) -> None:
    for place in places:
        with contextlib.suppress(Exception):  # the first question finds the same fault, and reports it
            load(place)


END_S = 5.0
NOTICES: Final = frozenset({"revoked", "ended"})
"""What the supervisor notifies memory of."""


class MemoryActor:
    """The memory of one supervisor. Its process ends with the supervisor's; Ray restarts a killed one."""

    def __init__(self, supervisor: Any, settings: HostSettings, memory: MemorySettings, uri: str) -> None:
        """Keep the settings; nothing runs before the first call."""
        tidy()
        self._supervisor: MemoryProcessAuthority = make_proxy(
            MemoryProcessAuthority, OwnPort(SupervisorPort(supervisor, settings.key), settings.key)
        )
        self._settings = settings
        self._memory = memory
        self._uri = uri
        self._process: OwnProcess | None = None
        self._service = MemoryService(uri, self._open_store, self._supervisor)
        self._answers = RpcAnswers(self._service)
        self._beginning: asyncio.Future[None] | None = None

    async def answer(self, name: str, given: bytes) -> bytes:
        """Answer a host's question; the grant, the first argument of each, identifies the session."""
        await self._ensure_begun()
        return dump_value(await respond("", self._answers.call, (name, load_value(given))))

    @ray.method(num_returns=0)
    async def hear(self, key: str, name: str, given: bytes) -> None:
        """Receive a notice of the supervisor; one with another key is ignored."""
        if name in NOTICES and is_same_key(key, self._settings.key):
            await self._ensure_begun()
            getattr(self._service, name)(*load_value(given))

    async def close(self, key: str) -> None:
        """Close the store for the supervisor."""
        if is_same_key(key, self._settings.key):
            await self._ensure_begun()
            await self._service.close()

    def _open_store(self) -> Awaitable[MemoryStore]:
        return open_store(self._memory, self._uri)  # the settings got their options meanwhile

    async def _ensure_begun(self) -> None:
        if self._beginning is None or (self._beginning.done() and self._beginning.exception() is not None):
            self._beginning = asyncio.ensure_future(self._begin())
        await asyncio.shield(self._beginning)

    async def _begin(self) -> None:
        settings, supervisor = self._settings, self._supervisor
        if self._process is None:
            self._process = OwnProcess(settings.supervisor_pid, settings.most_bytes, lambda reason: None)
        await supervisor.begun(os.getpid())
        if settings.keys is not None:
            hide_memory()
            await asyncio.to_thread(take_variables, settings.keys)
            if self._memory.storage_options:
                options = await asyncio.to_thread(fetch_options, settings.keys)
                self._memory = self._memory.with_options(options)


class RayMemory:
    """The supervisor's handle of memory's process.

    Args:
        actor: Memory's actor; hosts get it too.
        key: The supervisor's key.
        keeper: Restarts the process if a start fails.
    """

    def __init__(self, actor: Any, key: str, keeper: ActorRestarter) -> None:
        self.connection = actor
        self._key = key
        self._keeper = keeper

    def tell(self, name: str, *given: Any) -> None:
        """Send a message, without waiting."""
        self.connection.hear.remote(self._key, name, dump_value(given))

    async def end(self) -> None:
        """Let memory write what waits, then end it."""
        with contextlib.suppress(RayError, TimeoutError):  # it is killed in any case
            async with asyncio.timeout(END_S):
                await self.connection.close.remote(self._key)
        await asyncio.to_thread(self._keeper.stop)
        ray.kill(self.connection)
