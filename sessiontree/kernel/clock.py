"""The kernel's time: never steps back, and rings on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class KernelClock:
    """Milliseconds since the epoch that never decrease, whatever the machine's clock does.

    Args:
        read_ms: The machine's clock.
    """

    def __init__(self, read_ms: Callable[[], int] | None = None) -> None:
        """Begin at the machine's time."""
        self._read_ms = read_ms
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return the time; at least every time returned or noted before."""
        now = time.time_ns() // 1_000_000 if self._read_ms is None else self._read_ms()
        if now > self._last_ms:
            self._last_ms = now
        return self._last_ms

    def note(self, at_ms: int) -> None:
        """Never return less than this from now on."""
        self._last_ms = max(self._last_ms, at_ms)

    def ring(self, at_ms: int, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call an action at or after a time."""
        delay_s = max(0.0, (at_ms - self.now_ms()) / 1000)
        return asyncio.get_running_loop().call_later(delay_s, action)


def machine_ms() -> int:
    """Return the machine's milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
