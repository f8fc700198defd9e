"""What a session costs on one and on several nodes of a Ray cluster, and what is left when a node is lost.

All nodes are on this machine: raylets of ``ray.cluster_utils.Cluster`` on the loopback interface, or with
``--start`` nodes of ``ray start``, each with a loopback address of its own. The same trees run with
`shards="per-node"` on one node, on two, and so on; at each step they have equally many sessions, of the kind
that ``benchmarks.tree`` describes, and equally many hosts over all nodes. A small run before the clock starts
warms up hosts and code. Nodes on one machine share its cores, so more of them can't be faster here. What they
show is whether a shard costs the others anything: if processor time per session and the rate stay the same,
nodes with cores of their own add up.

- `cpu_ms_per_session`: processor time of the program, supervisors, hosts and gateways over sessions, by
  number of shards; `cpu_ratio`: with all nodes over one. `servers_ms_per_session`: the same of Ray's servers
  and agents, which also run while nothing happens, and of processes that ended.
- `sessions_per_s` by number of shards; `rate_ratio`: with all nodes over one; aim 0.9.
- `processes`: supervisors and hosts by number of shards. `alone_cpu_ms_per_session`, by number of
  processes: what a session costs on the local backend while so many programs run that share only the
  machine; `alone_cpu_ratio`: with most processes over fewest. Processes that outnumber the cores push each
  other out of the cores' caches. So much of `cpu_ratio` is due to the one machine, and not to the shards.

Then each node has a tree, and one raylet is killed by SIGKILL.

- `trees_gone_on` of `trees_others`: trees of other nodes that answer the next message.
- `trees_lost_reported`: trees that `ShardLost` names; `lost_reported_s`: seconds from the kill to the error.
- `trees_resumed`: of those, how many are resumed in the same runtime and answer; the disk of the lost node is
  this machine's. `resumed_s`: seconds from the kill to the answer.

With ``--samples`` a suite runs over the nodes instead. Its model is a fake provider's, which refuses every
key but one; the key is in a file. Each sample is two questions and one tool call; 48 run at a time.

- `nodes_used`, `trees_by_node`: nodes with trees, and how many each has; `scored`, `passed`: of all samples.
- `key_found`: facts of all journals, files of the run and of Ray's logs that hold the key, and processes with
  it in their arguments or their environment; aim 0 each. The first eight samples write their host's whole
  environment into the journal. `memory_of`: processes that hold it in memory, by kind; `memory_not_readable`:
  those that hide their memory, as gateways do.
- `cpu_ms_per_sample` by kind of process, and `steady_samples_per_s`, between a tenth and nine tenths of the
  samples; `journal_bytes_per_sample`; `fetched_bytes_per_sample`: facts that passed through the program.
- `ledger_samples_per_s`: samples that one program leases and commits in a second, 48 at a time, with the
  ledger's mode for a disk of this machine and with the one for a disk that several machines use.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster_program import FIGURES, STARTED
from benchmarks.report import Figure, Options, show
from sessiontree.backends.ray.engine import engine_home

ROOT: Final = Path(__file__).resolve().parents[1]
SESSIONS_USUAL, SESSIONS_QUICK = 9_000, 24
MIN_ALONE: Final = 20
"""The fewest sessions of each program that runs alone."""
LIMIT_S: Final = 1800
MOST_NODES: Final = 4


def run(nodes: Sequence[int], sessions: int, way: str) -> dict[str, Figure]:
    """Run the program in a process of its own; return its figures.

    Args:
        nodes: The numbers of nodes, in turn.
        sessions: How many sessions each run has.
        way: ``start`` = by ``ray start``; otherwise by Ray's cluster for tests.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    # A short path leaves room for the names of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/tmp", ignore_cleanup_errors=True) as name:
        base, folder = Path(name, "base"), Path(name, "ray")
        base.mkdir()
        variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(base), "PYTHONPATH": str(ROOT)}
        variables["RAY_TMPDIR"] = name  # the nodes write their address below it too, into "ray"
        if way == STARTED:  # `ray start` listens on every interface
            variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        command = [sys.executable, "-m", "benchmarks.cluster_program", str(base), str(folder), way]
        try:
            subprocess.run(
                [*command, str(sessions), *map(str, nodes)],
                cwd=ROOT,
                env=variables,
                stdout=subprocess.DEVNULL,  # Ray prints there
                timeout=LIMIT_S,
                check=True,
            )
        finally:
            # The agents of a node whose raylet was killed outlive it by a minute.
            writers = engine_home.log_writers(folder.resolve())
            engine_home.end_processes(folder, grace_s=0.0, known=writers)
        figures: dict[str, Figure] = json.loads((base / FIGURES).read_text("utf-8"))
    return figures


