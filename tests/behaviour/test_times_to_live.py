"""Times to live begin with the first host: what waits for one loses nothing of its life."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    Limits,
    PermissionTier,
    ScriptedModel,
    SessionKind,
    SessionStatus,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import SessionAdopted, SessionSpawned
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, until
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Nothing, Sleeper

WORKERS = 40
SLOTS = 2


class Nap(Tool[Nothing]):
    """Takes a while."""

    name = "nap"
    description = "Take a while."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    def __init__(self, nap_s: float) -> None:
        self.nap_s = nap_s

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        await asyncio.sleep(self.nap_s)
        return ToolResult("awake")


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_no_worker_dies_in_the_queue(open_tree: Opener) -> None:
    """Forty at once over two hosts: the last begins long after the time to live of the first is over."""
    model = ScriptedModel([script_call("nap"), "rested"])
    for nap_s in open_tree.longer_moments():
        ttl_s = nap_s * 6
        limits = Limits(max_children=WORKERS, worker_ttl_s=ttl_s)
        async with open_tree(model, tools=[Nap(nap_s)], limits=limits, slots=SLOTS) as tree:
            results = await tree.main.map("worker", ["rest"] * WORKERS, concurrency=WORKERS)
            spawned = {fact.spec.session_id: fact.at_ms for fact in await facts_of(tree, SessionSpawned)}
            waits_ms = [fact.at_ms - spawned[fact.session] for fact in await facts_of(tree, SessionAdopted)]
        assert max(waits_ms) > ttl_s * 1000
        ends = Counter(result.status for result in results)
        if ends == {SessionStatus.COMPLETED: WORKERS}:
            return
        assert ends[SessionStatus.EXPIRED] < WORKERS / 2, "the machine was busy, but not so busy"
    pytest.fail("Workers expired, however long they had")


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_life_that_began_is_bounded(open_tree: Opener, board: Switchboard) -> None:
    """A restart does not begin it again: it goes on, and comes to its end."""
    ttl_s = open_tree.moment_s * 8
    sleeper = Sleeper(board)
    tree = await open_tree(ScriptedModel([script_call("sleeper")]), tools=[sleeper]).start()
    try:
        worker = await tree.main.spawn("worker", "wait", ttl_s=ttl_s)
        await until(tree, SessionAdopted)
        (adopted,) = await facts_of(tree, SessionAdopted)
        assert adopted.expires_at_ms == adopted.at_ms + round(ttl_s * 1000)
        assert worker.status().expires_at_ms == adopted.expires_at_ms
    finally:
        await tree.close()
    again = await open_tree.resume(
        tree.tree_id, ScriptedModel([script_call("sleeper")]), tools=[Sleeper(board)]
    )
    async with again, asyncio.timeout(PATIENCE_S):
        result = await again.session(worker.session_id).result()
        assert result.status is SessionStatus.EXPIRED
        ends_ms = [fact.expires_at_ms for fact in await facts_of(again, SessionAdopted)]
        assert ends_ms == [adopted.expires_at_ms]
