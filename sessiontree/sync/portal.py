"""The portal of this process: one loop thread for all sync trees, from the first open to the last close.

Every open tree and runtime holds a lease. A call also keeps the loop running, so that no call waits on a loop
that has ended.

A thread that waits for the loop shares locks with it. The standard library enters a condition in Python code:
an interrupt just after it took the lock leaves the lock held, and the loop waits for it for ever. So this
module has its own condition.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from functools import partial
from inspect import isawaitable
from operator import attrgetter
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from sessiontree.contracts.errors import ConfigError, SessionTreeError

T = TypeVar("T")


class InterruptibleCondition(threading.Condition):
    """A condition that is entered and left by its lock's C functions, which an interrupt cannot divide."""

    def __init__(self) -> None:
        """Begin unlocked; the thread that holds it may enter it again."""
        self._reentrant = threading.RLock()
        super().__init__(self._reentrant)

    # ``with`` calls the lock's function directly, not through a function in Python.
    __enter__ = property(attrgetter("_reentrant.__enter__"))
    __exit__ = property(attrgetter("_reentrant.__exit__"))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait to be notified. The caller holds the lock, and holds it again after every end of the wait."""
        try:
            return super().wait(timeout)
        except BaseException:
            if not self._is_owned():  # type: ignore[attr-defined]  # interrupted just after the release
                self._reentrant.acquire()
            raise


class CallFuture(Future[T]):
    """The result of a call on the loop; waiting for it can be interrupted."""

    def __init__(self) -> None:
        """Begin pending."""
        super().__init__()
        self._condition = InterruptibleCondition()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` until it is done; return whether it is."""
        with self._condition:
            return self._condition.wait_for(self.done, timeout_s)


LAST_CALLS_S = 5.0
"""How long the end of the loop waits for calls that still clean up, such as an interrupted one."""


class LoopThread:
    """A running event loop in its own thread."""

    def __init__(self) -> None:
        """Start thread and loop; both run when this returns."""
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
        """Wait for the end of the loop, which cancels all tasks last."""
        try:
            await self.loop.create_future()
        finally:
            with self._lock:
                self._is_ending = True
                # Copied under the lock: a done future removes itself from the set, on whichever thread it was
                # set.
                futures = list(self._futures)
            for future in futures:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(ended())
            # The loop's end waits for all threads of its executor; this executor has none.
            self.loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
            self._executor.shutdown(wait=False, cancel_futures=True)

    @property
    def is_running(self) -> bool:
        """Whether the loop accepts calls; a SystemExit raised on it ends it."""
        return not self._is_ending

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> CallFuture[Any]:
        """Call a function on the loop; if it returns an awaitable, that is awaited there.

        Cancelling the future cancels the task once, so that it can clean up. The function is called in any
        case.

        Raises:
            SessionTreeError: the loop has ended. Futures that are not done then fail with it too.
        """
        future: CallFuture[Any] = CallFuture()
        with self._lock:
            if self._is_ending:
                raise ended()
            # Under the lock with the check, so that no future is added after the last ones were failed.
            self._futures.add(future)
            self.loop.call_soon_threadsafe(self._start, partial(function, *given, **named), future)
        future.add_done_callback(self._futures.discard)
        return future

    def _start(self, function: Callable[[], Any], future: Future[Any]) -> None:
        task = self.loop.create_task(_call(function))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        # Settled by the task and not by the function, so that a cancelled task, too, ends the wait of its
        # thread.
        task.add_done_callback(partial(_settle, future))
        future.add_done_callback(partial(self._stop, task))

    def _stop(self, task: asyncio.Task[Any], future: Future[Any]) -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                self.loop.call_soon_threadsafe(task.cancel)

    def stop(self) -> None:
        """End loop and thread, once the last calls have cleaned up.

        A tool's thread that does not end is abandoned; it ends with the process.
        """
        if self._is_ending:
            self.thread.join()
        else:
            # An interrupted call still cleans up on the loop, such as a tool that ends its process.
            self._portal.call(self._await_last_calls)
            self._watching.cancel()
        self._opened.__exit__(None, None, None)

    async def _await_last_calls(self) -> None:
        if self._calls:
            await asyncio.wait(self._calls, timeout=LAST_CALLS_S)

    def forget(self) -> None:
        """Release the portal in a forked child, which does not have the thread.

        The portal's own exit would wait for the thread for ever. A fork made on the loop itself, such as that
        of a subprocess with a ``preexec_fn``, has the thread, and leaves it alone.
        """
        if threading.current_thread() is self.thread:
            return
        with contextlib.suppress(StopIteration, RuntimeError):
            self._portal.stop().send(None)
        self._opened.__exit__(None, None, None)


class LastingExecutor(ThreadPoolExecutor):
    """Threads for plain functions; at the interpreter's exit it calls functions directly."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function, also for a tree that closes at the interpreter's exit."""
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
    """Copy the outcome of a task to its future, unless the future is done."""
    with contextlib.suppress(InvalidStateError):
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())


