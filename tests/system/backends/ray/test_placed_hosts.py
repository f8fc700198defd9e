"""On which nodes hosts may run while trees open and close, and how one is reached; without a Ray."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import RayActorError

from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.client.socket_rpc import LineListener
from sessiontree.backends.ray.hosts.placed_hosts import UNFIT_S, HostOrder, PlacedPools, PlacedTransport
from sessiontree.backends.ray.hosts.placed_nodes import NodePlace, TreePlaces
from sessiontree.contracts.settings.placement import NODE_LABEL, Placement, Placements
from sessiontree.runtime.scheduling.settings import (
    ACTING,
    BRANCHING,
    OBSERVING,
    assign_pools,
    list_placed_pools,
)
from sessiontree.runtime.timing.clock import read_monotonic_ms
from sessiontree.runtime.transport.frames import Hello
from sessiontree.runtime.transport.link import HostLost
from sessiontree.workspace.identity import DirectoryView, look_at_directory
from tests.system.backends.ray.test_socket_rpc import Remote

NODES = st.sets(st.sampled_from("abcd"), min_size=1)
Choose = Callable[[PlacedPools, str], set[str]]


def places_on(nodes: set[str]) -> tuple[NodePlace, ...]:
    """Return the places of nodes; each has a token of its own."""
    return tuple(NodePlace(node, f"node {node}", None, Path("/tokens", node)) for node in sorted(nodes))


def pools_for(trees: list[set[str]]) -> PlacedPools:
    """Return the pools while trees are open that fit these nodes."""
    open_trees = tuple(
        dump_value(TreePlaces(Path("/workspace", str(number)), {OBSERVING: places_on(nodes)}))
        for number, nodes in enumerate(trees)
    )
    return PlacedPools({OBSERVING: Placement()}, lambda: open_trees)


def chosen(pools: PlacedPools, pool: str) -> set[str]:
    """Return the nodes of a pool."""
    return set(pools.places(pool))


def _check_fit(choose: Choose, trees: list[set[str]]) -> None:
    expected = set.intersection(*trees) if trees else set()
    assert choose(pools_for(trees), OBSERVING) == expected


@given(st.lists(NODES, max_size=4))
def test_nodes_fit_every_open_tree(trees: list[set[str]]) -> None:
    """A free host may get a session of any open tree, so it is on a node that fits all of them."""
    _check_fit(chosen, trees)


def test_planted_bug_is_found() -> None:
    """Nodes that fit one of the trees do not pass."""

    def of_any(pools: PlacedPools, pool: str) -> set[str]:
        return {place.node_id for tree in pools.trees() for place in tree.pools[pool]}

    with pytest.raises(AssertionError):
        _check_fit(of_any, [{"a"}, {"b"}])


def test_pool_that_is_not_placed_has_no_nodes() -> None:
    """Other pools are not looked up here; tokens of all nodes are hidden from Workers."""
    pools = pools_for([{"a", "b"}, {"b"}])
    assert pools.places(ACTING) == {}
    assert set(pools.list_tokens()) == {Path("/tokens/a"), Path("/tokens/b")}


def test_branches_have_their_own_pool_only_if_they_are_placed() -> None:
    """Otherwise they share the hosts of Main, which are never placed."""
    from_program = {"worker": {"num_cpus": 1}}
    assert set(assign_pools(None).values()) == {ACTING, OBSERVING}
    assert ACTING not in list_placed_pools(Placements.from_given({**from_program, "branch": {}}))
    assert set(assign_pools(Placements.from_given({"branch": {}})).values()) == {ACTING, BRANCHING, OBSERVING}
    assert list_placed_pools(Placements.from_given(from_program)) == {OBSERVING: Placement(num_cpus=1)}


class Agent:
    """The runtime's actor on another node, which sees a workspace, perhaps another one."""

    def __init__(self, workspace: Path) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._workspace = workspace
        self.look, self.prepare = Remote(self._look), Remote(self._prepare)
        self.hold, self.ended = Remote(self._hold), Remote(self._ended)

    async def _look(self, workspace: Path, entries: bool) -> DirectoryView:
        return look_at_directory(self._workspace, entries=entries)

    async def _prepare(self, victims: Path) -> None:
        self.asked.append(("prepare", victims))

    async def _hold(self, host: int, reaper: int) -> None:
        self.asked.append(("hold", host, reaper))

    async def _ended(self, host: int) -> int:
        return 7


