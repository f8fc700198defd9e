"""A program with a cluster of three raylets, and a suite that a driver on each of them works on.

Each solver and each tool of the program says on which node it runs; the provider says which key asks. Its
arguments are a directory for the run, and one with a short path for Ray. It prints what it finds as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback
from sessiontree.bench.run_results import RunResults
from sessiontree.cli.app import app

LOOPBACK: dict[str, Any] = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
VARIABLE = "NODE_KEY"
SUITE = f"""
import os, time, ray
from sessiontree import FunctionModel
from sessiontree.bench import Sample, Suite

def here():
    return ray.get_runtime_context().get_node_id()

async def solve(attempt):
    said = await attempt.tree.main.send(attempt.sample.input)
    return f"{{said}} {{here()}} {{os.environ['{VARIABLE}']}}"

def scored(attempt):
    return attempt.output.startswith("done ")

def reply(request):
    return "done"

suite = Suite("nodes", [Sample(f"s{{n}}", f"say {{n}}") for n in range(24)], solve, scored,
              model=FunctionModel(reply))
"""


def main() -> None:
    """Start the cluster, run the command, and look at what came of it."""
    base, make = Path(sys.argv[1]), Cluster
    (base / "nodes.py").write_text(SUITE)
    with bind_to_loopback():
        os.environ[VARIABLE] = "sk-node-0"
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster: Any = make(initialize_head=True, head_node_args=head)
        try:
            for number in (1, 2):
                os.environ[VARIABLE] = f"sk-node-{number}"
                cluster.add_node(**LOOPBACK)
            ray.init(address=cluster.address, log_to_driver=True)
            words = [
                "bench",
                "run",
                f"{base / 'nodes.py'}:suite",
                "--drivers",
                "per-node",
                "--address",
                "auto",
            ]
            words += ["--dir", str(base / "run"), "--concurrency", "6", "--json"]
            ran = CliRunner().invoke(app, words)
            assert ran.exit_code == 0, f"{ran.output[-3000:]} {ran.exception!r}"
            results = RunResults(base / "run")
            samples = results.to_arrow("samples").to_pylist()
            outputs = [json.loads(each["output"]).split() for each in samples if each["output"]]
            events = results.to_arrow("events").to_pylist()
            found = {
                "code": ran.exit_code,
                "said": ran.output[-2000:] if ran.exit_code else "",
                "passed": sum(bool(each["passed"]) for each in samples),
                "nodes": len({node for _, node, _ in outputs}),
                "keys": sorted(Counter(key for _, _, key in outputs)),
                "trees_with_events": len({each["tree_id"] for each in events}),
                "files": sorted(
                    each.name.partition("-")[0] for each in (base / "run/results/events").iterdir()
                ),
            }
            print(json.dumps(found), flush=True)  # noqa: T201
        finally:
            ray.shutdown()
            cluster.shutdown()


if __name__ == "__main__":
    main()