def ended() -> SessionTreeError:
    """Return the error of a call if the loop has ended."""
    return SessionTreeError(
        "the event loop of the sync trees has ended: something that ran on it raised SystemExit or "
        "KeyboardInterrupt, or the interpreter ends; resume the tree with SessionTree.resume"
    )


EXIT_S = 30.0
"""How long the exit of the interpreter waits for one open tree to close."""


class Lease:
    """The right of one open tree or runtime to the loop.

    Args:
        thread: The loop.
        close: Closes the tree or runtime, on the loop, if the interpreter exits first.
    """

    def __init__(self, thread: LoopThread, close: Callable[[], Any]) -> None:
        self.thread = thread
        self.close = close
        self.pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that holds the lease."""
        return self.pid != os.getpid()

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> CallFuture[Any]:
        """Call a function on the loop.

        Raises:
            SessionTreeError: the loop has ended.
        """
        return self.thread.submit(function, *given, **named)


class Portal:
    """Starts the loop thread for the first lease and ends it after the last."""

    def __init__(self) -> None:
        """Begin without a thread."""
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._leases: dict[Lease, None] = {}
        self._calls = 0

    def lease(self, close: Callable[[], Any]) -> Lease:
        """Return a new lease; start the thread for the first one.

        Raises:
            ConfigError: called on the loop itself.
        """
        # Before the lock: whoever holds it may wait for the loop, and the loop's own thread would then wait
        # for ever.
        self.check_thread()
        with self._lock:
            # A SystemExit on the loop has ended it; the trees of that loop are lost, and new ones get a new
            # loop.
            if self._thread is not None and not self._thread.is_running:
                self._thread.stop()
                self._thread = None
            if self._thread is None:
                self._thread = LoopThread()
            lease = Lease(self._thread, close)
            self._leases[lease] = None
        self.exit_first()
        return lease

    def exit_first(self) -> None:
        """Have the interpreter's end close what is open before what was loaded so far ends itself."""
        atexit.unregister(self.close_at_exit)
        atexit.register(self.close_at_exit)

    def release(self, lease: Lease) -> None:
        """Give a lease back; giving it back again is harmless."""
        with self._lock:
            self._leases.pop(lease, None)
            self._end_if_idle()

    @contextlib.contextmanager
    def in_use(self, lease: Lease) -> Iterator[None]:
        """Keep the loop running during a call.

        Raises:
            ConfigError: called on the loop itself, or in a forked process.
            SessionTreeError: the lease was released.
        """
        if lease.is_forked:
            raise ConfigError(
                "the tree belongs to the process from which this one was forked; open a tree here, or start "
                "processes with the 'spawn' method"
            )
        self.check_thread()
        with self._lock:
            if lease not in self._leases:
                raise make_not_open_error()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._end_if_idle()

    def close_at_exit(self) -> None:
        """Close everything that is open, in reverse order, and end the thread; the interpreter exits."""
        # In reverse, because a tree may use a runtime that was opened before it.
        for lease in reversed(list(self._leases)):
            with contextlib.suppress(Exception):
                self._close(lease)
            self._leases.pop(lease, None)
        with self._lock:
            self._end_if_idle()

    def _close(self, lease: Lease) -> None:
        closing = lease.submit(lease.close)
        try:
            closing.result(EXIT_S)
        except NotInTime:
            # Something blocks the loop. The thread is a daemon and ends with the process.
            # It is never taken back: the loop then counts as in use, and nobody waits for its thread.
            self._calls += 1

    def reset_after_fork(self) -> None:
        """Begin again in a forked child, which has neither the thread nor the trees."""
        thread, self._thread = self._thread, None
        # Another thread of the parent may have held the lock at the fork, and does not exist here to release
        # it.
        self._lock = threading.Lock()
        self._leases = {}
        self._calls = 0
        if thread is not None:
            thread.forget()

    def holds(self, lease: Lease) -> bool:
        """Whether a lease was not released yet."""
        return lease in self._leases

    def check_thread(self) -> None:
        """Refuse a call on the loop's own thread, which would wait for itself.

        Raises:
            ConfigError: called on the loop itself.
        """
        thread = self._thread
        if thread is not None and thread.is_running and threading.current_thread() is thread.thread:
            raise ConfigError(
                "a sync tree was used on its own event loop, by a tool, model or channel that runs there; "
                "the call would wait for itself. Use the handles of ToolContext, or make the tool a plain "
                "function, which runs in a thread"
            )

    def _end_if_idle(self) -> None:
        if self._thread is not None and not self._leases and not self._calls:
            thread, self._thread = self._thread, None
            thread.stop()


def make_not_open_error() -> SessionTreeError:
    """Return the error of a call if its tree is not open."""
    return SessionTreeError(
        "the tree is not open; use `with SessionTree(…) as tree`, or SessionTree.resume if it was closed"
    )


PORTAL = Portal()
"""The only one of this process."""
os.register_at_fork(after_in_child=PORTAL.reset_after_fork)
