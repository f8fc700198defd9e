"""A program whose disk is full for a while.

Run as ``python -m tests.unit.runtime.full_disk_program PLACE BACKEND``, in a mount namespace of its own: it
mounts two small file systems in PLACE, keeps the journal on one and memory on the other, fills them, makes
room again, and prints one line of JSON: what became of every call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

from sessiontree import (
    AsyncFunctionModel,
    MemorySettings,
    ModelRequest,
    PermissionTier,
    Runtime,
    SessionTree,
    ToolContext,
    tool,
)
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.models.answers import Answer, script_call

MOUNT = ["mount", "-t", "tmpfs", "-o", "size=24m", "none"]
SPARE_BYTES = 1 << 20
LONG = "x" * 30_000
MAX_TURNS = 2_000
PATIENCE_S = 120.0


@tool(tier=PermissionTier.WORKSPACE)
async def effect(key: str, ctx: ToolContext) -> str:
    """Have an effect that can be counted, on another disk."""
    with (ctx.workspace_root / "effects").open("a") as effects:
        effects.write(f"{key}\n")
    return f"done {key}"


async def reply(request: ModelRequest) -> Answer:
    """Have the effect that a message asks for; a result says which."""
    heard = request.messages[-1]
    if isinstance(heard, ToolResultMessage):
        return heard.text
    return script_call("effect", key=heard.text)


async def ended(awaited: Awaitable[Any]) -> tuple[str, str]:
    """Return what something returned, or the type and the words of its error."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return "returned", str(await awaited)[-60:]
    except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
        return type(error).__name__, str(error)


def fill(disk: Path) -> None:
    """Leave some room on a disk, but not for long."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        with contextlib.suppress(OSError):
            while filler.write(b"0" * (1 << 20)):
                pass
        filler.truncate(filler.tell() - SPARE_BYTES)


async def sent_until_refused(tree: SessionTree, acked: list[str]) -> tuple[str, str]:
    """Send messages that take room until one is refused; return how."""
    for turn in range(MAX_TURNS):
        key = f"full-{turn}-{LONG}"
        how, words = await ended(tree.main.send(key))
        if how != "returned":
            return how, words
        acked.append(key)
    return "nothing", "was refused"


async def main(place: Path, backend: BackendName) -> None:
    """Fill the disks under two trees, and see what becomes of them."""
    workspace, state, memory = (place / name for name in ("workspace", "state", "memory"))
    for directory in (workspace, state, memory):
        directory.mkdir()
    for disk in (state, memory):
        subprocess.run([*MOUNT, str(disk)], check=True)  # noqa: ASYNC221 - nothing else runs
    places: dict[str, Any] = {
        "state_dir": state,
        "backend": backend,
        "memory": MemorySettings(uri=str(memory / "store")),
    }
    given: dict[str, Any] = {"model": AsyncFunctionModel(reply), "tools": [effect]}
    told: dict[str, Any] = {}
    acked = ["before"]
    async with Runtime(**places) as runtime:
        tree = SessionTree(workspace, runtime=runtime, **given)
        other = SessionTree(workspace, runtime=runtime, **given)
        async with tree, other:
            told["before"] = await ended(tree.main.send("before"))
            await tree.main.call("memory_store", {"text": "an acknowledged record"})
            fill(memory)
            told["record"] = await refused_record(tree)
            (memory / "filler").unlink()
            told["record later"] = await refused_record(tree, 1)
            fill(state)
            told["send"] = await sent_until_refused(tree, acked)
            told["send again"] = await ended(tree.main.send("late"))
            told["spawn"] = await ended(tree.main.spawn("worker", "late"))
            told["call"] = await ended(tree.main.call("effect", {"key": "late"}))
            told["other tree"] = await ended(other.main.send("late"))
    told["on a full disk"] = await ended(resumed(tree.tree_id, {**places, **given}, acked))
    (state / "filler").unlink()
    told["later"] = await ended(resumed(tree.tree_id, {**places, **given}, acked))
    told["effects"] = (workspace / "effects").read_text().split()
    told["acked"] = acked
    sys.stdout.write(json.dumps(told) + "\n")


async def refused_record(tree: SessionTree, most: int = MAX_TURNS) -> tuple[str, str]:
    """Store records until one is refused; return how the last one ended."""
    how = words = ""
    for turn in range(most):
        given = {"text": f"{turn} {LONG[:2000]}"}
        how, words = await ended(tree.main.call("memory_store", given))
        if how != "returned":
            break
    return how, words


async def resumed(tree_id: str, given: dict[str, Any], acked: list[str]) -> str:
    """Resume, look for everything acknowledged, and go on."""
    async with await SessionTree.resume(tree_id, **given) as tree:
        texts = {message.text for message in tree.main.history() if hasattr(message, "text")}
        missing = [key[:20] for key in acked if f"done {key}" not in texts]
        found = await tree.main.call("memory_search", {"query": "acknowledged record"})
        answer = await tree.main.send("after")
    return f"missing {missing}, remembered {'an acknowledged record' in found.text}, {answer}"


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), cast("BackendName", sys.argv[2])))
