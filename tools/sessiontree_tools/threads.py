"""Running a tool's blocking work beside the event loop, and telling it when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import TypeAlias, TypeVar

from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError

T = TypeVar("T")

Stop: TypeAlias = Callable[[], bool]
"""Whether the work should end early; cheap enough to ask once per chunk or file."""

CLEANUP_LIMIT_S = 2.0
"""How long a cancelled call waits for its thread to put things away."""


async def in_thread(ctx: ToolContext, work: Callable[[Stop], T]) -> T:
    """Run ``work(stop)`` in a thread and return what it returns.

    Contract: when the awaiting task is cancelled, ``stop`` turns true and the cancellation goes on once
    the thread has ended, or after 2 s without it; so what the work opened is closed by then.
    """
    abandoned = Event()

    def stop() -> bool:
        return abandoned.is_set() or ctx.cancelled

    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    running.add_done_callback(_retrieve)
    try:
        await asyncio.wait({running})  # which leaves the work alone when this task is cancelled
    except asyncio.CancelledError:
        abandoned.set()
        await asyncio.wait({running}, timeout=CLEANUP_LIMIT_S)
        raise
    return running.result()


def end_if(stop: Stop) -> None:
    """Leave the work where nobody waits for it.

    Raises:
        ExecutionError: ``stop`` says so.
    """
    if stop():
        raise ExecutionError("the call was cancelled or its time is over; nothing more was done")


def _retrieve(running: asyncio.Future[T]) -> None:
    # An abandoned thread's error has no reader; taking it here keeps the loop from reporting it.
    if not running.cancelled():
        running.exception()
