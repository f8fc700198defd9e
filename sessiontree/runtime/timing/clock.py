"""The runtime's clock: setting the machine's clock does not change it. It also sets timers on the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def read_machine_ms() -> int:
    """Return the machine's milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def read_monotonic_ms() -> int:
    """Return milliseconds since the machine started; never steps back, the same in all processes."""
    return time.monotonic_ns() // 1_000_000


class TreeClock:
    """Milliseconds since the epoch: the machine's time at the start, plus the time that has passed since.

    If the machine's clock is set ahead or back, nothing becomes due earlier or later.

    Args:
        offset_ms: How far this clock is ahead of ``passed_ms``; None = as far as the machine's clock is now.
        passed_ms: Returns a monotonic time in milliseconds.
        wall_ms: Returns the machine's time.
    """

    __slots__ = ("_passed_ms", "offset_ms", "wall_ms")

    def __init__(
        self,
        offset_ms: int | None = None,
        passed_ms: Callable[[], int] = read_monotonic_ms,
        wall_ms: Callable[[], int] = read_machine_ms,
    ) -> None:
        self._passed_ms = passed_ms
        self.wall_ms = wall_ms
        """Returns the machine's time, which may be set ahead or back: for times of day."""
        self.offset_ms = read_machine_ms() - passed_ms() if offset_ms is None else offset_ms

    def now_ms(self) -> int:
        """Return the time; never less than an earlier call returned."""
        return self.offset_ms + self._passed_ms()

    def not_before(self, at_ms: int) -> TreeClock:
        """Return a clock that never returns less than ``at_ms`` and otherwise agrees with this one."""
        passed_ms = self._passed_ms
        return TreeClock(max(self.offset_ms, at_ms - passed_ms()), passed_ms, self.wall_ms)

    def ring(self, at_ms: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call an action at a time, or at once if the time has passed."""
        delay_s = max(0.0, (at_ms - self.now_ms()) / 1000)
        return asyncio.get_running_loop().call_later(delay_s, action)
