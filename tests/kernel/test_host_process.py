"""What a host's own process tells of itself."""

from __future__ import annotations

import subprocess
import sys

NOBODY_YET = """
import asyncio, threading
from sessiontree.kernel.host_process import OwnProcess

async def begun():
    process = OwnProcess(None, 2**40, print)
    idle = process.is_busy()
    told = threading.Event()
    at_work = asyncio.get_running_loop().run_in_executor(None, told.wait)
    print(idle, process.is_busy())
    told.set()
    await at_work
    print(process.is_busy())

asyncio.run(begun())
"""
"""In a process of its own, as its watching thread lives for as long as that."""


def test_a_process_is_busy_only_with_what_sessions_began() -> None:
    """One that waits for its first session is free, whatever threads it has; a blocking call counts."""
    done = subprocess.run(
        [sys.executable, "-c", NOBODY_YET], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.splitlines() == ["False True", "False"]
