"""The model gateway as a Ray actor: the only process that holds models that wait, and their keys."""

from __future__ import annotations

import os
from typing import Any

import ray

from sessiontree.backends.ray.host import HostSettings
from sessiontree.backends.ray.serialization import open_for_gateway
from sessiontree.backends.ray.supervisor_rpc import RemoteServices
from sessiontree.backends.ray.wire import opened, packed
from sessiontree.interpreter.import_guard import tidy
from sessiontree.models.port import GatewayModel
from sessiontree.runtime.gateway_host import GatewayHost
from sessiontree.runtime.host_process import OwnProcess, resident_bytes
from sessiontree.runtime.model_gateway import GatewayFrame
from sessiontree.runtime.resource_cache import ResourceCache
from sessiontree.runtime.rpc_response import Hello, HostHealth


class GatewayActor:
    """The gateway of one supervisor; its process ends with the supervisor's."""

    def __init__(self, supervisor: Any, settings: HostSettings) -> None:
        """Keep what it was started with; nothing runs before the first call."""
        tidy()
        self._settings = settings
        self._services = RemoteServices(supervisor, settings.key)

    async def hello(self) -> Hello:
        """Begin, and return how it stands."""
        settings = self._settings
        self._process = OwnProcess(settings.supervisor_pid, settings.most_bytes, lambda reason: None)
        self._equipping: ResourceCache[GatewayModel] = ResourceCache(self._services.model, open_for_gateway)
        self._core = GatewayHost(self._equipping.of)
        return Hello(os.getpid(), "structural")

    @ray.method(num_returns=0)
    async def submit(self, data: bytes) -> None:
        """Take frames in, once everything they need is here."""
        frames: tuple[tuple[int, GatewayFrame], ...] = opened(data)
        await self._equipping.fetch(frames)
        self._core.receive(frames)

    async def poll(self, after: int, wait_s: float) -> bytes:
        """Return answers after a number."""
        return packed(await self._core.poll(after, wait_s))

    @ray.method(concurrency_group="control")
    async def standing(self) -> HostHealth:
        """Return how the gateway stands."""
        return HostHealth(os.getpid(), await self._process.lag_s(), None, resident_bytes())
