"""A program finds its trees again: by what they were for, with how they ended."""

from __future__ import annotations

import pytest

from sessiontree import ConfigError, ScriptedModel, SessionStatus, TreeSummary
from tests.behaviour.tree_fixtures import Opener

MODEL = ScriptedModel(["done"])
pytestmark = pytest.mark.own_runtime


@pytest.mark.slow
async def test_trees_are_found_by_their_purpose(open_tree: Opener) -> None:
    """Oldest first, those of an earlier program and of one next to it too, each with Main's status."""
    async with open_tree(MODEL, purpose="tidy up") as first:
        await first.main.map("worker", ["look", "look again"])
        await first.finish("tidied")
    async with open_tree.runtime() as one, open_tree.runtime() as two:
        assert [tree.tree_id for tree in await two.trees()] == [first.tree_id]
        async with open_tree(MODEL, runtime=one, purpose="tidy up") as second:
            async with open_tree(MODEL, runtime=two, purpose="cook") as third:
                await third.main.send("begin")
            assert await one.trees() == await two.trees()
            assert await two.trees("nothing") == []
            found = await two.trees(purpose="tidy up")
            assert [tree.tree_id for tree in found] == [first.tree_id, second.tree_id]
            assert [tree.outcome for tree in found] == [SessionStatus.COMPLETED, SessionStatus.ACTIVE]
            assert (found[0].sessions, found[0].live) == (3, 0)
            assert found[0].workspace == str(open_tree.workspace.resolve())
            (other,) = await one.trees("cook")
            assert isinstance(other, TreeSummary)
            assert other.outcome is not None
            assert not other.outcome.is_final
        with pytest.raises(ConfigError, match="purpose"):
            await one.trees(7)  # type: ignore[arg-type]


async def test_runtime_without_trees_has_none(open_tree: Opener) -> None:
    """Before its first tree there may be no journal."""
    async with open_tree.runtime() as runtime:
        assert await runtime.trees() == []
