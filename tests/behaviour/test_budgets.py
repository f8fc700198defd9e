"""What may be spent: set aside at the spawn, charged as it is used, and the stop at the cap."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import (
    AssistantMessage,
    AsyncFunctionModel,
    Budget,
    FunctionModel,
    LimitExceeded,
    Limits,
    ModelRequest,
    ScriptedModel,
    SessionClosed,
    SessionFailed,
    SessionKind,
    SessionStatus,
    Usage,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import BudgetSpent, SessionSpawned, SpawnDenied
from sessiontree.contracts.values.messages import TextContent
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Late

WORKER = script_call("sessions_spawn", kind="worker", task="look")
BRANCH = script_call("sessions_spawn", kind="branch", task="go on")


def costly(request: ModelRequest) -> Answer:
    """Ten tokens and a cent for every turn, and a call each."""
    used = Usage(6, 4, 0.01)
    return AssistantMessage((TextContent("hm"), script_call("append", text=str(request.turn))), usage=used)


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(tokens=35), "budget.tokens"),
        (Budget(tool_calls=3), "budget.tool_calls"),
        (Budget(cost_usd=0.035), "budget.cost_usd"),
    ],
    ids=str,
)
async def test_session_stops_at_its_cap(open_tree: Opener, budget: Budget, limit: str) -> None:
    """The session that reached its cap fails, with the numbers; its parent and siblings go on."""
    async with open_tree(FunctionModel(costly), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go", budget=budget)
        async with asyncio.timeout(60):
            result = await branch.result()
        assert result.status is SessionStatus.FAILED
        (spent,) = await facts_of(tree, BudgetSpent)
        assert (spent.account, spent.limit) == ("main/b1", limit)
        assert spent.used >= spent.allowed
        assert limit in result.summary
        assert len(effects(open_tree.workspace)) in {2, 3, 4}
        assert not tree.main.status().status.is_final


@pytest.mark.on_ray
async def test_whole_tree_stops_at_its_cap(open_tree: Opener, board: Switchboard) -> None:
    """Main's budget is everybody's: at the cap every session ends, and nothing more is started."""
    model = Late(board, costly)
    async with open_tree(model, tools=TOOLS, budget=Budget(tokens=100)) as tree:
        first = await tree.main.spawn("branch", "go")
        second = await tree.main.spawn("branch", "go")
        model.let_go.set()
        async with asyncio.timeout(60):
            assert [record async for record in tree.events()]  # until Main has ended
            await tree.main.result()
            ended = {str((await child.result()).status) for child in (first, second)}
        assert ended <= {"failed", "cancelled"}
        assert [fact.account for fact in await facts_of(tree, BudgetSpent)] == ["main"]
        with pytest.raises(SessionClosed):
            await tree.main.spawn("worker", "look")
        with pytest.raises(SessionClosed):
            await tree.main.send("more")


@pytest.mark.covers("C12", "LIM3")
async def test_childs_budget_is_set_aside_and_the_rest_comes_back(open_tree: Opener) -> None:
    """What is reserved cannot be promised twice; what is left over returns at the child's end."""
    model = ScriptedModel({"main/b1": [script_call("launch"), "done"], "*": ["done"]})
    async with open_tree(model, tools=TOOLS, budget=Budget(tokens=100, sessions=9)) as tree:
        child = await tree.main.spawn("branch", "go", budget=Budget(tokens=80, sessions=5))
        assert tree.main.status().budget_left == {"tokens": 20, "sessions": 3}
        with pytest.raises(LimitExceeded, match=r"budget\.tokens"):
            await tree.main.spawn("branch", "go", budget=Budget(tokens=21))
        with pytest.raises(LimitExceeded, match=r"budget\.sessions"):
            await tree.main.spawn("branch", "go", budget=Budget(sessions=3))
        await child.cancel()
        assert tree.main.status().budget_left["tokens"] == 100
        again = await tree.main.spawn("branch", "go", budget=Budget(tokens=100))
        assert (await again.result()).status is SessionStatus.COMPLETED


async def test_sessions_are_counted_and_the_model_is_told(open_tree: Opener) -> None:
    """A spawn beyond the budget is refused to the model, which goes on without it."""
    model = ScriptedModel({"main": [[WORKER, WORKER, WORKER], "done"], "*": ["seen"]})
    async with open_tree(model, budget=Budget(sessions=2)) as tree:
        await tree.main.send("go")
        (denied,) = await facts_of(tree, SpawnDenied)
        assert (denied.limit, denied.used, denied.allowed) == ("budget.sessions", 3, 2)
        assert len(await facts_of(tree, SessionSpawned)) == 3


@pytest.mark.slow
async def test_wall_time_ends_a_session_that_only_waits(open_tree: Opener) -> None:
    """Time is spent without doing anything."""

    async def never(request: ModelRequest) -> str:
        await asyncio.get_running_loop().create_future()
        return "never"

    async with open_tree(AsyncFunctionModel(never)) as tree:
        worker = await tree.main.spawn("worker", "look", budget=Budget(wall_s=0.05))
        async with asyncio.timeout(60):
            result = await worker.result()
        assert result.status is SessionStatus.FAILED
        assert "wall_s" in result.summary


