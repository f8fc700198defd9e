"""What a running command uses, looked at from outside: memory, processes, room on the disk, processor.

The kernel bounds each process (``command_plan.py``); their sum, and what they leave on
the disk, is bounded here. Where the kernel shares processors out by session first (autogroup), each session
of the command gets the least share: its processes' idle policy counts within their session only.

Source: sched(7), proc_pid_autogroup(5), proc_pid_stat(5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from sessiontree.sandbox.bounds import Bounds
from sessiontree.sandbox.process_tree import descendants

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
NEARLY: Final = 8
"""So many processes below the limit count as having reached it."""
SPARE_MEMORY: Final = 0.03
"""Share of the machine's memory that must stay free."""
SPARE_DISK: Final = 0.01
"""Share of the workspace's file system that must stay free of a command that writes."""
LEAST_SHARE: Final = b"19"
"""The weight of a session among others, as a nice value."""


_SESSION: Final = 3
_THREADS: Final = 17
"""Where they stand in a process's line, after its name."""


class Excess(NamedTuple):
    """A limit that was passed: the name of the bound, and its value."""

    limit: str
    allowed: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a command uses at one moment."""

    memory_bytes: int
    processes: int
    """Threads counted each."""
    written_bytes: int
    """Written to disks by these and by all that ended before: who waits for one takes over its account."""
    sessions: Mapping[int, int]
    """A process of each of their sessions, by session; the first is that of the launcher."""


class CommandWatch:
    """Watches one command.

    Args:
        pid: The process that holds all of it as descendants.
        workspace: Whose file system is watched.
        bounds: What it may use.
    """

    def __init__(self, pid: int, workspace: str, bounds: Bounds) -> None:
        """Remember how the disk stands before it runs; nothing of it is known where the workspace is gone."""
        self._pid = pid
        self._workspace = workspace
        self._bounds = bounds
        self._before = _disk_of(workspace)
        self._crowded = False
        self._own_session = os.getsid(0)
        self._lowered: set[int] = set()

    def excess(self) -> Excess | None:
        """Return the first limit that is passed now; processes only if they were at the last look too."""
        bounds, use = self._bounds, usage(self._pid)
        self._lower(use.sessions)
        if use.memory_bytes > bounds.memory_bytes or _memory_is_short():
            return Excess("memory_bytes", bounds.memory_bytes)
        was_crowded = self._crowded
        self._crowded = use.processes > bounds.processes - NEARLY
        if was_crowded and self._crowded:
            return Excess("processes", bounds.processes)
        if len(use.sessions) > bounds.sessions:
            return Excess("sessions", bounds.sessions)
        return self._disk_excess(use.written_bytes)

    def _lower(self, sessions: Mapping[int, int]) -> None:
        """Give each new session of the command the least share, as far as the kernel lets one look do so."""
        launcher = next(iter(sessions), 0)
        for session, member in sessions.items():
            if session in self._lowered or session in {launcher, self._own_session}:
                continue
            try:
                Path(f"/proc/{member}/autogroup").write_bytes(LEAST_SHARE)
            except BlockingIOError:  # nobody but root may do so more often than ten times a second
                return
            except OSError:  # it ended just now, or this kernel has no such groups
                continue
            self._lowered.add(session)

    def _disk_excess(self, written: int) -> Excess | None:
        bounds, before, disk = self._bounds, self._before, _disk_of(self._workspace)
        is_short = written > 0 and disk is not None and disk.f_bavail < disk.f_blocks * SPARE_DISK
        if written > bounds.disk_bytes or is_short:
            return Excess("disk_bytes", bounds.disk_bytes)
        if before is not None and disk is not None and before.f_favail - disk.f_favail > bounds.disk_files:
            return Excess("disk_files", bounds.disk_files)
        return None


def _disk_of(workspace: str) -> os.statvfs_result | None:
    """Return how a file system stands; None where somebody took the workspace away meanwhile."""
    try:
        return os.statvfs(workspace)
    except OSError:
        return None


def usage(pid: int) -> Use:
    """Return what a process's descendants use together. Memory that files stand for is not counted."""
    pages = threads = written = 0
    sessions: dict[int, int] = {}
    for child in descendants(pid):
        try:
            fields = Path(f"/proc/{child}/statm").read_bytes().split()
            stat = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
            written += _written(child)
        except OSError:  # it ended just now
            continue
        pages += int(fields[1]) - int(fields[2])
        threads += int(stat[_THREADS])
        sessions.setdefault(int(stat[_SESSION]), child)
    return Use(pages * PAGE_BYTES, threads, written, sessions)


def _written(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_bytes().split(b"\n")
    except OSError:  # it ended just now, or this kernel keeps no such account
        return 0
    written, taken_back = (int(line.rpartition(b" ")[2]) for line in lines[5:7])
    return written - taken_back


def _memory_is_short() -> bool:
    lines = Path("/proc/meminfo").read_bytes().split(b"\n", 3)
    total, available = (int(line.split()[1]) for line in (lines[0], lines[2]))
    return available < total * SPARE_MEMORY
