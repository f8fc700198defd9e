"""Interrupting a session: what it does ends, and it lives on."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import (
    AnswerTooLate,
    AsyncFunctionModel,
    ConfigError,
    ExecutionError,
    FunctionModel,
    Limits,
    ModelRequest,
    ScriptedModel,
    SessionClosed,
    SessionFailed,
    SessionStatus,
    script_call,
)
from sessiontree.contracts.facts.session_facts import (
    CallOpened,
    CallResolved,
    Interrupted,
    TurnCut,
    TurnStarted,
)
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, InterruptBegun, ResultHeld
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Deaf, Sleeper
from tests.system.house.error_fixtures import has_cause


class Watcher(Sleeper):
    """Another that waits for ever."""

    name = "watcher"


class Hanging:
    """A model that never replies to a message with ``hang`` in it, and echoes any other."""

    def __init__(self, asked_model: Flag) -> None:
        """Take the flag that is set once it hangs."""
        self._asked = asked_model

    async def __call__(self, request: ModelRequest) -> str:
        """Reply, or hang."""
        said = request.messages[-1].text
        if said == "hang":
            self._asked.set()
            await asyncio.get_running_loop().create_future()
        return f"heard {said}"


@pytest.mark.covers("Z2", "STP15")
@pytest.mark.on_ray
async def test_hung_model_call_is_waited_for_no_more(open_tree: Opener, board: Switchboard) -> None:
    """The waiting reply gets a typed error, the next message is answered, the late answer counts nothing."""
    hangs = Flag(board)
    async with open_tree(AsyncFunctionModel(Hanging(hangs))) as tree:
        waiting = tree.main.send("hang")
        behind = tree.main.send("and this waits behind it")
        await hangs.wait()
        lines = await tree.main.interrupt("enough")
        assert [(line.session_id, line.status) for line in lines] == [("main", SessionStatus.SUSPENDED)]
        for reply in (waiting, behind):
            with pytest.raises(SessionFailed, check=has_cause("interrupted"), match="enough"):
                await reply
        assert await tree.main.send("again") == "heard again"
        texts = [message.text for message in tree.main.history()]
        assert texts == ["hang", "and this waits behind it", "again", "heard again"]
        assert [fact.reason for fact in await facts_of(tree, Interrupted)] == ["enough"]
        assert [fact.turn for fact in await facts_of(tree, TurnCut)] == [1]


@pytest.mark.covers("Z2", "STP15")
@pytest.mark.on_ray
async def test_running_tools_end_and_the_session_goes_on(open_tree: Opener, board: Switchboard) -> None:
    """They are asked to stop, their results say why, and the model sees them with the next message."""
    sleeper = Sleeper(board)
    model = ScriptedModel([[script_call("sleeper"), script_call("append")], "went on"])
    async with open_tree(model, tools=[*TOOLS, sleeper]) as tree:
        waiting = tree.main.send("go")
        await sleeper.started.wait()
        outside = asyncio.create_task(tree.main.call("sleeper"))
        await until(tree, CallOpened)
        await tree.main.interrupt("enough")
        assert set(sleeper.ended) <= {"cancelled"}
        with pytest.raises(SessionFailed, check=has_cause("interrupted"), match="enough"):
            await waiting
        with pytest.raises(ExecutionError, match="aborted"):
            await outside
        assert "aborted" in {fact.outcome for fact in await facts_of(tree, CallResolved)}
        assert await tree.main.send("and now?") == "went on"
        assert (await tree.main.call("append")).output == "appended x"
        assert len(await facts_of(tree, TurnStarted, "main")) == 2


@pytest.mark.covers("Z2", "C12")
@pytest.mark.on_ray
async def test_it_reaches_everything_below(open_tree: Opener, board: Switchboard) -> None:
    """The program's Branch lives on and hears; what a model spawned ends; nobody's report wakes a model."""
    sleeper, watcher = Sleeper(board), Watcher(board)
    model = ScriptedModel(
        {
            "main": ["first", "second"],
            "main/b1": [
                script_call("sessions_spawn", kind="worker", task="look"),
                script_call("sleeper"),
                "branch again",
            ],
            "*": [script_call("watcher")],
        }
    )
    async with open_tree(model, tools=[sleeper, watcher]) as tree:
        assert await tree.main.send("hello") == "first"
        branch = await tree.main.spawn("branch", "go")
        await sleeper.started.wait()
        await watcher.started.wait()
        lines = await tree.main.interrupt("enough")
        assert {line.session_id: str(line.status) for line in lines} == {
            "main": "suspended",
            "main/b1": "suspended",
            "main/b1/w1": "cancelled",
        }
        assert sleeper.ended == ["cancelled"]
        assert watcher.ended == ["cancelled"]
        begun = (await facts_of(tree, InterruptBegun))[0]
        assert begun.sessions == ("main", "main/b1")
        assert await branch.send("once more") == "branch again"
        assert (await branch.result()).status is SessionStatus.COMPLETED
        assert await tree.main.send("hello") == "second"
        assert [fact.turn for fact in await facts_of(tree, TurnStarted, "main")] == [1, 2]
        assert [fact.turn for fact in await facts_of(tree, TurnStarted, "main/b1")] == [1, 2, 3]


async def test_requests_are_withdrawn_and_nothing_wakes_the_session(open_tree: Opener) -> None:
    """A call that waits for an approval, its model gone on, ends too; nobody can approve it later."""
    model = ScriptedModel([script_call("launch"), "it waits", "heard"])
    limits = Limits(approval_patience_s=0)
    async with open_tree(model, tools=TOOLS, limits=limits) as tree:
        assert await tree.main.send("go") == "it waits"
        (request,) = await asked(tree)
        await tree.main.interrupt("enough")
        with pytest.raises(AnswerTooLate):
            await request.approve()
        assert tree.approvals.pending() == []
        assert [fact.by for fact in await facts_of(tree, ApprovalDecided)] == ["stop"]
        assert len(await facts_of(tree, TurnStarted)) == 2
        assert await tree.main.send("and now?") == "heard"
        assert "enough" in tree.main.history()[-3].text  # the notice waited for the message
        assert effects(open_tree.workspace) == []


async def test_session_that_rests_keeps_its_word_and_one_that_ended_is_closed(open_tree: Opener) -> None:
    """Interrupting what does nothing changes nothing, however often; an ended one can't be interrupted."""
    async with open_tree(FunctionModel(lambda request: f"word {request.turn}")) as tree:
        await tree.main.interrupt()
        assert await tree.main.send("one") == "word 1"
        for _ in range(2):
            (line,) = await tree.main.interrupt()
            assert line.status is SessionStatus.SUSPENDED
        assert await tree.main.send("two") == "word 2"
        branch = await tree.main.spawn("branch", "go")
        await until(tree, ResultHeld, where=lambda fact: fact.session == branch.session_id)
        await tree.main.interrupt()
        assert (await branch.result()).status is SessionStatus.COMPLETED
        worker = await tree.main.spawn("worker", "look")
        await worker.result()
        with pytest.raises(SessionClosed):
            await worker.interrupt()
        with pytest.raises(ConfigError, match="reason"):
            await tree.main.interrupt(7)  # type: ignore[arg-type]
        await tree.cancel()


