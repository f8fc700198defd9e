"""How much one confined command may use, and the watch on its memory, processes, disk and processor time.

The kernel limits each process (``command_plan.py``). Their sum, and what they leave on the disk, is limited
here, from outside. If the kernel first divides processors by session (autogroup), each session of the command
gets the smallest share, because the idle policy of its processes counts only within their session.

Source: sched(7), proc_pid_autogroup(5), proc_pid_stat(5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from sessiontree.sandbox.process_tree import find_descendants
from sessiontree.sandbox.resources.kernel_memory import KernelMemory

MIB: Final = 1024 * 1024
TMP: Final = "/tmp"  # noqa: S108 - the sandbox's own
HOME: Final = "/run/session"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the sandbox's own
PRIVATE_PLACES: Final = (TMP, HOME, SHARED_MEMORY)
"""File systems in memory that a command has for itself."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one command and everything it starts may use."""

    memory_bytes: int = 2048 * MIB
    """Memory of all its processes together, and what they take from the kernel besides (shared pages, files
    in memory, buffers), checked ten times a second; also the address space of each process, which the kernel
    bounds."""
    processes: int = 256
    """Processes and threads at a time."""
    sessions: int = 32
    """Sessions (setsid) at a time: the kernel first divides the processors equally among sessions."""
    file_bytes: int = 64 * MIB
    """Maximum length of a file that it writes."""
    disk_bytes: int = 4096 * MIB
    """Bytes that its processes write to disks in total, without writes that were cancelled before."""
    disk_files: int = 200_000
    """How many free inodes the workspace's file system may lose while the command runs, to any process."""
    scratch_bytes: int = 256 * MIB
    """Size of its private /tmp; its home and /dev/shm each have a quarter of it. All are in memory."""
    cpu_s: int = 600
    """Processor time of each process."""
    output_bytes: int = 256 * MIB
    """Maximum output, kept or not."""
    open_files: int = 1024
    """Descriptors of each process."""


PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
NEARLY: Final = 8
"""A number of processes this close to the limit counts as having reached it."""
SPARE_MEMORY: Final = 0.03
"""Share of the machine's memory that must stay free."""
SPARE_DISK: Final = 0.01
"""Share of the workspace's file system that a writing command must leave free."""
LEAST_SHARE: Final = b"19"
"""The weight of a session among others, as a nice value."""


IO_BYTES: Final = 1024
_SESSION: Final = 3
_THREADS: Final = 17
"""Positions of the fields in a process's stat line, after its name."""


class Excess(NamedTuple):
    """A limit that was exceeded: the name of the bound, and its value."""

    limit: str
    allowed: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a command uses at one moment."""

    memory_bytes: int
    processes: int
    """Every thread counts."""
    written_bytes: int
    """Bytes written to disks by these processes and by all that have ended: a parent inherits its children's
    counts."""
    sessions: Mapping[int, int]
    """One process of each session, by session; the launcher's comes first."""
    pids: Sequence[int]
    """The launcher's first."""


