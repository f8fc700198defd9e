"""A program whose Ray dies while much waits for it.

Run as ``python -m tests.system.backends.ray.loss_program PLACE SERVER WHOSE``: SERVER is ``gcs_server`` or
``raylet``, WHOSE is ``private`` or ``joined``, a Ray that the program itself initialised. It prints one
line of JSON: how everybody who waited ended and after how many seconds, what was left, and what the tree
says taken up again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import ray

from sessiontree import AsyncFunctionModel, EngineLost, ModelRequest, SessionHandle, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.backends.ray.engine import engine_home, engine_servers
from sessiontree.contracts.values.messages import UserMessage

BEAT_S = 0.02
SETTLE_S = 1.0


async def reply(request: ModelRequest) -> str:
    """Answer at once, but wait for ever where that is asked for."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and "wait" in last.text:
        await asyncio.get_running_loop().create_future()
    return f"answer {sum(isinstance(each, UserMessage) for each in request.messages)}"


class Pulse:
    """Knows for how long, at most, the event loop was held up."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._raise_beats())

    async def _raise_beats(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(BEAT_S)
            self.longest_s = max(self.longest_s, time.monotonic() - began - BEAT_S)

    def stop(self) -> None:
        """Beat no more."""
        self._task.cancel()


async def drained(items: Any) -> None:
    """Take whatever comes."""
    async for _ in items:
        pass


async def watched(tree: SessionTree) -> None:
    """Take whatever progress comes."""
    progress = tree.progress()
    while True:
        await progress.next()


async def ending(awaited: Awaitable[Any]) -> tuple[str, float]:
    """Return by which error something ended, and when."""
    try:
        value = await awaited
    except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
        return type(error).__name__, time.monotonic()
    return f"returned {value!r}", time.monotonic()


def waiters(tree: SessionTree, branch: SessionHandle) -> dict[str, Awaitable[Any]]:
    """Return everything a program can wait for."""
    return {
        "send": branch.send("wait longer")._wait(),
        "result": branch.result(),
        "map": tree.main.map("worker", ["wait here", "wait there"]),
        "events": drained(tree.events()),
        "client_calls": drained(tree.client_calls),
        "progress": watched(tree),
    }


def plain(tree: SessionTree) -> list[str]:
    """Return by which errors plain calls end."""
    found = []
    for ask in (tree.main.status, tree.receipt, tree.approvals.pending, tree.main.history):
        try:
            found.append(f"returned {ask()!r}")
        except EngineLost as error:
            found.append(type(error).__name__)
    return found


def opened(place: Path) -> dict[str, Any]:
    """Return what a tree is opened with, first and again."""
    return {"model": AsyncFunctionModel(reply), "state_dir": place / "state"}


async def main(place: Path, server: str, whose: str) -> None:
    """Open a tree, let everybody wait, kill a server, and tell what came of it."""
    if whose == "joined":
        ray.init(
            address="local", include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["OWN_RAY"]
        )
    tree = SessionTree(place / "workspace", **opened(place))
    await tree.start()
    await tree.main.send("begin")
    branch = await tree.main.spawn("branch", "wait")
    pids = {each.name: each.pid for each in engine_servers.list_watched_servers()}
    tasks = {name: asyncio.create_task(ending(each)) for name, each in waiters(tree, branch).items()}
    await asyncio.sleep(SETTLE_S)  # all of them wait by then; how long exactly does not matter
    backend = tree._backend
    assert isinstance(backend, RayBackend)
    home = backend._engine.home
    pulse, began = Pulse(), time.monotonic()
    os.kill(pids[server], signal.SIGKILL)
    await asyncio.wait(tasks.values())
    told: dict[str, Any] = {
        name: (task.result()[0], task.result()[1] - began) for name, task in tasks.items()
    }
    began = time.monotonic()
    told["plain"], told["plain_s"] = plain(tree), time.monotonic() - began
    told["later"] = [
        (await ending(late))[0] for late in (tree.main.spawn("worker", "go"), tree.main.send("go")._wait())
    ]
    began = time.monotonic()
    await tree.close()
    told["close_s"] = time.monotonic() - began
    told["left"] = (
        [] if home is None else [*map(str, engine_home.find_processes(home)), *([str(home)] * home.exists())]
    )
    told["held_up_s"] = pulse.longest_s
    pulse.stop()
    if whose == "joined":
        ray.shutdown()
    again = await SessionTree.resume(tree.tree_id, **opened(place))
    told["again"] = await again.main.send("go on")
    await again.close()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
