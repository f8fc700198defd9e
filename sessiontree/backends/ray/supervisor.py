"""The supervisor as a Ray actor: single writer of its journal, owner of hosts, gateway and memory."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray import engine_home
from sessiontree.backends.ray.engine_security import listening
from sessiontree.backends.ray.gateway import GatewayActor
from sessiontree.backends.ray.host import HostActor, HostSettings
from sessiontree.backends.ray.jail import failed_starts, note_for, started_as, victims_for
from sessiontree.backends.ray.memory import MemoryActor, RayMemory
from sessiontree.backends.ray.start_watch import RestartKeeper, StartPace, StartWatch
from sessiontree.backends.ray.transport import RayTransport
from sessiontree.backends.ray.wire import opened, packed
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.control.lineage import Lineage, lineage_of
from sessiontree.control.server import ControlServer
from sessiontree.interpreter.import_guard import tidy
from sessiontree.runtime.settings import OBSERVING, Settings
from sessiontree.runtime.supervisor_server import Serving
from sessiontree.sandbox.process_tree import ProcessIdentity

SUPERVISOR_CALLS = 100_000
"""Calls that may wait at a supervisor at a time; each waiting reply or result is one."""
CONTROL_CALLS = 10_000
"""Control calls that may be under way at a time; a stop is one until everything it stops has ended."""
HOST_OPTIONS: dict[str, Any] = {
    "num_cpus": 0,
    "max_restarts": 0,
    "max_task_retries": 0,
    "max_concurrency": 1000,
}
MEMORY_OPTIONS: dict[str, Any] = {"max_restarts": -1, "max_concurrency": 10_000}
"""Memory is started again when it is killed; those who asked ask again."""


def actor_of(shell: type) -> Any:
    """Return a class of actors whose control calls are heard however many others wait."""
    make: Any = ray.remote  # its stubs do not know groups
    return make(concurrency_groups={"control": CONTROL_CALLS})(shell)


class SupervisorActor:
    """One supervisor; restarted by Ray it begins with nothing open, and the program opens it again."""

    def __init__(self, key: str, settings: Settings) -> None:
        tidy()
        sys.setswitchinterval(0.0005)
        self._settings = settings
        self._raylet = os.getppid()  # it starts every actor's process on its node, this one's too
        self._pace = StartPace(settings.unseen_s)
        self._failed = failed_starts(settings)
        self._serving = Serving(
            key,
            settings,
            self._start_host,
            self._start_gateway,
            self._start_memory,
            partial(ControlServer, state_dir=settings.journal_dir, lineage=_lineage(settings)),
            partial(_security, settings),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transports: set[RayTransport] = set()

    async def ask(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        """Answer the creating program."""
        self._loop = asyncio.get_running_loop()
        return packed(await self._serving.ask(key, name, opened(given), turn))

    @ray.method(concurrency_group="control")
    async def command(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None) -> bytes:
        """Answer the creating program, however many calls wait in the other group."""
        asking = self._serving.ask(key, name, opened(given), turn)
        if self._loop is None:
            return packed(await asking)
        return packed(await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop)))

    async def serve(self, token: str, name: str, given: bytes) -> bytes:
        """Answer a host."""
        return packed(await self._serving.serve(token, name, opened(given)))

    def _start_host(self, pool: str, name: str) -> RayTransport:
        settings, victims = self._settings, None
        if pool == OBSERVING:
            victims = victims_for(settings, name)
        note = note_for(name, settings)
        options = self._options(f"{pool}-host", note, confined=pool == OBSERVING, reaped=True)
        given = HostSettings(
            self._serving.host_key, os.getpid(), settings.host_bytes, victims, settings.enforcement
        )
        return self._transport(actor_of(HostActor).options(**options), given, name, note)

    def _start_gateway(self, name: str) -> RayTransport:
        given = HostSettings(self._serving.gateway_key, os.getpid(), self._settings.gateway_bytes, None)
        note = note_for(name, self._settings)
        shell = actor_of(GatewayActor).options(**self._options("gateway", note))
        return self._transport(shell, given, name, note)

    def _start_memory(self) -> RayMemory:
        settings, key = self._settings, self._serving.memory_key
        given = HostSettings(key, os.getpid(), settings.memory_bytes, None)
        shell: Any = ray.remote(MemoryActor)
        note = note_for("memory", settings)
        shell = shell.options(**{**self._options("memory", note), **MEMORY_OPTIONS})
        me = ray.get_runtime_context().current_actor
        actor = shell.remote(me, given, settings.memory, settings.memory.uri_in(settings.state_dir))
        keeper = RestartKeeper(
            StartWatch(note, self._raylet, self._pace),
            partial(ray.kill, actor, no_restart=False),
            partial(self._failed.add, "memory"),
            lambda failures, reason: ray.kill(actor),  # whoever asks is told that it is gone
        )
        return RayMemory(actor, key, keeper)

    def _options(
        self, role: str, note: Path, *, confined: bool = False, reaped: bool = False
    ) -> dict[str, Any]:
        node = NodeAffinitySchedulingStrategy(self._settings.node_id, soft=False)
        start = started_as(role, self._settings, note, confined=confined, reaped=reaped)
        return {**HOST_OPTIONS, "scheduling_strategy": node, "runtime_env": start}

    def _transport(self, shell: Any, given: HostSettings, name: str, note: Path) -> RayTransport:
        me = ray.get_runtime_context().current_actor
        actor, reports = shell.remote(me, given), self._settings.reports
        start, failed = StartWatch(note, self._raylet, self._pace), partial(self._failed.add, name)
        transport = RayTransport(actor, self._transports.discard, reports, start, failed)
        self._transports.add(transport)
        return transport


def _lineage(settings: Settings) -> Lineage:
    """Return what tells processes of a Ray, whichever it is, from those of a person."""
    program = ProcessIdentity(settings.program_pid, settings.program_started)
    return lineage_of(program, engine_home.is_server)


def _security(settings: Settings) -> Mapping[str, JsonValue]:
    """Return what protects this Ray: as the program found it, what listens now, and what did not start."""
    return {
        **settings.security,
        "listening": listening(settings.logs_dir),
        "failed_starts": failed_starts(settings).told(),
    }
