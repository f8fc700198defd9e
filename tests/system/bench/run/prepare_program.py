"""A program with a cluster of two raylets, on which the environment of a suite is prepared.

Its arguments are a directory, one with a short path for Ray, and a wheel. It prints what each node answered.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from sessiontree.api.runtime.ray_door import call_on_nodes
from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback
from sessiontree.bench.suite.environment import prepare_here

LOOPBACK = {"node_ip_address": "127.0.0.1", "num_cpus": 1}


INSIDE = """
import asyncio, json, sys
from sessiontree import ConfigError, FunctionModel, Runtime, SessionTree, ToolResult, script_call, tool

@tool
async def where() -> str:
    \"\"\"Say where this runs, and what it finds there.\"\"\"
    import os, tiny_harness, ray
    return f"{ray.get_runtime_context().get_node_id()} {sys.prefix} {tiny_harness.WORD}"

async def main():
    options = {"model": FunctionModel(lambda _: "done"), "tools": [where], "builtin_tools": False}
    options["approvals"] = "auto"
    found = []
    async with Runtime(sys.argv[1], address=sys.argv[2], shards="per-node") as runtime:
        for _ in range(2):
            tree = await SessionTree(sys.argv[3], runtime=runtime, **options).start()
            found.append((await tree.main.call("where", {})).text)
    sys.executable = sys.executable + "-3"
    try:
        async with Runtime(sys.argv[1], address=sys.argv[2], shards="per-node") as runtime:
            await SessionTree(sys.argv[3], runtime=runtime, **options).start()
    except ConfigError as error:
        found.append(str(error))
    print(json.dumps(found))

asyncio.run(main())
"""
"""A program in the environment of a suite, with a tree on each node."""


def inside(python: Path, *given: str) -> Any:
    """Run that program."""
    ran = subprocess.run(
        [python, "-c", INSIDE, *given], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


async def play(address: str, wheel: Path) -> dict[str, Any]:
    """Prepare a good file and one that names nothing; return what the nodes say."""
    good = await call_on_nodes(address, prepare_here, "needs.txt", f"{wheel}\n")
    bad = await call_on_nodes(address, prepare_here, "needs.txt", "/no/such-1.0-py3-none-any.whl\n")
    return {"good": list(good.values()), "bad": list(bad.values())}


def main() -> None:
    """Start the cluster, play, and end it."""
    make: Any = Cluster  # Ray leaves its methods untyped
    with bind_to_loopback():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(**LOOPBACK)
            found = asyncio.run(play(cluster.address, Path(sys.argv[3])))
            place, base = Path(found["good"][0][0]), Path(sys.argv[1])
            (base / "workspace").mkdir()
            given = str(base / "state"), cluster.address, str(base / "workspace")
            found["inside"] = inside(place / "bin" / "python", *given)
            print(json.dumps(found), flush=True)  # noqa: T201
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
