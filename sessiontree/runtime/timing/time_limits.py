"""Time limits of many things that wait, with one timer of the event loop for all of them.

A timer of the event loop takes about 0.4 KiB with its callback, its arguments and its context. A limit here
takes a quarter of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

W = TypeVar("W")
_Limit: TypeAlias = tuple[float, int, float, str, W]
"""When it is over by the clock of the event loop, its number, the seconds given, its name, and what waits."""
SLACK: Final = 64
"""How many limits that were dropped are kept in any case; beyond that, as many as there are valid ones."""


class TimeLimits(Generic[W]):
    """Time limits by name; setting and dropping one takes amortised O(log n).

    Args:
        on_late: Called with what waits too long, and with the seconds that it was given.
    """

    __slots__ = ("_heap", "_number", "_on_late", "_timer", "_waiting")

    def __init__(self, on_late: Callable[[W, float], None]) -> None:
        self._on_late = on_late
        self._number = 0
        self._waiting: dict[str, _Limit[W]] = {}
        """The valid limits."""
        self._heap: list[_Limit[W]] = []
        """Valid limits, and dropped ones that are not removed yet; the earliest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many limits are valid."""
        return len(self._waiting)

    def set(self, name: str, timeout_s: float, waits: W) -> None:
        """Limit the time of what waits; this replaces an earlier limit of the same name."""
        self.drop(name)
        self._number += 1
        until = asyncio.get_running_loop().time() + timeout_s
        limit = self._waiting[name] = (until, self._number, timeout_s, name, waits)
        heappush(self._heap, limit)
        if self._timer is None or self._timer.when() > until:
            self._ring_at(until)

    def drop(self, name: str) -> None:
        """Drop a limit, if there is one."""
        if self._waiting.pop(name, None) is not None and len(self._heap) > SLACK + 2 * len(self._waiting):
            self._heap = list(self._waiting.values())
            heapify(self._heap)

    def close(self) -> None:
        """Drop every limit."""
        self._waiting.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring_at(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(until, self._ring)

    def _ring(self) -> None:
        """Report the earliest limit if it is over; the next one gets a turn of the event loop of its own."""
        self._timer = None
        late: _Limit[W] | None = None
        now = asyncio.get_running_loop().time()
        while self._heap:
            limit = self._heap[0]
            if self._waiting.get(limit[3]) is limit:
                if late is not None or limit[0] > now:
                    self._ring_at(limit[0])
                    break
                late = limit
                del self._waiting[limit[3]]
            heappop(self._heap)
        if late is not None:
            self._on_late(late[4], late[2])
