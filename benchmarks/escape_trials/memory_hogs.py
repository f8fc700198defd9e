"""Memory that a command takes outside its processes, one way each; run inside a sandbox.

``python memory_hogs.py NAME BYTES`` takes that much, prints how much it took, and waits. It uses the standard
library alone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

MIB: Final = 1 << 20
KEPT: Final[list[Any]] = []
Hog = Callable[[int], None]
HOGS: dict[str, Hog] = {}


def hog(function: Hog) -> Hog:
    """Enter a function into the table under its own name, without the underscore."""
    HOGS[function.__name__.removeprefix("_")] = function
    return function


def _in_children(parts: int, take: Callable[[], None]) -> None:
    """Do it in as many processes, which stay; return when all have done it."""
    for _ in range(parts):
        done, tell = os.pipe()
        if not os.fork():
            take()
            os.write(tell, b"x")
            signal.pause()
        os.close(tell)
        os.read(done, 1)


def _filled(size: int) -> int:
    """Return a file in memory that is not mapped."""
    file = os.memfd_create("hog")
    for _ in range(size // MIB):
        os.write(file, bytes(MIB))
    return file


@hog
def _files_without_a_name(size: int) -> None:
    KEPT.extend(_filled(16 * MIB) for _ in range(size // (16 * MIB)))


@hog
def _shared_pages_of_many(size: int) -> None:
    def take() -> None:
        held = mmap.mmap(-1, 32 * MIB)
        held.write(b"x" * (32 * MIB))
        KEPT.append(held)

    _in_children(size // (32 * MIB), take)


@hog
def _pages_that_are_mapped_no_more(size: int) -> None:
    for _ in range(size // (32 * MIB)):
        held = mmap.mmap(-1, 32 * MIB)
        held.write(b"x" * (32 * MIB))
        held.resize(mmap.PAGESIZE)  # the kernel keeps all of them while one is mapped
        KEPT.append(held)


@hog
def _descriptors_on_their_way(size: int) -> None:
    here, there = socket.socketpair()
    KEPT.extend((here, there))
    for _ in range(size // (16 * MIB)):
        file = _filled(16 * MIB)
        socket.send_fds(here, [b"x"], [file])
        os.close(file)


@hog
def _buffers_of_sockets(size: int) -> None:
    def take() -> None:
        for _ in range(200):
            pair = socket.socketpair()
            KEPT.extend(pair)
            for end in pair:
                end.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        end.send(bytes(32_768))

    _in_children(max(1, size // (64 * MIB)), take)


@hog
def _files_in_places_of_its_own(size: int) -> None:
    for place in ("/tmp", "/dev/shm", os.environ["HOME"]):  # noqa: S108 - the sandbox's own
        with contextlib.suppress(OSError):
            for number in range(size // MIB):
                Path(place, str(number)).write_bytes(bytes(MIB))


@hog
def _many_small_files(size: int) -> None:
    for number in range(size // 2048):
        os.symlink("x" * 200, f"/tmp/{number}")  # noqa: PTH211, S108 - thousands of names, the sandbox's own


def main(name: str, size: int) -> None:
    """Take it, and wait to be ended."""
    HOGS[name](size)
    sys.stdout.write(f"{name} has {size} bytes\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
