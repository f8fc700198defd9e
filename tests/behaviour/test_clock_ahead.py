"""A tree's time only passes: a clock that was a day ahead once stops no timer, and ends no other tree's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

from sessiontree import ScriptedModel, SessionStatus, script_call
from sessiontree.contracts.facts.tree_facts import SessionAdopted
from sessiontree.runtime.timing.clock import read_machine_ms
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Sleeper

DAY_MS = 24 * 3600 * 1000


async def test_tree_that_was_made_a_day_ahead_goes_on(open_tree: Opener, board: Switchboard) -> None:
    """Its time goes on from there, as fast as any; the tree alongside it keeps its own."""
    model = ScriptedModel({"*": [script_call("sleeper")], "main": ["hello"]})
    ahead = open_tree(model, tools=[Sleeper(board)])
    ahead._config = replace(ahead._config, created_at_ms=read_machine_ms() + DAY_MS)
    async with ahead, asyncio.timeout(PATIENCE_S):
        worker = await ahead.main.spawn("worker", "wait", ttl_s=open_tree.moment_s)
        assert (await worker.result()).status is SessionStatus.EXPIRED
        (adopted,) = await facts_of(ahead, SessionAdopted)
        assert adopted.at_ms >= ahead._config.created_at_ms
    again = await open_tree.resume(ahead.tree_id, model, tools=[Sleeper(board)])
    async with again, asyncio.timeout(PATIENCE_S):
        worker = await again.main.spawn("worker", "wait", ttl_s=open_tree.moment_s)
        assert (await worker.result()).status is SessionStatus.EXPIRED
        if open_tree.shared is None:
            return
        async with open_tree(ScriptedModel([script_call("launch"), "done"]), tools=TOOLS) as other:
            other.main.send("go")
            (pending,) = await asked(other)
            assert pending.request.expires_at_ms < read_machine_ms() + DAY_MS
            await pending.deny()


async def test_times_of_facts_never_step_back(open_tree: Opener) -> None:
    """Of all sessions together, whichever host saw them and however late it said so."""
    model = ScriptedModel([[script_call("look"), script_call("append")], [script_call("look")], "done"])
    async with open_tree(model, tools=TOOLS) as tree:
        children = [await tree.main.spawn("branch", "go") for _ in range(4)]
        await asyncio.gather(*(child.result() for child in children))  # noqa: TID251
        await tree.main.send("go")
        await tree.finish("over")
        times = [record.at_ms async for record in tree.events()]
        assert len(times) > 50
        assert all(earlier <= later for earlier, later in pairwise(times))
