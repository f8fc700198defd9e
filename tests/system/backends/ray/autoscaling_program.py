"""A program whose trees make an autoscaler add a node, which gets trees.

The node is one of Ray's fake provider: a raylet of this machine. That provider takes no idle node away. The
arguments are a directory for workspace and state, and one with a short path for Ray. The environment has a
token for Ray. It prints what it finds as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from sessiontree import FunctionModel, ModelRequest, Runtime, SessionTree

PATIENCE_S = 150.0
TYPES = {
    "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 0},
    "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 1},
}
CONFIG: dict[str, Any] = {
    "cluster_name": "fake",
    "available_node_types": TYPES,
    "head_node_type": "ray.head.default",
    "max_workers": 1,
    "idle_timeout_minutes": 0.1,
    "upscaling_speed": 1.0,
    "auth": {"ssh_user": "nobody"},
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
    "docker": {},
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
}
"""What Ray's own clusters for tests have: their start would end every Ray of this machine."""


def reply(request: ModelRequest) -> str:
    """The only answer."""
    return "done"


def alive() -> list[str]:
    """Return the ids of the nodes that are there."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return [row["NodeID"] for row in rows if row["Alive"]]


async def until(is_so: Callable[[], bool]) -> bool:
    """Wait until other processes have done something; return whether they have."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110 - of other processes
                await asyncio.sleep(0.2)
    except TimeoutError:
        return False
    return True


async def play(base: Path) -> dict[str, Any]:
    """Open more trees than the cluster has CPUs for, and then some on the nodes that came."""
    workspace = base / "workspace"
    workspace.mkdir()
    found: dict[str, Any] = {"before": len(alive())}
    async with Runtime(base / "state", shards="per-node", tree_cpus=1) as runtime:

        async def open_tree() -> SessionTree:
            return await SessionTree(workspace, model=FunctionModel(reply), runtime=runtime).start()

        trees = [await open_tree() for _ in range(3)]
        found["came"] = await until(lambda: len(alive()) == 2)
        found["began"] = await until(lambda: len(runtime.shards()) == 2)
        trees += [await open_tree() for _ in range(3)]
        found["answers"] = [await tree.main.send("go") for tree in trees]
        found["trees"] = sorted(len(row.trees) for row in runtime.shards())
    return found


def main() -> None:
    """Start the head, play, and end what was started."""
    folder = Path(sys.argv[2])
    file = folder.parent / "autoscaling.json"
    port = 20_000 + os.getpid() % 10_000
    address = f"{ray.util.get_node_ip_address()}:{port}"  # type: ignore[no-untyped-call]  # Ray leaves it so
    provider = {"type": "fake_multinode", "gcs_address": address, "disable_node_updaters": True}
    file.write_text(json.dumps({**CONFIG, "provider": provider}))
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--head", "--num-cpus=1"]
    command += [f"--port={port}", f"--temp-dir={folder}", f"--autoscaling-config={file}"]
    environment = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    head = subprocess.Popen(
        [*command, "--include-dashboard=false", "--disable-usage-stats"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=sys.stderr,
    )
    try:
        while True:
            try:
                ray.init(address=address, log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError):
                ray.shutdown()
                if head.poll() is not None:
                    raise
            else:
                break
        print(json.dumps(asyncio.run(play(Path(sys.argv[1])))), flush=True)  # noqa: T201
    finally:
        ray.shutdown()
        head.terminate()
        head.wait(PATIENCE_S)


if __name__ == "__main__":
    main()