@pytest.mark.slow
async def test_what_was_used_is_counted_per_session_and_in_its_result(open_tree: Opener) -> None:
    """A session's usage is its own; its children's is theirs."""

    def reply(request: ModelRequest) -> Answer:
        blocks = (
            (WORKER,) if request.kind is SessionKind.BRANCH and request.turn == 1 else (TextContent("x"),)
        )
        return AssistantMessage(blocks, usage=Usage(5, 1, 0.5))

    async with open_tree(FunctionModel(reply), budget=Budget(tokens=1000)) as tree:
        branch = await tree.main.spawn("branch", "go")
        usage = (await branch.result()).usage
        assert usage == branch.status().usage
        assert (usage.turns, usage.tool_calls, usage.tokens) == (usage.turns, 1, 6 * usage.turns)
        worker = tree.session("main/b1/w1").status().usage
        assert (worker.turns, worker.tokens, worker.cost_usd) == (1, 6, 0.5)
        assert tree.main.status().budget_left["tokens"] == 1000 - usage.tokens - worker.tokens
        assert tree.main.status().usage == Usage()


@pytest.mark.covers("REL-L55", "LIM1")
@pytest.mark.slow
@pytest.mark.parametrize("limit", ["max_total", "max_live", "budget"])
async def test_runaway_spawner_stops_at_the_caps(open_tree: Opener, limit: str) -> None:
    """REL-L55: children that spawn children come to an end by number, and every one of them ends typed."""

    def reply(request: ModelRequest) -> Answer:
        if request.kind is SessionKind.WORKER or request.turn > 2:
            return "enough"
        return [BRANCH, BRANCH, WORKER, WORKER, WORKER]

    limits = Limits(
        max_depth=6,
        max_children=4,
        max_total=40 if limit == "max_total" else 10_000,
        max_live=12 if limit == "max_live" else 10_000,
    )
    budget = Budget(sessions=39) if limit == "budget" else None
    if limit == "max_live":
        limits = limits.model_copy(update={"max_total": 60})
    async with open_tree(FunctionModel(reply), limits=limits, budget=budget) as tree:
        async with asyncio.timeout(60):
            branch = await tree.main.spawn("branch", "go")
            result = await branch.result()
        assert result.status is SessionStatus.COMPLETED
        spawned = await facts_of(tree, SessionSpawned)
        assert len(spawned) <= (60 if limit == "max_live" else 40)
        assert max(fact.spec.depth for fact in spawned) <= 6
        denied = {fact.limit for fact in await facts_of(tree, SpawnDenied)}
        assert (f"budget.{'sessions'}" if limit == "budget" else limit) in denied
        assert {str(line.status) for line in tree.receipt()[1:]} == {"completed"}


@pytest.mark.slow
async def test_use_of_a_tree_is_that_of_all_its_sessions(open_tree: Opener) -> None:
    """Each line of the receipt tells its own; the tree's is their sum, also of those that have ended."""

    def reply(request: ModelRequest) -> Answer:
        is_main = request.kind is SessionKind.MAIN
        return AssistantMessage(
            (TextContent("done"),), usage=Usage(6, 4, 0.25) if is_main else Usage(100, 10, 0.5)
        )

    async with open_tree(FunctionModel(reply)) as tree:
        assert tree.usage() == Usage()
        async with asyncio.timeout(60):
            await tree.main.send("go")
            worker = await tree.main.spawn("worker", "look")
            await worker.result()
            async for _ in tree.events():  # what a turn used is charged soon after its reply
                if tree.usage().tokens == 120:
                    break
        lines = {line.session_id: line.usage for line in tree.receipt()}
        assert lines == {"main": Usage(6, 4, 0.25, turns=1), worker.session_id: Usage(100, 10, 0.5, turns=1)}
        assert tree.usage() == Usage(106, 14, 0.75, turns=2)


@pytest.mark.slow
async def test_running_out_of_turns_is_a_failure_of_the_run_alone(open_tree: Opener) -> None:
    """``max_turns`` is for one incoming message; the tree and its budget live on."""
    limits = Limits(max_turns=3)
    async with open_tree(
        FunctionModel(costly), tools=TOOLS, limits=limits, budget=Budget(tokens=500)
    ) as tree:
        with pytest.raises(SessionFailed, match="max_turns"):
            await tree.main.send("go")
        assert tree.main.status().budget_left["tokens"] == 470


async def test_instant_model_overshoots_by_one_reply_at_most(open_tree: Opener, board: Switchboard) -> None:
    """LIM5: a counted session is asked for its next reply only after the one before was charged."""
    replies = Log(board)

    def endless(request: ModelRequest) -> Answer:
        replies.append(request.turn)
        content = (script_call("find", pattern="*"),)
        return AssistantMessage(content, usage=Usage(input_tokens=10))

    async with open_tree(FunctionModel(endless), limits=Limits(max_turns=10_000, max_repeats=None)) as tree:
        worker = await tree.main.spawn("worker", "go", budget=Budget(tokens=95))
        async with asyncio.timeout(60):
            result = await worker.result()
    assert (result.status, result.usage.input_tokens, len(replies)) == (SessionStatus.FAILED, 100, 10)
