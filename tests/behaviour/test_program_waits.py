"""What a program waits for, and what it waits for no longer: races, time bounds, and messages meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sessiontree import (
    AsyncFunctionModel,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    ToolContext,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import (
    CallResolved,
    ChildReported,
    MessageReceived,
    RunFinished,
)
from sessiontree.contracts.facts.tree_facts import SessionEnded, SessionSpawned
from tests.behaviour.effect_fakes import LOG, TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.question_fixtures import waiting
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))


def with_slow_children(code: str, *quick: str) -> AsyncFunctionModel:
    """Return a model whose Main runs a program; a child answers at once if its task is one of ``quick``."""

    async def reply(request: ModelRequest) -> Any:
        if request.session_id == "main":
            said = request.messages[-1].text
            return script_call("program", code=code) if len(request.messages) == 1 else said
        task = request.messages[0].text
        if task not in quick:
            await asyncio.Event().wait()
        return f"{task} is done"

    return AsyncFunctionModel(reply)


RACE = """
won = await race("worker", ["a", "b", "c", "d", "e"], first=2)
rest = await race("worker", ["b", "x", "y", "z"], concurrency=2, on_error="return")
[won, [(each["status"], each["value"]) for each in rest]]
"""


@pytest.mark.on_ray
async def test_race_ends_those_that_have_not_won(open_tree: Opener) -> None:
    """They are cancelled, and nobody hears of them; those after them are not started."""
    async with open_tree(with_slow_children(RACE, "b", "d"), policy=EVERYTHING) as tree:
        won, rest = json.loads(await tree.main.send("go"))
        assert sorted(won) == ["b is done", "d is done"]
        assert rest[0] == ["completed", "b is done"]
        assert rest[1] == ["cancelled", None]
        assert rest[2:] == [["not_started", None]] * 2
        assert len(await facts_of(tree, SessionSpawned)) == 1 + 5 + 2
        ended = await until(tree, SessionEnded, count=7)
        status = {each.session: each.result.status.value for each in ended}
        assert sorted(status.values()) == ["cancelled"] * 4 + ["completed"] * 3
        assert len(await facts_of(tree, ChildReported)) == 3
        assert [each.message.text for each in await facts_of(tree, MessageReceived, "main")] == ["go"]


TOO_FEW = """
try:
    await race("worker", ["a"], first=2)
except ValueError as error:
    said = str(error)
try:
    await race("worker", ["a", "slow"], first=2, timeout_s=0.05)
except TimeoutError as error:
    said = said + " / " + str(error)
said
"""


async def test_race_that_too_few_win_raises(open_tree: Opener) -> None:
    """The message says how many completed; one that nobody could win starts nothing."""
    async with open_tree(with_slow_children(TOO_FEW, "a"), policy=EVERYTHING) as tree:
        said = await tree.main.send("go")
        assert said.startswith("race: first is 2, and there are 1 tasks / ")
        assert "1 of 2 children completed, 2 were to, and one is expired" in said
        assert len(await facts_of(tree, SessionSpawned)) == 3


BOUNDED = """
import asyncio
async def safely(call):
    try:
        return await call
    except TimeoutError as error:
        return str(error)
await asyncio.gather(
    safely(launch(text="rocket", timeout_s=0.05)),
    safely(spawn("worker", "a", timeout_s=0.05)),
    safely(spawn("worker", "b", timeout_s=1000)),
    safely(append(text="x", timeout_s=1000)),
)
"""


async def test_call_is_given_up_when_its_time_is_over(open_tree: Opener) -> None:
    """Its request is withdrawn, its child is cancelled, and the program goes on with an exception."""
    async with open_tree(with_slow_children(BOUNDED, "b"), policy=EVERYTHING, tools=TOOLS) as tree:
        launched, late, quick, appended = json.loads(await tree.main.send("go"))
        assert launched.startswith("Timeout: launch")
        assert "0.05 s" in launched
        assert late.startswith("SessionFailed: the child is expired: Timeout: sessions_spawn")
        assert (quick, appended) == ("b is done", "appended x")
        assert tree.approvals.pending() == []
        assert [text for _, text in effects(open_tree.workspace)] == ["x"]
        status = {each.session: each.result.status.value for each in await until(tree, SessionEnded, count=2)}
        assert sorted(status.values()) == ["cancelled", "completed"]


SLOW = """
import time
try:
    await pause(timeout_s=0.05)
except TimeoutError as error:
    found = str(error)
