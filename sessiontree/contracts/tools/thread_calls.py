"""Blocking work in threads, off the event loop, and the cancellation that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, Lock
from typing import Any, TypeAlias, TypeVar

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.tools.context import ToolContext


def is_cancelled() -> bool:
    """Return whether the current task was asked to stop.

    If it was not, a ``CancelledError`` comes from an awaitable in foreign code and is a failure of that code.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


T = TypeVar("T")

Stop: TypeAlias = Callable[[], bool]
"""Returns whether the work should end early; cheap enough to call once per chunk or file."""

CLEANUP_LIMIT_S = 2.0
"""Seconds that a cancelled call waits for its thread to clean up."""


async def run_in_thread(function: Callable[..., T], /, *given: Any, **named: Any) -> T:
    """Call a function in a thread and return what it returns.

    Raises:
        RuntimeError: the function raised StopIteration, which no future can carry, so that the caller would
            wait forever; or it raised KeyboardInterrupt, which would end the loop although a real one occurs
            only in the main thread.
    """

    def run() -> T:
        try:
            return function(*given, **named)
        except (StopIteration, KeyboardInterrupt) as error:
            raise RuntimeError(f"the function raised {type(error).__name__}") from error

    return await asyncio.to_thread(run)


async def run_until_stopped(work: Callable[[Stop], T]) -> T:
    """Run ``work(stop)`` in a thread and return what it returns.

    Contract: when the awaiting task is cancelled, ``stop`` returns True, and the cancellation continues once
    the thread has ended, but after at most 2 s. The work can thus close what it opened.

    Raises:
        RuntimeError: as :func:`in_thread` says.
    """
    abandoned = Event()
    running = asyncio.ensure_future(run_in_thread(work, abandoned.is_set))
    running.add_done_callback(_retrieve)
    try:
        await asyncio.wait({running})  # does not cancel the work when this task is cancelled
    except asyncio.CancelledError:
        abandoned.set()
        # A thread can't be stopped; after this time it is left to end by itself.
        await asyncio.wait({running}, timeout=CLEANUP_LIMIT_S)
        raise
    return running.result()


async def claim_in_thread(acquire: Callable[[], T], release: Callable[[T], object]) -> T:
    """Acquire something in a thread, such as a lock, and return it.

    Contract: if the awaiting task is cancelled, nothing stays acquired: it is released as soon as the thread
    has it. The cancellation continues after at most 2 s.

    Raises:
        RuntimeError: as :func:`in_thread` says.
    """
    guard, acquired = Lock(), list[T]()

    def acquire_once(stop: Stop) -> None:
        found = acquire()
        # Under the guard: either the caller finds it in the list, or this thread releases it.
        with guard:
            if not stop():
                acquired.append(found)
                return
        release(found)

    try:
        await run_until_stopped(acquire_once)
    except BaseException:
        with guard:
            left = acquired.copy()
        for each in left:  # it was acquired just before the cancellation
            release(each)
        raise
    return acquired[0]


def _retrieve(running: asyncio.Future[T]) -> None:
    # No one reads an abandoned thread's error; retrieving it here keeps the loop from reporting it.
    if not running.cancelled():
        running.exception()


async def run_in_call_thread(ctx: ToolContext, work: Callable[[Stop], T]) -> T:
    """Run ``work(stop)`` in a thread and return what it returns.

    Contract: ``stop`` returns True when the call times out or is cancelled. If the awaiting task is
    cancelled, the cancellation continues once the thread has ended, but after at most 2 s.
    """
    return await run_until_stopped(lambda nobody_waits: work(lambda: nobody_waits() or ctx.cancelled))


def end_if(stop: Stop) -> None:
    """End the work if its result is no longer needed.

    Raises:
        ExecutionError: ``stop`` returns True.
    """
    if stop():
        raise ExecutionError("the call was cancelled or its time ran out; nothing more was done")
