"""Calls that wait for another process, and all fail when that process or its Ray is lost."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from ray.exceptions import RayError

from sessiontree.contracts.errors import EngineLost

T = TypeVar("T")


class PendingCalls:
    """The calls to one process that have no answer yet."""

    def __init__(self) -> None:
        self._lost: Future[EngineLost] = Future()
        self._losing = threading.Lock()
        self._waiting: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}

    @property
    def is_lost(self) -> bool:
        """Whether the process is lost."""
        return self._lost.done()

    def lose(self, lost: EngineLost) -> bool:
        """Fail all calls, those that wait and those to come; from any thread.

        Returns:
            Whether the process was not lost before.
        """
        # Race: Ray reports a loss on a thread of its own while calls begin on loops. A call that begins under
        # the lock is either failed here, or finds the loss in its check.
        with self._losing:
            if self._lost.done():
                return False
            self._lost.set_result(lost)
            waiting = dict(self._waiting)
        for scope, loop in waiting.items():
            with contextlib.suppress(RuntimeError):  # nobody waits on a closed loop
                loop.call_soon_threadsafe(self._fail, scope)
        return True

    def _fail(self, scope: asyncio.Timeout) -> None:
        if scope in self._waiting:
            scope.reschedule(asyncio.get_running_loop().time())

    def check(self) -> None:
        """Raise if the process is lost: a new error for each caller, without old tracebacks.

        Raises:
            EngineLost: it is lost.
        """
        if self._lost.done():
            lost = self._lost.result()
            raise type(lost)(*lost.args)

    async def await_unless_lost(self, asked: Awaitable[T]) -> T:
        """Return the answer.

        Raises:
            EngineLost: the process is lost; it replaces every other error that results from this.
        """
        scope = asyncio.timeout(None)
        try:
            async with scope:
                with self._losing:
                    self._waiting[scope] = asyncio.get_running_loop()
                try:
                    self.check()
                    return await asked
                finally:
                    if inspect.iscoroutine(asked):
                        asked.close()  # it was not begun if the process is lost; no effect on an ended one
                    del asked, self._waiting[scope]
        except (TimeoutError, RayError):
            self.check()
            raise

    def wait(self, asked: Future[T], seconds: float) -> bool:
        """Wait for an answer, without an event loop; return whether it is there. Blocks.

        Raises:
            EngineLost: the process is lost.
        """
        either: tuple[Future[Any], ...] = (asked, self._lost)
        wait(either, seconds, FIRST_COMPLETED)
        self.check()
        return asked.done()
