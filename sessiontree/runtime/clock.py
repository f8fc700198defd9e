"""The time of the runtime: passes evenly, whatever is done to the machine's clock, and rings on the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def machine_ms() -> int:
    """Return the machine's milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return milliseconds that only pass; of one machine since its start, the same in all its processes."""
    return time.monotonic_ns() // 1_000_000


class TreeClock:
    """Milliseconds since the epoch: the machine's time once, and from then on what has passed.

    The machine's clock may be set ahead or back meanwhile; nothing becomes due earlier or later for it.

    Args:
        offset_ms: How far it is ahead of what passes; None = as far as the machine's clock is now.
        passed_ms: What passes.
    """

    __slots__ = ("_passed_ms", "offset_ms")

    def __init__(self, offset_ms: int | None = None, passed_ms: Callable[[], int] = monotonic_ms) -> None:
        """Begin at the machine's time, or with a known offset, as another clock of this machine has it."""
        self._passed_ms = passed_ms
        self.offset_ms = machine_ms() - passed_ms() if offset_ms is None else offset_ms

    def now_ms(self) -> int:
        """Return the time; at least every time returned before."""
        return self.offset_ms + self._passed_ms()

    def not_before(self, at_ms: int) -> TreeClock:
        """Return a clock that never returns less than this, and runs as this one does."""
        passed_ms = self._passed_ms
        return TreeClock(max(self.offset_ms, at_ms - passed_ms()), passed_ms)

    def ring(self, at_ms: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call an action at or after a time."""
        delay_s = max(0.0, (at_ms - self.now_ms()) / 1000)
        return asyncio.get_running_loop().call_later(delay_s, action)
