"""Few slots, many sessions: those that wait give way, and wake as if they had never left."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest
from pydantic import BaseModel

from sessiontree import (
    AsyncFunctionModel,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    Runtime,
    ScriptedModel,
    SessionKind,
    SessionStatus,
    SessionTree,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallParked, Opened, TurnReplied
from sessiontree.contracts.facts.tree_facts import ResultHeld
from sessiontree.journal.replay import read_fact
from sessiontree.models.answers import Answer
from sessiontree.models.port import Model
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, records, results, until
from tests.behaviour.signal_fixtures import Flag, Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Held, Nothing, Sleeper

WORKER = script_call("sessions_spawn", kind="worker", task="look")
WIDE = Limits(max_children=64, approval_patience_s=None)
OpenTree: TypeAlias = Callable[..., SessionTree]
BRANCHES = {"local": 12, "ray": 3}
"""How many are at work at once; on Ray each of them, and each one's Worker, is a process."""


@pytest.fixture(scope="module")
def ray_slot(ray_runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime of one slot on the run's Ray; its state is where that of ``ray_runtime`` does, and why."""
    place = Path(tempfile.mkdtemp(prefix="state-", dir=tmp_path_factory.getbasetemp().parent))
    runtime = Runtime(place / "state", slots=1, backend="ray")
    yield runtime
    asyncio.run(runtime.close())
    shutil.rmtree(place)


@pytest.fixture
def open_small(request: pytest.FixtureRequest, open_tree: Opener) -> OpenTree:
    """Opens trees that live on one slot; on Ray it serves tree after tree."""
    if open_tree.backend == "ray":
        return replace(open_tree, shared=request.getfixturevalue("ray_slot"))
    return partial(open_tree, slots=1)


def busy(request: ModelRequest) -> Answer:
    """A Branch appends, asks for an approval, has a Worker look, and sums up; a Worker looks, and watches."""
    if request.kind is SessionKind.WORKER:
        return script_call("look" if request.turn == 1 else "watch") if request.turn < 3 else "seen"
    steps: list[Answer] = [
        script_call("append"),
        [script_call("launch"), script_call("look")],
        WORKER,
        "waiting",
    ]
    return steps[request.turn - 1] if request.turn <= 4 else "all done"


async def later(request: ModelRequest) -> Answer:
    """Reply as above, after others had their turn."""
    await asyncio.sleep(0.001)
    return busy(request)


def instant() -> Model:
    """Return the model that replies at once."""
    return FunctionModel(busy)


def waiting() -> Model:
    """Return the model that is asked through the gateway."""
    return AsyncFunctionModel(later)


class Watch(Tool[Nothing]):
    """Lasts until the session above waits, so that it hears of its Worker only then."""

    name = "watch"
    description = "Watch."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    def __init__(self, board: Switchboard) -> None:
        self.waits = Log(board)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        above, _, _ = ctx.session_id.rpartition("/")
        seen: list[str] = []
        while above not in seen:
            seen = await self.waits.holds(len(seen) + 1)
        return ToolResult("seen")


async def note_who_waits(tree: SessionTree, watch: Watch) -> None:
    """Write down each session that said so."""
    async for record in tree.events():
        fact = read_fact(record.text)
        if isinstance(fact, TurnReplied) and fact.message.text == "waiting":
            watch.waits.append(record.session)


async def run(tree: SessionTree, watch: Watch, count: int) -> None:
    """Let some Branches work, answering their requests as they come, newest first."""
    noting = asyncio.create_task(note_who_waits(tree, watch))
    branches = [await tree.main.spawn("branch", "go") for _ in range(count)]
    for pending in reversed(await asked(tree, count)):
        await pending.approve()
    for branch in branches:
        result = await branch.result()
        assert (result.status, result.summary) == (SessionStatus.COMPLETED, "all done")
    noting.cancel()
    await asyncio.wait([noting])


async def told(tree: SessionTree) -> dict[str, list[Any]]:
    """Return every session's facts without times; the tree's own only counted, for their order may differ.

    An intent may be made durable with its approval, before the session says that it heard: it is put behind.
    """
    found: dict[str, list[Any]] = {}
    for record in await records(tree):
        fact = json.loads(record.text, object_hook=without_own)
        found.setdefault(record.session, []).append(fact)
    for facts in found.values():
        for place, fact in enumerate(facts[:-1]):
            if fact["kind"] == "call_intended" and facts[place + 1]["kind"] == "approval_settled":
                facts[place : place + 2] = [facts[place + 1], fact]
    found[""] = sorted(Counter(fact["kind"] for fact in found[""] if fact["kind"] not in ROUTINE).items())
    return found


ROUTINE = {"usage_charged", "posts_taken", "session_reactivated", "result_held", "session_adopted"}
"""Facts that may be one or several, as sessions report more or less at once, or none, as a life is short."""


def without_own(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object without its moments, and without ids that no two trees share."""
    own = {"timestamp", "request_id"}
    return {name: item for name, item in value.items() if not name.endswith("at_ms") and name not in own}


@pytest.mark.slow
@pytest.mark.parametrize("model", [instant, waiting])
async def test_tree_on_two_slots_comes_out_as_one_on_sixty_four(
    open_tree: Opener, board: Switchboard, model: Any
) -> None:
    """Everything completes, and each session's facts are the same, one by one."""
    found = []
    branches = BRANCHES[open_tree.backend]
    for slots in (2, 64):
        watch = Watch(board)
        opened = open_tree.elsewhere(str(slots))
        async with opened(model(), tools=[*TOOLS, watch], limits=WIDE, slots=slots) as tree:
            async with asyncio.timeout(150):
                await run(tree, watch, branches)
            assert len(tree.receipt()) == 1 + 2 * branches
            found.append(await told(tree))
        assert len(effects(open_tree.workspace)) == 2 * branches
        (open_tree.workspace / "effects.log").unlink()
    few, many = found
    assert few.keys() == many.keys()
    for session in many:
        assert few[session] == many[session]


@pytest.mark.slow
async def test_single_slot_is_enough(open_tree: Opener, open_small: OpenTree) -> None:
    """One host serves Main, Branches and Workers in turn, deep ones too."""
    branch = script_call("sessions_spawn", kind="branch", task="go on")
    model = FunctionModel(
        lambda request: (
            branch
            if request.session_id.count("/") < 3 and request.turn == 1
            else script_call("append")
            if request.turn == 1
            else "done"
        )
    )
    async with open_small(model, tools=TOOLS) as tree:
        await tree.main.send("go")
        assert (await tree.session("main/b1").result()).status is SessionStatus.COMPLETED
        assert len(effects(open_tree.workspace)) == 1
        assert len(await facts_of(tree, Opened)) == 4


async def crowd_out(tree: SessionTree) -> None:
    """Make every other session leave its host: as many newcomers as there are slots, twice over."""
    await tree.main.map("worker", ["crowd"] * 4, concurrency=4)


def listening(request: ModelRequest) -> Answer:
    """A Branch has a Worker look, and waits for it; it may have heard of it when it is asked again."""
    if request.kind is SessionKind.WORKER:
        return script_call("look") if request.turn == 1 else "seen"
    if request.turn == 1:
        return WORKER
    return "heard" if any("seen" in each.text for each in request.messages[2:]) else "waiting"


def crowded(script: list[Answer], **more: list[Answer]) -> ScriptedModel:
    """Return a model whose first Branch follows a script and whose Workers just look."""
    return ScriptedModel({"main/b1": script, "*": [script_call("look"), "seen"], **more})


async def test_session_waiting_for_an_approval_wakes_for_it(open_tree: Opener, open_small: OpenTree) -> None:
    """The call that was approved runs once, on another host than the one that asked."""
    async with open_small(crowded([script_call("launch"), "done"]), tools=TOOLS, limits=WIDE) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await crowd_out(tree)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert results(tree, "main/b1")[0].text == "appended x"
        assert len(effects(open_tree.workspace)) == 1


PROGRAM = "first = await look(text='y')\nlast = await launch(text='rocket')\n[first, last]"


async def test_session_whose_program_waits_gives_its_host_away(
    open_tree: Opener, open_small: OpenTree
) -> None:
    """The program goes on elsewhere; what it had done is not done again."""
    model = ScriptedModel(
        {"main/b1": [script_call("program", code=PROGRAM), "done"], "*": [script_call("look"), "seen"]}
    )
    policy = PolicyConfig(tools=ToolPolicy(allow=("*",)))
    async with open_small(model, tools=TOOLS, limits=WIDE, policy=policy) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await crowd_out(tree)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert results(tree, "main/b1")[0].text == '["looked at y","appended rocket"]'
        assert len(effects(open_tree.workspace)) == 1


async def test_session_whose_parallel_calls_are_done_gives_its_host_away(
    open_tree: Opener, open_small: OpenTree
) -> None:
    """Once the last of several calls has its result, nothing runs on the host any more."""
    reply: Answer = [
        script_call("append", text="1"),
        script_call("launch"),
        script_call("append", text="2"),
        script_call("look"),
    ]
    async with open_small(crowded([reply, "done"]), tools=TOOLS, limits=WIDE) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await crowd_out(tree)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert sorted(text for _, text in effects(open_tree.workspace)) == ["1", "2", "x"]


async def test_suspended_session_wakes_for_the_outcome_of_a_parked_call(
    open_tree: Opener, open_small: OpenTree
) -> None:
    """Its notice starts the turn that ends it."""
    limits = Limits(approval_patience_s=0)
    model = crowded([script_call("launch"), "meanwhile", "done"])
    async with open_small(model, tools=TOOLS, limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, ResultHeld, where=lambda fact: fact.session == "main/b1")
        await crowd_out(tree)
        await tree.approvals.pending()[0].deny()
        assert (await branch.result()).summary == "done"
        assert effects(open_tree.workspace) == []


async def test_approval_and_a_childs_result_that_come_together_are_both_heard(
    open_tree: Opener, open_small: OpenTree, board: Switchboard
) -> None:
    """A suspended session that wakes for two things at once does not end by the word it had said before."""
    held = Held(board)
    model = ScriptedModel(
        {
            "main/b1": [script_call("launch"), WORKER, "waiting", "heard the child", "all done"],
            "main/b1/w1": [script_call("held"), "seen"],
        }
    )
    limits = Limits(approval_patience_s=0)
    async with open_small(model, tools=[*TOOLS, held], limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        await held.started.wait()
        (pending,) = await asked(tree)
        await pending.approve()
        held.let_go.set()
        assert (await branch.result()).summary == "all done"
        assert len(effects(open_tree.workspace)) == 1


async def test_patient_session_wakes_when_its_patience_ends(open_small: OpenTree) -> None:
    """The clock rings for sessions that are only rows, too."""
    limits = Limits(approval_patience_s=0.1)
    model = crowded([script_call("launch"), "meanwhile", "done"])
    async with open_small(model, tools=TOOLS, limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await crowd_out(tree)
        await until(tree, CallParked)
        await pending.approve()
        assert (await branch.result()).summary == "done"


@pytest.mark.on_ray
async def test_session_waiting_for_its_child_wakes_for_the_result(open_small: OpenTree) -> None:
    """The child's report is heard by whoever embodies the parent then."""
    async with open_small(FunctionModel(listening), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go")
        await crowd_out(tree)
        assert (await branch.result()).summary == "heard"


async def test_session_waiting_for_its_model_wakes_for_the_reply(
    open_tree: Opener, open_small: OpenTree, board: Switchboard
) -> None:
    """The gateway keeps the question while the session is gone; the model is asked once a turn."""
    questions, go_on = Log(board), Flag(board)

    async def reply(request: ModelRequest) -> Answer:
        questions.append([request.session_id, request.turn])
        if request.session_id == "main/b1":
            await go_on.wait()
            return script_call("append") if request.turn == 1 else "done"
        return script_call("look") if request.turn == 1 else "seen"

    async with open_small(AsyncFunctionModel(reply), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, Opened, session="main/b1")
        await crowd_out(tree)
        go_on.set()
        assert (await branch.result()).summary == "done"
        assert [turn for session, turn in questions if session == "main/b1"] == [1, 2]
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.on_ray
async def test_idle_main_wakes_for_the_next_message(open_small: OpenTree) -> None:
    """What was said before is still known."""
    model = FunctionModel(lambda request: f"turn {request.turn}, {len(request.messages)} messages")
    async with open_small(model) as tree:
        for turn in (1, 2, 3):
            assert await tree.main.send("hello") == f"turn {turn}, {2 * turn - 1} messages"
            await crowd_out(tree)


async def test_session_asked_for_its_approval_wakes_to_answer(
    open_tree: Opener, open_small: OpenTree
) -> None:
    """A Branch's approver function runs although the Branch had left its host."""
    below = script_call("sessions_spawn", kind="branch", task="go on")
    asker: list[Answer] = [script_call("launch", text="safe"), "done"]
    model = crowded([below, "waiting"], **{"main/b1/b1": asker})
    async with open_small(model, tools=TOOLS, channel=None) as tree:
        approver = "tests.behaviour.approver_fakes:approves_safe"
        branch = await tree.main.spawn("branch", "go", approver=approver)
        assert (await branch.result()).summary == "waiting"
        assert len(effects(open_tree.workspace)) == 1


async def test_session_whose_tool_runs_is_not_taken_off_its_host(
    open_small: OpenTree, board: Switchboard
) -> None:
    """Newcomers wait for a slot; the running tool is neither stopped nor run twice."""
    sleeper = Sleeper(board, 0.1)
    async with open_small(crowded([script_call("sleeper"), "slept"]), tools=[*TOOLS, sleeper]) as tree:
        branch = await tree.main.spawn("branch", "go")
        await sleeper.started.wait()
        await crowd_out(tree)
        assert (await branch.result()).summary == "slept"
        assert sleeper.ended == ["cancelled"]
