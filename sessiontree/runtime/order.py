"""Carrying out in order: what follows from facts happens after they are durable, and in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class InOrder:
    """Runs each action once the commit it was given with is durable and every earlier action has run.

    Args:
        on_failure: Told once, when a commit fails; nothing is run from then on.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        """Begin with nothing to do."""
        self._on_failure = on_failure
        self._queue: deque[tuple[asyncio.Future[None] | None, Callable[[], None]]] = deque()
        self._running = False
        self._failed = False

    def after(self, commit: asyncio.Future[None] | None, action: Callable[[], None]) -> None:
        """Run an action after a commit; None = after what was given before."""
        self._queue.append((commit, action))
        if commit is not None and not commit.done():
            commit.add_done_callback(self._on_done)
        else:
            self._run()

    def _on_done(self, commit: asyncio.Future[None]) -> None:
        if not commit.cancelled():
            commit.exception()  # after a failure nobody else asks the commits behind it how they ended
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        try:
            while self._queue and not self._failed:
                commit, action = self._queue[0]
                if commit is not None:
                    if not commit.done():
                        return
                    error = None if commit.cancelled() else commit.exception()
                    if commit.cancelled() or error is not None:
                        self._fail(error)
                        return
                self._queue.popleft()
                action()
        finally:
            self._running = False

    def _fail(self, error: BaseException | None) -> None:
        self._failed = True
        self._queue.clear()
        self._on_failure(error if isinstance(error, Exception) else RuntimeError("the commit was cancelled"))
