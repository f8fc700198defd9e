"""Plain functions beside the event loop, and telling one that nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Stop: TypeAlias = Callable[[], bool]
"""Whether the work should end early; cheap enough to ask once per chunk or file."""

CLEANUP_LIMIT_S = 2.0
"""How long a cancelled call waits for its thread to put things away."""


async def in_thread(function: Callable[..., T], /, *given: Any, **named: Any) -> T:
    """Call a function in a thread and return what it returns.

    Raises:
        RuntimeError: it raised StopIteration, which no future can carry: whoever awaits would wait for ever;
            or KeyboardInterrupt, which would end the loop and is nobody's here: a real one comes to the
            main thread alone.
    """

    def run() -> T:
        try:
            return function(*given, **named)
        except (StopIteration, KeyboardInterrupt) as error:
            raise RuntimeError(f"the function raised {type(error).__name__}") from error

    return await asyncio.to_thread(run)


async def in_thread_until_told(work: Callable[[Stop], T]) -> T:
    """Run ``work(stop)`` in a thread and return what it returns.

    Contract: when the awaiting task is cancelled, ``stop`` turns true and the cancellation goes on once
    the thread has ended, or after 2 s without it; so what the work opened is closed by then.

    Raises:
        RuntimeError: as :func:`in_thread` says.
    """
    abandoned = Event()
    running = asyncio.ensure_future(in_thread(work, abandoned.is_set))
    running.add_done_callback(_retrieve)
    try:
        await asyncio.wait({running})  # which leaves the work alone when this task is cancelled
    except asyncio.CancelledError:
        abandoned.set()
        await asyncio.wait({running}, timeout=CLEANUP_LIMIT_S)
        raise
    return running.result()


def _retrieve(running: asyncio.Future[T]) -> None:
    # An abandoned thread's error has no reader; taking it here keeps the loop from reporting it.
    if not running.cancelled():
        running.exception()
