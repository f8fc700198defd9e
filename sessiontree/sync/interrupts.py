"""Waiting for another thread in a way that an interrupt can end at any moment, and leaves no lock behind.

A thread that waits for the loop shares locks with it. The standard library enters a condition in Python: an
interrupt in the instant after the lock was taken leaves it locked, and the loop waits for it for ever.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from operator import attrgetter
from typing import TypeVar

T = TypeVar("T")


class InterruptibleCondition(threading.Condition):
    """A condition that is entered and left by its lock's own functions, which no interrupt cuts in two."""

    def __init__(self) -> None:
        """Begin unlocked; whoever holds it may enter it again."""
        self._reentrant = threading.RLock()
        super().__init__(self._reentrant)

    # What ``with`` calls is the lock's own function, not one of Python that calls it.
    __enter__ = property(attrgetter("_reentrant.__enter__"))
    __exit__ = property(attrgetter("_reentrant.__exit__"))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait to be notified; the caller holds the lock, and holds it again whatever ends the waiting."""
        try:
            return super().wait(timeout)
        except BaseException:
            if not self._is_owned():  # type: ignore[attr-defined]  # interrupted in the instant it was let go
                self._reentrant.acquire()
            raise


class CallFuture(Future[T]):
    """What a call on the loop comes to; waiting for it can be interrupted."""

    def __init__(self) -> None:
        """Begin pending."""
        super().__init__()
        self._condition = InterruptibleCondition()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is done, for so long at most; return whether it is."""
        with self._condition:
            return self._condition.wait_for(self.done, timeout_s)
