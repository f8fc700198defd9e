"""The program of ``benchmarks.cluster``: a Ray cluster on this machine, trees on its nodes, one node lost.

``benchmarks.cluster`` says what the figures are. It is a process of its own, because a process uses one Ray.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import ray
from ray.cluster_utils import Cluster

from benchmarks.chaos import role_of
from benchmarks.processes import TICKS_PER_S
from benchmarks.report import Figure
from benchmarks.tree import FamilyModel, run, start_children
from benchmarks.turns import Nothing
from sessiontree import Limits, Runtime, SessionTree, ShardLost
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback, find_listener
from sessiontree.sandbox.process_tree import find_descendants

FIGURES: Final = "figures.json"
"""Name of the file with the figures, in the program's directory."""
STARTED: Final = "start"
"""Nodes are started by ``ray start``."""
PATIENCE_S: Final = 120.0
WARM_UP: Final = 40
"""Sessions of each tree that warms up hosts and code."""
FIRST_HOST: Final = 2
"""Nodes that `ray start` starts have the addresses 127.0.0.2 and so on."""
OWN: Final = b"ray::"
AGENTS: Final = (b"ray::RuntimeEnvAgent", b"ray::DashboardAgent")


class Nodes(Protocol):
    """A cluster on this machine."""

    def join(self) -> None:
        """Start the first node and connect this program to it."""
        ...

    def add(self) -> None:
        """Start one more node."""
        ...

    def end(self) -> None:
        """End all nodes."""
        ...


class TestNodes:
    """A cluster of ``ray.cluster_utils``: its nodes are started by this process, on the loopback interface.

    Args:
        folder: Where Ray keeps its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster: Any = None

    def join(self) -> None:
        """Start the first node and connect this program to it."""
        make: Any = Cluster  # Ray leaves its methods untyped
        head = {
            "node_ip_address": "127.0.0.1",
            "num_cpus": 1,
            "include_dashboard": False,
            "temp_dir": str(self._folder),
        }
        with bind_to_loopback():
            self._cluster = make(initialize_head=True, head_node_args=head)
            ray.init(address=self._cluster.address, log_to_driver=False)

    def add(self) -> None:
        """Start one more node."""
        with bind_to_loopback():
            self._cluster.add_node(node_ip_address="127.0.0.1", num_cpus=1)

    def end(self) -> None:
        """End all nodes."""
        if self._cluster is not None:
            self._cluster.shutdown()


class StartedNodes:
    """A cluster of ``ray start``: each node has a loopback address of its own.

    Args:
        folder: Where Ray keeps its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._port = 0

    def join(self) -> None:
        """Start the first node and connect this program to it."""
        self._port = 20_000 + os.getpid() % 10_000
        self._start(
            "--head", f"--port={self._port}", f"--temp-dir={self._folder}", "--include-dashboard=false"
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                ray.init(address=self._address, _node_ip_address=self._host(0), log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError):
                ray.shutdown()
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def add(self) -> None:
        """Start one more node, and wait until it is there."""
        count = _alive() + 1
        self._start(f"--address={self._address}")
        deadline = time.monotonic() + PATIENCE_S
        while _alive() < count:
            if time.monotonic() > deadline:
                raise TimeoutError("a node that was started did not join")
            subprocess.run(["sleep", "0.1"], check=True)

    def end(self) -> None:
        """End all nodes."""
        for each in self._started:
            each.terminate()
        for each in self._started:
            each.wait(PATIENCE_S)

    @property
    def _address(self) -> str:
        return f"{self._host(0)}:{self._port}"

    @staticmethod
    def _host(number: int) -> str:
        return f"127.0.0.{FIRST_HOST + number}"

    def _start(self, *options: str) -> None:
        ray_command = Path(sys.executable).with_name("ray")
        host = f"--node-ip-address={self._host(len(self._started))}"
        command = [str(ray_command), "start", "--block", "--num-cpus=1", host, *options]
        self._started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr))


def _alive() -> int:
    return sum(bool(each["Alive"]) for each in _rows())


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return rows


def used_ms() -> Counter[str]:
    """Return the processor time of this program and all below it: of sessions, and of Ray's servers."""
    found: Counter[str] = Counter()
    for pid in (os.getpid(), *find_descendants(os.getpid())):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        is_own = pid == os.getpid() or (name.startswith(OWN) and not name.startswith(AGENTS))
        own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        found["sessions" if is_own else "servers"] += own * 1000 // TICKS_PER_S
        found["servers"] += ended * 1000 // TICKS_PER_S
    return found


