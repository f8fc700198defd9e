"""Who gave up waiting is forgotten; who waits hears."""

from __future__ import annotations

import asyncio
from typing import Any

from sessiontree.runtime.live_session import FutureMap


def held(waiters: FutureMap[Any]) -> int:
    """Return how many futures are kept."""
    return sum(map(len, waiters._futures.values()))


async def test_waits_that_were_given_up_are_not_kept() -> None:
    """Looking at a long-lived session's result again and again, with a time-out, costs no memory."""
    waiters: FutureMap[str] = FutureMap()
    stays = waiters.wait("main")
    for _ in range(100):
        waiters.wait("main").cancel()
        waiters.wait("other").cancel()
    await asyncio.sleep(0)
    assert held(waiters) == 1
    assert waiters.keys() == ("main",)
    waiters.settle("main", "done")
    assert await stays == "done"
    assert held(waiters) == 0
