"""The machines of a runtime, as a tool sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One machine that a runtime may use."""

    node_id: str
    """Unique among the nodes; ``local`` on the local backend."""
    name: str
    """The machine's name; two nodes may have the same one."""
    is_alive: bool
    """False: it left the cluster."""
    is_here: bool
    """Whether the session that asks is on it."""
    cpus: float
    memory_bytes: int
    """0 = not known."""
    resources: Mapping[str, float]
    """Further amounts that the node offers, such as those of ``Placement``."""
    labels: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return its members."""
        return {
            "node_id": self.node_id,
            "name": self.name,
            "alive": self.is_alive,
            "here": self.is_here,
            "cpus": self.cpus,
            "memory_bytes": self.memory_bytes,
            "resources": dict(sorted(self.resources.items())),
            "labels": dict(sorted(self.labels.items())),
        }


class Nodes(Protocol):
    """Knows the machines of the runtime. It gives no way to reach one."""

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Return the nodes, those alive first, by name and id.

        Raises:
            ExecutionError: the cluster does not say which nodes it has.
        """
        ...
