"""The tasks of one session on its host, and whether the session is over there.

Its driver has a task of its own. Everything else that waits runs in a task here: several calls at a time,
interceptors, approvers, and programs that are opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class SessionTasks:
    """The tasks of one session, apart from its driver's.

    Args:
        on_failed: Called with a failure of this project's own code, which ends the session.
        on_ended: Called when a task has ended.
    """

    def __init__(self, on_failed: Callable[[Exception], None], on_ended: Callable[[], None]) -> None:
        self._on_failed = on_failed
        self._on_ended = on_ended
        self.running: set[asyncio.Task[Any]] = set()
        """Those that have not ended."""
        self.over = False
        """Whether the session is over here: it was released, or it failed. Tasks may still end late, and
        nothing that comes of them counts any more."""

    def begin(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Do work in a task; the session is not idle until it is done."""
        task = asyncio.create_task(self._guard(work))
        self.running.add(task)
        task.add_done_callback(self._on_done)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self.running:
            task.cancel()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a failure here ends only this session, with a typed outcome
            self._on_failed(error)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self._on_ended()
