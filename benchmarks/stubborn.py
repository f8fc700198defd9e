"""Processes that do what they can to outlive whoever started them. The standard library alone.

``python -I -S stubborn.py KIND MARK``: they carry the mark as the name they were started by, and an empty
environment, and end by themselves after a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIFE_S = 60
_CLONE, _CLONE_PARENT = (220 if os.uname().machine == "aarch64" else 56), 0x8000


def _daemon(mark: str) -> None:
    """Fork twice, in a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    _stay(mark)


def _deaf(mark: str) -> None:
    """Ignore every signal that can be ignored, alongside a child that does so in a group of its own."""
    if not os.fork():
        os.setpgid(0, 0)
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    _stay(mark)


def _hopper(mark: str, pause_s: float = 0.0) -> None:
    """Fork, and leave the rest to the child, again and again."""
    if os.fork():
        os._exit(0)
    ends = time.monotonic() + LIFE_S
    while time.monotonic() < ends:
        if os.fork():
            os._exit(0)
        os.setsid()
        select.select((), (), (), pause_s)


def _walker(mark: str) -> None:
    """Do as the hopper does, and leave processors to others."""
    _hopper(mark, 0.01)


def _many(mark: str) -> None:
    """Be a tree of processes in sessions of their own."""
    for _ in range(3):
        if not os.fork():
            os.setsid()
    _stay(mark)


def _sibling(mark: str) -> None:
    """Be started as a child of one's parent's parent."""
    if ctypes.CDLL(None).syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0):
        os._exit(0)
    _stay(mark)


def _stay(mark: str) -> None:
    os.execve("/bin/sleep", [mark, str(LIFE_S)], {})  # noqa: S606 - fixed words


BUSY = frozenset({"hopper"})
"""Kinds that leave no processor to others."""
KINDS: dict[str, Callable[[str], None]] = {
    "daemon": _daemon,
    "deaf": _deaf,
    "hopper": _hopper,
    "walker": _walker,
    "many": _many,
    "sibling": _sibling,
}


def words(kind: str, mark: str) -> list[str]:
    """Return the words that start processes of a kind."""
    return [sys.executable, "-I", "-S", __file__, kind, mark]


def survivors(mark: str) -> list[int]:
    """Return the processes that carry a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


async def until_alive(mark: str, *, alive: bool) -> None:
    """Wait until some process carries a mark, or none does any more."""
    while bool(survivors(mark)) is not alive:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2])
