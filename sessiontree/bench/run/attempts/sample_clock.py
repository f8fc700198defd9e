"""How long a sample has worked, and how long the event loop of its program was blocked meanwhile.

Working time is stopped while the sample's tree does nothing but wait: for a host, in the queue of a rate
limiter, or for the next attempt at a provider. So it begins with the first host and the first question.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from sessiontree import SessionTreeError

TICK_S: Final = 0.1
"""How often the loop is looked at."""
KEPT: Final = 4096
"""How many standstills are remembered."""
_LEAST_S: Final = 0.02
"""A shorter delay does not count."""
SHARE: Final = 0.1
"""A sample is late by a standstill if that took more than this part of its limit."""


class SampleClock:
    """The clock of one solver or scorer.

    Args:
        limit_s: Working time, in seconds; None = no limit.
        wall_s: Time by the clock on the wall; None = no limit.
        waited_s: Returns how long its tree has done nothing but wait so far.
    """

    def __init__(
        self, limit_s: float | None, wall_s: float | None, waited_s: Callable[[], Awaitable[float]]
    ) -> None:
        self.began_s = time.monotonic()
        self._limit_s = limit_s
        self._wall_s = wall_s
        self._waited_s = waited_s
        self._is_over = False

    async def left_s(self) -> float | None:
        """Return how many seconds are left; 0 or less = its time is over, None = it has no limit.

        Nobody is asked how long the tree has waited before its time would be over without that.
        """
        # Once over it stays over: a wait that is reported later must not bring a sample back.
        if self._is_over:
            return 0.0
        used_s = time.monotonic() - self.began_s
        bounds = []
        if self._wall_s is not None:
            bounds.append(self._wall_s - used_s)
        if self._limit_s is not None:
            left_s = self._limit_s - used_s
            # Only now: the question goes to the supervisor, and most samples end long before their limit.
            if left_s <= 0:
                left_s += await self._measure_waits()
            bounds.append(left_s)
        least_s = min(bounds, default=None)
        self._is_over = least_s is not None and least_s <= 0
        return least_s

    async def _measure_waits(self) -> float:
        try:
            return await self._waited_s()
        except SessionTreeError:  # its tree is closed or lost: what follows says so
            return 0.0


class LoopWatch:
    """Notes when the event loop was blocked, because some code blocked it or the machine was busy."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """When each standstill ended, and how long it was."""
        self._looked_s = time.monotonic()

    async def watch(self) -> None:
        """Look for ever."""
        self._looked_s = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self._looked_s - TICK_S
        if late_s > _LEAST_S:
            self._blocks.append((now_s, late_s))
            self._looked_s = now_s
        elif late_s >= 0:
            self._looked_s = now_s

    def measure_blocked_s(self, since_s: float) -> float:
        """Return how long the loop was blocked since a time of the monotonic clock."""
        self._look()  # the standstill that has just ended, if its own task did not run yet
        # A standstill that began before the sample counts only from the sample's beginning on.
        return sum(min(late_s, at_s - since_s) for at_s, late_s in self._blocks if at_s > since_s)

    def can_excuse(self, since_s: float, limit_s: float | None) -> bool:
        """Whether so much of a limit was lost by standstills that a sample is not late by its own doing."""
        return limit_s is not None and self.measure_blocked_s(since_s) > SHARE * limit_s
