"""A program with a cluster of two raylets, on which the environment of a suite is prepared.

Its arguments are a directory, one with a short path for Ray, and a wheel. It prints what each node answered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from sessiontree.api.runtime import late
from sessiontree.backends.ray.engine_servers import loopback_only
from sessiontree.bench.environment import prepare_here

LOOPBACK = {"node_ip_address": "127.0.0.1", "num_cpus": 1}


async def play(address: str, wheel: Path) -> dict[str, Any]:
    """Prepare a good file and one that names nothing; return what the nodes say."""
    call = late("call_on_nodes")
    good = await call(address, prepare_here, "needs.txt", f"{wheel}\n")
    bad = await call(address, prepare_here, "needs.txt", "/no/such-1.0-py3-none-any.whl\n")
    return {"good": list(good.values()), "bad": list(bad.values())}


def main() -> None:
    """Start the cluster, play, and end it."""
    make: Any = Cluster  # Ray leaves its methods untyped
    with loopback_only():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(**LOOPBACK)
            found = asyncio.run(play(cluster.address, Path(sys.argv[3])))
            print(json.dumps(found), flush=True)  # noqa: T201
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
