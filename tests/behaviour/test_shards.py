"""A runtime with several supervisors: where trees are, how they are found again, and what stays as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree import (
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    MemorySettings,
    ModelRequest,
    Runtime,
    StoredTrees,
    TreeNotFound,
)
from sessiontree.api.runtime.shards import COUNT_EVERY_S
from sessiontree.journal.claim import locate_journal
from tests.behaviour.tree_fixtures import Opener

NUMBERS = (0, -1, 65, True, 1.5, "2", "per_node", None)

only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)
"""For what the backend has no part in: each shard on Ray costs several processes."""


def done(request: ModelRequest) -> str:
    """The only answer."""
    return "done"


def _places(runtime: Runtime) -> list[tuple[str, int]]:
    return [(Path(row.journal_dir).name, len(row.trees)) for row in runtime.shards()]


@only_local
async def test_new_trees_are_spread_over_shards_and_closed_ones_make_room(open_tree: Opener) -> None:
    """Each new tree is in the shard with the fewest live sessions; a released tree counts no more."""
    model = FunctionModel(done)
    async with open_tree.runtime(shards=2) as runtime:
        first = await open_tree(model, runtime=runtime).start()
        assert _places(runtime) == [("state", 1)], "a shard is begun when a tree needs it"
        others = [await open_tree(model, runtime=runtime).start() for _ in range(3)]
        assert _places(runtime) == [("state", 2), ("2", 2)]
        assert len({first.tree_id, *(each.tree_id for each in others)}) == 4
        await others[0].close()
        assert _places(runtime) == [("state", 2), ("2", 1)]
        last = await open_tree(model, runtime=runtime).start()
        assert last.tree_id in runtime.shards()[1].trees
        answers = [await tree.main.send("go") for tree in (first, *others[1:], last)]
        assert answers == ["done"] * 4, "each tree answers, whichever shard it is in"


@only_local
async def test_new_tree_goes_where_the_fewest_sessions_are_live(open_tree: Opener) -> None:
    """One tree with many sessions is more work than several with one each; ended sessions count no more."""
    release = asyncio.Event()

    async def held(request: ModelRequest) -> str:
        await release.wait()
        return "done"

    async with open_tree.runtime(shards=2) as runtime:
        busy = await open_tree(AsyncFunctionModel(held), runtime=runtime).start()
        workers = [await busy.main.spawn("worker", "task") for _ in range(5)]
        model = FunctionModel(done)
        others = [await open_tree(model, runtime=runtime).start() for _ in range(3)]
        assert _places(runtime) == [("state", 1), ("2", len(others))]
        assert [row.live_sessions for row in runtime.shards()] == [1 + len(workers), len(others)]
        release.set()
        for worker in workers:
            assert (await worker.result()).summary == "done"
        assert [row.live_sessions for row in runtime.shards()] == [1, len(others)]
        await asyncio.sleep(COUNT_EVERY_S)
        last = await open_tree(model, runtime=runtime).start()
        assert last.tree_id in runtime.shards()[0].trees


async def test_runtime_answers_for_trees_of_all_shards(open_tree: Opener) -> None:
    """A tree is listed, waited for, stopped and resumed in the same way whichever shard holds it."""
    model = FunctionModel(done)
    async with open_tree.runtime(shards=2) as runtime:
        trees = [await open_tree(model, runtime=runtime).start() for _ in range(2)]
        assert {each.tree_id for each in await runtime.trees()} == {each.tree_id for each in trees}
        assert sorted(await runtime.backend.supervisor.open_trees()) == sorted(each.tree_id for each in trees)
        for tree in trees:
            worker = await tree.main.spawn("worker", "task")
            assert (await worker.result()).summary == "done"
            assert tree.main.status().turns == 0
            assert any(row.status == "completed" for row in tree.receipt())
        for tree in trees:
            await tree.close()
            again = await open_tree.resume(tree.tree_id, model, runtime=runtime)
            assert await again.main.send("once more") == "done"
            await again.close()
        assert _places(runtime) == [("state", 0), ("2", 0)]


async def test_resume_finds_the_shard_of_a_tree_and_begins_one_if_need_be(open_tree: Opener) -> None:
    """A tree is resumed where its journal is, with more shards, with fewer and with one as before."""
    model = FunctionModel(done)
    async with open_tree.runtime(shards=3) as runtime:
        trees = [await open_tree(model, runtime=runtime).start() for _ in range(3)]
        last = trees[2].tree_id
        assert Path(runtime.shards()[2].journal_dir).name == "3"
    async with open_tree.runtime(shards=2) as runtime:
        again = await open_tree.resume(last, model, runtime=runtime)
        assert _places(runtime) == [("state", 0), ("3", 1)]
        assert await again.main.send("go") == "done"
        with pytest.raises(TreeNotFound):
            await open_tree.resume("0" * 32, model, runtime=runtime)
        assert _places(runtime) == [("state", 0), ("3", 1)]
    async with await open_tree.resume(last, model, state_dir=open_tree.state_dir) as alone:
        assert await alone.main.send("go on") == "done"
        assert locate_journal(open_tree.state_dir, last) == open_tree.state_dir / "journals" / "3"


@pytest.mark.own_runtime
async def test_resume_names_the_journal_that_a_runtime_with_one_shard_does_not_write(
    open_tree: Opener,
) -> None:
    """The error says which journal holds the tree and what resumes it; that call does."""
    model = FunctionModel(done)
    async with open_tree.runtime(shards=2) as runtime:
        trees = [await open_tree(model, runtime=runtime).start() for _ in range(2)]
        there = trees[1].tree_id
    async with open_tree.runtime() as runtime:
        with pytest.raises(TreeNotFound, match=rf"journals/2/.*Runtime\(state_dir, tree_id='{there}'\)"):
            await open_tree.resume(there, model, runtime=runtime)
        with pytest.raises(TreeNotFound, match="it holds no tree"):
            await open_tree.resume("0" * 32, model, runtime=runtime)
        async with await open_tree.resume(trees[0].tree_id, model, runtime=runtime) as first:
            assert await first.main.send("go") == "done"
    async with (
        open_tree.runtime(tree_id=there) as runtime,
        await open_tree.resume(there, model, runtime=runtime) as second,
    ):
        assert await second.main.send("go") == "done"


@only_local
async def test_fork_is_in_the_shard_of_its_tree(open_tree: Opener) -> None:
    """It goes on with its tree and is found again there; both replay, and a stored fork is found too."""
    model = FunctionModel(lambda request: f"heard {request.messages[-1].text}")
    async with open_tree.runtime(shards=2) as runtime:
        trees = [await open_tree(model, runtime=runtime).start() for _ in range(2)]
        for tree in trees:
            assert await tree.main.send("one") == "heard one"
        forks = [await tree.fork() for tree in trees]
        places = [set(row.trees) for row in runtime.shards()]
        assert places == [{tree.tree_id, fork.tree_id} for tree, fork in zip(trees, forks, strict=True)]
        for tree, fork in zip(trees, forks, strict=True):
            assert await fork.main.send("two") == "heard two"
            assert [message.text for message in tree.main.history()] == ["one", "heard one"]
            await fork.close()
            again = await open_tree.resume(fork.tree_id, model, runtime=runtime)
            assert [message.text for message in again.main.history()][-2:] == ["two", "heard two"]
            await again.close()
            for each in (tree, fork):
                assert (await StoredTrees(open_tree.state_dir).replay(each.tree_id)).matches
        stored = await StoredTrees(open_tree.state_dir).fork(trees[1].tree_id)
        third = await open_tree.resume(stored, model, runtime=runtime)
        assert await third.main.send("three") == "heard three"


@only_local
async def test_one_shard_has_the_layout_of_a_runtime_without_shards(open_tree: Opener) -> None:
    """One shard makes no other journal, and a runtime with several opens the directory unchanged."""
    model = FunctionModel(done)
    async with open_tree.runtime(shards=1) as runtime:
        tree = await open_tree(model, runtime=runtime).start()
        await open_tree(model, runtime=runtime).start()
        assert [Path(row.journal_dir) for row in runtime.shards()] == [open_tree.state_dir]
        assert (len(runtime.shards()[0].trees), runtime.shards()[0].live_sessions) == (2, 2)
    assert not (open_tree.state_dir / "journals").exists()
    async with open_tree.runtime(shards=2) as runtime:
        again = await open_tree.resume(tree.tree_id, model, runtime=runtime)
        assert await again.main.send("go") == "done"
        assert not (open_tree.state_dir / "journals").exists()


def test_shards_refuse_memory_that_each_of_them_would_write(tmp_path: Path) -> None:
    """A store over the network has no lock, so only one supervisor may write it."""
    far = MemorySettings(uri="s3://bucket/memory")
    with pytest.raises(ConfigError, match=r"can't share memory at 's3://bucket/memory'.*or shards=1"):
        Runtime(tmp_path / "state", backend="local", shards=2, memory=far)
    assert not (tmp_path / "state").exists()


def test_numbers_of_shards_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """The error says what was given and what is possible; nothing is written."""
    for number in NUMBERS:
        with pytest.raises(ConfigError, match=r"shards is .*give a whole number from 1 to 64"):
            Runtime(tmp_path / "state", backend="local", shards=number)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"shards='per-node' needs backend 'ray'"):
        Runtime(tmp_path / "state", backend="local", shards="per-node")
    assert not (tmp_path / "state").exists()
