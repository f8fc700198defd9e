"""The supervisor as a Ray actor: it writes the journal and owns hosts, gateway and memory."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.client.key_server import KEYS_SOCKET
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.client.socket_rpc import LINES_SOCKET, LineListener, SocketRpc
from sessiontree.backends.ray.engine import engine_home
from sessiontree.backends.ray.engine.engine_security import describe_listeners
from sessiontree.backends.ray.hosts.actors import (
    GatewayActor,
    HostActor,
    HostSettings,
    MemoryActor,
    RayMemory,
)
from sessiontree.backends.ray.hosts.placed_hosts import HostOrder, PlacedPools, PlacedTransport
from sessiontree.backends.ray.hosts.process_start import (
    ActorRestarter,
    StartMonitor,
    StartTimeout,
    build_runtime_env,
    note_for,
    open_failed_starts,
    prepare_victims,
)
from sessiontree.backends.ray.hosts.transport import LineTransport, RayTransport
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.control.peer import Lineage, find_lineage
from sessiontree.control.server import ControlServer
from sessiontree.interpreter.import_guard import tidy
from sessiontree.runtime.scheduling.settings import OBSERVING, Settings
from sessiontree.runtime.supervisor.process.supervisor_lifetime import ProcessStarts
from sessiontree.runtime.supervisor.process.supervisor_process import SupervisorProcess
from sessiontree.runtime.transport.progress import Progress
from sessiontree.runtime.transport.result_push import ResultAnswer, ResultChange
from sessiontree.runtime.transport.rpc import RpcResponse
from sessiontree.sandbox.process_tree import ProcessIdentity

SUPERVISOR_CALLS = 100_000
"""How many calls may wait at a supervisor at a time; each awaited reply or result is a call."""
CONTROL_CALLS = 10_000
"""How many control calls may be under way at a time; a stop counts until everything it stops has ended."""
HOST_OPTIONS: dict[str, Any] = {
    "num_cpus": 0,
    "max_restarts": 0,
    "max_task_retries": 0,
    "max_concurrency": 1000,
}
MEMORY_OPTIONS: dict[str, Any] = {"max_restarts": -1, "max_concurrency": 10_000}
"""Ray restarts memory when it is killed; the callers repeat their questions."""


def make_actor_class(shell: type) -> Any:
    """Return an actor class whose control calls are served however many other calls wait."""
    make: Any = ray.remote  # Ray's stubs do not know groups
    return make(concurrency_groups={"control": CONTROL_CALLS})(shell)


class SupervisorActor:
    """One supervisor. When Ray restarts it, nothing is open, and the program opens its trees again."""

    def __init__(self, key: str, settings: Settings) -> None:
        tidy()
        sys.setswitchinterval(0.0005)
        self._settings = settings
        self._raylet = os.getppid()  # the raylet starts every actor's process on its node, also this one
        self._pace = StartTimeout(settings.unseen_s)
        self._failed = open_failed_starts(settings)
        self._server = SupervisorProcess(
            key,
            settings,
            ProcessStarts(
                self._start_host,
                self._start_gateway,
                self._start_spare_gateway,
                self._start_memory,
                partial(ControlServer, state_dir=settings.journal_dir, lineage=_build_lineage(settings)),
                partial(_describe_security, settings),
                self._leave_unfit_nodes,
            ),
        )
        self._placed = PlacedPools(settings.placed_pools, self._server.lifetime.places)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines = LineListener(settings.scratch / LINES_SOCKET)
        self._transports: set[RayTransport] = set()
        self._has_gateway = False
        """Whether a gateway was started, or will not be."""
        self._spare: RayTransport | None = None
        """The process of the first gateway, before there is a question."""

    async def ask(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        """Answer the creating program."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._lines.admit(self._settings.program_pid, self._make_program_line)
        if name == "close":
            self._lines.close()
            self._has_gateway = True
            if self._spare is not None:
                self._spare.close()
        return dump_value(await self._server.ask(key, name, load_value(given), turn))

    @ray.method(concurrency_group="control")
    async def command(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        """Answer a control call of the creating program, however many other calls wait."""
        asking = self._server.ask(key, name, load_value(given), turn)
        if self._loop is None:
            return dump_value(await asking)
        return dump_value(await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop)))

    def _make_program_line(self) -> SocketRpc:
        async def follow(key: str, name: str) -> RpcResponse:
            return await self._server.follow(key, name, push, line.has_room)

        def push(events: tuple[Progress, ...], dropped: int) -> bool:
            if line.is_full or not line.is_open:
                return False
            line.tell("progress", events, dropped)
            return True

        def send(answers: tuple[ResultAnswer, ...]) -> None:
            if line.is_open:
                line.tell("results", answers)

        def await_results(key: str, changes: tuple[ResultChange, ...]) -> None:
            self._server.await_results(key, results, changes)

        async def follow_results(key: str) -> RpcResponse:
            return await self._server.follow_results(key, results)

        results = self._server.make_result_push(send)
        line = SocketRpc(
            {
                "ask": self._server.ask,
                "follow": follow,
                "await_results": await_results,
                "follow_results": follow_results,
            }
        )
        return line

    async def serve(self, token: str, name: str, given: bytes) -> bytes:
        """Answer a host, the gateway or memory."""
        return dump_value(await self._server.serve(token, name, load_value(given)))

    async def serve_all(self, asked: bytes) -> bytes:
        """Answer several questions of a host, each as :meth:`serve` does."""
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(self._server.serve(*each)) for each in load_value(asked)]
        return dump_value(tuple([answer.result() for answer in answers]))

    def _start_host(self, pool: str, name: str) -> RayTransport:
        settings, victims = self._settings, None
        if pool == OBSERVING:
            victims = prepare_victims(settings, name)
        note = note_for(name, settings)
        given = HostSettings(
            self._server.host_key,
            os.getpid(),
            settings.host_bytes,
            victims,
            settings.enforcement,
            lines=settings.scratch / LINES_SOCKET,
        )
        if pool in settings.placed_pools:
            given = replace(given, node_id=settings.node_id, copies=settings.scratch)
            return self._place_host(pool, name, note, given)
        options = self._build_options(f"{pool}-host", note, confined=pool == OBSERVING, reaped=True)
        shell = make_actor_class(HostActor).options(**options)
        return self._make_transport(shell, given, name, note, partial(LineTransport, self._lines, {}))

    def _place_host(self, pool: str, name: str, note: Path, given: HostSettings) -> RayTransport:
        """Return the transport to a host that Ray starts on one of the nodes that fit its pool."""

        def begin(place: dict[str, Any]) -> Any:
            start = build_runtime_env(
                f"{pool}-host",
                self._settings,
                note,
                confined=pool == OBSERVING,
                reaped=True,
                tokens=self._placed.list_tokens(),
            )
            shell = make_actor_class(HostActor).options(**{**HOST_OPTIONS, **place, "runtime_env": start})
            return shell.remote(ray.get_runtime_context().current_actor, given)

        transport = PlacedTransport(
            self._placed,
            HostOrder(pool, begin, given.victims),
            self._lines,
            self._transports.discard,
            self._settings.reports,
            None,
            partial(self._failed.add, name),
        )
        self._transports.add(transport)
        return transport

    def _leave_unfit_nodes(self) -> None:
        """End hosts on nodes that do not fit a tree that opens; their sessions get other hosts."""
        self._placed.use_all_again()
        for each in list(self._transports):
            if isinstance(each, PlacedTransport) and each.is_unfit:
                ray.kill(each.actor)

    def _start_spare_gateway(self, libraries: Sequence[str]) -> None:
        """Start the process of the first gateway with the first host, which takes about as long."""
        if not self._has_gateway and self._spare is None:
            self._spare = self._make_gateway("gateway", tuple(libraries))

    def _start_gateway(self, name: str) -> RayTransport:
        """Return a transport to the spare process if it lives, else to a new one.

        The spare one was sent nothing so far. So it is like one that was started just now, and if it dies
        from here on, that is the loss of a gateway that has just begun.
        """
        self._has_gateway = True
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.expect():
                return spare
            spare.close()
        return self._make_gateway(name, ())

    def _make_gateway(self, name: str, libraries: tuple[str, ...]) -> RayTransport:
        settings = self._settings
        given = HostSettings(
            self._server.gateway_key,
            os.getpid(),
            settings.gateway_bytes,
            None,
            keys=settings.scratch / KEYS_SOCKET,
            lines=settings.scratch / LINES_SOCKET,
            libraries=libraries,
        )
        note = note_for(name, self._settings)
        shell = make_actor_class(GatewayActor).options(**self._build_options("gateway", note))
        return self._make_transport(
            shell, given, name, note, partial(LineTransport, self._lines, {"progress": self._server.show})
        )

    def _start_memory(self) -> RayMemory:
        settings, key = self._settings, self._server.memory_key
        memory = settings.memory
        needs_keys = memory.is_remote or memory.key_variable is not None or bool(memory.storage_options)
        keys = settings.scratch / KEYS_SOCKET if needs_keys else None
        given = HostSettings(key, os.getpid(), settings.memory_bytes, None, keys=keys)
        shell: Any = ray.remote(MemoryActor)
        note = note_for("memory", settings)
        shell = shell.options(**{**self._build_options("memory", note), **MEMORY_OPTIONS})
        me = ray.get_runtime_context().current_actor
        actor = shell.remote(me, given, settings.memory, settings.memory.uri_in(settings.state_dir))
        keeper = ActorRestarter(
            StartMonitor(note, self._raylet, self._pace),
            partial(ray.kill, actor, no_restart=False),
            partial(self._failed.add, "memory"),
            lambda failures, reason: ray.kill(actor),  # callers get an error then
        )
        return RayMemory(actor, key, keeper)

    def _build_options(
        self, role: str, note: Path, *, confined: bool = False, reaped: bool = False
    ) -> dict[str, Any]:
        node = NodeAffinitySchedulingStrategy(self._settings.node_id, soft=False)
        start = build_runtime_env(role, self._settings, note, confined=confined, reaped=reaped)
        return {**HOST_OPTIONS, "scheduling_strategy": node, "runtime_env": start}

    def _make_transport(
        self,
        shell: Any,
        given: HostSettings,
        name: str,
        note: Path,
        make: Callable[..., RayTransport] = RayTransport,
    ) -> RayTransport:
        me = ray.get_runtime_context().current_actor
        actor, reports = shell.remote(me, given), self._settings.reports
        start, failed = StartMonitor(note, self._raylet, self._pace), partial(self._failed.add, name)
        transport = make(actor, self._transports.discard, reports, start, failed)
        self._transports.add(transport)
        return transport


def _build_lineage(settings: Settings) -> Lineage:
    """Return how to tell processes of any Ray from those of a person."""
    program = ProcessIdentity(settings.program_pid, settings.program_started)
    return find_lineage(program, engine_home.is_server)


def _describe_security(settings: Settings) -> Mapping[str, JsonValue]:
    """Return how this Ray is protected: the program's findings, open sockets now, and failed starts."""
    return {
        **settings.security,
        "listening": describe_listeners(settings.logs_dir),
        "failed_starts": open_failed_starts(settings).list_reports(),
    }
