"""A program whose disk begins to fail, by order of the kernel.

Run as ``python -m tests.unit.runtime.failing_disk_program PLACE CALLS``. CALLS is ``sync`` or ``write``:
after some work a seccomp filter makes those system calls of this process fail with EIO, for every thread and
for good. It prints one line of JSON: what became of every request. With ``none`` nothing fails: it resumes
the tree that an earlier run left in PLACE.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import platform
import struct
import sys
from pathlib import Path
from typing import Any

from sessiontree import AsyncFunctionModel, Runtime, SessionTree
from sessiontree.sandbox.jail import MACHINES
from tests.unit.runtime.full_disk_program import LONG, effect, ended, reply

CALLS = {
    "x86_64": {"sync": (74, 75), "write": (18,)},
    "aarch64": {"sync": (82, 83), "write": (68,)},
}
"""Numbers of fsync and fdatasync, and of pwrite64, by processor."""
LOAD_NUMBER, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EIO
SET_NO_NEW_PRIVILEGES, SET_FILTER, ALL_THREADS = 38, 1, 1


def break_disk(name: str) -> None:
    """Make calls of every thread of this process fail with EIO."""
    here, numbers = MACHINES[platform.machine()], CALLS[platform.machine()][name]
    lines = [
        (LOAD_NUMBER, 0, 0, 0),
        *((EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, FAIL),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(SET_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if libc.syscall(ctypes.c_long(here.seccomp), SET_FILTER, ALL_THREADS, filters):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


async def fail(workspace: Path, state: Path, calls: str) -> dict[str, Any]:
    """Work, let the disk fail under two trees, and return what became of all requests."""
    given: dict[str, Any] = {"model": AsyncFunctionModel(reply), "tools": [effect]}
    told: dict[str, Any] = {}
    async with Runtime(state, backend="local") as runtime:
        tree = SessionTree(workspace, runtime=runtime, **given)
        other = SessionTree(workspace, runtime=runtime, **given)
        async with tree, other:
            (state / "tree").write_text(tree.tree_id)
            told["short"] = await ended(tree.main.send("short"))
            told["long"] = await ended(tree.main.send(f"long{LONG}"))
            break_disk(calls)
            told["send"] = await ended(tree.main.send("late"))
            told["send again"] = await ended(tree.main.send(f"late{LONG}"))
            told["spawn"] = await ended(tree.main.spawn("worker", "late"))
            told["call"] = await ended(tree.main.call("effect", {"key": "late"}))
            told["other tree"] = await ended(other.main.send("late"))
    return told


async def resume(workspace: Path, state: Path) -> dict[str, Any]:
    """Resume the tree; return what it knows, and what became of one more message."""
    given: dict[str, Any] = {"model": AsyncFunctionModel(reply), "tools": [effect]}
    tree_id = (state / "tree").read_text()
    async with await SessionTree.resume(tree_id, state_dir=state, backend="local", **given) as tree:
        texts = {message.text for message in tree.main.history() if hasattr(message, "text")}
        known = [key for key in ("short", f"long{LONG}") if f"done {key}" in texts]
        return {"known": [key[:5] for key in known], "after": await ended(tree.main.send("after"))}


async def main(place: Path, calls: str) -> None:
    """Run with a disk that fails, or with one that works."""
    workspace, state = place / "workspace", place / "state"
    workspace.mkdir(exist_ok=True)
    state.mkdir(exist_ok=True)
    told = await (resume(workspace, state) if calls == "none" else fail(workspace, state, calls))
    told["effects"] = [line[:5] for line in (workspace / "effects").read_text().split()]
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
