"""Keeping the table in shape by itself: many small files become few, indexes current, old versions go.

Each commit makes a file, and each search opens all of them; merging rewrites the table, so it costs the more
the more it holds. It is done after so many commits that they cost as much time as merging will, which keeps
the whole linear, and soon when nothing is written, so that searches find a tidy table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from sessiontree.contracts.errors import MemoryFailed, words_of

MANY_COMMITS: Final = 100
FEW_COMMITS: Final = 8
"""So many are worth merging when nothing else is to be done."""
IDLE_S: Final = 0.25
SOME_COMMITS: Final = 24
"""So many slow a search noticeably."""
_BREAK: Final = 10
"""Between two mergings of few commits so many times as long passes as one took; of some, once as long."""
_COMMIT_S: Final = 0.004
"""What a commit costs, about."""


class Upkeep:
    """Decides when the table is tidied, and does it beside whatever else goes on.

    Args:
        tidy: Tidies the table.
        place: Path or address of the store, for errors.
    """

    def __init__(self, tidy: Callable[[], Awaitable[None]], place: str) -> None:
        self._tidy = tidy
        self._place = place
        self._commits = 0
        self._cost_s = 0.0
        self._ended_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.failure: MemoryFailed | None = None
        """Why the table could not be tidied the last time; None while all is well."""

    def wrote(self, commits: int = 1) -> None:
        """Hear of commits; called on the event loop."""
        self._commits += commits
        if self._closed or self._task is not None:
            return
        if self._commits >= max(MANY_COMMITS, self._cost_s / _COMMIT_S):
            self._begin()
        elif self._commits >= FEW_COMMITS:
            self._await_rest(IDLE_S)

    async def now(self) -> None:
        """Tidy now, or wait for the tidying that is under way."""
        if self._task is None:
            self._begin()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Begin nothing more; return once nothing is under way."""
        self._closed = True
        self._forget_timer()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _await_rest(self, after_s: float) -> None:
        """Tidy after so long without a commit, and not so often that nothing else gets done."""
        self._forget_timer()
        loop = asyncio.get_running_loop()
        pause_s = self._cost_s * (_BREAK if self._commits < SOME_COMMITS else 1)
        earliest_s = self._ended_at + pause_s - time.monotonic()
        self._timer = loop.call_later(max(after_s, earliest_s), self._begin)

    def _begin(self) -> None:
        self._forget_timer()
        if not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._work(), name="memory-upkeep")

    async def _work(self) -> None:
        began, commits = time.monotonic(), self._commits
        try:
            await self._tidy()
            self.failure = None
        except MemoryFailed as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - nobody awaits it; doctor and the next write tell
            self.failure = MemoryFailed(self._place, f"tidying failed unexpectedly ({words_of(error)})")
        finally:
            self._ended_at = time.monotonic()
            self._cost_s = self._ended_at - began
            self._commits -= commits
            self._task = None
        if self._commits:
            self.wrote(0)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
