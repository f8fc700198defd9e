"""A request that waits for a person while nobody listens is reported: once for each tree."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessiontree import Limits, ScriptedModel, script_call
from sessiontree.api.tree.channel_prompts import UNHEEDED_S
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, until
from tests.behaviour.tree_fixtures import Opener

MODEL = ScriptedModel([script_call("launch"), "went on", script_call("launch", text="y"), "and on"])
LATER_S = 1.5 * UNHEEDED_S
AT_ONCE = Limits(approval_patience_s=0)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Hear the package's log."""
    caplog.set_level(logging.WARNING, "sessiontree")
    return caplog


class Heard(logging.Handler):
    """Waits for a line of the package's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._loop = asyncio.get_running_loop()
        self.said = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Note that there was one."""
        self._loop.call_soon_threadsafe(self.said.set)


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    """A handler at the package's log."""
    handler = Heard()
    log = logging.getLogger("sessiontree")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def lines(told: pytest.LogCaptureFixture, tree_id: str) -> list[str]:
    """Return what was reported of a tree."""
    said = [each.getMessage() for each in told.records if each.name == "sessiontree"]
    return [line for line in said if line.startswith(f"tree {tree_id}: ")]


@pytest.mark.slow
async def test_first_request_nobody_listens_to_is_told(
    open_tree: Opener, told: pytest.LogCaptureFixture, heard: Heard
) -> None:
    """It says which call waits, and what to do; the second is not reported again."""
    async with open_tree(MODEL, tools=TOOLS, limits=AT_ONCE) as tree:
        await tree.main.send("go")
        async with asyncio.timeout(PATIENCE_S):
            await heard.said.wait()
        await tree.main.send("go")
        await until(tree, ApprovalWaiting, count=2)
        await asyncio.sleep(LATER_S)
        (line,) = lines(told, tree.tree_id)
        assert "main wants to call launch (Elevated)" in line
        assert "tree.approvals.pending()" in line and "sessiontree approvals" in line


@pytest.mark.slow
@pytest.mark.parametrize("how", ["looks", "has an approver", "has no channel"])
async def test_who_listens_is_told_nothing(
    open_tree: Opener, told: pytest.LogCaptureFixture, how: str
) -> None:
    """A program that looks, an approver; without a channel nothing waits."""
    given: dict[str, dict[str, Any]] = {
        "has an approver": {"approver": lambda request: True},
        "has no channel": {"channel": None},
    }
    async with open_tree(MODEL, tools=TOOLS, limits=AT_ONCE, **given.get(how, {})) as tree:
        if how == "looks":
            assert tree.approvals.pending() == []
        await tree.main.send("go")
        await asyncio.sleep(LATER_S)
        assert lines(told, tree.tree_id) == []


@pytest.mark.slow
async def test_who_answers_in_time_is_told_nothing(open_tree: Opener, told: pytest.LogCaptureFixture) -> None:
    """A program that answers soon enough, unless the machine is so busy that it can't."""
    loop = asyncio.get_running_loop()
    for _ in range(10):
        async with open_tree(MODEL, tools=TOOLS, limits=AT_ONCE) as tree:
            begun_s = loop.time()
            await tree.main.send("go")
            await until(tree, ApprovalWaiting)
            for pending in tree.approvals.pending():
                await pending.deny()
            was_in_time = loop.time() - begun_s < UNHEEDED_S
            await asyncio.sleep(LATER_S)
            if was_in_time:
                assert lines(told, tree.tree_id) == []
                return
    pytest.fail("nobody answered in time")
