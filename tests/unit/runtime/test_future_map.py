"""Who gave up waiting is forgotten; who waits hears."""

from __future__ import annotations

import asyncio
from typing import Any

from sessiontree.runtime.scheduling.tree_waiters import FutureMap


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


async def test_listeners_hear_once_and_those_that_stopped_listening_not_at_all() -> None:
    """One that listens for many keys stops for one of them, or for all."""
    waiters: FutureMap[str] = FutureMap()
    heard: list[tuple[str, str | None, str]] = []

    def one(key: str, value: str | None, error: Exception | None) -> None:
        heard.append((key, value, str(error)))

    def other(key: str, value: str | None, error: Exception | None) -> None:
        raise AssertionError("it does not listen any more")

    for key in ("a", "b", "c", "d"):
        waiters.listen(key, one)
        waiters.listen(key, other)
    waiters.drop_listener(None, other)
    waiters.drop_listener("c", one)
    waiters.drop_listener("never", one)
    waiters.settle("a", "value")
    waiters.settle("a", "again")
    waiters.fail("b", ValueError("no"))
    waiters.settle("c", "unheard")
    waiters.fail_all(ValueError("over"))
    assert heard == [("a", "value", "None"), ("b", None, "no"), ("d", None, "over")]
    assert not waiters._listeners
