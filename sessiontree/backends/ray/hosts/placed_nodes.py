"""The nodes on which a runtime places sessions, as the program finds them when a tree opens.

A node is used for a kind of session if it has the resources and labels that the kind asks for, the same
installation, and the tree's workspace: an agent on the node (``node_agent.py``) says so. Not here: the start
of hosts there (``placed_hosts.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, Literal

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.client.serialization import dump_value
from sessiontree.backends.ray.commands.remote_node import AGENT_OPTIONS, compare_workspace, release
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.program_copy import read_files
from sessiontree.backends.ray.hosts.node_agent import AgentPlan, NodeAgent, NodeFacts
from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.contracts.settings.placement import Placement, Placements
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.scheduling.settings import OBSERVING, list_placed_pools
from sessiontree.sandbox import launcher

LOOK_S: Final = 60.0
"""How long a node may take to start an agent and to look around, on a busy machine."""
CLOSE_S: Final = 5.0
REFUSED_S: Final = 30.0
"""For how long a node that was refused is not looked at again."""
_LOG: Final = logging.getLogger("sessiontree")


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node on which hosts may run."""

    node_id: str
    """Ray's id of it, in hex."""
    name: str
    """Its name and the beginning of its id, for people."""
    agent: Any
    """The runtime's actor there; None = it is the supervisor's own node."""
    token: Path | None = None
    """The file of Ray's token there."""


@dataclass(frozen=True, slots=True)
class TreePlaces:
    """On which nodes the hosts of one tree may run."""

    workspace: Path
    pools: Mapping[str, tuple[NodePlace, ...]]
    """By the pool of the hosts; pools that are not here run on the supervisor's node."""
    tree_id: str = ""
    later: Mapping[str, Mapping[str, tuple[NodePlace, ...]]] = field(default_factory=dict)
    """By tree id, the pools of trees that were open already, where these have changed since they opened."""


@dataclass(slots=True)
class OpenTree:
    """A tree that is open or about to be opened."""

    places: TreePlaces
    packed: bytes
    """The same when it opened, as its supervisor gets it."""
    program: Path | None
    agents: dict[str, Any]
    """By node id, the agents of the nodes that were examined for it."""
    has_changed: bool = False
    """Whether its nodes have changed since it opened."""