def run_suite(nodes: int, samples: int) -> dict[str, Figure]:
    """Run a suite over so many nodes in a process of its own; return its figures.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="keyed-", dir="/tmp", ignore_cleanup_errors=True) as name:
        place = Path(name)
        variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": name, "PYTHONPATH": str(ROOT)}
        command = [
            sys.executable,
            "-m",
            "benchmarks.cluster_suite_program",
            "run",
            name,
            str(samples),
            str(nodes),
        ]
        try:
            subprocess.run(
                command,
                cwd=ROOT,
                env={**variables, "RAY_TMPDIR": name},
                stdout=subprocess.DEVNULL,  # Ray prints there
                timeout=LIMIT_S,
                check=True,
            )
        finally:
            folder = place / "ray"
            engine_home.end_processes(folder, grace_s=0.0, known=engine_home.log_writers(folder.resolve()))
        figures: dict[str, Figure] = json.loads((place / FIGURES).read_text("utf-8"))
    return figures


def alone(processes: int, sessions: int) -> float:
    """Run so many programs at once that share nothing; return their processor time per session, in ms."""
    words = ["-m", "benchmarks.tree", "--backend", "local", "--sessions", str(sessions), "--json"]
    running = [
        subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for _ in range(processes)
    ]
    found = [json.loads(each.communicate(timeout=LIMIT_S)[0]) for each in running]
    return statistics.fmean(float(each["cpu_ms_per_session"]["all"]) for each in found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="few sessions, on one node and on all")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    parser.add_argument(
        "--nodes", type=int, choices=range(2, MOST_NODES + 1), default=3, help="how many nodes"
    )
    parser.add_argument("--sessions", type=int, help=f"sessions of each run; {SESSIONS_USUAL:,} by default")
    parser.add_argument("--samples", type=int, help="run a suite of so many samples, with a provider's key")
    parser.add_argument("--start", action="store_true", help="start the nodes by `ray start`")
    given = parser.parse_args(arguments)
    options = Options(given.quick, given.as_json, "ray")
    if given.samples:
        show(
            {"nodes": given.nodes, "samples": given.samples, **run_suite(given.nodes, given.samples)}, options
        )
        return
    nodes = (1, given.nodes) if given.quick else range(1, given.nodes + 1)
    sessions = given.sessions or (SESSIONS_QUICK if given.quick else SESSIONS_USUAL)
    figures = run(tuple(nodes), sessions, STARTED if given.start else "test")
    counts: dict[str, int] = figures["processes"]  # type: ignore[assignment]  # as the program writes it
    each = max(MIN_ALONE, sessions // max(counts.values()))
    costs = {count: alone(count, each) for count in sorted({min(counts.values()), max(counts.values())})}
    figures["alone_cpu_ms_per_session"] = {str(count): cost for count, cost in costs.items()}
    figures["alone_cpu_ratio"] = costs[max(costs)] / costs[min(costs)]
    show({"nodes": given.nodes, "sessions": sessions, **figures}, options)


if __name__ == "__main__":
    main()
