"""Trees that leave their journal and come back: exported, imported, erased, pruned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree import (
    AsyncFunctionModel,
    JournalError,
    JournalLocked,
    ModelRequest,
    ScriptedModel,
    SessionKind,
    StoredTrees,
    TreeNotFound,
)
from sessiontree.journal.export import load_export
from sessiontree.models.answers import Answer
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, records
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

MODEL = ScriptedModel(["done"])
SECRET = "hush-4711"
pytestmark = pytest.mark.own_runtime


def lines_of(path: Path) -> list[str]:
    """Return the lines of an export."""
    return path.read_text("ascii").splitlines(keepends=True)


async def test_imported_tree_goes_on_where_it_was(
    open_tree: Opener, board: Switchboard, tmp_path: Path
) -> None:
    """While live an export is a prefix; that of the closed tree resumes elsewhere; no effect is repeated."""
    reached = [Flag(board) for _ in range(household.BRANCHES)]

    async def reply(request: ModelRequest) -> Answer:
        if request.kind is SessionKind.BRANCH and request.turn == 3:  # no effect may be in progress at close
            reached[int(request.session_id[-1]) - 1].set()
            await asyncio.get_running_loop().create_future()
        return household.reply(request)

    tree = await open_tree(AsyncFunctionModel(reply), tools=TOOLS, approvals="auto").start()
    tree.main.send("go")
    async with asyncio.timeout(PATIENCE_S):
        for each in reached:
            await each.wait()
    live = (
        load_export(lines_of(tmp_path / "live"))
        if await StoredTrees(tree.state_dir).export(tree.tree_id, tmp_path / "live")
        else None
    )
    whole = await records(tree)
    await tree.close()
    count = await StoredTrees(tree.state_dir).export(tree.tree_id, tmp_path / "closed")
    closed = load_export(lines_of(tmp_path / "closed"))
    assert live is not None
    assert live.complete
    assert closed.complete
    assert count == len(closed.records) >= len(whole) >= len(live.records) > 0
    assert closed.records[: len(live.records)] == live.records

    there = open_tree.elsewhere("copy")
    imported = await StoredTrees(there.state_dir).load(tmp_path / "closed")
    assert imported == tree.tree_id
    async with await there.resume(imported, household.WAITING, tools=TOOLS) as again:
        await household.finished(again)
        assert household.outcome(again) == household.RESULTS
        assert household.done(open_tree.workspace) == household.EFFECTS
        assert (await records(again))[: len(closed.records)] == list(closed.records)


async def test_erased_tree_is_gone_until_it_is_imported(open_tree: Opener, tmp_path: Path) -> None:
    """A live tree is refused; a closed one leaves no byte in the journal; its export brings it back whole."""
    async with open_tree(MODEL) as tree:
        await tree.main.send(SECRET)
        with pytest.raises(JournalLocked):
            await StoredTrees(open_tree.state_dir).erase(tree.tree_id)
        await tree.main.send("again")
    export = tmp_path / "tree.ndjson"
    await StoredTrees(tree.state_dir).export(tree.tree_id, export)
    with pytest.raises(JournalError, match="holds tree"):
        await StoredTrees(open_tree.state_dir).load(export)
    assert await StoredTrees(open_tree.state_dir).erase(tree.tree_id) == 0
    for path in open_tree.state_dir.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    with pytest.raises(TreeNotFound):
        await open_tree.resume(tree.tree_id, MODEL)
    with pytest.raises(TreeNotFound):
        await StoredTrees(open_tree.state_dir).erase(tree.tree_id)
    await StoredTrees(open_tree.state_dir).load(export)
    again = tmp_path / "again.ndjson"
    async with await open_tree.resume(tree.tree_id, MODEL) as tree:
        assert [message.text for message in tree.main.history()][::2] == [SECRET, "again"]
    await StoredTrees(tree.state_dir).export(tree.tree_id, again)
    assert lines_of(again)[: len(lines_of(export)) - 1] == lines_of(export)[:-1]


async def test_pruning_spares_live_trees_and_those_that_can_go_on(open_tree: Opener) -> None:
    """Of old trees only those go whose journal nobody writes; those left open can be spared."""
    place = open_tree.state_dir
    async with open_tree(MODEL) as ended:
        await ended.finish("over")
    async with open_tree(MODEL) as resumable:
        await resumable.main.send("begin")
    async with open_tree.runtime() as one, open_tree.runtime() as two, open_tree(MODEL, runtime=two) as live:
        await live.finish("over, and still open")
        assert await StoredTrees(place).prune(keep=0) == []
        left = [tree.tree_id for tree in await one.trees()]
        assert [tree.tree_id for tree in await StoredTrees(place).list()] == left
    assert left == [ended.tree_id, resumable.tree_id, live.tree_id]
    assert await StoredTrees(place).prune(older_than_s=3600) == []
    assert await StoredTrees(place).prune(keep=1, unfinished=False) == [ended.tree_id]
    assert await StoredTrees(place).prune(keep=0, unfinished=False) == [live.tree_id]
    assert await StoredTrees(place).prune(older_than_s=0) == [resumable.tree_id]
