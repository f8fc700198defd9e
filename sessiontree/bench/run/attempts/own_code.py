"""Runs code of a suite: on the loop or in a thread, for a limited time, and without harm to the attempt.

It may raise anything, exit, cancel itself, block, come back late or not at all.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from sessiontree import ConfigError
from sessiontree.bench.suite.suite import RunRefused
from sessiontree.contracts.values.quick_dataclass import dataclass

T = TypeVar("T")
GRACE_S: Final = 10.0
"""How long code may take to end after it was asked to."""
IDLE_S: Final = 5.0
"""How long a thread without work waits for more, in seconds."""
_LOG = logging.getLogger("sessiontree")


class Clock(Protocol):
    """Says how long code may still work."""

    async def left_s(self) -> float | None:
        """Return how many seconds are left; 0 or less = its time is over, None = it has no limit."""
        ...


@dataclass(frozen=True, slots=True)
class OwnEnd(Generic[T]):
    """How code of a suite ended."""

    value: T | None = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether its time was over when it ended, or was ended."""


async def run_own(work: Callable[[], Coroutine[Any, Any, T]], clock: Clock, grace_s: float) -> OwnEnd[T]:
    """Run code in a task of its own: it may cancel that or exit, and never the attempt.

    Args:
        work: Makes the coroutine.
        clock: How long it may work.
        grace_s: How long it may take to end once its time is over; then it is given up.

    Raises:
        CancelledError: the attempt itself was cancelled.
        KeyboardInterrupt: the user ends the program.
        ConfigError: the code says that the run can't go on.
    """
    task = asyncio.get_running_loop().create_task(await_own(work))
    try:
        while True:
            # Asked again after each wait: the time stops while the tree waits, so the first answer may have
            # been too short.
            left_s = await clock.left_s()
            if left_s is not None and left_s <= 0:
                break
            await asyncio.wait({task}, timeout=left_s)
            if task.done():
                break
    except asyncio.CancelledError:
        await _end(task, grace_s)
        raise
    if not task.done():
        await _end(task, grace_s)
        return OwnEnd(is_late=True)
    ended = task.result()
    left_s = await clock.left_s()
    if left_s is not None and left_s <= 0:  # it swallowed its cancellation, or kept the loop from asking
        return OwnEnd(ended.value, ended.error, is_late=True)
    return ended


async def await_own(work: Callable[[], Coroutine[Any, Any, T]]) -> OwnEnd[T]:
    """Run code in this task; whatever it raises is its end, even a cancellation.

    Raises:
        KeyboardInterrupt, ConfigError: as :func:`run_own`.
    """
    try:
        return OwnEnd(await work())  # made here: a task that is cancelled early leaves none behind
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except RunRefused as refused:
        raise ConfigError(str(refused)) from refused
    except BaseException as error:  # noqa: BLE001 - a task that exits would end the event loop
        return OwnEnd(error=error)


async def _end(task: asyncio.Task[Any], grace_s: float) -> None:
    """Cancel a task; one that goes on all the same is closed where it waits, which no handler can refuse."""
    task.cancel()
    await asyncio.wait({task}, timeout=grace_s)
    if task.done():
        return
    _LOG.warning(
        "code of the suite went on %g s after it was cancelled, and is given up: let CancelledError pass, "
        "and don't block",
        grace_s,
    )
    coroutine = task.get_coro()
    if inspect.iscoroutine(coroutine):
        try:
            # Closing raises where the code waits, so that its `finally` blocks still run.
            coroutine.close()
        except (RuntimeError, ValueError) as error:  # it catches even that, or runs in this moment
            _LOG.warning("it can't be closed either: %s", error)
    task.add_done_callback(_forget)
    task.cancel()  # wakes it, so that it finds itself closed


def _forget(task: asyncio.Task[Any]) -> None:
    """Take note of how a task ended, so that nobody is warned of it."""
    if not task.cancelled():
        task.exception()


async def call_own(function: Callable[..., T | Awaitable[T]], argument: object) -> T:
    """Call a function of a suite: a plain one in a thread, where it blocks nobody else.

    A thread that does not end is given up: it does not keep the process alive.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        found = function(argument)
    else:
        found = await _run_in_thread(partial(function, argument))
    return await found if inspect.isawaitable(found) else found


async def _run_in_thread(work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    # Code in the thread must see the attempt's variables, which another thread would not have.
    context = contextvars.copy_context()

    def settle(value: T | None, error: BaseException | None) -> None:
        # The attempt may have been cancelled while the thread worked; setting a result would then raise.
        if done.done():
            return
        if error is not None:
            done.set_exception(_make_portable(error))
        else:
            done.set_result(value)  # type: ignore[arg-type]  # it is the value of the work

    def run() -> Callable[[], None]:
        try:
            value, error = context.run(work), None
        except BaseException as raised:  # noqa: BLE001 - raised again by whoever waits
            value, error = None, raised
        return partial(report, value, error)

    def report(value: T | None, error: BaseException | None) -> None:
        # The thread may outlive the run: it was given up and ends when it likes.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    _THREADS.run(run)
    return await done


_Work = Callable[[], Callable[[], None]]
"""Work for a thread; it raises nothing, and returns how its end is reported."""


class _CodeThreads:
    """Threads for code of suites: one that is free is used again, and one that does not end blocks nobody.

    They are daemons, so code that was given up does not keep the process alive.
    """

    def __init__(self) -> None:
        self._free: list[queue.SimpleQueue[_Work]] = []
        """The inputs of the threads that wait for work, of which the last one waits for the shortest time."""
        os.register_at_fork(after_in_child=self._free.clear)  # the threads stay in the parent

    def run(self, work: _Work) -> None:
        """Run work in a thread that does nothing else meanwhile."""
        try:
            given = self._free.pop()  # at once: other loops may take one in this moment
        except IndexError:
            given = queue.SimpleQueue()
            threading.Thread(
                target=self._serve, args=(given,), name="sessiontree-suite-code", daemon=True
            ).start()
        given.put(work)

    def _serve(self, given: queue.SimpleQueue[_Work]) -> None:
        """Work until nothing has come for a while."""
        while True:
            try:
                work = given.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    self._free.remove(given)
                except ValueError:  # Race: it was taken in this moment, and its work is on the way
                    continue
                return
            report = work()
            self._free.append(given)  # before the report, so that what follows it finds this thread
            report()
            del work, report  # nothing of an attempt is kept alive while the thread waits


_THREADS: Final = _CodeThreads()


def _make_portable(error: BaseException) -> BaseException:
    """Return an error that a future can carry: no StopIteration, and no interrupt of a thread."""
    if isinstance(error, StopIteration | KeyboardInterrupt):
        found = RuntimeError(f"the suite's code raised {type(error).__name__}")
        found.__cause__ = error
        return found
    return error
