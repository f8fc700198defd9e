"""A host that can't be started is reported as lost, and its sessions get another one where that helps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sessiontree import ScriptedModel, SessionTree
from sessiontree.backends.local.backend import LocalBackend, LocalTransport
from sessiontree.runtime.host.host import HostCore
from sessiontree.runtime.scheduling.scheduler import MAX_FALSE_STARTS
from sessiontree.runtime.transport.link import HostLink, HostLost
from tests.unit.runtime.runtime_fakes import FaultyRuntime
from tests.unit.runtime.test_gateway_link import GatewayTransport

PATIENCE_S = 10.0


class RefusedTransport(GatewayTransport):
    """A host whose options its engine refuses."""

    is_ready = False

    async def ready(self) -> None:
        """Fail as a library does, with an error of its own."""
        raise ValueError("the precision of num_cpus is too high")


async def test_any_error_of_a_start_is_a_lost_host() -> None:
    """Otherwise the host would count as one that starts, and sessions would wait for it for ever."""
    lost: asyncio.Future[HostLost] = asyncio.get_running_loop().create_future()

    def ignore(*given: Any) -> None:
        raise AssertionError(f"a host that never started reported {given}")

    link = HostLink(
        "host-1",
        RefusedTransport(),
        on_outcome=ignore,
        on_lost=lambda link, error: lost.set_result(error),
        on_free=ignore,
        on_progress=ignore,
    )
    async with asyncio.timeout(PATIENCE_S):
        found = await lost
    await link.close()
    assert not found.served
    assert found.reason == "host-1 can't be started: ValueError: the precision of num_cpus is too high"


class LateTransport(LocalTransport):
    """A host of a pool that takes a while to start, which does not start if it is ``refused``."""

    is_ready = False
    refused = False

    async def ready(self) -> None:
        """Start, or fail for a reason that says nothing about the next one."""
        if self.refused:
            raise HostLost("the node does not fit", served=False, counts=False)
        self.is_ready = True


class FullPool(LocalBackend):
    """Starts hosts, the first of which do not start."""

    made = 0

    def _make_transport(self, pool: str, name: str) -> LocalTransport:
        self.made += 1
        host = HostCore(self._equip, self.services, self.memory, self._hub, self._clock.now_ms)
        transport = LateTransport(host, None, self.transports.remove)
        transport.refused = self.made <= 2 * MAX_FALSE_STARTS
        self.transports.append(transport)
        return transport


async def test_starts_that_do_not_count_end_no_session(tmp_path: Path) -> None:
    """However many hosts were started on nodes that do not fit, the first that serves is used."""
    runtime = FaultyRuntime(tmp_path / "state")
    await runtime.close()
    backend = runtime.backend = runtime.local = FullPool(tmp_path / "state", slots=2)
    async with (
        runtime,
        SessionTree(tmp_path, model=ScriptedModel(["here"]), runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        assert await tree.main.send("hello") == "here"
    assert backend.made > 2 * MAX_FALSE_STARTS
