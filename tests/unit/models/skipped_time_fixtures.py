"""An event loop that never waits: when nothing is left to do its time skips to the next timer.

What depends on time alone is tested on it to the moment, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import selectors

AT_ONCE = 0.0


class NothingLeft(AssertionError):
    """Everything waits for something that will never happen."""


class _SkippedWait(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, the timeout is over.

        Raises:
            NothingLeft: nothing is ready, and no timeout is given.
        """
        ready = super().select(AT_ONCE)
        if not ready:
            if timeout is None:
                raise NothingLeft("every task waits, and no timer is set")
            self.now_s += max(timeout, 0.0)
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose seconds take no time; for what uses neither threads nor the network."""

    def __init__(self) -> None:
        self._skipped = _SkippedWait()
        super().__init__(self._skipped)

    def time(self) -> float:
        """Return the seconds of all timers that were waited for."""
        return self._skipped.now_s
