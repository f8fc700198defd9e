"""A session host as a Ray actor: one process, one session at a time."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray

from sessiontree.backends.ray.serialization import open_for_host
from sessiontree.backends.ray.supervisor_rpc import RemoteServices
from sessiontree.backends.ray.wire import opened, packed
from sessiontree.interpreter.import_guard import tidy
from sessiontree.runtime.clock import TreeClock
from sessiontree.runtime.frames import Frame
from sessiontree.runtime.host import HostCore, HostEquipment
from sessiontree.runtime.host_process import OwnProcess, resident_bytes
from sessiontree.runtime.memory_client import MemoryLine
from sessiontree.runtime.progress import ProgressHub
from sessiontree.runtime.resource_cache import ResourceCache
from sessiontree.runtime.rpc_response import Hello, HostHealth
from sessiontree.sandbox import level_in_force, self_test
from sessiontree.sandbox.launcher import REAPER_VARIABLE, forget_variables


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What one host is started with."""

    key: str
    """Shown to the supervisor for a tree's baggage."""
    supervisor_pid: int
    most_bytes: int
    victims: Path | None
    """Files it must fail to change before it serves; None = a host that may write."""
    enforcement: Literal["required", "best_effort"] = "required"
    """Whether it serves where the kernel offers less than full confinement."""


class HostActor:
    """One host. Its process ends with the supervisor's, and with what its session must not do."""

    def __init__(self, supervisor: Any, settings: HostSettings) -> None:
        """Keep what it was started with; nothing runs before the first call."""
        tidy()
        forget_variables(("RAY_AUTH_TOKEN",))  # Ray has read it: this process is connected
        self._settings = settings
        self._ready = ThreadPoolExecutor(1)
        self._ready.submit(os.getpid).result()
        self._services = RemoteServices(supervisor, settings.key)

    async def hello(self) -> Hello:
        """Prove the confinement, begin, and return how it stands."""
        victims, level = self._settings.victims, "structural"
        try:
            if victims is not None:
                in_force = level_in_force()
                level = str(in_force)
                if in_force.is_full or self._settings.enforcement == "required":
                    self_test(victims, self._ready).require()
            self._begin()
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor is told and asks nobody else
            return Hello(os.getpid(), level, f"{type(error).__name__}: {error}")
        return Hello(os.getpid(), level, reaper=self._process.reaper)

    def _begin(self) -> None:
        sys.setswitchinterval(0.0005)
        settings, clock = self._settings, TreeClock()
        reaper = int(os.environ.get(REAPER_VARIABLE, "0"))
        self._process = OwnProcess(settings.supervisor_pid, settings.most_bytes, self._say_last_words, reaper)
        self._equipping: ResourceCache[HostEquipment] = ResourceCache(self._services.baggage, open_for_host)
        memory = MemoryLine(self._services.memory)
        self._core = HostCore(
            self._equipping.of, self._services, memory, ProgressHub(), clock.now_ms, self._process
        )

    @ray.method(num_returns=0)
    async def submit(self, data: bytes) -> None:
        """Take frames in, once everything they need is here."""
        frames: tuple[tuple[int, Frame], ...] = opened(data)
        await self._equipping.fetch(frames)
        self._core.receive(frames)

    async def poll(self, after: int, wait_s: float) -> bytes:
        """Return outcomes after a number."""
        return packed(await self._core.poll(after, wait_s))

    @ray.method(concurrency_group="control")
    async def standing(self) -> HostHealth:
        """Return how the host stands, also while its session keeps it deaf."""
        lag_s = await self._process.lag_s()
        return HostHealth(os.getpid(), lag_s, self._core.embodied, resident_bytes())

    def _say_last_words(self, reason: str) -> None:
        self._services.last_words(self._core.grant, reason)
