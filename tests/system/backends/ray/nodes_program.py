"""A program with a cluster of three raylets on the loopback interface, one of which has left; doctors look.

Its arguments are a directory for workspace and state, and one with a short path for Ray. It prints what it
finds as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from sessiontree import FunctionModel, ModelRequest, Runtime, SessionTree
from sessiontree.backends.ray.cluster.cluster_probe import look_at_cluster
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback, find_listener
from sessiontree.cli.app import app

LOOPBACK = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
SHORT_S = 3.0
"""Ray itself gives a node up after 25 s."""


def done(request: ModelRequest) -> str:
    """The only answer."""
    return "done"


async def play(base: Path, socket: str) -> dict[str, Any]:
    """Open a tree on each node; look at the nodes while a raylet is stopped, and when it goes on."""
    workspace = base / "workspace"
    workspace.mkdir()
    async with Runtime(base / "state", shards="per-node") as runtime:
        for _ in range(2):
            tree = await SessionTree(workspace, model=FunctionModel(done), runtime=runtime).start()
            await tree.main.send("go")
        raylet = find_listener(Path(socket))
        assert raylet is not None, "a node that is alive listens"
        os.kill(raylet, signal.SIGSTOP)
        try:
            stopped = await look_at_cluster("auto", within_s=SHORT_S)
        finally:
            os.kill(raylet, signal.SIGCONT)
        told, shown = [
            await asyncio.to_thread(
                CliRunner().invoke, app, ["doctor", str(workspace), "--address", "auto", *more]
            )
            for more in (["--json"], [])
        ]
    return {
        "code": told.exit_code,
        "told": json.loads(told.stdout),
        "shown": shown.stdout.splitlines(),
        "stopped": {each.node: each.failure for each in stopped.nodes},
    }


def main() -> None:
    """Start the cluster, play, and end it."""
    make: Any = Cluster  # Ray leaves its methods untyped
    with bind_to_loopback():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, head_node_args=head)
    try:
        with bind_to_loopback():
            other = cluster.add_node(**LOOPBACK)
            cluster.remove_node(cluster.add_node(**LOOPBACK))
            ray.init(address=cluster.address, log_to_driver=False)
            found = asyncio.run(play(Path(sys.argv[1]), other.raylet_socket_name))
            ray.shutdown()
        # Ray takes a loopback address for the address of this node, where this cluster does not listen.
        reports = [asyncio.run(look_at_cluster(each)) for each in (cluster.address, "auto")]
        found["reached"] = [[report.address, len(report.nodes)] for report in reports]
        found["expected"] = [[cluster.address, 3]] * 2
        print(json.dumps({**found, "other": other.node_id[:8]}), flush=True)  # noqa: T201
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
