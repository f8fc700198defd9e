"""A stored tree is decided again: also while it is open, after a resume, and from another release."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree import ScriptedModel, StoredTrees, script_call
from sessiontree.contracts.errors import TreeNotFound
from sessiontree.journal.export import Manifest
from sessiontree.journal.journal import Journal
from sessiontree.version import RULES
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.tree_fixtures import Opener


@pytest.mark.covers("REL-S38")
async def test_tree_with_children_calls_and_approvals_is_the_same_again(open_tree: Opener) -> None:
    """Every fact follows from what was recorded, on every backend; nothing is asked or called."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        await tree.main.send("go")
        await household.finished(tree)
        report = await StoredTrees(tree.state_dir).replay(tree.tree_id)
        assert report.matches, report
        assert report.is_decided
        await tree.finish("over")
        report = await StoredTrees(tree.state_dir).replay(tree.tree_id)
    assert report.matches, report
    assert report.compared + report.given == report.facts
    assert report.compared > 50


async def test_tree_that_is_open_is_compared_up_to_now(open_tree: Opener) -> None:
    """The replay reads durable facts next to the writer, and never changes them."""
    async with open_tree(ScriptedModel(["one", "two"])) as tree:
        await tree.main.send("first")
        before = await StoredTrees(tree.state_dir).replay(tree.tree_id)
        await tree.main.send("second")
        after = await StoredTrees(tree.state_dir).replay(tree.tree_id)
    assert before.matches
    assert after.matches
    assert after.facts > before.facts


@pytest.mark.own_runtime
async def test_resumed_tree_is_the_same_again(open_tree: Opener) -> None:
    """What recovery decided follows from its stimulus; another model answers from there on."""
    async with open_tree(ScriptedModel([[script_call("write", path="a.txt", content="x")], "done"])) as tree:
        await tree.main.send("go")
        tree_id = tree.tree_id
    async with await open_tree.resume(tree_id, ScriptedModel(["again"], name="another")) as tree:
        await tree.main.send("and now?")
        state_dir = tree.state_dir
    report = await StoredTrees(state_dir).replay(tree_id)
    assert report.matches, report


@pytest.mark.own_runtime
async def test_tree_of_other_rules_is_only_read(open_tree: Opener, tmp_path: Path) -> None:
    """Its facts were decided otherwise, so they are not compared; the report says so."""
    async with open_tree(ScriptedModel(["one"])) as tree:
        await tree.main.send("first")
        tree_id, state_dir = tree.tree_id, tree.state_dir
    with Journal.open(state_dir, read_only=True) as journal:
        row0, records = journal.row0(tree_id), journal.read(tree_id)
    row0["rules_number"] = RULES + 1
    with Journal.open(tmp_path / "other") as journal:
        journal.import_tree(Manifest(tree_id, 0, row0), records)
    report = await StoredTrees(tmp_path / "other").replay(tree_id)
    assert (report.is_decided, report.compared, report.facts) == (False, 0, len(records))
    assert report.matches


async def test_unknown_tree_is_named(open_tree: Opener) -> None:
    """A tree that no journal there holds has no replay."""
    async with open_tree(ScriptedModel(["one"])) as tree:
        with pytest.raises(TreeNotFound, match="t0000"):
            await StoredTrees(tree.state_dir).replay("t0000")