class PlacedNodes:
    """Finds nodes for the trees of one runtime.

    Args:
        placements: What each kind of session asks of a node.
        engine: The cluster.
        enforcement: Whether Workers are refused where the kernel can't confine them.
    """

    def __init__(
        self, placements: Placements, engine: RayConnection, enforcement: Literal["required", "best_effort"]
    ) -> None:
        self._pools = list_placed_pools(placements)
        self._engine = engine
        self._enforcement = enforcement
        self._places: dict[str, tuple[NodePlace, NodeFacts]] = {}
        """By node id, the nodes that can run hosts."""
        self._refused: dict[str, tuple[float, str]] = {}
        """By node id, when a node was refused, and why."""
        self._open: list[OpenTree] = []
        """Also those that are about to open; a tree that is opened twice is here twice until one fails."""
        self._finding = asyncio.Lock()

    async def find(self, tree_id: str, workspace: Path, scratch: Path, program: Path | None) -> bytes:
        """Return the nodes for a tree that is about to open, as its supervisor gets them.

        Args:
            tree_id: The tree.
            workspace: Its workspace on this node.
            scratch: The runtime's private directory.
            program: A copy of the modules of the program; None = it has none.

        Raises:
            ConfigError: no node fits a kind of session; says why each node does not.
        """
        async with self._finding:
            nodes = await self._find_candidates(scratch)
            reasons: dict[str, str] = {node: reason for node, (_, reason) in self._refused.items()}
            async with asyncio.TaskGroup() as group:
                asked = {
                    node: group.create_task(self._examine(node, workspace, scratch, program))
                    for node in nodes
                }
            for node, answer in asked.items():
                reason = answer.result()
                if reason is not None:
                    reasons[node] = reason
            await self._extend(nodes)
            found = TreePlaces(
                workspace,
                {
                    pool: self._select_fitting(pool, placement, nodes, reasons)
                    for pool, placement in self._pools.items()
                },
                tree_id,
                {tree.places.tree_id: tree.places.pools for tree in self._open if tree.has_changed},
            )
            agents = {node: self._places[node][0].agent for node in nodes if node in self._places}
            opening = OpenTree(found, dump_value(found), program, agents)
            self._open.append(opening)
            return opening.packed

    def on_not_opened(self, tree_id: str, places: bytes) -> None:
        """Note that a tree did not open with these nodes; it may be open already."""
        for index in reversed(range(len(self._open))):
            if (self._open[index].places.tree_id, self._open[index].packed) == (tree_id, places):
                del self._open[index]
                return

    def released(self, tree_id: str) -> None:
        """Note that a tree was let go."""
        self._open = [each for each in self._open if each.places.tree_id != tree_id]

    async def close(self) -> None:
        """End the agents; what they made on their nodes is removed."""
        agents = [place.agent for place, _ in self._places.values() if place.agent is not None]
        self._places.clear()
        if agents and ray.is_initialized():
            await asyncio.wait([asyncio.ensure_future(_end_agent(agent)) for agent in agents])

    async def _find_candidates(self, scratch: Path) -> dict[str, dict[str, Any]]:
        """Return the nodes of the cluster with what some kind asks for; those without an agent get one."""
        rows: list[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
        fitting = {
            str(row["NodeID"]): row
            for row in rows
            if row["Alive"]
            and any(each.fits(row["Labels"], row["Resources"]) for each in self._pools.values())
        }
        for node in [each for each in self._places if each not in fitting]:
            del self._places[node]
        until = time.monotonic() - REFUSED_S
        self._refused = {
            node: told for node, told in self._refused.items() if told[0] > until and node in fitting
        }
        new = [node for node in fitting if node not in self._places and node not in self._refused]
        async with asyncio.TaskGroup() as group:
            for node in new:
                group.create_task(self._meet(node, _describe_node(fitting[node]), scratch))
        return {node: row for node, row in fitting.items() if node in self._places}

    async def _meet(self, node: str, name: str, scratch: Path) -> None:
        """Start an agent on a node, and let it look around."""
        if node == self._engine.node_id:
            self._places[node] = NodePlace(node, name, None), NodeFacts()
            return
        make: Any = ray.remote(NodeAgent)
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        agent = make.options(**AGENT_OPTIONS, scheduling_strategy=where).remote()
        plan = AgentPlan(
            release(),
            Path(sys.executable),
            Path(launcher.__file__),
            self._engine.logs_dir,
            scratch,
            self._enforcement,
        )
        try:
            async with asyncio.timeout(LOOK_S):
                facts: NodeFacts = await agent.begin.remote(plan)
        except TimeoutError:
            facts = NodeFacts(f"it did not answer within {LOOK_S:g} s")
        except RayError as error:
            facts = NodeFacts(f"its process ended: {_get_last_line(error)}; is sessiontree installed there?")
        if facts.refusal is None:
            self._places[node] = NodePlace(node, name, agent, facts.token), facts
            return
        ray.kill(agent)
        self._refuse(node, name, facts.refusal)

    def _refuse(self, node: str, name: str, reason: str) -> None:
        self._refused[node] = time.monotonic(), f"{name}: {reason}"
        _LOG.warning("node %s runs no sessions: %s", name, reason)

    async def _extend(self, nodes: Mapping[str, dict[str, Any]]) -> None:
        """Examine nodes that have joined, or have another agent, for the trees that are open."""
        for tree in list(self._open):
            new = {
                node: self._places[node]
                for node in nodes
                if node in self._places
                and (node not in tree.agents or tree.agents[node] is not self._places[node][0].agent)
            }
            for node, (place, facts) in new.items():
                try:
                    reason = await self._find_refusal(node, tree.places.workspace, tree.program)
                except RayError as error:
                    reason = _get_last_line(error)
                if reason is not None:
                    tree.agents.setdefault(node, place.agent)  # one that was used is asked again
                    continue
                tree.agents[node] = place.agent
                pools = {
                    pool: [each for each in places if each.node_id != node]
                    for pool, places in tree.places.pools.items()
                }
                for pool, places in pools.items():
                    row = nodes[node]
                    fits = self._pools[pool].fits(row["Labels"], row["Resources"])
                    if fits and (pool != OBSERVING or facts.worker_refusal is None):
                        places.append(place)
                tree.places = replace(
                    tree.places, pools={pool: tuple(places) for pool, places in pools.items()}
                )
                tree.has_changed = True

    async def _examine(self, node: str, workspace: Path, scratch: Path, program: Path | None) -> str | None:
        """As ``_find_refusal``, but a node whose agent has ended gets another one."""
        name = self._places[node][0].name
        try:
            return await self._find_refusal(node, workspace, program)
        except RayError as error:
            _LOG.warning("the agent on node %s is started again: %s", name, _get_last_line(error))
        del self._places[node]
        await self._meet(node, name, scratch)
        if node not in self._places:
            return self._refused[node][1]
        try:
            return await self._find_refusal(node, workspace, program)
        except RayError as error:
            del self._places[node]  # the next tree starts another agent
            return f"{name}: {_get_last_line(error)}"

    async def _find_refusal(self, node: str, workspace: Path, program: Path | None) -> str | None:
        """Return why a node can't serve a tree, and send it the program's modules if it can.

        Raises:
            RayError: its agent has ended.
        """
        place, _ = self._places[node]
        if place.agent is None:
            return None
        reason = await compare_workspace(workspace, place.agent)
        if reason is not None:
            _LOG.warning("node %s has another workspace at %s: %s", place.name, workspace, reason)
            return f"{place.name}: the workspace {str(workspace)!r} is not the same there: {reason}"
        if program is not None:
            files = await asyncio.to_thread(read_files, program)
            try:
                async with asyncio.timeout(LOOK_S):
                    await place.agent.receive.remote(program.name, files)
            except (RayTaskError, TimeoutError) as error:
                return f"{place.name}: the program's modules can't be sent there: {_get_last_line(error)}"
        return None

    def _select_fitting(
        self, pool: str, placement: Placement, nodes: Mapping[str, dict[str, Any]], reasons: dict[str, str]
    ) -> tuple[NodePlace, ...]:
        """Return the nodes for the hosts of a pool.

        Raises:
            ConfigError: no node fits.
        """
        found, against = [], []
        shared = [
            {place.node_id for place in tree.places.pools[pool]}
            for tree in self._open
            if pool in tree.places.pools
        ]
        for node, row in nodes.items():
            if node not in self._places:
                against.append(reasons[node])
                continue
            place, facts = self._places[node]
            if not placement.fits(row["Labels"], row["Resources"]):
                continue
            if node in reasons:
                against.append(reasons[node])
            elif pool == OBSERVING and facts.worker_refusal is not None:
                against.append(
                    f"{place.name}: Workers can't be confined there: {facts.worker_refusal}; give "
                    "kernel_enforcement='best_effort' to run them anyway"
                )
            elif not all(node in each for each in shared):
                against.append(
                    f"{place.name}: another open tree of this runtime does not have its workspace there; "
                    "give this tree a Runtime of its own"
                )
            else:
                found.append(place)
        if not found:
            against += [reason for node, reason in reasons.items() if node not in nodes]
            told = "; ".join(against) or "no node that is alive has that"
            kind = "worker" if pool == OBSERVING else "branch"
            raise ConfigError(f"placement: no node fits {kind!r}, which asks for {placement}: {told}")
        return tuple(found)


def _describe_node(row: Mapping[str, Any]) -> str:
    return f"{row['NodeName']} ({str(row['NodeID'])[:8]})"


def _get_last_line(error: BaseException) -> str:
    return describe_error(error).splitlines()[-1].strip()


async def _end_agent(agent: Any) -> None:
    with contextlib.suppress(RayError, TimeoutError):  # it is killed in any case
        async with asyncio.timeout(CLOSE_S):
            await agent.close.remote()
    if ray.is_initialized():
        ray.kill(agent)
