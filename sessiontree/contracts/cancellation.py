"""Telling two cancellations apart: of the task itself, and of something it waited for."""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Whether the current task was told to stop.

    Where it was not, a ``CancelledError`` comes from what somebody else's code waited for, and is that
    code's failure.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
