"""The processes below another one: who they are, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_ROUNDS = 3
"""How often they are looked for: one that is about to be ended may have started another."""


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, parents first."""
    ahead = children(pid)
    while ahead:
        child = ahead.pop()
        yield child
        ahead += children(child)


def children(pid: int) -> list[int]:
    """Return a process's children; none where it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - it is asked ten times a second
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except OSError:  # it ended just now
        return found
    return found


def end_descendants() -> None:
    """Kill every process below this one, as far as they are its own user's."""
    for _ in range(_ROUNDS):
        for pid in tuple(descendants(os.getpid())):
            with contextlib.suppress(OSError):  # it ended just now, or belongs to another user
                os.kill(pid, signal.SIGKILL)
