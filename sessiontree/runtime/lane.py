"""Which of a session's calls run beside each other: all, but for those that run alone."""

from __future__ import annotations

import asyncio
from collections import deque


class Lane:
    """Lets calls in, in the order they come: many side by side, or one alone.

    What comes after a call that waits to be alone waits behind it, so that none waits for ever.
    """

    __slots__ = ("_alone", "_inside", "_waiting")

    def __init__(self) -> None:
        """Begin empty."""
        self._inside = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    def enter_at_once(self, *, alone: bool) -> bool:
        """Enter without waiting; False where that can't be."""
        if self._waiting or self._alone or (alone and self._inside):
            return False
        self._inside += 1
        self._alone = alone
        return True

    async def enter(self, *, alone: bool) -> None:
        """Wait until it is this call's turn, and enter. Who is cancelled meanwhile has not entered."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (turn, alone)
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was let in at the same moment
                self.leave()
            elif place in self._waiting:
                self._waiting.remove(place)
                self._admit()
            raise

    def leave(self) -> None:
        """Make room; once for each that entered."""
        self._inside -= 1
        if not self._inside:
            self._alone = False
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while self._waiting and not self._alone:
            turn, alone = self._waiting[0]
            if alone and self._inside and not turn.cancelled():
                return
            self._waiting.popleft()
            if turn.cancelled():
                continue
            self._inside += 1
            self._alone = alone
            turn.set_result(None)
