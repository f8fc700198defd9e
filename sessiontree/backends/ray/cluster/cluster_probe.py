"""What the nodes of a cluster are and offer, for ``sessiontree doctor --address``.

One short task on each node tells the releases, the confinement and what listens there. It needs no CPU of the
node's and starts nothing but one confined process. A node that does not answer in time is not waited for.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import ray
from ray._private import state as ray_state
from ray._private import worker as ray_worker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.commands.remote_node import release
from sessiontree.backends.ray.engine.cluster_report import ClusterReport, NodeReport
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.engine_security import describe_listeners, find_key_variables
from sessiontree.backends.ray.engine.engine_servers import find_listener
from sessiontree.backends.ray.hosts.actors import HostActor
from sessiontree.backends.ray.supervisor import SupervisorActor
from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.sandbox import Jail, command_confinement, detect_level, probe

CONNECT_S: Final = 30.0
"""How long a cluster may take to take this program in."""
NODES_ANSWER_S: Final = 30.0
"""How long all nodes together may take; each starts a process, which takes seconds on a busy machine."""


@asynccontextmanager
async def connect_cluster(address: str) -> AsyncIterator[RayConnection]:
    """Connect to a cluster, and leave it at the end.

    Raises:
        ConfigError: no cluster can be reached there.
    """
    engine = RayConnection(address)
    try:
        async with asyncio.timeout(CONNECT_S):
            await engine.start()
    except TimeoutError:
        raise ConfigError(
            f"the cluster at address {address!r} did not let this program in within {CONNECT_S:.0f} s; start "
            "it on a node whose raylet answers, or correct the address"
        ) from None
    try:
        yield engine
    finally:
        await engine.close()


async def look_at_cluster(address: str, within_s: float = NODES_ANSWER_S) -> ClusterReport:
    """Connect to a cluster, ask all its nodes at the same time, and leave it.

    Args:
        address: ``host:port`` or ``auto``.
        within_s: How long the nodes may take; those that take longer are reported without answers.

    Raises:
        ConfigError: no cluster can be reached there.
    """
    async with connect_cluster(address) as engine:
        nodes = await asyncio.to_thread(_look_at_nodes, within_s)
        security = await asyncio.to_thread(engine.describe_protection)
        return ClusterReport(str(ray.get_runtime_context().gcs_address), security, nodes)


def _look_at_nodes(within_s: float) -> tuple[NodeReport, ...]:
    """Return a report of each node, ordered by name. Blocks up to ``within_s``."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    at_work = _count_actors()
    make: Any = ray.remote(look_at_node)
    asked: dict[str, Any] = {}
    for row in rows:
        if row["Alive"]:
            where = NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)
            asked[row["NodeID"]] = make.options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote()
    waiting = list(asked.values())
    answered = set(ray.wait(waiting, num_returns=len(waiting), timeout=within_s)[0]) if waiting else set()
    found = []
    for row in rows:
        node_id = str(row["NodeID"])
        told: Mapping[str, Any] = {"failure": "it left the cluster"}
        if node_id in asked:
            told = {"failure": f"it did not answer within {within_s:g} s"}
            if asked[node_id] in answered:
                told = _get_answer(asked[node_id])
            else:
                ray.cancel(asked[node_id], force=True)
        name = f"{row['NodeName']} ({node_id[:8]})"
        hosts, supervisors = (at_work[node_id, each.__name__] for each in (HostActor, SupervisorActor))
        found.append(NodeReport(name, bool(row["Alive"]), hosts, supervisors, **told))
    return tuple(sorted(found, key=lambda each: each.node))


def _get_answer(answer: Any) -> Mapping[str, Any]:
    try:
        told: Mapping[str, Any] = ray.get(answer)
    except Exception as error:  # noqa: BLE001 - whatever fails on the node is reported, and the others go on
        return {"failure": f"its probe failed: {describe_error(error).splitlines()[-1].strip()}"}
    return told


def _count_actors() -> Counter[tuple[str, str]]:
    """Return how many actors are alive, by node and class."""
    rows: Mapping[str, Any] = ray_state.actors(actor_state_name="ALIVE")
    return Counter((str(row["Address"]["NodeID"]), str(row["ActorClassName"])) for row in rows.values())


def look_at_node() -> dict[str, Any]:
    """Return what this node tells, as fields of :class:`NodeReport`. Blocks for some 0.2 s."""
    offered, commands = detect_level(), command_confinement()
    failure, is_confined = None, False
    try:
        is_confined = probe(Jail(enforcement="required" if offered.is_full else "best_effort")).is_full
    except ConfigError as error:
        failure = str(error)
    node: Any = ray_worker._global_node  # noqa: SLF001 - Ray has no public access to its directories
    own, python, its_ray = release()
    return {
        "sessiontree": own,
        "python": python,
        "ray": its_ray,
        "kernel": platform.release(),
        "confinement": str(offered),
        "is_confined": is_confined,
        "confinement_failure": failure,
        "bubblewrap": commands.bubblewrap,
        "command_failure": None if commands.failure is None else commands.failure.missing,
        "key_variables": tuple(find_key_variables(find_listener(Path(node.raylet_socket_name)))),
        "listening": tuple(describe_listeners(Path(node.get_logs_dir_path()))),
    }
