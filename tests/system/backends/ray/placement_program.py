"""A program whose Workers and Branches run on other nodes of a cluster: raylets on the loopback interface.

Its arguments are a directory for workspace and state, and one with a short path for Ray. It prints what it
finds as JSON. As root, every node but the first has mounts and a clock of its own, as another machine has:
the program's state and temporary files are not there, and on one of them the workspace is another directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from sessiontree import (
    ConfigError,
    FunctionModel,
    Limits,
    ModelRequest,
    Runtime,
    SessionKind,
    SessionTree,
    ToolContext,
    ToolResultMessage,
    script_call,
)
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback, find_listener
from sessiontree.models.answers import Answer
from tests.system.backends.ray.misdeed_fakes import Misdeed

LOOPBACK = {"node_ip_address": "127.0.0.1", "num_cpus": 2}
SPOT: dict[str, Any] = {"labels": {"zone": "spot"}, "resources": {"fast": 1}}
PLACEMENT: dict[str, Any] = {
    "worker": {"num_cpus": 1, "resources": {"fast": 1}, "label": {"zone": "in(spot, reserved)"}},
    "branch": {"label": {"zone": "spot"}},
}
PATIENCE_S, LOOK_S = 60.0, 0.1
SLEEP_S = 98_765
"""How long a command sleeps; by this its process is found."""
AHEAD_S = 500_000
"""How far the clocks of other nodes are ahead, which count from the start of their machine."""
IS_ROOT = os.geteuid() == 0
NEW_MOUNTS, NEW_TIME, BIND, PRIVATE = 0x20000, 0x80, 4096, (1 << 18) | 16384
LIBC = ctypes.CDLL(None, use_errno=True)
STATE = Path(sys.argv[1]) / "state"


def where(ctx: ToolContext) -> dict[str, str]:
    """Say on which node a session runs, and what its process may not do there."""

    def tried(attempt: Callable[[], object]) -> str:
        try:
            attempt()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "done"

    return {
        "node": ray.get_runtime_context().get_node_id(),
        "write": tried(lambda: (Path(ctx.workspace_root) / f"of-{ctx.session_id[-2:]}").write_text("x")),
        "read": tried(lambda: (Path(ctx.workspace_root) / "given").read_text("utf-8")),
    }


def reply(request: ModelRequest) -> Answer:
    """Do what the task names; a session that roams asks where it is until it has been on two nodes."""
    if request.kind is SessionKind.MAIN:
        return "done"
    task = request.messages[0].text
    results = [each.text for each in request.messages if isinstance(each, ToolResultMessage)]
    if task == "roam":
        nodes = list(dict.fromkeys(json.loads(each)["node"] for each in results))
        return json.dumps(nodes) if len(nodes) > 1 else script_call("where")
    if results:
        return results[-1]
    if task == "sleep":
        return script_call("exec", command=f"setsid sleep {SLEEP_S} & sleep {SLEEP_S}")
    return script_call("memory_search", query="anything") if task == "recall" else script_call("where")


def sleepers() -> int:
    """Return how many processes of the command run."""
    found = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            found += words[:2] == [b"sleep", str(SLEEP_S).encode()]
    return found


class Nodes:
    """The nodes of a cluster, each in the namespaces of a thread of its own."""

    def __init__(self, cluster: Any, base: Path) -> None:
        self._cluster = cluster
        self._base = base
        self._threads: list[ThreadPoolExecutor] = []
        """A raylet ends with the thread that started it."""

    def add(self, *, same_workspace: bool = True) -> Any:
        """Start a node."""
        self._threads.append(ThreadPoolExecutor(1))
        return self._threads[-1].submit(self._add, same_workspace).result()

    def _add(self, same_workspace: bool) -> Any:
        if IS_ROOT:
            _checked(LIBC.unshare(NEW_MOUNTS | NEW_TIME))
            offsets = f"monotonic {AHEAD_S} 0\nboottime {AHEAD_S} 0\n"
            Path(f"/proc/{threading.get_native_id()}/timens_offsets").write_text(offsets, "ascii")
            _mount("none", "/", PRIVATE)
            for name in ("state", "tmp"):
                _mount("tmpfs", str(self._base / name), 0)
            if not same_workspace:
                _mount(str(self._base / "another"), str(self._base / "workspace"), BIND)
        return self._cluster.add_node(**LOOPBACK, **SPOT)

    def files_of(self, node: Any) -> list[str]:
        """Return the names of the temporary files on a node."""
        raylet = find_listener(Path(node.raylet_socket_name))
        return sorted(each.name for each in Path(f"/proc/{raylet}/root{self._base}/tmp").iterdir())


def _mount(source: str, target: str, flags: int) -> None:
    _checked(LIBC.mount(source.encode(), target.encode(), source.encode(), ctypes.c_ulong(flags), None))


def _checked(answer: int) -> None:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    for _ in range(round(PATIENCE_S / LOOK_S)):
        if condition():
            return
        await asyncio.sleep(LOOK_S)
    raise TimeoutError


async def roam(
    tree: SessionTree, runtime: Runtime, cluster: Any, spot: Mapping[str, Any]
) -> tuple[Any, bool, float]:
    """Kill the node of a Branch; return that node, whether the Branch went on, and after how many seconds."""
    roaming = await tree.main.spawn("branch", "roam")
    await until(lambda: any(isinstance(each, ToolResultMessage) for each in roaming.history(limit=9)))
    at: list[str] = []
    for _ in range(round(PATIENCE_S / LOOK_S)):
        rows = await runtime.backend.actors()  # type: ignore[attr-defined]  # the Ray backend's
        at = [row.node for row in rows if row.session == roaming.session_id and row.node]
        if at:
            break
        await asyncio.sleep(LOOK_S)
    (lost,) = (node for name, node in spot.items() if name[:8] in at[0])
    began_s = time.monotonic()
    await asyncio.to_thread(cluster.remove_node, lost, allow_graceful=False)
    visited = json.loads((await roaming.result()).summary)
    took_s = time.monotonic() - began_s
    return lost, visited == [lost.node_id, *(spot.keys() - {lost.node_id})], took_s


async def play(base: Path, cluster: Any, nodes: Nodes) -> dict[str, Any]:
    """Spread one tree, kill the node of a Branch, cancel a command on another node, ask for no node."""
    first, second = nodes.add(), nodes.add()
    other = nodes.add(same_workspace=False) if IS_ROOT else None
    spot = {first.node_id: first, second.node_id: second}
    began_ms = time.time() * 1000
    limits = Limits(max_turns=100_000, max_repeats=None, cancel_grace_s=1)
    model, tools = FunctionModel(reply), [Misdeed("where", where)]
    workspace = base / "workspace"
    found: dict[str, Any] = {}
    async with Runtime(STATE, placement=PLACEMENT) as runtime:
        tree = await SessionTree(workspace, model=model, tools=tools, runtime=runtime, limits=limits).start()
        of_main = await tree.main.call("where")
        found["main"] = cluster.head_node.node_id in json.dumps(of_main.output)
        workers = [await tree.main.spawn("worker", "where") for _ in range(4)]
        told = [json.loads((await each.result()).summary) for each in workers]
        found["workers"] = {each["node"] for each in told} <= spot.keys()
        found["worker_rights"] = sorted({(each["write"], each["read"]) for each in told})
        recalled = await tree.main.spawn("worker", "recall")
        found["recalled"] = (await recalled.result()).summary
        records = await runtime.backend.supervisor.read(tree.tree_id, 0, 500, 0.0)
        now_ms = time.time() * 1000
        found["times"] = all(began_ms - 1000 < each.at_ms < now_ms + 1000 for each in records)
        lost, found["visited"], found["recovery_s"] = await roam(tree, runtime, cluster, spot)
        sleeping = await tree.main.spawn("branch", "sleep")
        await until(lambda: sleepers() == 2)
        await sleeping.cancel()
        found["survivors"] = sleepers()
        nowhere = {"worker": {"label": {"zone": "nowhere"}}}
        async with Runtime(base / "nowhere", placement=nowhere) as elsewhere:
            try:
                await SessionTree(workspace, model=model, runtime=elsewhere).start()
            except ConfigError as error:
                found["nowhere"] = str(error)
    found["left"] = nodes.files_of(next(node for node in spot.values() if node is not lost))
    found["other"] = None if other is None else other.node_id[:8]
    return found


def main() -> None:
    """Start the cluster, play, and end it."""
    base = Path(sys.argv[1])
    for name in ("workspace", "another", "state", "tmp"):
        (base / name).mkdir()
    for name in ("workspace", "another"):
        (base / name / "given").write_text("x", "utf-8")
    tempfile.tempdir = str(base / "tmp")
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("sessiontree").addHandler(handler)
    make: Any = Cluster  # Ray leaves its methods untyped
    with bind_to_loopback():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
        try:
            ray.init(address=cluster.address, log_to_driver=False)
            found = asyncio.run(play(base, cluster, Nodes(cluster, base)))
            print(json.dumps({**found, "warnings": warnings}), flush=True)  # noqa: T201
        finally:
            ray.shutdown()
            cluster.shutdown()


if __name__ == "__main__":
    main()
