"""The sessions of one tree that are leaving hosts, and those who wait until they have left."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from sessiontree.contracts.errors import SessionTreeError

LEFT_WITHIN_S: Final = 10.0
"""How long a receipt waits for ended sessions to leave their hosts."""


class Departures:
    """Counts the sessions of one tree that are leaving hosts.

    Args:
        is_closed: Whether the tree can't go on in this process.
        on_leftovers: Called with a session, and with how many of its processes its host had to end.
        wait_until_durable: Waits until everything decided so far is durable.
    """

    def __init__(
        self,
        is_closed: Callable[[], bool],
        on_leftovers: Callable[[str, int], None],
        wait_until_durable: Callable[[], Awaitable[None]],
    ) -> None:
        self._is_closed = is_closed
        self._on_leftovers = on_leftovers
        self._wait_until_durable = wait_until_durable
        self._leaving: Counter[str] = Counter()
        """Sessions that are leaving hosts, with the number of hosts."""
        self._has_left = asyncio.Event()

    def begin(self, session: str) -> None:
        """Note that a session begins to leave a host; :meth:`end` is to follow."""
        self._leaving[session] += 1

    def end(self, session: str, ended: int) -> None:
        """Note that a session has left a host, where ``ended`` of its processes were ended."""
        self._leaving[session] -= 1
        if not self._leaving[session]:
            del self._leaving[session]
        if ended and not self._is_closed():
            self._on_leftovers(session, ended)
        self._has_left.set()

    def close(self) -> None:
        """Wake those who wait: the tree can't go on in this process."""
        self._has_left.set()

    async def wait(self, session: str, besides: str = "") -> None:
        """Wait for a limited time until a session and those below it have left; ``besides`` may stay.

        The number of processes that were ended there is durable then, unless the tree is closed meanwhile.
        """
        with contextlib.suppress(TimeoutError, SessionTreeError):
            async with asyncio.timeout(LEFT_WITHIN_S):
                # Race: several may leave before this runs again, or one may begin to leave; so the event
                # only wakes, and what is true now is looked up each time.
                while not self._is_closed() and self._is_leaving(session, besides):
                    self._has_left.clear()
                    await self._has_left.wait()
                await self._wait_until_durable()

    def _is_leaving(self, session: str, besides: str) -> bool:
        below = f"{session}/"
        return any(f"{name}/".startswith(below) for name in self._leaving if name != besides)
