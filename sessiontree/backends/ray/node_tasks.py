"""One task on each node of a cluster, such as preparing the environment of a suite there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.cluster_probe import connected_to
from sessiontree.contracts.errors import words_of

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
    async with connected_to(address):
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
        return "", " ".join(words_of(getattr(error, "cause", None) or error).split())
