"""On which nodes the hosts of a pool may run, while trees open and close; nothing is started here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.backends.ray.placed_hosts import PlacedPools
from sessiontree.backends.ray.placed_nodes import NodePlace, TreePlaces
from sessiontree.backends.ray.serialization import packed
from sessiontree.contracts.placement import Placement, Placements
from sessiontree.runtime.settings import ACTING, BRANCHING, OBSERVING, placed_pools, pool_of

NODES = st.sets(st.sampled_from("abcd"), min_size=1)
Choose = Callable[[PlacedPools, str], set[str]]


def places_on(nodes: set[str]) -> tuple[NodePlace, ...]:
    """Return the places of nodes; each has a token of its own."""
    return tuple(NodePlace(node, f"node {node}", None, Path("/tokens", node)) for node in sorted(nodes))


def pools_for(trees: list[set[str]]) -> PlacedPools:
    """Return the pools while trees are open that fit these nodes."""
    open_trees = tuple(
        packed(TreePlaces(Path("/workspace", str(number)), {OBSERVING: places_on(nodes)}))
        for number, nodes in enumerate(trees)
    )
    return PlacedPools("supervisor", {OBSERVING: Placement()}, lambda: open_trees)


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
    assert set(pools.tokens()) == {Path("/tokens/a"), Path("/tokens/b")}


def test_branches_have_their_own_pool_only_if_they_are_placed() -> None:
    """Otherwise they share the hosts of Main, which are never placed."""
    from_program = {"worker": {"num_cpus": 1}}
    assert set(pool_of(None).values()) == {ACTING, OBSERVING}
    assert ACTING not in placed_pools(Placements.of_given({**from_program, "branch": {}}))
    assert set(pool_of(Placements.of_given({"branch": {}})).values()) == {ACTING, BRANCHING, OBSERVING}
    assert placed_pools(Placements.of_given(from_program)) == {OBSERVING: Placement(num_cpus=1)}
