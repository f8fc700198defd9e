"""Memory as a Ray actor: the only process that loads its store's library, sole writer of the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from sessiontree.backends.ray.host import HostSettings
from sessiontree.backends.ray.start_watch import RestartKeeper
from sessiontree.backends.ray.supervisor_rpc import RemoteServices
from sessiontree.backends.ray.wire import opened, packed
from sessiontree.interpreter.import_guard import tidy
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.host_process import OwnProcess
from sessiontree.runtime.memory_peers import open_store
from sessiontree.runtime.memory_service import MemoryCore, MemoryHost

END_S = 5.0


class MemoryActor:
    """The memory of one supervisor. Its process ends with the supervisor's; killed, Ray starts it again."""

    def __init__(self, supervisor: Any, settings: HostSettings, memory: MemorySettings, uri: str) -> None:
        """Keep what it was started with; nothing runs before the first call."""
        tidy()
        self._services = RemoteServices(supervisor, settings.key)
        self._settings = settings
        self._memory = memory
        self._uri = uri
        self._process: OwnProcess | None = None
        self._beginning: asyncio.Future[MemoryHost] | None = None

    async def answer(self, grant: str, name: str, given: bytes) -> bytes:
        """Answer a host."""
        host = await self._begun()
        return packed(await host.answer(grant, name, opened(given)))

    @ray.method(num_returns=0)
    async def hear(self, key: str, name: str, given: bytes) -> None:
        """Hear the supervisor."""
        (await self._begun()).hear(key, name, opened(given))

    async def close(self, key: str) -> None:
        """Let the store go."""
        await (await self._begun()).close(key)

    async def _begun(self) -> MemoryHost:
        if self._beginning is None or (self._beginning.done() and self._beginning.exception() is not None):
            self._beginning = asyncio.ensure_future(self._begin())
        return await asyncio.shield(self._beginning)

    async def _begin(self) -> MemoryHost:
        settings, services = self._settings, self._services
        if self._process is None:
            self._process = OwnProcess(settings.supervisor_pid, settings.most_bytes, lambda reason: None)
        await services.begun(os.getpid())
        core = MemoryCore(self._uri, partial(open_store, self._memory, self._uri), services)
        return MemoryHost(core, settings.key)


class RayMemory:
    """Memory's process, as its supervisor holds it.

    Args:
        actor: Its actor; hosts get it too.
        key: What the supervisor shows.
        keeper: Sees that it starts again.
    """

    def __init__(self, actor: Any, key: str, keeper: RestartKeeper) -> None:
        self.way = actor
        self._key = key
        self._keeper = keeper

    def tell(self, name: str, *given: Any) -> None:
        """Tell it something, without waiting."""
        self.way.hear.remote(self._key, name, packed(given))

    async def end(self) -> None:
        """Let it write what is to be written, then end it."""
        with contextlib.suppress(RayError, TimeoutError):  # it is ended all the same
            async with asyncio.timeout(END_S):
                await self.way.close.remote(self._key)
        await asyncio.to_thread(self._keeper.stop)
        ray.kill(self.way)