class Host:
    """A host that Ray has placed on a node."""

    def __init__(self, node: str) -> None:
        self.received: list[Any] = []
        self.times: list[int | None] = []
        self.lines = 0
        self._node = node
        self.node, self.hello = Remote(self._where), Remote(self._request_hello)
        self.submit, self.open_line = Remote(self._submit), Remote(self._open_line)

    async def _where(self) -> str:
        return self._node

    async def _request_hello(self, passed_ms: int | None = None) -> Hello:
        assert not self.received, "frames come when the host has begun"
        self.times.append(passed_ms)
        return Hello(os.getpid(), "structural", reaper=0 if passed_ms is None else os.getppid())

    async def _submit(self, data: bytes) -> None:
        self.received += load_value(data)

    async def _open_line(self) -> None:
        self.lines += 1


class SettledPools(PlacedPools):
    """Pools whose nodes are alive, and whose clock the test sets."""

    now_s = 0.0

    def now(self) -> float:
        """Return what the test has set."""
        return self.now_s

    async def list_alive(self) -> set[str]:
        """Return all nodes that any test has."""
        return {"a", "b", "own"}


def pools_of_one_tree(places: Sequence[NodePlace], workspace: Path) -> SettledPools:
    """Return the pools while one tree is open."""
    trees = (dump_value(TreePlaces(workspace, {OBSERVING: ()})),)
    pools = SettledPools({OBSERVING: Placement()}, lambda: trees)
    pools._opened = {trees[0]: TreePlaces(workspace, {OBSERVING: tuple(places)})}  # these can't be pickled
    return pools


def transport_to(
    host: Host, places: Sequence[NodePlace], workspace: Path, lines: LineListener
) -> PlacedTransport:
    """Return the transport to a host, while one tree is open."""
    return transport_in(pools_of_one_tree(places, workspace), host, lines)


def transport_in(pools: SettledPools, host: Host, lines: LineListener) -> PlacedTransport:
    """Return the transport to a host of the pools."""
    order = HostOrder(OBSERVING, lambda options: host, Path("/scratch/victims"))
    failures: list[str] = []
    return PlacedTransport(pools, order, lines, print, Path("/reports"), None, failures.append)


@pytest.fixture
async def lines(tmp_path: Path) -> AsyncIterator[LineListener]:
    """Where lines begin."""
    listener = LineListener(tmp_path / "lines")
    yield listener
    listener.close()


async def test_host_on_another_node_is_reached_by_calls(tmp_path: Path, lines: LineListener) -> None:
    """It gets the supervisor's time, its agent prepares and watches it, and it opens no line."""
    host, agent = Host("a"), Agent(tmp_path)
    transport = transport_to(host, [NodePlace("a", "node a", agent)], tmp_path, lines)
    transport.submit(((1, "early"),))
    await asyncio.sleep(0)
    before_ms = read_monotonic_ms()
    await transport.ready()
    (given_ms,) = host.times
    assert given_ms is not None
    assert before_ms <= given_ms <= read_monotonic_ms()
    transport.submit(((2, "late"),))
    await asyncio.sleep(0.01)
    assert host.received == [(1, "early"), (2, "late")]
    assert (transport.node, host.lines) == ("node a", 0)
    assert agent.asked == [("prepare", Path("/scratch/victims")), ("hold", os.getpid(), os.getppid())]
    assert await transport.ended() == 7


async def test_host_on_the_supervisors_node_has_a_line(tmp_path: Path, lines: LineListener) -> None:
    """Nothing is compared there, and its clock is the supervisor's."""
    host = Host("own")
    transport = transport_to(host, [NodePlace("own", "node own", None)], tmp_path, lines)
    await transport.ready()
    await asyncio.sleep(0)
    assert (transport.node, host.times, host.lines) == ("", [None], 1)


async def test_host_with_another_workspace_serves_nobody(tmp_path: Path, lines: LineListener) -> None:
    """The reason names node and difference, and the node is not used for the next host."""
    (tmp_path / "another").mkdir()
    place = NodePlace("a", "node a", Agent(tmp_path / "another"))
    transport = transport_to(Host("a"), [place], tmp_path, lines)
    with pytest.raises(HostLost, match=r"no host runs on node node a: the workspace .*inode") as found:
        await transport.ready()
    assert not found.value.served
    assert transport.is_unfit


async def test_host_on_a_node_that_no_longer_fits_serves_nobody(tmp_path: Path, lines: LineListener) -> None:
    """A tree may have opened while Ray started the host."""
    transport = transport_to(Host("b"), [NodePlace("a", "node a", Agent(tmp_path))], tmp_path, lines)
    with pytest.raises(HostLost, match="started on node b, which does not fit any more"):
        await transport.ready()


