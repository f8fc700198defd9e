"""Bounds: how much one confined command may use before the kernel, or whoever watches it, stops it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one command and all it starts may use."""

    memory_bytes: int = 2048 * MIB
    """Memory of all its processes together, looked at ten times a second; also the address space of each
    single process, which the kernel itself bounds."""
    processes: int = 256
    """Processes and threads at a time."""
    sessions: int = 32
    """Sessions (setsid) at a time: to each the kernel first gives as much of the processors as to others."""
    file_bytes: int = 64 * MIB
    """Longest file written."""
    disk_bytes: int = 4096 * MIB
    """What its processes write to disks in all, less what was taken back before it got there."""
    disk_files: int = 200_000
    """Files the file system of the workspace may lose room for while it runs, whoever makes them."""
    scratch_bytes: int = 256 * MIB
    """Size of its private /tmp; that of its home and of /dev/shm are a quarter of it. They lie in memory."""
    cpu_s: int = 600
    """Processor time of each single process."""
    output_bytes: int = 256 * MIB
    """Most output, kept or not."""
    open_files: int = 1024
    """Descriptors of each single process."""