class CommandWatch:
    """Watches one command.

    Args:
        pid: The process whose descendants are the command.
        workspace: The file system of this directory is watched.
        bounds: What it may use.
    """

    def __init__(self, pid: int, workspace: str, bounds: Bounds) -> None:
        """Record the state of the disk before the command runs; nothing is known if the workspace is gone."""
        self._pid = pid
        self._workspace = workspace
        self._bounds = bounds
        # Taken before the command runs, since later nobody could separate its files from those that were
        # there.
        self._before = _read_disk_state(workspace)
        self._beside = KernelMemory(PRIVATE_PLACES)
        self._crowded = False
        self._own_session = os.getsid(0)
        self._lowered: set[int] = set()

    def find_excess(self, launcher_io: FileIO | None = None) -> Excess | None:
        """Return the first limit that is exceeded; for processes only if it was at the last check too.

        Args:
            launcher_io: What the kernel counts for the first process inside, which only root may open itself.
        """
        bounds, use = self._bounds, measure_usage(self._pid, launcher_io)
        self._lower(use.sessions)
        memory = use.memory_bytes
        # The search for memory that nobody owns reads many tables, so it is only made while the processes
        # alone are within the bound.
        if memory <= bounds.memory_bytes:
            memory += self._beside.charged(use.pids, bounds.memory_bytes - memory)
        if memory > bounds.memory_bytes or _is_memory_short():
            return Excess("memory_bytes", bounds.memory_bytes)
        # Short-lived processes are counted for a moment, so only two counts in a row prove an excess.
        was_crowded = self._crowded
        self._crowded = use.processes > bounds.processes - NEARLY
        if was_crowded and self._crowded:
            return Excess("processes", bounds.processes)
        if len(use.sessions) > bounds.sessions:
            return Excess("sessions", bounds.sessions)
        return self._find_disk_excess(use.written_bytes)

    def _lower(self, sessions: Mapping[int, int]) -> None:
        """Give each new session of the command the smallest share, as many as the kernel accepts now."""
        launcher = next(iter(sessions), 0)
        for session, member in sessions.items():
            if session in self._lowered or session in {launcher, self._own_session}:
                continue
            try:
                Path(f"/proc/{member}/autogroup").write_bytes(LEAST_SHARE)
            except BlockingIOError:  # only root may do so more often than ten times a second
                return
            except OSError:  # it ended just now, or this kernel has no autogroups
                continue
            self._lowered.add(session)

    def _find_disk_excess(self, written: int) -> Excess | None:
        bounds, before, disk = self._bounds, self._before, _read_disk_state(self._workspace)
        is_short = written > 0 and disk is not None and disk.f_bavail < disk.f_blocks * SPARE_DISK
        if written > bounds.disk_bytes or is_short:
            return Excess("disk_bytes", bounds.disk_bytes)
        if before is not None and disk is not None and before.f_favail - disk.f_favail > bounds.disk_files:
            return Excess("disk_files", bounds.disk_files)
        return None


def _read_disk_state(workspace: str) -> os.statvfs_result | None:
    """Return the state of a file system; None if the workspace was removed meanwhile."""
    try:
        return os.statvfs(workspace)
    except OSError:
        return None


def measure_usage(pid: int, launcher_io: FileIO | None = None) -> Use:
    """Return what the descendants of a process use together. Memory backed by files does not count.

    Args:
        pid: The process.
        launcher_io: What the kernel counts for the first of them, if it was opened already.
    """
    pages = threads = 0
    written = 0
    sessions: dict[int, int] = {}
    pids: list[int] = []
    for child in find_descendants(pid):
        try:
            fields = Path(f"/proc/{child}/statm").read_bytes().split()
            stat = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
            written += _count_written(child, launcher_io)
            # The counts belong to the first process only; for the others, their own files are read.
            launcher_io = None
        except OSError:  # it ended just now
            continue
        pages += int(fields[1]) - int(fields[2])
        threads += int(stat[_THREADS])
        sessions.setdefault(int(stat[_SESSION]), child)
        pids.append(child)
    return Use(pages * PAGE_BYTES, threads, written, sessions, pids)


def _count_written(pid: int, opened: FileIO | None) -> int:
    try:
        if opened is not None:
            return _parse_written(os.pread(opened.fileno(), IO_BYTES, 0))
        return _parse_written(Path(f"/proc/{pid}/io").read_bytes())
    except OSError:  # it ended just now, or this kernel does not count it
        return 0


def _parse_written(counts: bytes) -> int:
    lines = counts.split(b"\n")
    written, taken_back = (int(line.rpartition(b" ")[2]) for line in lines[5:7])
    return written - taken_back


def _is_memory_short() -> bool:
    lines = Path("/proc/meminfo").read_bytes().split(b"\n", 3)
    total, available = (int(line.split()[1]) for line in (lines[0], lines[2]))
    return available < total * SPARE_MEMORY
