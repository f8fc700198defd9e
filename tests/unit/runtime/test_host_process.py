"""What a host's own process tells of itself."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

import pytest

from sessiontree.runtime.host.host_process import GONE

NOBODY_YET = """
import asyncio, threading
from sessiontree.runtime.host.host_process import OwnProcess

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


@pytest.mark.slow
def test_process_is_busy_only_with_what_sessions_began() -> None:
    """One that waits for its first session is free, whatever threads it has; a blocking call counts."""
    done = subprocess.run(
        [sys.executable, "-c", NOBODY_YET], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.splitlines() == ["False True", "False"]


LEFT = """
import asyncio, subprocess
from sessiontree import keep_process, release_process
from sessiontree.runtime.host.host_process import OwnProcess

async def begun():
    process = OwnProcess(None, 2**40, print)
    process.begin()
    kept, left = (subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL) for _ in range(2))
    keep_process(kept.pid)
    ended = process.end_leftovers()
    left.wait()  # it ends, whoever learns its status
    print(ended, kept.poll())
    process.begin()
    release_process(kept.pid)
    print(process.end_leftovers())
    kept.kill()
    kept.wait()

asyncio.run(begun())
"""


@pytest.mark.slow
def test_process_that_a_tool_keeps_outlives_its_session() -> None:
    """Others end with the session that left them; what ran before a session is not the session's."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.splitlines() == ["1 None", "0"]


ENDED = """
import asyncio, subprocess, sys
from sessiontree.runtime.host.host_process import OwnProcess, measure_resident_bytes

async def begun(why):
    quiet = subprocess.DEVNULL
    supervisor = subprocess.Popen(["sleep", "1000"], stdout=quiet)
    below = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE)
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={}, stdout=quiet)
    print(below.stdout.readline().decode().strip(), below.pid, away.pid, flush=True)
    if why == "silence":
        OwnProcess(None, 2**40, lambda reason: None, 0, lambda: True)
    else:
        OwnProcess(supervisor.pid, 1 if why == "memory" else 2**40, lambda reason: None)
    if why == "supervisor":
        supervisor.kill()
    await asyncio.sleep(1000)

asyncio.run(begun(sys.argv[1]))
"""


@pytest.mark.parametrize("why", ["supervisor", "memory", "silence"])
def test_host_that_ends_itself_ends_what_it_started(why: str) -> None:
    """Without its supervisor or its polls, or with too much memory; also what has a session of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED, why], stdout=subprocess.PIPE, text=True, check=False, timeout=240
    )
    assert done.returncode == GONE
    left = [int(pid) for pid in done.stdout.split()]
    assert len(left) == 3
    try:
        assert [pid for pid in left if not has_ended(pid)] == []
    finally:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Whether a process ends within the time that one has which was killed."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 30)[0])
    finally:
        os.close(pidfd)
