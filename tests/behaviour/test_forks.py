"""Forks: a new tree from a prefix, in which no effect is repeated and every request is made again."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from sessiontree import (
    Budget,
    ClientTool,
    ConfigError,
    FunctionModel,
    LimitExceeded,
    ModelRequest,
    PermissionTier,
    ScriptedModel,
    SessionKind,
    SessionStatus,
    StoredTrees,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import (
    ApprovalWanted,
    CallDelegated,
    CallIntended,
    CallResolved,
    MessageReceived,
    RunFinished,
    SessionForked,
)
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ClientCallOpened,
    SessionAdopted,
    TreeForked,
)
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts, facts_of, records, results, until
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Held, Nothing

ECHO = FunctionModel(lambda request: f"heard {request.messages[-1].text}")


class Doing(Held):
    """Changes something, and may be repeated; it waits until it is let go."""

    name = "doing"
    tier = PermissionTier.WORKSPACE
    idempotent: ClassVar[bool] = True
    kinds = frozenset({SessionKind.MAIN})


def launching(request: ModelRequest) -> Answer:
    """Launch once, then report."""
    return [script_call("launch", text="moon")] if request.turn == 1 else f"said {len(request.messages)}"


@pytest.mark.on_ray
async def test_fork_shares_the_first_facts_and_goes_its_own_way(open_tree: Opener) -> None:
    """Both trees go on from the same conversation; neither knows of the other; the fork is one of its own."""
    async with open_tree(ECHO) as tree:
        await tree.main.send("one")
        shared = await records(tree)
        await tree.main.send("two")
        before = await records(tree)
        async with await tree.fork(at=shared[-1].seq) as fork:
            assert fork.tree_id != tree.tree_id
            assert (await fork.main.send("other"))[:] == "heard other"
            said = [message.text for message in fork.main.history()]
            assert said == ["one", "heard one", "other", "heard other"]
            own = await records(fork)
            assert own[: len(shared)] == shared
            (point,) = await facts_of(fork, TreeForked)
            (origin,) = point.config.forks
            assert (origin.tree_id, origin.seq) == (tree.tree_id, shared[-1].seq)
            assert point.config.nonce != origin.nonce
        assert await records(tree) == before
        assert [message.text for message in tree.main.history()] == ["one", "heard one", "two", "heard two"]
        assert (await tree.main.send("three"))[:] == "heard three"


async def test_fork_of_a_fork_replays_too(open_tree: Opener) -> None:
    """Each part of the facts was decided with the ids of its own tree; approvals show them."""
    async with open_tree(FunctionModel(launching), tools=TOOLS) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        await asked(tree)
        async with await tree.fork() as fork:
            await asked(fork, 2)
            async with await fork.fork() as third:
                (pending,) = await asked(third, 3)
                await pending.approve()
                await until(third, RunFinished, session="main")
                assert len(effects(open_tree.workspace)) == 1
                reports = [
                    await StoredTrees(each.state_dir).replay(each.tree_id) for each in (tree, fork, third)
                ]
                assert len(third._config.forks) == 2
        (own,) = tree.approvals.pending()
        await own.deny()
        await sent
    assert all(report.matches for report in reports), reports


async def test_request_is_made_again_and_each_tree_has_its_own_answer(open_tree: Opener) -> None:
    """The fork's request has another id and the whole time; an answer to one does not answer the other."""
    async with open_tree(FunctionModel(launching), tools=TOOLS) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        (old,) = await asked(tree)
        async with await tree.fork() as fork:
            (new,) = await asked(fork, 2)
            assert new.request.request_id != old.request.request_id
            assert new.request.expires_at_ms >= old.request.expires_at_ms
            assert new.request.digest == old.request.digest
            (closed,) = await facts_of(fork, ApprovalDecided)
            assert (closed.request_id, closed.by) == (old.request.request_id, "fork")
            await old.deny("not here")
            await sent
            assert "not here" in results(tree, "main")[-1].text
            assert len(fork.approvals.pending()) == 1
            assert effects(open_tree.workspace) == []
            await new.approve()
            await until(fork, RunFinished, session="main")
            ((call_id, text),) = effects(open_tree.workspace)
            assert text == "moon"
            wanted = await facts_of(fork, ApprovalWanted)
            assert [fact.call.key for fact in wanted] == ["1.0", "1.0"]
            assert call_id
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.covers("REL-S42")
async def test_call_that_had_begun_is_unknown_and_not_repeated(open_tree: Opener, board: Switchboard) -> None:
    """Not even if its tool may be repeated: the other tree runs it, and its result belongs there."""
    tool = Doing(board)

    def reply(request: ModelRequest) -> Answer:
        return [script_call("doing")] if request.turn == 1 else "over"

    async with open_tree(FunctionModel(reply), tools=[tool]) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        await tool.started.wait()
        await until(tree, CallIntended, session="main")
        async with await tree.fork() as fork:
            (resolved,) = await until(fork, CallResolved, session="main")
            assert resolved.outcome == "unknown"
            assert '"may_have_run":true' in resolved.message.text
            assert "forked" in resolved.message.text
            await until(fork, RunFinished, session="main")
        tool.let_go.set()
        assert (await sent)[:] == "over"
        assert tool.ended == ["through"]


