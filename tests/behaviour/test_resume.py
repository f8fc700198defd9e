"""A tree that was closed in the middle goes on where it was: nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessiontree import (
    AnswerTooLate,
    AsyncFunctionModel,
    Limits,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    ScriptedModel,
    SessionClosed,
    SessionStatus,
    SessionTreeError,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallIntended, CallParked, CallResolved, Opened
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, CancelBegun, SessionSpawned, TreeCreated
from sessiontree.contracts.values.session_ids import SessionIds, compute_session_key
from sessiontree.models.answers import Answer
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import LOG, TOOLS, Append, Look, Words, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of, records, results, until
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Sleeper

POINTS = [
    *(("main", turn) for turn in (1, 2, 3)),
    *((f"main/b{number}", turn) for number in (1, 2) for turn in range(1, 7)),
    *((f"main/b{number}/w1", turn) for number in (1, 2) for turn in (1, 2, 3)),
]


@pytest.mark.short(6)
@pytest.mark.covers("STP10")
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]} turn {point[1]}")
async def test_tree_closed_at_any_turn_comes_to_the_same_end(
    open_tree: Opener, board: Switchboard, point: tuple[str, int]
) -> None:
    """Closed without finishing whenever a session asks its model: the same results, every effect once."""
    reached = Flag(board)

    async def reply(request: ModelRequest) -> Answer:
        if (request.session_id, request.turn) == point:
            reached.set()
            await asyncio.get_running_loop().create_future()
        return household.reply(request)

    tree = await open_tree(AsyncFunctionModel(reply), tools=TOOLS, approvals="auto").start()
    tree.main.send("go")
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
    await tree.close()
    async with await open_tree.resume(tree.tree_id, household.WAITING, tools=TOOLS) as tree:
        await household.finished(tree)
        assert household.outcome(tree) == household.RESULTS
        unknown = [fact for fact in await facts_of(tree, CallResolved) if fact.outcome == "unknown"]
        done = household.done(open_tree.workspace)
        assert max(done.values(), default=0) <= 1
        assert len(household.EFFECTS - done) <= len(unknown)
        assert not done - household.EFFECTS


class Stuck(Append):
    """Has its effect, then waits for ever the first time."""

    name = "stuck"

    def __init__(self, board: Switchboard, *, waits: bool) -> None:
        self._waits = waits
        self.begun = Flag(board)

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        result = await super().execute(params, ctx)
        self.begun.set()
        if self._waits:
            await asyncio.get_running_loop().create_future()
        return result


class Repeatable(Stuck):
    """May run again with the same call id."""

    name = "repeatable"
    idempotent = True


class Observing(Stuck):
    """Changes nothing, as far as anybody is to know."""

    name = "observing"
    tier = PermissionTier.READ_ONLY


async def interrupted(open_tree: Opener, board: Switchboard, kind: type[Stuck]) -> str:
    """Close a tree while a tool of a Branch runs; return the tree's id."""
    first = kind(board, waits=True)
    tree = await open_tree(ScriptedModel([script_call(kind.name), "went on"]), tools=[first]).start()
    await tree.main.spawn("branch", "go")
    async with asyncio.timeout(PATIENCE_S):
        await first.begun.wait()
    await tree.close()
    return tree.tree_id


@pytest.mark.covers("EFF1", "EFF2")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_effect_that_may_have_happened_is_never_repeated(open_tree: Opener, board: Switchboard) -> None:
    """An intent without a result becomes ``unknown``; the model learns that it may have run."""
    tree_id = await interrupted(open_tree, board, Stuck)
    tools = [Stuck(board, waits=False)]
    async with await open_tree.resume(
        tree_id, ScriptedModel([script_call("stuck"), "went on"]), tools=tools
    ) as tree:
        assert (await tree.session("main/b1").result()).summary == "went on"
        (message,) = results(tree, "main/b1")
        assert message.is_error
        assert '"status":"unknown"' in message.text
        assert '"may_have_run":true' in message.text
        assert [fact.outcome for fact in await facts_of(tree, CallResolved)] == ["unknown"]
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.covers("EFF3")
@pytest.mark.parametrize(("kind", "intents"), [(Repeatable, 1), (Observing, 0)])
async def test_what_may_be_repeated_is_repeated_under_the_same_id(
    open_tree: Opener, board: Switchboard, kind: type[Stuck], intents: int
) -> None:
    """ReadOnly and idempotent calls run again, with the call id they had."""
    tree_id = await interrupted(open_tree, board, kind)
    model = ScriptedModel([script_call(kind.name), "went on"])
    async with await open_tree.resume(tree_id, model, tools=[kind(board, waits=False)]) as tree:
        assert (await tree.session("main/b1").result()).summary == "went on"
        assert results(tree, "main/b1")[0].text == "appended x"
        (first, again) = [call_id for call_id, _ in effects(open_tree.workspace)]
        assert first == again
        assert len(await facts_of(tree, CallIntended)) == intents


