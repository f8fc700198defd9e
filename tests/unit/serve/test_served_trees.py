"""Trees that are looked at: who opens one while others leave, and what is closed then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sessiontree import ConfigError, JournalError
from sessiontree.serve import served_trees
from sessiontree.serve.served_trees import ServedTrees


class _Tree:
    """A tree that opens when it may, and says what became of it."""

    made: asyncio.Queue[_Tree]

    def __init__(self, place: Path, tree_id: str, surface: str, *, may_act: bool) -> None:
        self.tree_id = tree_id
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = asyncio.Event()
        self.made.put_nowait(self)

    async def open(self) -> None:
        await self.opened

    async def close(self) -> None:
        self.closed.set()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[_Tree]:
    """Return the trees that are opened; none is kept for a while after its last viewer."""
    trees: asyncio.Queue[_Tree] = asyncio.Queue()
    monkeypatch.setattr(_Tree, "made", trees, raising=False)
    monkeypatch.setattr(served_trees, "ServedTree", _Tree)
    monkeypatch.setattr(served_trees, "locate_journal", lambda state_dir, tree_id: state_dir)
    return trees


async def _look(trees: ServedTrees, tree_id: str, leaves: asyncio.Event) -> _Tree:
    async with trees.look_at(tree_id) as tree:
        await leaves.wait()
        return cast("_Tree", tree)


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_viewer_of_a_failed_tree_leaves_the_one_that_was_opened_since(
    tmp_path: Path, made: asyncio.Queue[_Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two viewers that hear of the failure, the second one must not take out what the first one opens."""

    async def find_at_once(function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    monkeypatch.setattr(asyncio, "to_thread", find_at_once)
    trees, stays = ServedTrees(tmp_path), asyncio.Event()

    async def look_twice() -> _Tree:
        with pytest.raises(JournalError):
            await _look(trees, "t1", stays)
        return await _look(trees, "t1", stays)

    first, second = asyncio.create_task(look_twice()), asyncio.create_task(_look(trees, "t1", stays))
    (await made.get()).opened.set_exception(JournalError("t1", "it is damaged"))
    await asyncio.wait([second])
    assert isinstance(second.exception(), JournalError)
    tree = await made.get()
    tree.opened.set_result(None)
    await _settle()
    await trees.close()
    assert tree.closed.is_set()
    stays.set()
    assert await first is tree


async def test_tree_that_failed_after_its_viewer_left_is_opened_again(
    tmp_path: Path, made: asyncio.Queue[_Tree]
) -> None:
    """The next viewer does not hear of an old failure."""
    trees, stays = ServedTrees(tmp_path), asyncio.Event()
    stays.set()
    leaving = asyncio.create_task(_look(trees, "t1", stays))
    tree = await made.get()
    leaving.cancel()
    await asyncio.wait([leaving])
    tree.opened.set_exception(JournalError("t1", "it is damaged"))
    await _settle()
    looking = asyncio.create_task(_look(trees, "t1", stays))
    again = await made.get()
    again.opened.set_result(None)
    assert await looking is again
    await trees.close()


async def test_viewer_that_leaves_after_all_were_closed_closes_nothing(
    tmp_path: Path, made: asyncio.Queue[_Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree that it looked at is closed already; another one by the same id may be open."""
    monkeypatch.setattr(served_trees, "KEPT_S", 0.0)
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
    trees, leaves = ServedTrees(tmp_path), asyncio.Event()
    looking = asyncio.create_task(_look(trees, "t1", leaves))
    tree = await made.get()
    tree.opened.set_result(None)
    await _settle()
    await trees.close()
    leaves.set()
    assert await looking is tree
    await _settle()
    assert tree.closed.is_set()
    assert not failed


async def test_viewer_that_comes_while_all_are_closed_opens_none(
    tmp_path: Path, made: asyncio.Queue[_Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looking for the journal; nobody would close the tree that it opened then."""
    loop, is_looking, may_find = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def locate(state_dir: Path, tree_id: str) -> Path:
        loop.call_soon_threadsafe(is_looking.set)
        asyncio.run_coroutine_threadsafe(may_find.wait(), loop).result(10)
        return state_dir

    monkeypatch.setattr(served_trees, "locate_journal", locate)
    trees = ServedTrees(tmp_path)
    looking = asyncio.create_task(_look(trees, "t1", asyncio.Event()))
    await is_looking.wait()
    await trees.close()
    may_find.set()
    with pytest.raises(ConfigError, match="no tree is shown any more"):
        await looking
    assert made.empty()