def kill(raylet: int) -> None:
    """Kill a raylet. Its workers end once its parent, which may be this process, has collected it."""
    os.kill(raylet, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(raylet, 0)


class Measuring:
    """Runs trees on a cluster.

    Args:
        base: A directory for workspace and state.
        nodes: How many nodes the cluster will have.
        sessions: How many sessions each measured run has, over all trees.
    """

    def __init__(self, base: Path, nodes: int, sessions: int) -> None:
        self._workspace = base / "workspace"
        self._workspace.mkdir()
        self._state = base / "state"
        self._trees = math.lcm(*range(1, nodes + 1))
        self._sessions = sessions
        self.cpu_ms: dict[str, float] = {}
        self.servers_ms: dict[str, float] = {}
        self.processes: dict[str, int] = {}
        self.rate: dict[str, float] = {}

    def runtime(self, nodes: int) -> Runtime:
        """Return a runtime with a supervisor on each node; it has equally many hosts on few nodes."""
        return Runtime(self._state, shards="per-node", slots=self._trees // nodes)

    def _tree(self, runtime: Runtime) -> SessionTree:
        most = self._sessions
        limits = Limits(
            max_children=most, max_live=2 * most, max_total=2 * most, branch_ttl_s=None, worker_ttl_s=None
        )
        tools = (Nothing(), start_children)
        return SessionTree(
            self._workspace,
            model=FamilyModel(),
            tools=tools,
            builtin_tools=False,
            limits=limits,
            runtime=runtime,
        )

    async def _run(self, runtime: Runtime, sessions: int) -> float:
        """Run the trees at the same time, so many sessions each; return the seconds."""
        async with AsyncExitStack() as stack:
            trees = [await stack.enter_async_context(self._tree(runtime)) for _ in range(self._trees)]
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for tree in trees:
                    group.create_task(run(runtime, tree, sessions))
            return time.monotonic() - began

    async def measure(self, runtime: Runtime) -> None:
        """Run the trees on the shards that the runtime has, after a small run."""
        each = max(1, self._sessions // self._trees)
        await self._run(runtime, min(WARM_UP, each))
        before = used_ms()
        wall_s = await self._run(runtime, each)
        used = used_ms()
        used.subtract(before)
        processes = sum(role_of(pid) in {"supervisor", "host"} for pid in find_descendants(os.getpid()))
        sessions, shards = each * self._trees, str(len(runtime.shards()))
        self.cpu_ms[shards] = used["sessions"] / sessions
        self.servers_ms[shards] = used["servers"] / sessions
        self.processes[shards] = processes
        self.rate[shards] = sessions / wall_s

    async def lose_one(self, runtime: Runtime) -> dict[str, Figure]:
        """Open a tree on each node, kill the raylet of the last one, and resume its tree."""
        trees = [self._tree(runtime) for _ in runtime.shards()]
        for tree in trees:
            await tree.start()
            await tree.main.send("1")
        row = [each for each in runtime.shards() if each.node][-1]
        lost = next(tree for tree in trees if tree.tree_id in row.trees)
        socket = next(each["RayletSocketName"] for each in _rows() if each["NodeID"][:8] in row.node)
        raylet = find_listener(Path(socket))
        assert raylet is not None, "a node that is alive listens"
        waiting = asyncio.ensure_future(self._until_lost(lost))
        began = time.monotonic()
        kill(raylet)
        others = [await tree.main.send("1") for tree in trees if tree is not lost]
        reported = await waiting
        reported_s = time.monotonic() - began
        again = await SessionTree.resume(
            lost.tree_id, model=FamilyModel(), tools=(Nothing(), start_children), runtime=runtime
        )
        resumed = await again.main.send("1")
        return {
            "trees_others": len(trees) - 1,
            "trees_gone_on": others.count("checked"),
            "trees_lost_reported": len(reported.trees),
            "lost_reported_s": reported_s,
            "trees_resumed": int(resumed == "checked"),
            "resumed_s": time.monotonic() - began,
        }

    async def _until_lost(self, tree: SessionTree) -> ShardLost:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await tree.main.send("1")
                except ShardLost as lost:
                    return lost


async def play(measuring: Measuring, cluster: Nodes, counts: Sequence[int]) -> dict[str, Figure]:
    """Measure with so many nodes in turn, then lose one of them; return the figures."""
    cluster.join()
    found: dict[str, Figure] = {}
    for count in counts:
        while _alive() < count:
            cluster.add()
        async with measuring.runtime(count) as runtime:
            await measuring.measure(runtime)
            if count == counts[-1]:
                found = await measuring.lose_one(runtime)
    first, last = str(counts[0]), str(counts[-1])
    return {
        "cpu_ms_per_session": measuring.cpu_ms,
        "cpu_ratio": measuring.cpu_ms[last] / measuring.cpu_ms[first],
        "servers_ms_per_session": measuring.servers_ms,
        "processes": measuring.processes,
        "sessions_per_s": measuring.rate,
        "rate_ratio": measuring.rate[last] / measuring.rate[first],
        **found,
    }


def run_program(base: str, folder: str, way: str, sessions: str, *counts: str) -> None:
    """Start the cluster, play, write the figures to a file as JSON, and end the cluster."""
    numbers = [int(each) for each in counts]
    cluster = StartedNodes(Path(folder)) if way == STARTED else TestNodes(Path(folder))
    try:
        figures = asyncio.run(play(Measuring(Path(base), numbers[-1], int(sessions)), cluster, numbers))
        Path(base, FIGURES).write_text(json.dumps(figures), "utf-8")  # Ray prints on stdout too
    finally:
        ray.shutdown()
        cluster.end()


if __name__ == "__main__":
    run_program(*sys.argv[1:])
