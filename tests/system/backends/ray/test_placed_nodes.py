"""Which nodes the trees of a runtime may use while others open and are let go; without a Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError

from sessiontree import ConfigError
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.hosts.node_agent import NodeFacts
from sessiontree.backends.ray.hosts.placed_hosts import PlacedPools
from sessiontree.backends.ray.hosts.placed_nodes import NodePlace, PlacedNodes
from sessiontree.contracts.settings.placement import Placement, Placements
from sessiontree.runtime.scheduling.settings import BRANCHING
from sessiontree.workspace.identity import DirectoryView
from tests.system.backends.ray.test_placed_hosts import Agent


class LostAgent(Agent):
    """An agent whose process has ended."""

    async def _look(self, workspace: Path, entries: bool) -> DirectoryView:
        raise RayActorError


class SeenNodes(PlacedNodes):
    """Nodes of a cluster that the test makes up."""

    def __init__(self) -> None:
        placements = Placements.from_given({"branch": {}})
        assert placements is not None
        super().__init__(placements, RayConnection(None, None, False), "best_effort")

        self.refused: set[tuple[str, Path]] = set()
        """Nodes with the workspaces that are not there."""
        self.spare: list[Any] = []
        """Agents that are started when others have ended."""

    def see(self, *nodes: str) -> None:
        """Have these nodes from now on, all of them on this machine."""
        self._places = {node: (NodePlace(node, f"node {node}", None), NodeFacts()) for node in nodes}

    async def _find_refusal(self, node: str, workspace: Path, program: Path | None) -> str | None:
        if (node, workspace) in self.refused:
            return "another directory"
        return await super()._find_refusal(node, workspace, program)

    async def _find_candidates(self, scratch: Path) -> dict[str, dict[str, Any]]:
        return {node: {"Labels": {}, "Resources": {}} for node in self._places}

    async def _meet(self, node: str, name: str, scratch: Path) -> None:
        self._places[node] = NodePlace(node, name, self.spare.pop()), NodeFacts()

    async def open(self, tree_id: str, workspace: Path) -> bytes:
        """Find the nodes of a tree that opens."""
        return await self.find(tree_id, workspace, workspace, None)


async def test_tree_that_is_opened_twice_keeps_its_nodes(tmp_path: Path) -> None:
    """The second opening is refused by the supervisor, whichever of the two that is; the tree stays open."""
    for fails in (0, 1):
        nodes = SeenNodes()
        nodes.see("a")
        openings = [await nodes.open("one", tmp_path) for _ in range(2)]
        nodes.on_not_opened("one", openings[fails])
        nodes.see("b")
        nodes.refused = {("b", tmp_path)}
        with pytest.raises(
            ConfigError, match="another open tree of this runtime does not have its workspace"
        ):
            await nodes.open("other", tmp_path / "other")
        nodes.released("one")
        await nodes.open("other", tmp_path / "other")


async def test_node_whose_agent_has_ended_gets_another_one(tmp_path: Path) -> None:
    """The end of an agent is not the end of its node."""
    nodes = SeenNodes()
    nodes._places["a"] = NodePlace("a", "node a", LostAgent(tmp_path)), NodeFacts()
    nodes.spare = [Agent(tmp_path)]
    assert await nodes._examine("a", tmp_path, tmp_path, None) is None
    nodes._places["a"] = NodePlace("a", "node a", LostAgent(tmp_path)), NodeFacts()
    nodes.spare = [LostAgent(tmp_path)]
    reason = await nodes._examine("a", tmp_path, tmp_path, None)
    assert reason is not None
    assert reason.startswith("node a: ")


@pytest.mark.parametrize("is_there", [True, False])
async def test_node_that_joins_is_used_by_trees_that_are_open(tmp_path: Path, is_there: bool) -> None:
    """It is examined for each of them when another tree opens, and stays theirs when that one is let go."""
    one, other = tmp_path / "one", tmp_path / "other"
    nodes = SeenNodes()
    nodes.refused = set() if is_there else {("b", one)}
    nodes.see("a")
    trees = [await nodes.open("one", one)]
    pools = PlacedPools({BRANCHING: Placement()}, lambda: tuple(trees))
    assert set(pools.places(BRANCHING)) == {"a"}
    nodes.see("a", "b")
    trees.append(await nodes.open("other", other))
    expected = {"a", "b"} if is_there else {"a"}
    assert set(pools.places(BRANCHING)) == expected
    trees.pop()
    nodes.released("other")
    assert set(pools.places(BRANCHING)) == expected
