"""Taking numbered questions up in order, on a way that may reorder them."""

from __future__ import annotations

import asyncio

PATIENCE_S = 5.0
"""How long a question waits for those before it: one of them may have been lost on the way."""


class Turns:
    """Whose turn it is; numbers begin at 1."""

    def __init__(self) -> None:
        """Begin before the first."""
        self._passed = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def reach(self, number: int) -> None:
        """Wait until every number before this one has passed, or long enough."""
        if number <= self._passed + 1:
            return
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(number, None)

    def passed(self, number: int) -> None:
        """Note that a number was taken up; the next one's turn has come."""
        self._passed = max(self._passed, number)
        turn = self._waiting.get(self._passed + 1)
        if turn is not None and not turn.done():
            turn.set_result(None)
