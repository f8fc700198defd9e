"""Frames that arrive together have all they need when they are taken, however many trees they belong to."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import SessionTreeError
from sessiontree.runtime.supervisor.tree_resources import MAX_TREES, ResourceCache


class Fetching:
    """Gives equipment by its name, unless that can't be had; another turn of the loop later."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.fetched: list[str] = []
        self.equipping: ResourceCache[str] = ResourceCache(self._fetch, bytes.decode)

    async def _fetch(self, name: str) -> bytes:
        await asyncio.sleep(0)
        self.fetched.append(name)
        if name in self.broken:
            raise OSError("no way to it")
        return name.encode()


@pytest.mark.parametrize("known", ["first", "last"])
async def test_frames_of_more_trees_than_are_kept(known: str) -> None:
    """None of them is let go before it was used, whichever was here already."""
    fetching = Fetching()
    await fetching.equipping.fetch([known])
    names = ["first", *map(str, range(MAX_TREES)), "last"]
    await fetching.equipping.fetch(names)
    assert [fetching.equipping.of(name) for name in names] == names


async def test_only_the_latest_trees_are_kept() -> None:
    """Memory does not grow with every tree that ever was."""
    fetching = Fetching()
    names = [str(number) for number in range(3 * MAX_TREES)]
    for name in names:
        await fetching.equipping.fetch([name])
        assert fetching.equipping.of(name) == name
    fetching.fetched.clear()
    for name in names[-MAX_TREES:]:
        await fetching.equipping.fetch([name])
    assert fetching.fetched == []
    await fetching.equipping.fetch([names[0]])
    assert fetching.fetched == names[:1]


async def test_what_cannot_be_had_says_why_each_time_and_is_fetched_again() -> None:
    """Two sessions of one tree both hear of it, in words; a later one may have more luck."""
    fetching = Fetching()
    fetching.broken.add("tree")
    await fetching.equipping.fetch(["tree", "tree"])
    with pytest.raises(SessionTreeError, match="no way to it"):
        fetching.equipping.of("tree")
    with pytest.raises(SessionTreeError, match=r"can't be loaded in this process.*no way to it"):
        fetching.equipping.of("tree")
    await fetching.equipping.fetch(["tree"])
    with pytest.raises(SessionTreeError, match="no way to it"):
        fetching.equipping.of("tree")
    fetching.broken.clear()
    await fetching.equipping.fetch(["tree"])
    assert fetching.equipping.of("tree") == "tree"