@pytest.mark.covers("DUR10")
async def test_tool_that_is_gone_after_the_resume_is_told_so(open_tree: Opener, board: Switchboard) -> None:
    """The call ends typed, the session goes on."""
    tree_id = await interrupted(open_tree, board, Repeatable)
    async with await open_tree.resume(tree_id, ScriptedModel([script_call("repeatable"), "went on"])) as tree:
        assert (await tree.session("main/b1").result()).summary == "went on"
        assert "no tool is named 'repeatable'" in results(tree, "main/b1")[0].text
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.covers("APP16")
@pytest.mark.parametrize("patience", [None, 0])
@pytest.mark.on_ray
async def test_pending_approval_survives_with_its_id(open_tree: Opener, patience: float | None) -> None:
    """The same request waits after the resume; one yes is one effect, and a second answer is refused."""
    limits = Limits(approval_patience_s=patience)
    model = ScriptedModel([script_call("launch", text="moon"), "meanwhile", "done"])
    tree = await open_tree(model, tools=TOOLS, limits=limits).start()
    branch = await tree.main.spawn("branch", "go")
    (before,) = await asked(tree)
    if patience == 0:
        await until(tree, CallParked)
    await tree.close()
    with pytest.raises(SessionTreeError):
        await before.approve()
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS) as tree:
        (after,) = tree.approvals.pending()
        assert after.request == before.request
        assert effects(open_tree.workspace) == []
        await after.approve()
        with pytest.raises(AnswerTooLate):
            await after.deny()
        result = await tree.session(branch.session_id).result()
        assert result.summary == ("done" if patience == 0 else "meanwhile")
        assert [text for _, text in effects(open_tree.workspace)] == ["moon"]


@pytest.mark.covers("APP14")
async def test_request_that_expired_meanwhile_is_denied_at_once(open_tree: Opener) -> None:
    """Time goes on while nobody keeps the tree."""
    limits = Limits(approval_expiry_s=0.05, approval_patience_s=None)
    model = ScriptedModel([script_call("launch"), "done"])
    tree = await open_tree(model, tools=TOOLS, limits=limits).start()
    await tree.main.spawn("branch", "go")
    await asked(tree)
    await tree.close()
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS) as tree:
        assert (await tree.session("main/b1").result()).summary == "done"
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.by) == ("expired", "time")
        assert effects(open_tree.workspace) == []


async def test_session_that_outlived_its_time_meanwhile_expires(
    open_tree: Opener, board: Switchboard
) -> None:
    """Its time to live ends though nobody was there to ring the bell."""
    for moment_s in open_tree.longer_moments():
        sleeper = Sleeper(board)
        tree = await open_tree(ScriptedModel([script_call("sleeper")]), tools=[sleeper]).start()
        worker = await tree.main.spawn("worker", "look", ttl_s=moment_s * 6)
        waits = [asyncio.ensure_future(each) for each in (sleeper.started.wait(), worker.result())]
        await asyncio.wait(waits, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        await tree.close()
        again = await open_tree.resume(tree.tree_id, ScriptedModel(["done"]), tools=[Sleeper(board)])
        async with again, asyncio.timeout(PATIENCE_S):
            result = await again.session("main/w1").result()
        assert result.status in {SessionStatus.EXPIRED, SessionStatus.COMPLETED}
        if sleeper.started.is_set():  # else the machine was so busy that its time was over before
            return
    pytest.fail("the Worker never got to work")


async def test_what_a_person_decided_for_good_stands(open_tree: Opener) -> None:
    """A denial still binds its call, an "always" still allows its tool, and the mode is the journal's."""
    model = ScriptedModel([script_call("launch", text="no"), script_call("append"), "done"])
    tree = await open_tree(model, tools=TOOLS).start()
    branch = await tree.main.spawn("branch", "go")
    (pending,) = await asked(tree)
    await pending.deny("never")
    await branch.result()
    await tree.close()
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS) as tree:
        with pytest.raises(PermissionDenied, match="said no"):
            await tree.main.call("launch", {"text": "no"})
        calling = asyncio.create_task(tree.main.call("launch", {"text": "yes"}))
        pending = (await asked(tree, 2))[0]
        await pending.approve(always=True)
        await calling
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS) as tree:
        assert (await tree.main.call("launch", {"text": "again"})).output == "appended again"
        with pytest.raises(PermissionDenied, match="said no"):
            await tree.main.call("launch", {"text": "no"})


@pytest.mark.covers("DUR10")
async def test_limits_and_rights_are_the_journals(open_tree: Opener) -> None:
    """A resumed tree has the limits and tools it was made with; new tools do not come in."""
    tree = await open_tree(ScriptedModel(["done"]), tools=[Look()], limits=Limits(max_children=1)).start()
    await tree.close()
    model = ScriptedModel({"main": [script_call("append"), "done"], "*": [script_call("launch"), "done"]})
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS) as tree:
        assert await tree.main.send("go") == "done"
        assert results(tree, "main")[0].is_error
        assert effects(open_tree.workspace) == []
        found = await tree.main.map("worker", ["1", "2", "3"])
        assert len(found) == 3


