"""A request that waits for a person while nobody listens is told of: once for each tree."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sessiontree import Limits, ScriptedModel, call
from sessiontree.contracts.tree_facts import ApprovalWaiting
from tests.behaviours.effects import TOOLS
from tests.behaviours.opening import Opener
from tests.behaviours.reading import until

MODEL = ScriptedModel([call("launch"), "went on", call("launch", text="y"), "and on"])
LATER_S = 1.5
AT_ONCE = Limits(approval_patience_s=0)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Hear the package's log."""
    caplog.set_level(logging.WARNING, "sessiontree")
    return caplog


def lines(told: pytest.LogCaptureFixture, tree_id: str) -> list[str]:
    """Return what was told of a tree."""
    said = [each.getMessage() for each in told.records if each.name == "sessiontree"]
    return [line for line in said if line.startswith(f"tree {tree_id}: ")]


async def test_the_first_request_nobody_listens_to_is_told(
    open_tree: Opener, told: pytest.LogCaptureFixture
) -> None:
    """It says which call waits, and what to do; the second is not told again."""
    async with open_tree(MODEL, tools=TOOLS, limits=AT_ONCE) as tree:
        for number in (1, 2):
            await tree.main.send("go")
            await until(tree, ApprovalWaiting, count=number)
            await asyncio.sleep(LATER_S)
        (line,) = lines(told, tree.tree_id)
        assert "main wants to call launch (Elevated)" in line
        assert "tree.approvals.pending()" in line and "sessiontree approvals" in line


@pytest.mark.parametrize("how", ["looks", "answers", "has an approver", "has no channel"])
async def test_who_listens_is_told_nothing(
    open_tree: Opener, told: pytest.LogCaptureFixture, how: str
) -> None:
    """A program that looks, one that answers, an approver; without a channel nothing waits."""
    given: dict[str, dict[str, Any]] = {
        "has an approver": {"approver": lambda request: True},
        "has no channel": {"channel": None},
    }
    async with open_tree(MODEL, tools=TOOLS, limits=AT_ONCE, **given.get(how, {})) as tree:
        if how == "looks":
            assert tree.approvals.pending() == []
        await tree.main.send("go")
        if how == "answers":
            await until(tree, ApprovalWaiting)
            for pending in tree.approvals.pending():
                await pending.deny()
        await asyncio.sleep(LATER_S)
        assert lines(told, tree.tree_id) == []
