"""A Branch spawned by the program stays open for it: what is done with its handle never comes too late."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import (
    FunctionModel,
    ModelRequest,
    ScriptedModel,
    SessionClosed,
    SessionKind,
    SessionStatus,
    SessionTree,
)
from sessiontree.contracts.facts.tree_facts import ResultHeld, SessionEnded
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import facts_of, until
from tests.behaviour.tree_fixtures import Opener

MODEL = ScriptedModel(["done", "done again", "and again"])


async def rested(tree: SessionTree, session: str) -> None:
    """Wait until a session has said its final message, durably, so that it could end."""
    await until(tree, ResultHeld, where=lambda fact: fact.session == session)


async def test_hierarchy_everyone_writes_first(open_tree: Opener) -> None:
    """Spawn a Branch, let it rest, map over it: it works every time; its result comes when it is asked."""
    async with open_tree(MODEL, tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "Compare the parsers")
        await rested(tree, "main/b1")
        results = await branch.map("worker", ["a", "b", "c"])
        assert [each.status for each in results] == [SessionStatus.COMPLETED] * 3
        assert (await branch.call("look", {"text": "it"})).output == "looked at it"
        assert await branch.send("And now?") == "done again"
        below = await branch.spawn("branch", "deeper")
        assert (await below.spawn("worker", "x")).session_id == "main/b1/b1/w1"
        assert branch.status().status is SessionStatus.SUSPENDED
        result = await branch.result()
        assert (result.status, result.summary) == (SessionStatus.COMPLETED, "done again")
        assert {str(line.status) for line in tree.receipt() if line.kind is not SessionKind.MAIN} == {
            "completed"
        }
        with pytest.raises(SessionClosed):
            await branch.map("worker", ["late"])


@pytest.mark.on_ray
async def test_result_asked_early_ends_it_at_once(open_tree: Opener) -> None:
    """Whoever waits already gets it with the final message; asking twice is asking once."""
    async with open_tree(MODEL) as tree:
        branch = await tree.main.spawn("branch", "go")
        first, second = await asyncio.gather(branch.result(), branch.result())  # noqa: TID251 - at once
        assert first == second
        assert first.summary == "done"


async def test_result_of_what_is_above_ends_what_is_below(open_tree: Opener) -> None:
    """A Branch that nobody asks does not keep the one above it waiting."""
    async with open_tree(MODEL) as tree:
        branch = await tree.main.spawn("branch", "go")
        await branch.spawn("branch", "deeper")
        await rested(tree, "main/b1/b1")
        async with asyncio.timeout(60):
            assert (await branch.result()).status is SessionStatus.COMPLETED
        assert (await tree.session("main/b1/b1").result()).status is SessionStatus.COMPLETED


async def test_who_does_not_want_that_says_so(open_tree: Opener) -> None:
    """A Branch may end with its reply, a Worker may stay open."""
    async with open_tree(MODEL, tools=TOOLS) as tree:
        brief = await tree.main.spawn("branch", "go", stays_open=False)
        await until(tree, SessionEnded, where=lambda fact: fact.session == brief.session_id)
        worker = await tree.main.spawn("worker", "go", stays_open=True)
        await rested(tree, worker.session_id)
        assert (await worker.call("look", {"text": "it"})).output == "looked at it"
        assert await worker.send("more") == "done again"
        assert (await worker.result()).summary == "done again"


@pytest.mark.parametrize("how", ["finish", "cancel", "its own cancel"])
async def test_end_from_above_finds_it_completed(open_tree: Opener, how: str) -> None:
    """It had done its work; nobody asked."""
    async with open_tree(MODEL) as tree:
        branch = await tree.main.spawn("branch", "go")
        await rested(tree, "main/b1")
        if how == "finish":
            receipt = await tree.finish("over")
        elif how == "cancel":
            receipt = await tree.cancel("over")
        else:
            receipt = await branch.cancel("over")
        assert [line.status for line in receipt if line.session_id == "main/b1"] == [SessionStatus.COMPLETED]
        assert (await branch.result()).summary == "done"


@pytest.mark.slow
async def test_its_time_to_live_ends_it_as_completed(open_tree: Opener) -> None:
    """A Branch that was forgotten is no failure."""
    for moment_s in open_tree.longer_moments():
        async with open_tree(MODEL) as tree:
            await tree.main.spawn("branch", "go", ttl_s=4 * moment_s)
            await until(tree, SessionEnded)
            has_rested = any(fact.session == "main/b1" for fact in await facts_of(tree, ResultHeld))
            result = await tree.session("main/b1").result()
        if has_rested:  # else the machine was so busy that its time was over before
            assert result.status is SessionStatus.COMPLETED
            return
    pytest.fail("the Branch never got to work")


async def test_failure_ends_it_at_once(open_tree: Opener) -> None:
    """Nothing is left to stay open for."""

    def fails(request: ModelRequest) -> str:
        if request.kind is SessionKind.BRANCH:
            raise RuntimeError("no more")
        return "done"

    async with open_tree(FunctionModel(fails)) as tree:
        await tree.main.spawn("branch", "go")
        (ended,) = await until(tree, SessionEnded)
        assert ended.status is SessionStatus.FAILED


async def test_it_stays_open_over_a_restart(open_tree: Opener) -> None:
    """It is a fact like any other: who takes the tree up finds it open and asks."""
    async with open_tree(MODEL, tools=TOOLS) as tree:
        await tree.main.spawn("branch", "go")
        await rested(tree, "main/b1")
    async with await open_tree.resume(tree.tree_id, MODEL, tools=TOOLS) as again:
        branch = again.session("main/b1")
        assert [each.summary for each in await branch.map("worker", ["a"])] == ["done"]
        assert (await branch.result()).summary == "done"
        assert len(await facts_of(again, SessionEnded)) == 2