async def test_call_of_the_program_that_had_not_begun_is_skipped(open_tree: Opener) -> None:
    """Its caller is in the other tree, where it runs once."""
    async with open_tree(ECHO, tools=TOOLS) as tree:
        called = asyncio.ensure_future(tree.main.call("launch", {"text": "moon"}))
        (pending,) = await asked(tree)
        async with await tree.fork() as fork:
            (resolved,) = await facts_of(fork, CallResolved)
            assert resolved.outcome == "skipped"
            assert fork.approvals.pending() == []
            await pending.approve()
            await called
            assert (await fork.main.send("and you?"))[:] == "heard and you?"
        assert len(effects(open_tree.workspace)) == 1


async def test_program_is_asked_again_for_an_answer(open_tree: Opener) -> None:
    """A ReadOnly call that the program answers has another id in the fork; each tree takes its own answer."""

    def reply(request: ModelRequest) -> Answer:
        return [script_call("ask")] if request.turn == 1 else request.messages[-1].text

    tool = ClientTool("ask", "Ask the program.", Nothing, tier=PermissionTier.READ_ONLY)
    async with open_tree(FunctionModel(reply), tools=[tool]) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        await until(tree, ClientCallOpened)
        (old,) = tree.client_calls.pending()
        async with await tree.fork() as fork:
            await until(fork, ClientCallOpened, count=2)
            (new,) = fork.client_calls.pending()
            assert new.call_id != old.call_id
            await new.answer(ToolResult("here"))
            (finished,) = await until(fork, RunFinished, session="main")
            assert "here" in finished.text
            assert len(await facts_of(fork, CallDelegated)) == 2
        await old.answer(ToolResult("there"))
        assert "there" in (await sent)[:]


async def test_children_of_the_prefix_live_on_in_the_fork(open_tree: Opener) -> None:
    """A Branch that was there at the fork answers in both trees; later ones are in one of them."""
    async with open_tree(ECHO) as tree:
        branch = await tree.main.spawn("branch", "stay", stays_open=True)
        await until(tree, RunFinished, session="main/b1")
        async with await tree.fork() as fork:
            assert (await fork.session("main/b1").send("you?"))[:] == "heard you?"
            await tree.main.spawn("worker", "look")
            assert {line.session_id for line in fork.receipt()} == {"main", "main/b1"}
        assert (await branch.send("and you?"))[:] == "heard and you?"
        assert "you?" not in [message.text for message in branch.history()]


