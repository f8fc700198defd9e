"""Trees of one program over one state directory: they share a runtime, and none is in another's way."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path

import pytest

from sessiontree import JournalLocked, Runtime, ScriptedModel, SessionTree
from sessiontree.journal.claim import JournalClaim
from sessiontree.memory.settings import MemorySettings
from tests.behaviour.tree_fixtures import Opener

MODEL = ScriptedModel(["done"])
pytestmark = pytest.mark.own_runtime


async def test_trees_that_are_given_no_runtime_share_one(open_tree: Opener) -> None:
    """The second joins, whichever ends first; the last one closes it."""
    first = await open_tree(MODEL).start()
    second = await open_tree(MODEL).start()
    assert first._runtime is second._runtime is not None
    assert await first.main.send("x") == await second.main.send("x") == "done"
    await first.close()
    assert await second.main.send("x") == "done"
    third = await open_tree(MODEL).start()
    await second.close()
    assert await third.main.send("x") == "done"
    await third.close()
    JournalClaim.take(open_tree.state_dir).release()
    assert not (open_tree.state_dir / "journals").exists()


@pytest.mark.slow
async def test_trees_opened_at_once_share_one(open_tree: Opener) -> None:
    """Nobody is first; nobody is left behind."""
    trees = [open_tree(MODEL) for _ in range(4)]
    async with asyncio.TaskGroup() as opening:
        for tree in trees:
            opening.create_task(tree.start())
    async with asyncio.TaskGroup() as closing:
        for tree in trees:
            closing.create_task(tree.close())
    assert not (open_tree.state_dir / "journals").exists()


@pytest.mark.slow
async def test_open_runtime_is_joined_and_stays_its_programs(open_tree: Opener) -> None:
    """A tree that is given none uses the one the program opened, and does not close it."""
    async with open_tree.runtime() as runtime:
        async with open_tree(MODEL) as tree:
            assert tree._runtime is runtime
        async with open_tree(MODEL, runtime=runtime) as tree:
            assert await tree.main.send("x") == "done"


@pytest.mark.slow
async def test_other_settings_are_another_runtime(open_tree: Opener, tmp_path: Path) -> None:
    """What was asked for is what one gets; each has a journal of its own, and both trees are found."""
    memory = MemorySettings(uri=str(tmp_path / "elsewhere"))
    async with open_tree(MODEL) as first, open_tree(MODEL, memory=memory) as second:
        assert first._runtime is not second._runtime
        assert second._runtime is not None
        assert second._runtime.journal_dir == open_tree.state_dir / "journals" / "2"
        assert second.state_dir == open_tree.state_dir
        assert await second.main.send("x") == "done"
    for tree in (first, second):
        async with await open_tree.resume(tree.tree_id, ScriptedModel(["back", "back"])) as again:
            assert await again.main.send("x") == "back"


@pytest.mark.covers("DUR9")
@pytest.mark.slow
async def test_two_programs_work_over_one_place(open_tree: Opener) -> None:
    """A second runtime has a journal of its own; what it wrote is resumed from there, by name or by tree."""
    async with open_tree.runtime() as one, open_tree.runtime() as two:
        assert (one.journal_dir, two.journal_dir) == (
            open_tree.state_dir,
            open_tree.state_dir / "journals" / "2",
        )
        async with (
            open_tree(MODEL, runtime=one) as first,
            open_tree(MODEL, runtime=two) as second,
        ):
            assert await first.main.send("x") == await second.main.send("x") == "done"
        with pytest.raises(JournalLocked, match="this process writes it already"):
            Runtime(open_tree.state_dir, backend="local", tree_id=second.tree_id)
    async with open_tree.runtime(tree_id=second.tree_id) as runtime:
        assert runtime.journal_dir == two.journal_dir
        async with await open_tree.resume(second.tree_id, MODEL, runtime=runtime) as again:
            assert again.receipt()[0].session_id == "main"
    async with await open_tree.resume(first.tree_id, MODEL) as again:
        assert again._runtime is not None
        assert again._runtime.journal_dir == open_tree.state_dir


@pytest.mark.slow
async def test_two_programs_remember_together(open_tree: Opener) -> None:
    """What one stores the other finds at once, while both are open and when the one that wrote has ended."""
    async with open_tree.runtime() as two:
        async with open_tree.runtime() as one, open_tree(MODEL, runtime=one) as first:
            await first.main.call("memory_store", {"text": "the sky is blue", "type": "fact"})
            await first.finish("done")
            async with open_tree(MODEL, runtime=two) as second:
                found = await second.main.call("memory_search", {"query": "sky"})
                assert "the sky is blue" in str(found.output)
                await second.main.call("memory_store", {"text": "the sea is green", "type": "fact"})
                await second.finish("done")
        async with open_tree(MODEL, runtime=two) as third:
            found = await third.main.call("memory_search", {"query": "sea sky"})
            assert "the sky is blue" in str(found.output)
            assert "the sea is green" in str(found.output)


async def test_failed_start_leaves_the_others_open(open_tree: Opener) -> None:
    """The runtime of those that are open stays."""
    async with open_tree(MODEL) as tree:
        with pytest.raises(Exception, match="no tree 'tnone'"):
            await open_tree.resume("tnone", MODEL)
        assert await tree.main.send("x") == "done"
    with pytest.raises(Exception, match="no tree 'tnone'"):
        await open_tree.resume("tnone", MODEL)
    JournalClaim.take(open_tree.state_dir).release()


@pytest.mark.slow
async def test_tree_nobody_holds_is_closed_by_the_next(
    open_tree: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported, and can be resumed."""
    caplog.set_level(logging.WARNING, "sessiontree")

    async def forget() -> str:
        tree: SessionTree = await open_tree(MODEL).start()
        return tree.tree_id

    forgotten = await forget()
    gc.collect()
    async with open_tree(MODEL) as tree:
        told = [each.getMessage() for each in caplog.records if each.name == "sessiontree"]
        assert told == [f"tree {forgotten} was left open and is closed now: nobody holds it any more"]
        async with await open_tree.resume(forgotten, ScriptedModel(["back"])) as again:
            assert await again.main.send("x") == "back"
        assert await tree.main.send("x") == "done"
