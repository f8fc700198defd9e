"""Hosts that Ray places on one of several nodes, as their supervisor starts them.

Not here: which nodes fit a tree (``placed_nodes.py``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayError

from sessiontree.backends.ray.client.serialization import load_value
from sessiontree.backends.ray.client.socket_rpc import LineListener
from sessiontree.backends.ray.commands.remote_node import compare_workspace
from sessiontree.backends.ray.hosts.placed_nodes import NodePlace, TreePlaces
from sessiontree.backends.ray.hosts.transport import REAPED_S, LineTransport
from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.settings.placement import NODE_LABEL, Placement
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.timing.clock import read_monotonic_ms
from sessiontree.runtime.transport.frames import Hello
from sessiontree.runtime.transport.link import HostLost
from sessiontree.workspace.identity import look_at_directory

FIND_S: Final = 120.0
"""How long Ray may take to find room for a host and to start it."""
PREPARE_S: Final = 15.0
UNFIT_S: Final = 30.0
"""For how long a node that does not fit an open tree gets no hosts: what is wrong may pass."""
AGAIN_S: Final = 1.0
"""How long a start waits before it looks again whether a node may be used."""


class PlacedPools:
    """On which nodes the hosts of each placed pool may run now.

    A pool serves all open trees, so its nodes are those that fit each of them.

    Args:
        placements: What each pool asks of a node.
        trees: Returns the nodes of each open tree, as the program packed them.
    """

    def __init__(self, placements: Mapping[str, Placement], trees: Callable[[], tuple[bytes, ...]]) -> None:
        self._placements = placements
        self._trees = trees
        self._opened: dict[bytes, TreePlaces] = {}
        self._later: dict[str, Mapping[str, tuple[NodePlace, ...]]] = {}
        """By tree id, the pools of trees whose nodes have changed since they opened."""
        self._unfit: dict[str, tuple[float, str]] = {}
        """By node id, until when a node is not used, and why."""
        self._alive: set[str] = set()
        """The nodes that were alive when a host was last started."""
        self._failed_s: dict[str, float] = {}
        """By pool, when a start last failed that counted."""

    def trees(self) -> list[TreePlaces]:
        """Return the nodes of each open tree."""
        packed = self._trees()
        found = {each: self._opened.get(each) or load_value(each) for each in packed}
        for each, tree in found.items():
            if each not in self._opened:
                self._later.pop(tree.tree_id, None)
                self._later.update(tree.later)
        self._opened = found
        trees = {tree.tree_id for tree in found.values()}
        self._later = {tree: pools for tree, pools in self._later.items() if tree in trees}
        return [replace(tree, pools=self._later.get(tree.tree_id, tree.pools)) for tree in found.values()]

    def places(self, pool: str) -> dict[str, NodePlace]:
        """Return the nodes for the hosts of a pool by id, whether they are alive or not."""
        now = self.now()
        self._unfit = {node: told for node, told in self._unfit.items() if told[0] > now}
        return {node: place for node, place in self._find_shared(pool).items() if node not in self._unfit}

    def _find_shared(self, pool: str) -> dict[str, NodePlace]:
        found: dict[str, NodePlace] | None = None
        for tree in self.trees():
            own = {place.node_id: place for place in tree.pools.get(pool, ())}
            found = own if found is None else {node: own[node] for node in found if node in own}
        return found or {}

    def list_tokens(self) -> tuple[Path, ...]:
        """Return the files of Ray's tokens on all these nodes."""
        places = [place for tree in self.trees() for each in tree.pools.values() for place in each]
        return tuple(dict.fromkeys(place.token for place in places if place.token is not None))

    def now(self) -> float:
        """Return the time by the clock of this machine, in seconds."""
        return time.monotonic()

    def use_all_again(self) -> None:
        """Use nodes again that were refused: the program has looked at all of them for a tree that opens."""
        self._unfit.clear()

    async def make_options(self, pool: str) -> dict[str, Any]:
        """Return the options by which Ray finds a node for a host; wait while all nodes are left out.

        Raises:
            HostLost: no node is left.
        """
        placement = self._placements[pool]
        while True:
            self._alive = await self.list_alive()
            places = self.places(pool)
            fitting = sorted(node for node in places if node in self._alive)
            if fitting or not any(node in self._alive for node in self._find_shared(pool)):
                break
            await asyncio.sleep(AGAIN_S)
        if not fitting:
            gone = [f"{place.name}: it left the cluster" for place in places.values()]
            told = "; ".join([*(reason for _, reason in self._unfit.values()), *gone])
            raise HostLost(f"no node is left for hosts that ask for {placement}: {told}", served=False)
        options: dict[str, Any] = {
            "num_cpus": placement.num_cpus,
            "scheduling_strategy": "SPREAD",
            "label_selector": {**placement.label, NODE_LABEL: f"in({', '.join(fitting)})"},
        }
        return {**options, "resources": dict(placement.resources)} if placement.resources else options

    async def list_alive(self) -> set[str]:
        """Return the nodes of the cluster that are alive."""
        rows: list[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
        return {str(row["NodeID"]) for row in rows if row["Alive"]}

    def is_new(self, pool: str, begun_s: float) -> bool:
        """Whether a failed start is the first of those that were under way when it failed.

        Hosts that are started together fail together, if the cluster has no room for a while.
        """
        last_s = self._failed_s.get(pool)
        if last_s is not None and begun_s <= last_s:
            return False
        self._failed_s[pool] = self.now()
        return True

    async def check(self, pool: str, place: NodePlace) -> None:
        """Check that each open tree has its workspace on a node.

        A workspace that can't be looked at here says nothing about the node.

        Raises:
            HostLost: one does not; the node is not used for ``UNFIT_S``.
        """
        for workspace in dict.fromkeys(tree.workspace for tree in self.trees()):
            try:
                reason = await compare_workspace(workspace, place.agent)
            except RayError as error:
                reason = describe_error(error).splitlines()[-1].strip()
            if reason is not None and await asyncio.to_thread(_is_readable, workspace):
                self._unfit[place.node_id] = self.now() + UNFIT_S, f"{place.name}: {reason}"
                raise HostLost(
                    f"no host runs on node {place.name}: the workspace {str(workspace)!r} is not the same "
                    f"there: {reason}",
                    served=False,
                    counts=self._alive.isdisjoint(self.places(pool)),
                )


def _is_readable(workspace: Path) -> bool:
    try:
        look_at_directory(workspace, entries=False)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class HostOrder:
    """A host that is to be started."""

    pool: str
    begin: Callable[[dict[str, Any]], Any]
    """Starts the actor, with these options for its place."""
    victims: Path | None
    """Files that it must fail to change before it serves."""


class PlacedTransport(LineTransport):
    """Carries frames to a host that Ray places. A host on another node has no line.

    Args:
        pools: The nodes that fit.
        order: The host.
        lines: Where a host on this node may open a line.
        given: As for :class:`RayTransport`, without the actor.
    """

    def __init__(self, pools: PlacedPools, order: HostOrder, lines: LineListener, *given: Any) -> None:
        super().__init__(lines, {}, None, *given)
        self._pools = pools
        self._order = order
        self.place: NodePlace | None = None
        """Where it runs; None = not known yet."""

    reaped_s = REAPED_S

    @property
    def is_unfit(self) -> bool:
        """Whether it runs on a node that does not fit all open trees any more."""
        return self.place is not None and self.place.node_id not in self._pools.places(self._order.pool)

    async def _request_hello(self) -> Any:
        pool = self._order.pool
        options = await self._pools.make_options(pool)
        self.actor = self._order.begin(options)
        try:
            node = await self._answer(self.actor.node.remote(), FIND_S)
        except TimeoutError:
            wanted = ", ".join(each.name for each in self._pools.places(pool).values())
            reason = (
                f"Ray started no host on {wanted} within {FIND_S:g} s: what the placement asks for is in "
                "use, or a process does not start there"
            )
            raise HostLost(reason, served=False) from None
        place = self._pools.places(pool).get(node)
        if place is None:  # a tree was opened meanwhile whose workspace is not there
            raise HostLost(
                f"a host was started on node {node[:8]}, which does not fit any more",
                served=False,
                counts=False,
            )
        self.place = place
        if place.agent is None:
            return await super()._request_hello()
        self.node = place.name
        await self._pools.check(pool, place)
        if self._order.victims is not None:
            await self._answer(place.agent.prepare.remote(self._order.victims), PREPARE_S)
        hello: Hello = await self._answer(self.actor.hello.remote(read_monotonic_ms()), FIND_S)
        if hello.reaper:
            await self._answer(place.agent.hold.remote(hello.pid, hello.reaper), PREPARE_S)
        return hello

    def _hold(self, hello: Hello) -> None:
        if not self.node:
            super()._hold(hello)

    async def ready(self) -> None:
        """Wait until the host has said hello; frames that were sent before go then.

        Raises:
            HostLost: it did not start, or reported that it cannot serve.
        """
        begun_s = self._pools.now()
        try:
            await super().ready()
        except HostLost as lost:
            if lost.counts and not self._pools.is_new(self._order.pool, begun_s):
                raise HostLost(lost.reason, served=False, counts=False) from None
            raise
        if self._buffer:
            self._flush()

    def _flush(self) -> None:
        if self.is_ready or self._closed:
            super()._flush()

    def _offer_line(self) -> None:
        if not self.node:
            super()._offer_line()

    async def ended(self) -> int:
        """Wait for the host's reaper, wherever it is; return how many processes it ended."""
        agent = None if self.place is None else self.place.agent
        if agent is None or not self.pid:
            return await super().ended()
        try:
            async with asyncio.timeout(REAPED_S + PREPARE_S):
                ended: int = await agent.ended.remote(self.pid)
                return ended
        except TimeoutError:
            return 0
        except RayError:
            if self.place is not None and self.place.node_id in await self._pools.list_alive():
                await asyncio.sleep(self.reaped_s)  # the agent has ended, and nobody else sees them end
            return 0  # or the node is gone, and all its processes with it
