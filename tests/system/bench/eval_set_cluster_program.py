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
from typing import IO, Any

from ray.cluster_utils import Cluster

from sessiontree.backends.ray.engine_servers import loopback_only

LOOPBACK: dict[str, Any] = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
DEFINITION = Path(__file__).with_name("eval_set_definition.py")


def heard(lines: IO[str], word: str, happened: threading.Event) -> list[str]:
    """Read lines to their end, and set the event at the first that has a word; return all."""
    said = []
    for line in lines:
        said.append(line)
        if word in line:
            happened.set()
    return said


def main() -> None:
    """Start the cluster, run the command, and kill a node once a task has begun."""
    base = Path(sys.argv[1])
    make: Any = Cluster
    (base / "DEATHS").write_text("1")
    with loopback_only():
        head = {**LOOPBACK, "include_dashboard": False, "temp_dir": sys.argv[2]}
        cluster = make(initialize_head=True, head_node_args=head)
        try:
            lost, _ = cluster.add_node(**LOOPBACK), cluster.add_node(**LOOPBACK)
            command = [sys.executable, "-m", "sessiontree.cli", "bench", "inspect-worker", str(DEFINITION)]
            command += ["--log-dir", "logs", "--address", cluster.address, "--workers", "3"]
            command += ["--attempts", "6", "--json"]
            begun, said = threading.Event(), list[str]()
            with subprocess.Popen(
                command,
                cwd=base,
                env={**os.environ, "XDG_DATA_HOME": str(base), "XDG_CACHE_HOME": str(base)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as runner:
                assert runner.stdout is not None
                assert runner.stderr is not None
                errors = runner.stderr
                reader = threading.Thread(target=lambda: said.extend(heard(errors, "begun", begun)))
                reader.start()
                begun.wait()
                cluster.remove_node(lost, allow_graceful=False)
                out = runner.stdout.read()
                reader.join()
            found = json.loads(out) if out else {}
            print(json.dumps({"code": runner.returncode, "said": said, **found}), flush=True)  # noqa: T201
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
