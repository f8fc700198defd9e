"""The door to the Ray backend: all that programs and suites use of it.

Ray takes a second to load. So each name is loaded when it is used, and a program on the local backend never
loads Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from sessiontree.backends.ray.backend import RayBackend
    from sessiontree.backends.ray.cluster.node_shards import ClusterShards
    from sessiontree.backends.ray.cluster.node_tasks import ClusterCalls, NodeWork
    from sessiontree.backends.ray.engine.cluster_report import ClusterReport
    from sessiontree.contracts.settings.placement import Placement


def make_ray_backend(state_dir: Path, journal_dir: Path, options: Mapping[str, Any]) -> RayBackend:
    """Return a backend that runs each live session in an actor.

    Args:
        state_dir: The state directory.
        journal_dir: Where its journal is.
        options: The other arguments of the backend, by name.
    """
    from sessiontree.backends.ray.backend import RayBackend

    return RayBackend(state_dir, journal_dir=journal_dir, **options)


def begin_backend_early(backend: str) -> None:
    """Start a private Ray for a Ray backend that this process is about to make, while it loads the rest.

    It ends with the backend, or with the process.
    """
    if backend == "ray":
        from sessiontree.backends.ray.engine.engine import begin_early

        begin_early()


def make_cluster_shards(
    state_dir: Path, options: Mapping[str, Any], first: Any, *, wanted: Placement, tree_cpus: float
) -> ClusterShards:
    """Return the other nodes of a cluster that take trees.

    Args:
        state_dir: The state directory, on every node.
        options: As for the backend of this node.
        first: The backend of this node.
        wanted: What a node must have to take trees.
        tree_cpus: How many CPUs each open tree reserves in the cluster.
    """
    from sessiontree.backends.ray.cluster.node_shards import ClusterShards

    return ClusterShards(state_dir, options, first, wanted, tree_cpus)


async def look_at_cluster(address: str) -> ClusterReport:
    """Return what each node of a cluster says of itself.

    Args:
        address: ``host:port`` or ``auto``.

    Raises:
        ConfigError: no cluster can be reached there.
    """
    from sessiontree.backends.ray.cluster import cluster_probe

    return await cluster_probe.look_at_cluster(address)


async def call_on_nodes(
    address: str, function: Callable[..., str], *given: object
) -> dict[str, tuple[str, str]]:
    """Call a function on each node of a cluster at the same time.

    Args:
        address: ``host:port`` or ``auto``.
        function: A function of a module that every node has; it returns text.
        given: Its arguments.

    Returns:
        By node: what the function returned, and why it failed; one of them is empty.

    Raises:
        ConfigError: no cluster can be reached there.
    """
    from sessiontree.backends.ray.cluster import node_tasks

    return await node_tasks.call_on_nodes(address, function, *given)


def make_node_work(
    function: Callable[..., None], given: tuple[object, ...], wanted: Placement, say: Callable[[str], None]
) -> NodeWork:
    """Return what keeps one task on each node that fits, until the work is done.

    Args:
        function: A function of a module that every node has.
        given: Its arguments.
        wanted: What a node must have.
        say: Gets a line when a node is left out, or its task is lost.
    """
    from sessiontree.backends.ray.cluster.node_tasks import NodeWork

    return NodeWork(function, given, wanted, say)


def open_cluster_calls(address: str, say: Callable[[str], None]) -> AbstractAsyncContextManager[ClusterCalls]:
    """Connect to a cluster whose nodes can be given calls, and leave it at the end.

    Args:
        address: ``host:port`` or ``auto``.
        say: Gets a line when a call is lost.
    """
    from sessiontree.backends.ray.cluster import node_tasks

    return node_tasks.open_cluster_calls(address, say)