async def test_prefix_counts_against_the_budget(open_tree: Opener) -> None:
    """What the shared facts used is used in the fork too; each tree pays for what follows by itself."""
    async with open_tree(ECHO, tools=TOOLS, budget=Budget(tool_calls=2, sessions=2)) as tree:
        await tree.main.spawn("worker", "one")
        async with await tree.fork() as fork:
            await fork.main.spawn("worker", "two")
            with pytest.raises(LimitExceeded):
                await fork.main.spawn("worker", "three")
        await tree.main.spawn("worker", "two")


async def test_time_between_is_not_counted(open_tree: Opener) -> None:
    """A Branch of the prefix has as much time left in the fork as it had at the last shared fact."""
    async with open_tree(ECHO) as tree:
        branch = await tree.main.spawn("branch", "stay", stays_open=True, ttl_s=600.0)
        await until(tree, SessionAdopted, where=lambda fact: fact.session == "main/b1")
        await until(tree, MessageReceived, session="main/b1")
        async with await tree.fork() as fork:
            (point,) = await facts_of(fork, TreeForked)
            marks = await facts_of(fork, SessionForked)
            shared = (await records(fork))[: point.config.forks[-1].seq]
            assert point.shift_ms == point.at_ms - max(record.at_ms for record in shared)
            assert {mark.shift_ms for mark in marks} == {point.shift_ms}
            later = fork.session("main/b1").status().expires_at_ms
            earlier = branch.status().expires_at_ms
            assert earlier is not None
            assert later == earlier + point.shift_ms


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, "the facts 1 to"),
        (-3, "the facts 1 to"),
        (10_000, "the facts 1 to"),
        (True, "can't be forked at fact True"),
        (1, "belongs together with the facts 1 to 2"),
    ],
)
async def test_fork_at_no_place_says_where(open_tree: Opener, at: int, words: str) -> None:
    """Nothing is written; the message names the facts there are, or the group's ends."""
    async with open_tree(ECHO) as tree:
        await tree.main.send("one")
        with pytest.raises(ConfigError, match=words):
            await tree.fork(at=at)
        before = {summary.tree_id for summary in await tree._runtime.trees()}  # type: ignore[union-attr]
        assert before >= {tree.tree_id}


async def test_every_place_is_a_fork_or_says_which_is(open_tree: Opener) -> None:
    """At each fact of a run: the fork replays without difference, or the next place is named."""
    async with open_tree(
        ScriptedModel([[script_call("append", text="x"), script_call("look", text="y")], "done"] * 3),
        tools=TOOLS,
    ) as tree:
        await tree.main.send("go")
        last = (await records(tree))[-1].seq
        made = 0
        for at in range(1, last + 1):
            try:
                tree_id = await StoredTrees(tree.state_dir).fork(tree.tree_id, at=at)
            except ConfigError as error:
                assert "fork at " in str(error)
                continue
            made += 1
            report = await StoredTrees(tree.state_dir).replay(tree_id)
            assert report.matches, (at, report)
        assert made >= 3


@pytest.mark.own_runtime
async def test_tree_that_ended_is_forked_before_its_end(open_tree: Opener) -> None:
    """Of the end nothing could go on; the message says where it was."""
    async with open_tree(ECHO) as tree:
        await tree.main.send("one")
        last = (await records(tree))[-1].seq
        await tree.finish("over")
        with pytest.raises(ConfigError, match="had ended by fact"):
            await tree.fork()
        tree_id, state_dir = tree.tree_id, tree.state_dir
    new_id = await StoredTrees(state_dir).fork(tree_id, at=last)
    async with await open_tree.resume(new_id, ECHO) as fork:
        assert fork.main.status().status is not SessionStatus.COMPLETED
        assert (await fork.main.send("more"))[:] == "heard more"
        received = [
            fact.message.text for fact in await facts(fork, "main") if isinstance(fact, MessageReceived)
        ]
        assert received == ["one", "more"]
