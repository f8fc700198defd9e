"""Jobs: what a command does at the same time, such as hearing a person and a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_jobs(*jobs: Coroutine[Any, Any, bool]) -> bool:
    """Run jobs side by side until one says that all is over, by True, or none is left.

    Returns:
        Whether one said so. Whichever still run are cancelled, and have ended.

    Raises:
        Exception: what the first job that failed raised.
    """
    running = {asyncio.create_task(job) for job in jobs}
    try:
        while running:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result() for task in ended):
                return True
        return False
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
