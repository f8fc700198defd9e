"""Tasks on a cluster: one on each node, which prepares an environment or works for long; or anywhere."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.cluster.cluster_demand import ClusterDemand
from sessiontree.backends.ray.cluster.cluster_probe import connect_cluster
from sessiontree.backends.ray.cluster.node_shards import find_program_python
from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.contracts.settings.placement import Placement

LOOK_S: Final = 2.0
"""How often nodes are looked for."""
AGAIN_S: Final = 10.0
"""After how long a node gets another task in place of a lost one."""
Say: TypeAlias = Callable[[str], None]
TASKS_S: Final = 900.0
"""How long all nodes together may take."""


async def call_on_nodes(
    address: str, function: Callable[..., str], *given: object, within_s: float = TASKS_S
) -> dict[str, tuple[str, str]]:
    """Connect to a cluster, call a function on each of its nodes at the same time, and leave it.

    Args:
        address: ``host:port`` or ``auto``.
        function: A function of a module that every node has; it returns text.
        given: Its arguments.
        within_s: How long the nodes may take.

    Returns:
        By node: what the function returned, and why it failed; one of them is empty.

    Raises:
        ConfigError: no cluster can be reached there.
    """
    async with connect_cluster(address):
        return await asyncio.to_thread(_call, function, given, within_s)


def _call(
    function: Callable[..., str], given: tuple[object, ...], within_s: float
) -> dict[str, tuple[str, str]]:
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    make: Any = ray.remote(function)
    asked: dict[str, Any] = {}
    for row in rows:
        if row["Alive"]:
            where = NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)
            name = f"{row['NodeName']} ({str(row['NodeID'])[:8]})"
            options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": where}
            asked[name] = make.options(**options).remote(*given)
    waiting = list(asked.values())
    answered = set(ray.wait(waiting, num_returns=len(waiting), timeout=within_s)[0]) if waiting else set()
    return {name: _answer(task, task in answered, within_s) for name, task in sorted(asked.items())}


def _answer(task: Any, has_answered: bool, within_s: float) -> tuple[str, str]:
    if not has_answered:
        ray.cancel(task, force=True)
        return "", f"it did not answer within {within_s:g} s"
    try:
        return str(ray.get(task)), ""
    except Exception as error:  # noqa: BLE001 - whatever fails on a node is reported, and the others go on
        return "", " ".join(describe_error(getattr(error, "cause", None) or error).split())


class NodeWork:
    """Keeps one task on each node that fits, also on nodes that join, until the work is done.

    A task that returns has found the work done; so no more are started. One that raises is not started again
    on its node. One whose process or node is lost is.

    Args:
        function: A function of a module that every node has.
        given: Its arguments.
        wanted: What a node must have.
        say: Gets a line when a node is left out, or its task is lost.
    """

    def __init__(
        self, function: Callable[..., None], given: tuple[object, ...], wanted: Placement, say: Say
    ) -> None:
        self._function = function
        self._given = given
        self._wanted = wanted
        self._say = say
        self._running: dict[Any, str] = {}
        """Tasks, each with its node."""
        self._refused: dict[str, str] = {}
        self._again: dict[str, float] = {}
        """When nodes whose task was lost get another one."""
        self._is_done = False

    async def run(self, address: str, cpus: int) -> None:
        """Connect to a cluster, work until the end, and leave it.

        Args:
            address: ``host:port`` or ``auto``.
            cpus: How many CPUs of the cluster are reserved meanwhile, so that it gets nodes for them.

        Raises:
            ConfigError: no cluster can be reached there, or every node refuses; says why.
        """
        async with connect_cluster(address):
            demand = ClusterDemand(1.0)
            try:
                while not self._is_done or self._running:
                    await asyncio.to_thread(demand.ask_for, cpus)
                    await asyncio.to_thread(self._look)
            finally:
                for task in self._running:
                    ray.cancel(task, force=True)
                await asyncio.to_thread(demand.ask_for, 0)

    def _look(self) -> None:
        """Start what is missing, and take what has ended."""
        rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        names = {str(row["NodeID"]): f"{row['NodeName']} ({str(row['NodeID'])[:8]})" for row in rows}
        for row in rows:
            node = str(row["NodeID"])
            if row["Alive"] and self._wanted.fits(row.get("Labels", {}), row["Resources"]):
                self._start(node)
        if not self._running and not self._again:
            reasons = "; ".join(f"{names.get(node, node)}: {why}" for node, why in self._refused.items())
            raise ConfigError(f"no node of the cluster works on it: {reasons or 'none fits'}")
        ended, _ = ray.wait(list(self._running), timeout=LOOK_S) if self._running else ([], [])
        for task in ended:
            node = self._running.pop(task)
            self._take(task, node, names.get(node, node))

    def _start(self, node: str) -> None:
        is_known = node in self._refused or node in self._running.values()
        if self._is_done or is_known or self._again.get(node, 0.0) > time.monotonic():
            return
        self._again.pop(node, None)
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "memory": 2**20, "max_retries": 0, "scheduling_strategy": where}
        python = find_program_python()
        if python is not None:
            options["runtime_env"] = {"py_executable": shlex.quote(python)}
        make: Any = ray.remote(self._function)
        self._running[make.options(**options).remote(*self._given)] = node

    def _take(self, task: Any, node: str, name: str) -> None:
        try:
            ray.get(task)
        except RayTaskError as error:
            self._refused[node] = describe_error(error.cause)
            self._say(f"node {name} is left out: {self._refused[node]}")
        except RayError as error:
            self._again[node] = time.monotonic() + AGAIN_S
            self._say(f"lost the program on node {name}: {describe_error(error).splitlines()[0]}")
        else:
            self._is_done = True


@asynccontextmanager
async def open_cluster_calls(address: str, say: Say) -> AsyncIterator[ClusterCalls]:
    """Connect to a cluster whose nodes can be given calls, and leave it at the end.

    Args:
        address: ``host:port`` or ``auto``.
        say: Gets a line when a call is lost.

    Raises:
        ConfigError: no cluster can be reached there.
    """
    async with connect_cluster(address):
        yield ClusterCalls(say)


class ClusterCalls:
    """Calls functions on whichever node has a CPU free, each in a process of its own environment.

    Args:
        say: Gets a line when a call is lost.
    """

    def __init__(self, say: Say) -> None:
        self._say = say

    async def call(self, function: Callable[..., Any], *given: object) -> Any:
        """Call a function of a module that every node has; a cancelled call is killed.

        Returns:
            What it returned; None if its process or node was lost.

        Raises:
            ConfigError: it raised; says what.
        """
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
        python = find_program_python()
        if python is not None:
            options["runtime_env"] = {"py_executable": shlex.quote(python)}
        make: Any = ray.remote(function)
        task = make.options(**options).remote(*given)
        answer = asyncio.wrap_future(task.future())
        try:
            return await answer
        except RayTaskError as error:
            raise ConfigError(describe_error(error.cause)) from error
        except RayError as error:
            self._say(f"lost a process on the cluster: {describe_error(error).splitlines()[0]}")
            return None
        finally:
            if not answer.done() or answer.cancelled():
                ray.cancel(task, force=True)
