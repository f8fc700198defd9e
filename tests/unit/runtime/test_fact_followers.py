"""Who follows a tree's facts hears when there will be no more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree import ScriptedModel, SessionTree
from sessiontree.contracts.errors import JournalUnwritable
from tests.unit.runtime.runtime_fakes import FaultyRuntime, recorded

PATIENCE_S = 60.0


async def test_whoever_follows_a_tree_whose_journal_failed_is_told(tmp_path: Path) -> None:
    """Following ends with the reason instead of going on for ever without a fact."""
    full = False

    def on_append(number: int) -> None:
        if full:
            raise JournalUnwritable(str(tmp_path), "the disk is full")

    runtime = FaultyRuntime(tmp_path / "state")
    recorded(runtime, on_append)
    async with runtime, asyncio.timeout(PATIENCE_S):
        tree = SessionTree(tmp_path, model=ScriptedModel(["here"] * 2), runtime=runtime)
        await tree.start()
        await tree.main.send("hello")
        after = await runtime.local.supervisor.last_seq(tree.tree_id)
        following = asyncio.ensure_future(anext(aiter(tree.events(after=after))))
        await asyncio.sleep(0)
        full = True
        with pytest.raises(JournalUnwritable):
            await tree.main.send("hello?")
        with pytest.raises(JournalUnwritable):
            await following
        await tree.close()
