"""The nodes of a Ray cluster, as a host in it sees them.

Source: Ray's API reference, ``ray.nodes`` and ``ray.get_runtime_context``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import ray

from sessiontree.backends.ray.commands.remote_command import RemoteShell
from sessiontree.contracts.errors import ExecutionError, describe_error
from sessiontree.contracts.handles.nodes import NodeInfo
from sessiontree.contracts.settings.placement import NODE_LABEL
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.sandbox.commands.running_commands import RunningCommands

ANSWER_S: Final = 10.0
_OWN_MARKS: Final = ("node:", "object_store_memory")
"""How the names of resources begin that Ray itself gives each node."""


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """Asks Ray for its nodes."""

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Return the cluster's nodes.

        Raises:
            ExecutionError: Ray does not answer.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.to_thread(_list_nodes)
        except TimeoutError as error:
            raise ExecutionError(f"the cluster did not answer within {ANSWER_S:g} s", True) from error
        except ray.exceptions.RayError as error:
            raise ExecutionError(
                f"the cluster does not say which nodes it has: {describe_error(error)}"
            ) from error

    def open_shell(self, node: NodeInfo, workspace: Path, running: RunningCommands) -> RemoteShell:
        """Return what runs commands on a node, also on this one."""
        return RemoteShell(node, workspace, running)


def _list_nodes() -> tuple[NodeInfo, ...]:
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    here = ray.get_runtime_context().get_node_id()
    return tuple(_build_node_info(row, here) for row in rows)


def _build_node_info(row: dict[str, Any], here: str) -> NodeInfo:
    offered: dict[str, float] = row.get("Resources") or {}
    labels: dict[str, str] = row.get("Labels") or {}
    own = {"CPU", "memory"}
    return NodeInfo(
        str(row["NodeID"]),
        str(row.get("NodeManagerHostname") or row.get("NodeName") or ""),
        is_alive=bool(row["Alive"]),
        is_here=row["NodeID"] == here,
        cpus=float(offered.get("CPU", 0.0)),
        memory_bytes=int(offered.get("memory", 0)),
        resources={
            name: float(amount)
            for name, amount in offered.items()
            if name not in own and not name.startswith(_OWN_MARKS)
        },
        labels={name: str(value) for name, value in labels.items() if name != NODE_LABEL},
    )
