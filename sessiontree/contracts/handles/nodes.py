"""The machines of a runtime, as a tool sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.values.quick_dataclass import dataclass

SHORTEST_ID: Final = 4
"""Least characters of an id's beginning that name a node."""


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


def find_node(name: str | None, found: Sequence[NodeInfo], *, alive: bool = False) -> NodeInfo:
    """Return the node that a name, an id or the beginning of an id means.

    Args:
        name: What was given; None = nothing.
        found: The nodes of the runtime.
        alive: Whether a node that left the cluster is refused.

    Raises:
        ValidationError: it means none, several, or one that left; says which there are.
    """
    if name is None:
        raise ValidationError("name the node", "/node")
    exact = [each for each in found if each.node_id == name]
    named = exact or [each for each in found if each.name == name and each.is_alive]
    if not named and len(name) >= SHORTEST_ID:
        named = [each for each in found if each.node_id.startswith(name)]
        living = [each for each in named if each.is_alive]
        named = living if alive and living else named
    if len(named) == 1 and (named[0].is_alive or not alive):
        return named[0]
    listed = [each for each in found if each.is_alive or not alive][:20]
    known = ", ".join(f"{each.name} ({each.node_id[:8]})" for each in listed)
    if len(named) == 1:
        raise ValidationError(f"node {name[:100]!r} has left the cluster; there are {known}", "/node")
    how = "several nodes have" if named else "no node has"
    raise ValidationError(f"{how} the name {name[:100]!r}; there are {known}; give an id", "/node")