async def test_workspace_that_is_gone_here_says_nothing_about_a_node(
    tmp_path: Path, lines: LineListener
) -> None:
    """Its tree can't go on anywhere; the other trees of the runtime keep the node."""
    places = [NodePlace("a", "node a", Agent(tmp_path))]
    host = Host("a")
    transport = transport_to(host, places, tmp_path / "removed", lines)
    await transport.ready()
    assert not transport.is_unfit
    assert len(host.times) == 1


async def left_out(tmp_path: Path) -> tuple[SettledPools, NodePlace]:
    """Return the pools of a tree, and its only node, which was found not to fit."""
    (tmp_path / "another").mkdir()
    place = NodePlace("a", "node a", Agent(tmp_path / "another"))
    pools = pools_of_one_tree([place], tmp_path)
    with pytest.raises(HostLost):
        await pools.check(OBSERVING, place)
    return pools, place


async def test_node_that_did_not_fit_is_tried_again_later(tmp_path: Path) -> None:
    """What was wrong may have passed, and no tree need open for that."""
    pools, place = await left_out(tmp_path)
    assert pools.places(OBSERVING) == {}
    pools.now_s += UNFIT_S
    assert pools.places(OBSERVING) == {"a": place}


class Unplaced(Host):
    """A host for which Ray finds no room."""

    async def _where(self) -> str:
        raise TimeoutError


async def counted(transport: PlacedTransport) -> bool:
    """Return whether a start that fails counts."""
    with pytest.raises(HostLost) as found:
        await transport.ready()
    assert not found.value.served
    return found.value.counts


async def test_hosts_that_find_no_room_together_count_once(tmp_path: Path, lines: LineListener) -> None:
    """A cluster that is full for two minutes is one failure, however many hosts were asked for."""
    pools = pools_of_one_tree([NodePlace("a", "node a", None)], tmp_path)
    together = [transport_in(pools, Unplaced("a"), lines) for _ in range(6)]
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(counted(each)) for each in together]
    assert sorted(each.result() for each in starts) == [False] * 5 + [True]
    pools.now_s = 1.0
    assert await counted(transport_in(pools, Unplaced("a"), lines))


async def test_unfit_node_counts_only_if_no_other_is_left(tmp_path: Path, lines: LineListener) -> None:
    """The next host is started elsewhere, so that sessions which wait have a reason to."""
    (tmp_path / "another").mkdir()
    unfit = [NodePlace(name, f"node {name}", Agent(tmp_path / "another")) for name in "ab"]
    pools = pools_of_one_tree(unfit, tmp_path)
    assert not await counted(transport_in(pools, Host("a"), lines))
    assert (await pools.make_options(OBSERVING))["label_selector"] == {NODE_LABEL: "in(b)"}
    assert await counted(transport_in(pools, Host("b"), lines))


async def test_start_waits_while_all_nodes_are_left_out(tmp_path: Path) -> None:
    """They are used again, so a start does not fail at once."""
    pools, _ = await left_out(tmp_path)
    options = asyncio.ensure_future(pools.make_options(OBSERVING))
    await asyncio.sleep(0.1)
    assert not options.done()
    pools.use_all_again()
    assert (await options)["label_selector"] == {NODE_LABEL: "in(a)"}


async def test_start_fails_if_no_node_is_left(tmp_path: Path) -> None:
    """The reason names the nodes that were there."""
    pools = pools_of_one_tree([NodePlace("gone", "node gone", None)], tmp_path)
    with pytest.raises(HostLost, match=r"no node is left .*: node gone: it left the cluster") as found:
        await pools.make_options(OBSERVING)
    assert found.value.counts


class Forgetful(Agent):
    """An agent whose process ends before the host's."""

    async def _ended(self, host: int) -> int:
        raise RayActorError


@pytest.mark.parametrize(("node", "waits"), [("a", True), ("gone", False)])
async def test_host_is_given_time_to_end_if_only_its_agent_is_gone(
    tmp_path: Path, lines: LineListener, node: str, waits: bool
) -> None:
    """Its commands may still run on a node that is alive."""
    pools = pools_of_one_tree([NodePlace("a", "node a", Forgetful(tmp_path))], tmp_path)
    transport = transport_in(pools, Host("a"), lines)
    transport.reaped_s = 0.2
    await transport.ready()
    transport.place = NodePlace(node, "node", Forgetful(tmp_path))
    before_s = time.monotonic()
    assert await transport.ended() == 0
    assert (time.monotonic() - before_s >= 0.2) == waits
