"""A host whose start fails in a way that nobody foresaw is reported as lost."""

from __future__ import annotations

import asyncio
from typing import Any

from sessiontree.runtime.link import HostLink, HostLost
from tests.runtime.test_gateway_link import GatewayTransport

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
