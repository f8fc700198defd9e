"""How sessions end: asked to, by time, with their parent; nothing below them stays."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import (
    AsyncFunctionModel,
    FunctionModel,
    Limits,
    ModelRequest,
    ScriptedModel,
    SessionClosed,
    SessionFailed,
    SessionKind,
    SessionStatus,
    SessionTreeError,
    SpawnRefused,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallHeld, Stopping
from sessiontree.contracts.facts.tree_facts import CancelBegun, SessionAdopted, SessionEnded, SessionSpawned
from sessiontree.models.answers import Answer
from sessiontree.runtime.timing.clock import read_machine_ms
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, results, until
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Deaf, Sleeper

BRANCH = script_call("sessions_spawn", kind="branch", task="go on")
WORKER = script_call("sessions_spawn", kind="worker", task="look")


def family(request: ModelRequest) -> Answer:
    """Main and its Branches have two children each, down to depth 2; Workers sleep."""
    if request.kind is SessionKind.WORKER:
        return script_call("sleeper") if request.turn == 1 else "awake"
    if request.turn == 1:
        return [BRANCH, WORKER] if request.session_id.count("/") < 2 else script_call("launch")
    return "well"


@pytest.mark.covers("STP2")
async def test_receipt_lists_every_descendant_and_how_it_ended(open_tree: Opener, board: Switchboard) -> None:
    """Cancelling in the middle of everything: sleeping tools, pending approvals, waiting parents."""
    sleeper = Sleeper(board)
    tools = [*TOOLS, sleeper]
    limits = Limits(approval_patience_s=None)
    async with open_tree(FunctionModel(family), tools=tools, limits=limits) as tree:
        await tree.main.send("go")
        await asked(tree)
        await until(tree, SessionSpawned, count=5)
        await sleeper.started.wait()
        receipt = await tree.session("main/b1").cancel("enough")
        assert [(line.session_id, str(line.status), line.forced) for line in receipt] == [
            ("main/b1", "cancelled", False),
            ("main/b1/b1", "cancelled", False),
            ("main/b1/w1", "cancelled", False),
        ]
        assert [line.session_id for line in tree.receipt() if not line.status.is_final] == ["main", "main/w1"]
        whole = await tree.cancel("all of it")
        assert whole == tree.receipt()
        assert {str(line.status) for line in whole} == {"cancelled"}
        assert len(whole) == 5
        assert tree.approvals.pending() == []
        assert effects(open_tree.workspace) == []
        ended = [fact.session for fact in await facts_of(tree, SessionEnded)]
        assert ended.index("main/b1/b1") < ended.index("main/b1")
        assert ended[-1] == "main"
        assert sleeper.ended in (["cancelled"] * 2, ["cancelled"])
        with pytest.raises(SessionClosed):
            await tree.main.send("still there?")
        assert await tree.cancel() == whole


@pytest.mark.covers("STP1")
@pytest.mark.on_ray
async def test_cancelling_tells_a_session_why_before_it_ends(open_tree: Opener, board: Switchboard) -> None:
    """The wrap-up is the session's own: its calls end aborted, and whoever waits for it is informed."""
    sleeper = Sleeper(board)
    async with open_tree(ScriptedModel([script_call("sleeper"), "done"]), tools=[sleeper]) as tree:
        worker = await tree.main.spawn("worker", "look")
        await sleeper.started.wait()
        waiting = worker.send("and?")
        receipt = await worker.cancel("the user left")
        with pytest.raises(SessionClosed, match="the user left"):
            await waiting
        result = await worker.result()
        assert (result.status, receipt[0].summary) == (SessionStatus.CANCELLED, result.summary)
        assert "the user left" in result.summary
        assert [fact.reason for fact in await facts_of(tree, Stopping)] == ["the user left"]
        assert "aborted" in results(tree, "main/w1")[0].text


async def test_program_that_waits_for_a_reply_learns_of_the_end(
    open_tree: Opener, board: Switchboard
) -> None:
    """``send`` and ``call`` under way at the end raise; they never hang."""
    asked_model = Flag(board)

    async def never(request: ModelRequest) -> str:
        asked_model.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    async with open_tree(AsyncFunctionModel(never), tools=TOOLS) as tree:
        saying = tree.main.send("hello")
        await asked_model.wait()
        calling = asyncio.create_task(tree.main.call("append"))
        await until(tree, CallHeld, where=lambda fact: fact.held)
        await tree.cancel("over")
        async with asyncio.timeout(60):
            with pytest.raises((SessionClosed, SessionFailed), match="over"):
                await saying
            with pytest.raises(SessionTreeError, match="over"):
                await calling
        assert effects(open_tree.workspace) == []


@pytest.mark.on_ray
async def test_finishing_completes_main_and_cancels_what_still_runs(
    open_tree: Opener, board: Switchboard
) -> None:
    """The owner's final message is Main's; what lives below is asked to stop."""
    async with open_tree(FunctionModel(family), tools=[*TOOLS, Sleeper(board)]) as tree:
        await tree.main.send("go")
        receipt = await tree.finish("all done")
        assert (receipt[0].session_id, receipt[0].status) == ("main", SessionStatus.COMPLETED)
        assert receipt[0].summary == "all done"
        assert {line.status for line in receipt[1:]} == {SessionStatus.CANCELLED}
        assert (await tree.main.result()).summary == "all done"


