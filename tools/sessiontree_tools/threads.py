"""Running a tool's blocking work beside the event loop, and telling it when nobody waits any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.thread_calls import Stop, in_thread_until_told

__all__ = ["Stop", "end_if", "in_thread"]

T = TypeVar("T")


async def in_thread(ctx: ToolContext, work: Callable[[Stop], T]) -> T:
    """Run ``work(stop)`` in a thread and return what it returns.

    Contract: ``stop`` turns true when the call's time is over or it is cancelled; when the awaiting task
    is, the cancellation goes on once the thread has ended, or after 2 s without it.
    """
    return await in_thread_until_told(lambda nobody_waits: work(lambda: nobody_waits() or ctx.cancelled))


def end_if(stop: Stop) -> None:
    """Leave the work where nobody waits for it.

    Raises:
        ExecutionError: ``stop`` says so.
    """
    if stop():
        raise ExecutionError("the call was cancelled or its time is over; nothing more was done")
