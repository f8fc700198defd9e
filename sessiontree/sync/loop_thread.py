"""The thread that runs the event loop of all sync trees, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.sync.interrupts import CallFuture

T = TypeVar("T")
LAST_CALLS_S = 5.0
"""How long the loop's end waits for calls that still tidy up, such as one that was interrupted."""


class LoopThread:
    """A started event loop in a thread of its own."""

    def __init__(self) -> None:
        """Start thread and loop; both are there when this returns."""
        self._lock = threading.Lock()
        self._is_ending = False
        self._futures: set[Future[Any]] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._executor = LastingExecutor(thread_name_prefix="sessiontree-tool")
        self._opened = start_blocking_portal(name="sessiontree-sync")
        self._portal = self._opened.__enter__()
        self._portal.call(self._begin)
        self._watching = self._portal.start_task_soon(self._watch)

    def _begin(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_default_executor(self._executor)
        self.thread = threading.current_thread()

    async def _watch(self) -> None:
        """Wait for the loop's end, whoever brings it about: its last act is to cancel all tasks."""
        try:
            await self.loop.create_future()
        finally:
            with self._lock:
                self._is_ending = True
                futures = list(self._futures)
            for future in futures:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(ended())
            # The end waits for all threads of the loop's executor; this one has none.
            self.loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
            self._executor.shutdown(wait=False, cancel_futures=True)

    @property
    def is_running(self) -> bool:
        """Whether the loop takes calls; what raises SystemExit on it ends it."""
        return not self._is_ending

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> CallFuture[Any]:
        """Have a function called on the loop; what it returns is awaited there where it can be.

        Cancelling the future cancels the task as asyncio does it: once, so that it can tidy up. The function
        is called all the same.

        Raises:
            SessionTreeError: the loop has ended. A future that is not done then fails with it, too.
        """
        future: CallFuture[Any] = CallFuture()
        with self._lock:
            if self._is_ending:
                raise ended()
            self._futures.add(future)
            self.loop.call_soon_threadsafe(self._start, partial(function, *given, **named), future)
        future.add_done_callback(self._futures.discard)
        return future

    def _start(self, function: Callable[[], Any], future: Future[Any]) -> None:
        task = self.loop.create_task(_call(function))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(partial(_settle, future))
        future.add_done_callback(partial(self._stop, task))

    def _stop(self, task: asyncio.Task[Any], future: Future[Any]) -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                self.loop.call_soon_threadsafe(task.cancel)

    def stop(self) -> None:
        """End loop and thread, once the last calls have tidied up.

        A tool's thread that is stuck is left behind; only the end of the process ends it.
        """
        if self._is_ending:
            self.thread.join()
        else:
            self._portal.call(self._last_calls)
            self._watching.cancel()
        self._opened.__exit__(None, None, None)

    async def _last_calls(self) -> None:
        if self._calls:
            await asyncio.wait(self._calls, timeout=LAST_CALLS_S)

    def forget(self) -> None:
        """Let go of it in a forked child, where the thread is not.

        What the portal would do at the end, wait for its thread, could never succeed here. A fork made on the
        loop itself, such as that of a subprocess with a ``preexec_fn``, has the thread, and lets it be.
        """
        if threading.current_thread() is self.thread:
            return
        with contextlib.suppress(StopIteration, RuntimeError):
            self._portal.stop().send(None)
        self._opened.__exit__(None, None, None)


class LastingExecutor(ThreadPoolExecutor):
    """Threads for plain functions; once the interpreter ends, and no thread can begin, they run at once."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a function called; a tree that closes at the interpreter's end must not lack a thread."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)
        return future


async def _call(function: Callable[[], Any]) -> Any:
    value = function()
    return await value if isawaitable(value) else value


def _settle(future: Future[Any], task: asyncio.Task[Any]) -> None:
    """Hand on what came of a task, unless nobody waits for it any more."""
    with contextlib.suppress(InvalidStateError):
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())


def ended() -> SessionTreeError:
    """Return what a call gets whose loop is gone."""
    return SessionTreeError(
        "the event loop of the sync trees has ended: something that ran on it raised SystemExit or "
        "KeyboardInterrupt, or the interpreter ends; take the tree up with SessionTree.resume"
    )
