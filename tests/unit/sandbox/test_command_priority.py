"""Commands give way: they run when nobody else wants the processor. Changing that is among the attempts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sessiontree.sandbox import CommandShell
from sessiontree.sandbox.process_tree import find_descendants

LONG_S = 120.0
POLICY = "import os; print(os.sched_getscheduler(0))"


@pytest.mark.slow
def test_commands_and_their_children_run_idle(tmp_path: Path) -> None:
    """Those in sessions of their own, too."""
    command = f"python3 -c '{POLICY}'; setsid -w python3 -c '{POLICY}'"
    finished = asyncio.run(CommandShell(tmp_path).run(command, timeout_s=LONG_S))
    assert finished.head.split() == [str(os.SCHED_IDLE)] * 2


def shares(others: set[int]) -> list[str]:
    """Return the nice value of each session below this process: bubblewrap's, the launcher's, then others.

    Args:
        others: Processes that were there before, such as those of a Ray that other tests share.
    """
    found: dict[int, str] = {}
    for pid in set(find_descendants(os.getpid())) - others:
        try:
            text = Path(f"/proc/{pid}/autogroup").read_text("ascii")
            found.setdefault(os.getsid(pid), text.rpartition(" ")[2].strip())
        except OSError:  # it ended just now
            continue
    found.pop(os.getsid(0), None)
    return list(found.values())


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no such groups")
async def test_each_session_of_a_command_has_the_least_share(tmp_path: Path) -> None:
    """Its own and every one it makes; the launcher, which is to end them all, keeps its own."""
    others = set(find_descendants(os.getpid()))
    command = "sleep 50 & for i in 1 2; do setsid sleep 50 & done; wait"
    running = asyncio.ensure_future(CommandShell(tmp_path).run(command, timeout_s=LONG_S))
    found: list[str] = []
    try:
        async with asyncio.timeout(LONG_S):
            while found != ["0", "0", "19", "19", "19"]:
                await asyncio.sleep(0.1)
                found = sorted(shares(others))
    finally:
        running.cancel()
        await asyncio.wait([running])