found
"""


async def test_call_that_runs_is_ended_when_its_time_is_over(open_tree: Opener) -> None:
    """Its work is cancelled."""

    @tool(tier=PermissionTier.WORKSPACE)
    async def pause(ctx: ToolContext) -> str:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            (ctx.workspace_root / "ended").touch()
        return "never"

    async with open_tree(with_slow_children(SLOW), policy=EVERYTHING, tools=[pause]) as tree:
        assert (await tree.main.send("go")).startswith("Timeout: pause")
        assert (open_tree.workspace / "ended").exists()


async def test_bound_holds_after_a_resume(open_tree: Opener) -> None:
    """It counts from the moment of the call, whatever happened in between."""
    code = "try:\n    await launch(text='x', timeout_s=0.3)\nexcept TimeoutError:\n    found = 'over'\nfound"
    model = with_slow_children(code)
    tree = await open_tree(model, policy=EVERYTHING, tools=TOOLS).start()
    tree.main.send("go")
    await asked(tree)
    await tree.close()
    tree = await open_tree.resume(tree.tree_id, model, tools=TOOLS)
    async with tree:
        (ended,) = await until(tree, RunFinished, session="main")
        assert ended.text == "over"
        assert not (open_tree.workspace / LOG).exists()


WAITING = "await append(text='first')\nfound = await launch(text='rocket')\nawait append(text='last')\nfound"


def talking(request: ModelRequest) -> Any:
    """Run a program first; after that say what the newest message is."""
    said = request.messages[-1].text
    return script_call("program", code=WAITING) if len(request.messages) == 1 else f"heard: {said}"


@pytest.mark.on_ray
async def test_message_does_not_wait_for_a_program_that_waits(open_tree: Opener) -> None:
    """The model answers it meanwhile; the program goes on by itself, and its result comes as a notice."""
    tree = await open_tree(FunctionModel(talking), policy=EVERYTHING, tools=TOOLS).start()
    first = tree.main.send("go")
    await asked(tree)
    second = tree.main.send("are you there?")
    assert await second == "heard: are you there?"
    assert await first == "heard: are you there?"
    await tree.close()
    tree = await open_tree.resume(tree.tree_id, FunctionModel(talking), tools=TOOLS)
    async with tree:
        (pending,) = await asked(tree)
        await pending.approve()
        runs = await until(tree, RunFinished, count=2, session="main")
        assert "is settled (ok): appended rocket" in runs[-1].text
        assert sorted(text for _, text in effects(open_tree.workspace)) == ["first", "last", "rocket"]
        keys = [fact.key for fact in await facts_of(tree, CallResolved)]
        assert sorted(keys) == ["1.0", "1.0/0", "1.0/1", "1.0/2"]


async def test_steering_message_leaves_a_program_that_waits(open_tree: Opener) -> None:
    """It ends calls that run; of this one nothing runs."""
    async with open_tree(FunctionModel(talking), policy=EVERYTHING, tools=TOOLS) as tree:
        tree.main.send("go")
        await asked(tree)
        assert await tree.main.send("now", mode="steer") == "heard: now"
        (pending,) = tree.approvals.pending()
        await pending.deny(reason="no")
        runs = await until(tree, RunFinished, count=2, session="main")
        assert "is settled (error)" in runs[-1].text
        assert [text for _, text in effects(open_tree.workspace)] == ["first"]


ASKING = """
async def noted():
    return await append(text="meanwhile")
await asyncio.gather(ask("Which colour?"), ask("Red or blue?", ["red", "blue"]), noted())
"""


@pytest.mark.on_ray
async def test_program_asks_a_person_and_goes_on_meanwhile(open_tree: Opener) -> None:
    """Each answer is its own call's value, also after a resume; nothing is asked twice."""
    model = with_slow_children(ASKING)
    tree = await open_tree(model, policy=EVERYTHING, tools=TOOLS).start()
    tree.main.send("go")
    await until(tree, CallResolved)
    await waiting(tree, 2)
    await tree.close()
    tree = await open_tree.resume(tree.tree_id, model, tools=TOOLS)
    async with tree:
        asked_now = {each.question.items[0].question: each for each in tree.questions.pending()}
        assert len(asked_now) == 2
        await asked_now["Red or blue?"].answer("blue")
        await asked_now["Which colour?"].answer("a dark green")
        (ended,) = await until(tree, RunFinished, session="main")
        assert json.loads(ended.text) == ["a dark green", "blue", "appended meanwhile"]
        assert [text for _, text in effects(open_tree.workspace)] == ["meanwhile"]
