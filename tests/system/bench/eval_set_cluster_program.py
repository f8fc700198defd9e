"""A cluster of three raylets on which an eval set runs, one of which is killed meanwhile.

Its arguments are a directory for the logs, and one with a short path for Ray. It prints what it found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from sessiontree.backends.ray.engine.engine_servers import bind_to_loopback

LOOPBACK: dict[str, Any] = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
DEFINITION = Path(__file__).with_name("eval_set_program.py")


def wait_for_workers(base: Path, runner: subprocess.Popen[str]) -> None:
    """Wait until all three tasks have a worker, one on each node."""
    moment = threading.Event()
    while len(list(base.glob("begun-*"))) < 3:
        assert runner.poll() is None, "the command has ended"
        moment.wait(0.1)


def main() -> None:
    """Start the cluster, run the command, and kill a node while each node has a worker."""
    base = Path(sys.argv[1])
    make: Any = Cluster
    (base / "DEATHS").write_text("1")
    with bind_to_loopback():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, head_node_args=head)
        try:
            lost, _ = cluster.add_node(**LOOPBACK), cluster.add_node(**LOOPBACK)
            command = [sys.executable, "-m", "sessiontree.cli", "bench", "inspect-worker", str(DEFINITION)]
            command += ["--log-dir", "logs", "--address", cluster.address, "--workers", "3"]
            command += ["--attempts", "6", "--json"]
            os.mkfifo(base / "GO")
            with (
                (base / "said").open("w") as said,
                subprocess.Popen(
                    command,
                    cwd=base,
                    env={**os.environ, "XDG_DATA_HOME": str(base), "XDG_CACHE_HOME": str(base)},
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                ) as runner,
            ):
                assert runner.stdout is not None
                wait_for_workers(base, runner)
                cluster.remove_node(lost, allow_graceful=False)
                with (base / "GO").open("w"):
                    out = runner.stdout.read()
            found = json.loads(out) if out else {}
            found |= {"code": runner.returncode, "said": (base / "said").read_text()}
            print(json.dumps(found), flush=True)  # noqa: T201
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
