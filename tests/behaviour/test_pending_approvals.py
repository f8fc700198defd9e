"""While an approval is out: the model goes on, the session does not end, one request stands for repeats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessiontree import (
    AnswerTooLate,
    FunctionModel,
    Limits,
    ModelRequest,
    Rule,
    ScriptedModel,
    SessionStatus,
    ToolCall,
    script_call,
)
from sessiontree.contracts.facts.session_facts import ApprovalWanted, CallParked
from sessiontree.contracts.facts.tree_facts import ApprovalRequested, ResultHeld
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, results, until
from tests.behaviour.tree_fixtures import Opener

NO_PATIENCE = Limits(approval_patience_s=0)
ENDLESS = Limits(approval_patience_s=None)


@pytest.mark.on_ray
async def test_session_does_not_complete_while_its_own_call_is_pending(open_tree: Opener) -> None:
    """A final message under a pending call only suspends; the outcome is a notice that wakes the session."""

    def reply(request: ModelRequest) -> str | ToolCall:
        if request.turn == 1:
            return script_call("launch", text="moon")
        return f"word {request.turn}"

    async with open_tree(FunctionModel(reply), tools=TOOLS, limits=NO_PATIENCE) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, ResultHeld, session="", where=lambda fact: fact.session == "main/b1")
        assert branch.status().status is SessionStatus.SUSPENDED
        (message,) = results(tree, "main/b1")
        assert '"status":"pending"' in message.text
        (pending,) = await asked(tree)
        assert pending.request.request_id in message.text
        await pending.approve()
        result = await branch.result()
        assert (result.status, result.summary) == (SessionStatus.COMPLETED, "word 3")
        last = branch.history()[-2].to_wire()
        assert (last["role"], last["origin"]) == ("user", "notice")
        assert "appended moon" in last["content"][0]["text"]
        assert "call_1_0" in last["content"][0]["text"]
        assert len(results(tree, "main/b1")) == 1
        assert len(effects(open_tree.workspace)) == 1


async def test_denied_parked_call_is_told_as_a_notice(open_tree: Opener) -> None:
    """The outcome of a parked call reaches the model whatever it is."""
    model = ScriptedModel([script_call("launch"), "meanwhile", "sorry"])
    async with open_tree(model, tools=TOOLS, limits=NO_PATIENCE) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await until(tree, CallParked)
        await pending.deny("no")
        assert (await branch.result()).summary == "sorry"
        assert "denied" in branch.history()[-2].to_wire()["content"][0]["text"]
        assert effects(open_tree.workspace) == []


@pytest.mark.covers("I32")
async def test_model_goes_on_after_the_trees_patience(open_tree: Opener) -> None:
    """With patience the turn waits that long for a person, and not longer."""
    model = ScriptedModel([[script_call("launch"), script_call("look")], "meanwhile", "done"])
    limits = Limits(approval_patience_s=0.05)
    async with open_tree(model, tools=TOOLS, limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, CallParked)
        (pending,) = await asked(tree)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert [message.tool_name for message in results(tree, "main/b1")] == ["launch", "look"]


async def test_new_message_ends_the_wait_for_an_approval(open_tree: Opener) -> None:
    """However patient the tree is, news for the session park the call and the model hears them."""
    model = ScriptedModel({"main": [script_call("launch"), "heard you", "all done"]})
    async with open_tree(model, tools=TOOLS, limits=ENDLESS) as tree:
        first = tree.main.send("go")
        (pending,) = await asked(tree)
        assert await tree.main.send("and now?") == "heard you"
        assert await first == "heard you"
        await pending.approve()
        await until(tree, ResultHeld, where=lambda fact: fact.result.summary == "all done")
        assert len(effects(open_tree.workspace)) == 1


async def test_without_patience_limits_the_turn_waits_for_its_answer(open_tree: Opener) -> None:
    """With ``approval_patience_s=None`` the call's own result is in the transcript, and no notice."""
    model = ScriptedModel([[script_call("launch"), script_call("look")], "done"])
    async with open_tree(model, tools=TOOLS, limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert [message.text for message in results(tree, "main/b1")] == ["appended x", "looked at x"]
        assert not await facts_of(tree, CallParked)


async def test_repeat_of_a_pending_call_joins_it(open_tree: Opener) -> None:
    """The same call asked again makes no second prompt, and one yes is one effect."""
    model = ScriptedModel(
        [script_call("launch"), [script_call("launch"), script_call("launch")], "waiting", "done"]
    )
    async with open_tree(model, tools=TOOLS, limits=NO_PATIENCE) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, ResultHeld)
        (pending,) = await asked(tree)
        assert len(await facts_of(tree, ApprovalWanted)) == len(await facts_of(tree, ApprovalRequested)) == 1
        joined = results(tree, "main/b1")[1:]
        assert len(joined) == 2
        assert all(pending.request.request_id in message.text for message in joined)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert len(effects(open_tree.workspace)) == 1