@pytest.mark.covers("Z2")
@pytest.mark.parametrize("own", [True, False], ids=["its own", "its kind's"])
async def test_session_ends_when_its_time_to_live_is_over(
    open_tree: Opener, board: Switchboard, own: bool
) -> None:
    """It has expired, and so has everything below it; its siblings live."""
    for moment_s in open_tree.longer_moments():
        sleeper = Sleeper(board)
        limits = Limits() if own else Limits(branch_ttl_s=moment_s, worker_ttl_s=None)
        model = ScriptedModel(
            {"main/b1": [WORKER, "waiting"], "main/b1/w1": [script_call("sleeper")], "*": ["done"]}
        )
        async with open_tree(model, tools=[sleeper], limits=limits) as tree:
            branch = await tree.main.spawn("branch", "go", ttl_s=moment_s if own else None)
            assert (await branch.result()).status is SessionStatus.EXPIRED
            main, *below = (line.status for line in tree.receipt())
            assert main in {SessionStatus.SUSPENDED, SessionStatus.ACTIVE}
            assert set(below) == {SessionStatus.EXPIRED}
            assert await tree.main.send("you live?") == "done"
            if sleeper.ended:  # else the machine was so busy that the moment was over before
                assert len(below) == 2
                assert sleeper.ended == ["cancelled"]
                return
    pytest.fail("the Worker never got to work")


async def test_time_to_live_counts_from_the_first_host(open_tree: Opener, board: Switchboard) -> None:
    """However long the tree was quiet before: its time is the clock's."""
    sleeper = Sleeper(board)
    async with open_tree(
        ScriptedModel({"main": ["done"], "*": [script_call("sleeper")]}), tools=[sleeper]
    ) as tree:
        await tree.main.send("hello")
        quiet_since = read_machine_ms()
        quiet = asyncio.Event()
        asyncio.get_running_loop().call_later(0.03, quiet.set)
        await quiet.wait()
        worker = await tree.main.spawn("worker", "look", ttl_s=60)
        await until(tree, SessionAdopted)
        (adopted,) = await facts_of(tree, SessionAdopted)
        assert adopted.at_ms >= quiet_since + 25
        assert adopted.expires_at_ms == adopted.at_ms + 60_000
        assert worker.status().expires_at_ms == adopted.expires_at_ms


@pytest.mark.covers("END6")
async def test_children_end_with_their_parent(open_tree: Opener, board: Switchboard) -> None:
    """A Branch that ends against its will takes everything below it along, leaves first."""
    sleeper = Sleeper(board)
    model = ScriptedModel(
        {
            "main/b1": [[BRANCH, WORKER], "waiting"],
            "main/b1/b1": [WORKER, "waiting"],
            "*": [script_call("sleeper"), "awake"],
        }
    )
    async with open_tree(model, tools=[sleeper]) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, SessionSpawned, count=5)
        await branch.cancel()
        ended = [fact.session for fact in await facts_of(tree, SessionEnded)]
        assert set(ended) == {"main/b1", "main/b1/b1", "main/b1/b1/w1", "main/b1/w1"}
        for child in ended[:-1]:
            assert ended.index(child) < ended.index(child.rpartition("/")[0])


async def test_failed_branch_waits_for_its_children(open_tree: Opener, board: Switchboard) -> None:
    """A failing model ends its own session only after its children had their say."""
    sleeper = Sleeper(board, 0.05)

    def reply(request: ModelRequest) -> Answer:
        if request.kind is SessionKind.WORKER:
            return script_call("sleeper") if request.turn == 1 else "slept"
        if request.turn == 1:
            return WORKER
        raise ValueError("lost my mind")

    async with open_tree(FunctionModel(reply), tools=[sleeper]) as tree:
        branch = await tree.main.spawn("branch", "go")
        result = await branch.result()
        assert result.status is SessionStatus.FAILED
        assert "lost my mind" in result.summary
        assert (await tree.session("main/b1/w1").result()).status is SessionStatus.COMPLETED


async def test_stopping_session_spawns_nothing_more(open_tree: Opener, board: Switchboard) -> None:
    """Between being asked to stop and the end no child is started."""
    deaf = Deaf(board)
    async with open_tree(ScriptedModel([script_call("deaf"), "done"]), tools=[deaf]) as tree:
        branch = await tree.main.spawn("branch", "go")
        await deaf.started.wait()
        cancelling = asyncio.create_task(branch.cancel())
        await until(tree, CancelBegun)
        with pytest.raises((SpawnRefused, SessionClosed)):
            await branch.spawn("worker", "look")
        deaf.let_go.set()
        assert len(await cancelling) == 1


async def test_session_with_living_children_suspends_and_hears_them(open_tree: Opener) -> None:
    """A Branch's final message holds only once its children have ended; their results come together."""
    model = FunctionModel(
        lambda request: (
            [WORKER] * 3
            if request.kind is SessionKind.BRANCH and request.turn == 1
            else f"heard {sum(m.to_wire().get('origin') == 'child' for m in request.messages)}"
        )
    )
    async with open_tree(model) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "heard 3"