async def test_interrupted_session_can_be_cancelled(open_tree: Opener, board: Switchboard) -> None:
    """It ends at once, as it was asked to."""
    hangs = Flag(board)
    async with open_tree(AsyncFunctionModel(Hanging(hangs))) as tree:
        worker = await tree.main.spawn("worker", "hang")
        await hangs.wait()
        await worker.interrupt("enough")
        (line,) = await worker.cancel("over")
        assert (line.status, line.forced) == (SessionStatus.CANCELLED, False)


async def test_interrupt_outlives_the_process(open_tree: Opener, board: Switchboard) -> None:
    """Taken up again, the session still rests: nothing is repeated, and no model asked, before a message."""
    sleeper = Sleeper(board)
    tree = await open_tree(ScriptedModel([script_call("sleeper")]), tools=[sleeper]).start()
    reply = tree.main.send("go")
    await sleeper.started.wait()
    await tree.main.interrupt("enough")
    with pytest.raises(SessionFailed, check=has_cause("interrupted")):
        await reply
    await tree.close()
    model = ScriptedModel([script_call("sleeper"), "went on"])
    async with await open_tree.resume(tree.tree_id, model, tools=[sleeper]) as tree:
        assert await tree.main.send("and now?") == "went on"
        assert sleeper.ended == ["cancelled"]
        assert len(await facts_of(tree, TurnStarted)) == 2


@pytest.mark.slow
async def test_call_that_does_not_heed_is_left_behind(open_tree: Opener, board: Switchboard) -> None:
    """The interrupt returns all the same, after the patience that any cancelled call is given."""
    deaf = Deaf(board)
    async with open_tree(ScriptedModel([script_call("deaf"), "went on"]), tools=[deaf]) as tree:
        tree.main.send("go")
        await deaf.started.wait()
        await tree.main.interrupt("enough")
        assert await tree.main.send("and now?") == "went on"
        deaf.let_go.set()
        await deaf.done.wait()


async def test_steering_message_cuts_a_hung_model_call(open_tree: Opener, board: Switchboard) -> None:
    """The next turn begins at once and hears both; both are answered by it."""
    hangs = Flag(board)
    async with open_tree(AsyncFunctionModel(Hanging(hangs))) as tree:
        waiting = tree.main.send("hang")
        await hangs.wait()
        assert await tree.main.send("go on", mode="steer") == "heard go on"
        assert await waiting == "heard go on"
        assert [fact.turn for fact in await facts_of(tree, TurnCut)] == [1]
