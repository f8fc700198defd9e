"""How the calls of one tree, or one runtime, cross from a thread to the loop, and what they bring back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from sessiontree.sync.interrupts import CallFuture
from sessiontree.sync.loop_thread import ended
from sessiontree.sync.portal import PORTAL, Lease, not_open
from sessiontree.sync.prompts import LOOK_S, Prompts

T = TypeVar("T")
LAST_WAITS_S = 1.0
"""How long a closed tree's waiting calls have to learn it from the tree, before they are cut short."""


class Crossing:
    """One owner's way to the loop; nothing passes before :meth:`open` and after :meth:`close`."""

    def __init__(self) -> None:
        """Begin closed."""
        self.prompts = Prompts()
        self._lease: Lease | None = None
        self._waits: set[Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def open(self, close: Callable[[], Any]) -> bool:
        """Take a lease; False where there is one already.

        Args:
            close: Closes the owner, on the loop.

        Raises:
            ConfigError: called on the loop itself.
        """
        if self._lease is not None:
            return False
        self._closing = False
        self._lease = PORTAL.lease(lambda: self._end(close))
        return True

    @property
    def is_open(self) -> bool:
        """Whether calls pass."""
        return self._lease is not None and not self._closing

    def run(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Call a function on the loop and return what it returns; nobody is asked anything meanwhile.

        Raises:
            SessionTreeError: the owner is not open, or the loop has ended.
            ConfigError: called on the loop itself, or in a forked process.
        """
        lease = self._held()
        with PORTAL.in_use(lease):
            future = lease.submit(function, *given, **named)
            try:
                return _outcome(future)
            except BaseException:
                future.cancel()
                raise

    def wait(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Call a function on the loop and wait for it; people are asked on this thread meanwhile.

        An interrupt ends the waiting: the function's task is cancelled, and nothing else.

        Raises:
            SessionTreeError: the owner is not open or was closed meanwhile, or the loop has ended.
            ConfigError: called on the loop itself, or in a forked process.
        """
        lease = self._held()
        with PORTAL.in_use(lease):
            future = lease.submit(function, *given, **named)
            self._waits.add(future)
            try:
                self.prompts.serve_until(future)
                return future.result()
            except CancelledError:
                raise not_open() if self._closing else ended() from None
            except BaseException:
                future.cancel()
                raise
            finally:
                self._waits.discard(future)

    def close(self) -> None:
        """Close the owner and give the lease back. Harmless when repeated, in a forked child, without a loop.

        An interrupt does not keep the owner from closing; the lease is then given back by the next call.

        Raises:
            ConfigError: called on the loop itself.
        """
        lease = self._lease
        if lease is None:
            return
        if not lease.is_forked:
            PORTAL.check_thread()
            try:
                with PORTAL.in_use(lease):
                    _outcome(lease.submit(lease.close))
            except Exception:
                is_news = lease.thread.is_running and PORTAL.holds(lease)
                self._give_back(lease)
                if is_news:  # and not that another thread has closed it, or that its loop is gone
                    raise
                return
        self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        self._lease = None
        PORTAL.release(lease)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task of the loop when the owner closes."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def unless_closed(self, waiting: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait, on the loop, for what the owner's end would not end by itself.

        Raises:
            SessionTreeError: the owner was closed meanwhile.
        """
        task = asyncio.create_task(waiting())
        self.keep(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._closing:
                raise not_open() from None
            raise

    async def _end(self, close: Callable[[], Any]) -> None:
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        await close()
        waits = [asyncio.wrap_future(future) for future in list(self._waits) if not future.done()]
        if waits:
            told, late = await asyncio.wait(waits, timeout=LAST_WAITS_S)
            for wait in told:
                wait.cancelled() or wait.exception()  # its own thread raises it
            for wait in late:
                wait.cancel()

    def _held(self) -> Lease:
        if self._lease is None:
            raise not_open()
        return self._lease


def _outcome(future: CallFuture[Any]) -> Any:
    try:
        while not future.done():
            future.wait(LOOK_S)
        return future.result()
    except CancelledError:
        raise ended() from None
    finally:
        del future  # its exception holds this frame