async def test_same_call_after_its_answer_asks_again(open_tree: Opener) -> None:
    """A yes is for one call: the next one with the same arguments is asked for itself."""
    model = ScriptedModel([script_call("launch"), script_call("launch"), "done"])
    async with open_tree(model, tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go")
        for count in (1, 2):
            (pending,) = await asked(tree, count)
            await pending.approve()
        await branch.result()
        assert len(effects(open_tree.workspace)) == 2


@pytest.mark.on_ray
async def test_many_requests_of_one_reply_are_answered_in_any_order(open_tree: Opener) -> None:
    """Each call has its own request; results stand in call order, whatever the order of the answers."""
    reply: Answer = [script_call("launch", text=str(number)) for number in range(5)]
    async with open_tree(ScriptedModel([reply, "done"]), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go")
        pending = await asked(tree, 5)
        for each in reversed(pending):
            if each.request.arguments["text"] == "2":
                await each.deny()
            else:
                await each.approve()
        await branch.result()
        texts = [message.text for message in results(tree, "main/b1")]
        assert [text for text in texts if "denied" not in text] == [f"appended {n}" for n in (0, 1, 3, 4)]
        assert "denied" in texts[2]
        assert sorted(text for _, text in effects(open_tree.workspace)) == ["0", "1", "3", "4"]


async def test_call_that_an_always_lets_run_is_never_pending(open_tree: Opener) -> None:
    """However short the patience: what runs at once has its own result."""
    model = ScriptedModel(
        {"main": [script_call("launch", text="one"), "waiting", "told"], "*": [script_call("launch"), "done"]}
    )
    async with open_tree(model, tools=TOOLS, limits=NO_PATIENCE) as tree:
        tree.main.send("go")
        (pending,) = await asked(tree)
        await until(tree, CallParked)
        await pending.approve(always=True)
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        assert [message.text for message in results(tree, "main/b1")] == ["appended x"]
        assert len(await facts_of(tree, CallParked)) == 1


@pytest.mark.parametrize("mode", ["auto", "rule"])
async def test_what_nobody_is_asked_about_is_never_pending(open_tree: Opener, mode: str) -> None:
    """The same where the tree's mode or a rule answers."""
    model = ScriptedModel([[script_call("launch"), script_call("look")], "done"])
    options: dict[str, Any] = {"approvals": "auto"}
    if mode == "rule":
        options = {"approver": [Rule(tool="launch", answer="approve")]}
    async with open_tree(model, tools=TOOLS, limits=NO_PATIENCE, **options) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        assert [message.text for message in results(tree, "main/b1")] == ["appended x", "looked at x"]


@pytest.mark.slow
async def test_yes_to_who_is_cancelled_in_the_same_moment_is_told(open_tree: Opener) -> None:
    """Whoever says yes learns that it was of no use; nobody hears "approved" of what did not run."""
    for _ in range(5):
        model = ScriptedModel([script_call("launch"), "done"])
        async with open_tree(model, tools=TOOLS, limits=ENDLESS) as tree:
            before = len(effects(open_tree.workspace))
            branch = await tree.main.spawn("branch", "go")
            (pending,) = await asked(tree)
            approving = asyncio.ensure_future(pending.approve())
            cancelling = asyncio.ensure_future(branch.cancel())
            await asyncio.wait([approving, cancelling])
            ran = len(effects(open_tree.workspace)) - before
            error = approving.exception()
            assert ran or isinstance(error, AnswerTooLate), "reported that it was approved, and nothing ran"
            assert error is None or "cancelled" in str(error)
            assert cancelling.exception() is None