@pytest.mark.on_ray
async def test_finished_tree_can_be_read_again(open_tree: Opener) -> None:
    """Results, receipts, transcripts and facts are all there; nothing runs, nothing can be said."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        await tree.main.send("go")
        await household.finished(tree)
        receipt = await tree.finish("over")
        history = tree.session("main/b1").history()
    async with await open_tree.resume(tree.tree_id, household.MODEL, tools=TOOLS) as again:
        assert again.receipt() == receipt
        assert again.session("main/b1").history() == history
        assert (await again.main.result()).summary == "over"
        assert (await again.session("main/b2").result()).summary == "tidied up"
        assert [record.seq async for record in again.events()] == list(
            range(1, len(await records(again)) + 1)
        )
        with pytest.raises(SessionClosed):
            await again.main.send("more")
        assert len(await facts_of(again, Opened)) == 5
    assert household.done(open_tree.workspace) == household.EFFECTS


@pytest.mark.on_ray
async def test_cancel_that_was_under_way_is_carried_out(open_tree: Opener, board: Switchboard) -> None:
    """A tree asked to stop stops, whoever takes it up; nobody is asked again."""
    sleeper = Sleeper(board)
    tree = await open_tree(ScriptedModel([script_call("sleeper"), "awake"]), tools=[sleeper]).start()
    await tree.main.spawn("worker", "look")
    await sleeper.started.wait()
    cancelling = asyncio.create_task(tree.cancel("enough"))
    await until(tree, CancelBegun)
    await tree.close()
    await asyncio.wait({cancelling})
    async with await open_tree.resume(tree.tree_id, ScriptedModel(["done"]), tools=[Sleeper(board)]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            result = await tree.main.result()
        assert result.status is SessionStatus.CANCELLED
        assert {str(line.status) for line in tree.receipt()} == {"cancelled"}
    if not cancelling.cancelled() and cancelling.exception() is not None:
        assert isinstance(cancelling.exception(), SessionTreeError)


async def test_call_of_the_program_that_was_under_way_ends_unknown(
    open_tree: Opener, board: Switchboard
) -> None:
    """Nobody waits for it any more; the session lives, and its effect is not repeated."""
    stuck = Stuck(board, waits=True)
    tree = await open_tree(ScriptedModel(["done"]), tools=[stuck]).start()
    calling = asyncio.create_task(tree.main.call("stuck"))
    await stuck.begun.wait()
    await tree.close()
    with pytest.raises(SessionTreeError):
        await calling
    async with await open_tree.resume(
        tree.tree_id, ScriptedModel(["done"]), tools=[Stuck(board, waits=False)]
    ) as tree:
        assert await tree.main.send("hello") == "done"
        assert [fact.outcome for fact in await facts_of(tree, CallResolved)] == ["unknown"]
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.slow
async def test_tree_may_be_closed_and_resumed_again_and_again(open_tree: Opener) -> None:
    """Closed after every few facts, a tree still comes to its one end."""
    tree = await open_tree(household.MODEL, tools=TOOLS, approvals="auto").start()
    tree.main.send("go")
    await until(tree, SessionSpawned, count=2)
    for _ in range(12):
        await tree.close()
        tree = await open_tree.resume(tree.tree_id, household.MODEL, tools=TOOLS)
        await asyncio.sleep(0)
    async with tree:
        await household.finished(tree)
        assert household.outcome(tree) == household.RESULTS
        assert max(household.done(open_tree.workspace).values(), default=0) <= 1


async def test_tree_that_is_open_is_not_taken_up_twice(open_tree: Opener) -> None:
    """Two keepers of one tree would write over each other."""
    async with open_tree.runtime() as runtime:
        async with open_tree(ScriptedModel(["done"]), runtime=runtime) as tree:
            with pytest.raises(SessionTreeError, match="open"):
                await open_tree.resume(tree.tree_id, ScriptedModel(["done"]), runtime=runtime)
            assert await tree.main.send("hello") == "done"
        again = await open_tree.resume(tree.tree_id, ScriptedModel(["back"]), runtime=runtime)
        async with again:
            assert await again.main.send("hello") == "back"


async def test_log_has_no_line_of_a_call_without_an_intent(open_tree: Opener) -> None:
    """REL-S43: whatever ran and changes something was intended before, as the journal has it."""
    tree = await open_tree(household.MODEL, tools=TOOLS, approvals="auto").start()
    tree.main.send("go")
    await household.finished(tree)
    intended = {f"{record}" for record in await _intents(tree)}
    assert {call_id for call_id, _ in effects(open_tree.workspace)} == intended
    assert (open_tree.workspace / LOG).exists()
    await tree.close()


async def _intents(tree: Any) -> list[str]:
    found = []
    (created,) = await facts_of(tree, TreeCreated)
    for session in ("main", *household.RESULTS):
        ids = SessionIds(session, compute_session_key(created.config.nonce, session))
        intended = [fact.call for fact in await facts_of(tree, CallIntended, session)]
        found += [ids.call(each.key) for each in intended if each.tool != "sessions_spawn"]
    return found
