"""Memory that commands take outside their own processes: shared pages, files in memory, buffers, inodes.

No process owns it, and much of it has no name either: a shared mapping keeps all its pages while one of them
is mapped, and a descriptor on its way through a socket is nobody's. So two things are measured. The first is
what the machine has lost since the command began: all that is neither free, nor a process's own, nor given
back on demand. Memory cannot hide from that. The second is how much of it the command may hold, judged by
what its processes have open and mapped. A command is charged the smaller one, so that it does not pay for
what a program outside takes, unless it may hold as much.

Commands that run at the same time and may each hold such memory are charged for it together.

Source: proc_meminfo(5), proc_pid_fd(5), proc_pid_fdinfo(5), proc_pid_maps(5), unix(7), pipe(7), shmem in
tmpfs(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

KIB: Final = 1024
ANY: Final = 1 << 62
"""Stands for an amount that nothing bounds."""
INODE_BYTES: Final = 4 * KIB
"""What a file, directory or link in memory takes at most, besides its pages."""
MAPPING_BYTES: Final = 512
THREAD_BYTES: Final = 64 * KIB
LEAST_SOCKET_BYTES: Final = 512 * KIB
LEAST_PIPE_BYTES: Final = 1024 * KIB
"""What a socket and a pipe hold at most, unless the machine's settings allow more."""
_SHARED_MAPPINGS: Final = (b"/memfd:", b"/dev/zero (deleted)", b"/SYSV")
_NOT_TAKEN: Final = (
    *("MemFree", "Active(file)", "Inactive(file)", "KReclaimable", "AnonPages"),
    *("Hugetlb", "Balloon", "Shmem"),
)


class Amounts(NamedTuple):
    """Bytes of two kinds."""

    shared: int
    """Pages of files in memory and of shared mappings."""
    kernel: int
    """Everything else that the kernel can't take back: buffers, inodes, tables."""


def compute_taken_memory(meminfo: bytes, elsewhere: int = 0) -> Amounts:
    """Return what a machine has lost to nobody's processes.

    Args:
        meminfo: The kernel's table.
        elsewhere: Bytes in the machine's own file systems in memory.
    """
    table: dict[str, int] = {}
    for line in meminfo.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        table[name] = int(value.split()[0]) * KIB if value.split() else 0
    kernel = table["MemTotal"] - sum(table.get(name, 0) for name in _NOT_TAKEN)
    if "KReclaimable" not in table:
        kernel -= table.get("SReclaimable", 0)
    return Amounts(table["Shmem"] - elsewhere, kernel)


class KernelMemory:
    """Watches the memory that one command takes outside its processes.

    Args:
        proc: Where the kernel's tables are.
        private: File systems in memory that belong to the command, as its processes see them.
    """

    def __init__(self, private: Sequence[str], proc: Path = Path("/proc")) -> None:
        """Record what the machine has lost before the command runs."""
        self._proc = proc
        self._private = private
        self._outside = tuple(_find_memory_places(proc))
        self._least = self._measure_taken()

    def charged(self, processes: Sequence[int], room: int) -> int:
        """Return how many bytes the command is charged.

        Args:
            processes: Those of the command; the first one decides which file systems are private.
            room: Up to this amount nothing is looked for in the processes, and 0 is returned.
        """
        now = self._measure_taken()
        # What others give back meanwhile must not hide what the command takes.
        self._least = Amounts(*map(min, self._least, now))
        grown = Amounts(now.shared - self._least.shared, now.kernel - self._least.kernel)
        # Reading the machine's table is cheap, searching all descriptors is not; most commands never get
        # here.
        if grown.shared + grown.kernel <= room:
            return 0
        held = self._measure_held(processes, grown)
        return min(grown.shared, held.shared) + min(grown.kernel, held.kernel)

    def _measure_taken(self) -> Amounts:
        elsewhere = sum(_measure_used(place)[0] for place in self._outside)
        return compute_taken_memory((self._proc / "meminfo").read_bytes(), elsewhere)

    def _measure_held(self, processes: Sequence[int], most: Amounts) -> Amounts:
        """Return what the processes may hold; not looked for further once it reaches ``most``."""
        shared = kernel = 0
        for place in self._private if processes else ():
            used, inodes = _measure_used(f"{self._proc}/{processes[0]}/root{place}")
            shared += used
            kernel += inodes * INODE_BYTES
        seen: set[str] = set()
        for process in processes:
            for found in self._measure_process(self._proc / str(process), seen):
                shared += found.shared
                kernel += found.kernel
                if shared >= most.shared and kernel >= most.kernel:
                    return Amounts(shared, kernel)
        return Amounts(shared, kernel)

    def _measure_process(self, process: Path, seen: set[str]) -> Iterator[Amounts]:
        """Yield what one process may hold, without the sockets and pipes that were seen already."""
        try:
            yield Amounts(0, _measure_tables(process / "status"))
            maps = (process / "maps").read_bytes()
            yield Amounts(
                ANY if any(map(maps.count, _SHARED_MAPPINGS)) else 0, maps.count(b"\n") * MAPPING_BYTES
            )
            for name in os.listdir(process / "fd"):  # noqa: PTH208 - thousands of names
                yield _measure_descriptor(process, name, seen)
        except OSError:  # it ended just now
            return


def _measure_descriptor(process: Path, name: str, seen: set[str]) -> Amounts:
    try:
        target = os.readlink(f"{process}/fd/{name}")  # noqa: PTH115 - thousands of names
        if target.startswith("/memfd:"):
            return Amounts(ANY, 0)
        if target in seen or not target.startswith(("socket:", "pipe:")):
            return Amounts(0, 0)
        # Both ends of a pipe, and each copy of a descriptor, lead to the same buffer, which is charged once.
        seen.add(target)
        if target.startswith("pipe:"):
            return Amounts(0, max(LEAST_PIPE_BYTES, _read_setting("fs/pipe-max-size")))
        carried = (process / "fdinfo" / name).read_bytes().partition(b"scm_fds:")[2].split(maxsplit=1)
    except OSError:  # it was closed just now
        return Amounts(0, 0)
    if carried and carried[0] != b"0":  # the descriptors in it may be of anything
        return Amounts(ANY, ANY)
    return Amounts(0, max(LEAST_SOCKET_BYTES, 2 * _read_setting("net/core/wmem_max")))


def _measure_tables(status: Path) -> int:
    """Return what the kernel keeps for a process and its threads."""
    table = dict(line.split(b":", 1) for line in status.read_bytes().splitlines() if b":" in line)
    pages = table.get(b"VmPTE", b"0").split()
    return int(pages[0]) * KIB + int(table.get(b"Threads", b"1")) * THREAD_BYTES


def _read_setting(name: str) -> int:
    try:
        return int(Path("/proc/sys", name).read_text("ascii"))
    except OSError:  # hidden in a container
        return 0


def _measure_used(place: str) -> tuple[int, int]:
    """Return the bytes and the inodes that a file system holds; zeros if it can't be reached."""
    try:
        found = os.statvfs(place)
    except OSError:
        return 0, 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize, max(0, found.f_files - found.f_ffree)


def _find_memory_places(proc: Path) -> Iterator[str]:
    """Yield one place of each file system in memory that this process sees."""
    devices: set[int] = set()
    for line in (proc / "self" / "mounts").read_text("utf-8", "replace").splitlines():
        _, place, kind, *_ = line.split(" ")
        if kind not in {"tmpfs", "devtmpfs"}:
            continue
        try:
            device = Path(place).stat().st_dev
        except OSError:
            continue
        if device not in devices:
            devices.add(device)
            yield place
