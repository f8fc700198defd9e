"""The output of a running command, as progress: the latest of it, now and then."""

from __future__ import annotations

from collections.abc import Callable

from sessiontree.contracts.ports import UpdateCallback

EVERY_S = 0.2
"""Shortest time between two reports."""
SHOWN_CHARS = 2000


class ExecProgress:
    """Takes output piece by piece and reports its end, ``{"output": text, "chars": so far}``.

    Args:
        update: Where reports go.
        clock: Seconds that only grow.
    """

    def __init__(self, update: UpdateCallback, clock: Callable[[], float]) -> None:
        """Begin; the first piece is reported at once."""
        self._update = update
        self._clock = clock
        self._end = ""
        self._chars = 0
        self._reported = 0
        self._next = 0.0

    def __call__(self, text: str) -> None:
        """Take the next piece."""
        self._end = (self._end + text)[-SHOWN_CHARS:]
        self._chars += len(text)
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            self._report()

    def finish(self) -> None:
        """Report what was not yet, however short the time since."""
        if self._chars > self._reported:
            self._report()

    def _report(self) -> None:
        self._reported = self._chars
        self._update({"output": self._end, "chars": self._chars})
