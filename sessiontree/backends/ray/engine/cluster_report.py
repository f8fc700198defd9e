"""What is known of a cluster and its nodes; values only, without Ray.

``cluster_probe.py`` finds it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node of a cluster.

    Attributes:
        node: Its name and the beginning of Ray's id of it.
        alive: Whether Ray counts it as alive.
        hosts: How many processes for sessions are on it, of all programs.
        supervisors: How many supervisors.
        failure: Why it reported nothing; None = it answered.
        sessiontree, python, ray, kernel: Releases; None where it reported nothing.
        confinement: What the kernel offers for Workers.
        is_confined: Whether a trial got the full confinement.
        confinement_failure: Why the trial failed; None = it did not.
        bubblewrap: Its release; None = no command can be run there.
        command_failure: Why not.
        key_variables: Names of variables of Ray's processes there that look as if they held keys.
        listening: Sockets that other machines may reach: ``address``, ``port``, ``process``, ``pid``.
    """

    node: str
    alive: bool
    hosts: int
    supervisors: int
    failure: str | None = None
    sessiontree: str | None = None
    python: str | None = None
    ray: str | None = None
    kernel: str | None = None
    confinement: str | None = None
    is_confined: bool = False
    confinement_failure: str | None = None
    bubblewrap: str | None = None
    command_failure: str | None = None
    key_variables: tuple[str, ...] = ()
    listening: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster: its nodes, and what protects it."""

    address: str
    security: Mapping[str, JsonValue]
    """As this node sees it, without what listens."""
    nodes: tuple[NodeReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "address": self.address,
            "ray": dict(self.security),
            "nodes": [asdict(each) for each in self.nodes],
        }
