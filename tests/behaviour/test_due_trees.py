"""A server of a state directory resumes trees when their timed jobs come due, and lets them rest again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, FunctionModel, ModelRequest, PolicyConfig, SessionTree
from sessiontree.contracts.errors import TreeNotFound
from sessiontree.contracts.facts.session_facts import MessageReceived, RunFinished
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import CronSlotClaimed
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolPolicy
from sessiontree.runtime.replay.stored_jobs import ScheduledTree, list_scheduled_trees
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.due_trees import RETRY_MS, DueTrees
from sessiontree.tree.rules.cron import find_next_ring
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of
from tests.behaviour.tree_fixtures import Opener

pytest.importorskip("uvicorn")

pytestmark = pytest.mark.own_runtime
EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))
FAR_MS = 10 * 86_400_000


def echo(request: ModelRequest) -> Answer:
    """Reply with the session's name."""
    return f"heard in {request.session_id}"


class Owner:
    """Resumes trees for a server, and keeps what it was asked for and what was reported.

    Args:
        open_tree: Opens trees of the test.
        wall_ms: The server's clock.
    """

    def __init__(self, open_tree: Opener, place: Path, wall_ms: Callable[[], int] = read_machine_ms) -> None:
        self._opener = open_tree
        self.resumed: list[str] = []
        self.said: list[str] = []
        self.fault: ConfigError | None = None
        self.due = DueTrees(place, self._resume, self.said.append, wall_ms)

    async def _resume(self, place: Path, config: TreeConfig) -> SessionTree:
        self.resumed.append(config.tree_id)
        if self.fault is not None:
            raise self.fault
        return await self._opener.resume(config.tree_id, FunctionModel(echo))

    async def look(self) -> None:
        """Look once, and wait until what was opened is at rest."""
        await self.due.look()
        await self.due.settled()


async def left_with_a_job(open_tree: Opener, **times: Any) -> SessionTree:
    """Return a tree that was let go, and has a timed job."""
    tree = await open_tree(FunctionModel(echo), policy=EVERYTHING).start()
    try:
        await tree.main.call("cron", {"action": "add", "text": "wake up", **times})
    finally:
        await tree.close()
    return tree


def stored(tree: SessionTree) -> ScheduledTree:
    """Return a tree's jobs as its journal holds them."""
    (found,) = list_scheduled_trees(tree.state_dir, tree.tree_id)
    assert isinstance(found, ScheduledTree)
    return found


@pytest.mark.covers("S14")
@pytest.mark.on_ray
async def test_tree_at_rest_is_resumed_for_its_job(open_tree: Opener) -> None:
    """The slot runs once, Main answers, the tree rests again; before and after it, nothing is opened."""
    tree = await left_with_a_job(open_tree, at="1s")
    slot_ms = find_next_ring(stored(tree).state)
    assert slot_ms is not None
    early = Owner(open_tree, tree.state_dir, lambda: slot_ms - 1)
    await early.look()
    assert early.resumed == []
    owner = Owner(open_tree, tree.state_dir)
    async with asyncio.timeout(PATIENCE_S):
        while tree.tree_id not in owner.resumed:
            await owner.look()
            await asyncio.sleep(0.02)
        await owner.look()
    assert owner.resumed.count(tree.tree_id) == 1
    assert owner.said == []
    async with await open_tree.resume(tree.tree_id, FunctionModel(echo)) as again:
        (claim,) = await facts_of(again, CronSlotClaimed)
        assert (claim.slot_ms, claim.how) == (slot_ms, "due")
        heard = await facts_of(again, MessageReceived, session="main")
        assert [fact.message.origin for fact in heard] == ["cron"]
        (finished,) = await facts_of(again, RunFinished, session="main")
        assert finished.failure == ""


@pytest.mark.covers("S14")
async def test_what_cant_be_resumed_is_reported_once(open_tree: Opener) -> None:
    """It is tried again later; the reason is said once, and the slot stays to come."""
    tree = await left_with_a_job(open_tree, every_s=3600)
    clock = [read_machine_ms() + FAR_MS]
    owner = Owner(open_tree, tree.state_dir, lambda: clock[0])
    owner.fault = ConfigError("its model is not configured")
    for _ in range(3):
        await owner.look()
        await owner.look()
        clock[0] += RETRY_MS
    assert owner.resumed == [tree.tree_id] * 3
    assert owner.said == [
        f"timed jobs of {tree.tree_id} do not run: ConfigError: its model is not configured"
    ]
    assert stored(tree).state.jobs["c1"].runs == 0


@pytest.mark.covers("S14")
async def test_trees_that_are_open_or_over_are_left_alone(open_tree: Opener) -> None:
    """The program that has a tree open runs its jobs; a tree that has ended, or was erased, has none."""
    async with open_tree(FunctionModel(echo), policy=EVERYTHING) as tree:
        await tree.main.call("cron", {"action": "add", "text": "wake up", "every_s": 3600})
        owner = Owner(open_tree, tree.state_dir, lambda: read_machine_ms() + FAR_MS)
        await owner.look()
        await tree.finish("done")
        await owner.look()
    await owner.look()
    assert (owner.resumed, owner.said) == ([], [])
    with pytest.raises(TreeNotFound):
        await open_tree.resume("t0" * 8, FunctionModel(echo))
