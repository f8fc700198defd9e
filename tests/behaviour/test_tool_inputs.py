"""A running call that needs a person's input: asked like a question, answered, and run again with it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from sessiontree import AnswerTooLate, Limits
from sessiontree.contracts.facts.session_facts import CallDelegated, CallIntended, CallResolved, InputGiven
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results, until
from tests.behaviour.question_fixtures import ENDLESS, waiting
from tests.behaviour.tool_input_fakes import AskingTool
from tests.behaviour.tool_input_fixtures import AGENTS, booking_model
from tests.behaviour.tree_fixtures import Opener


async def test_two_rounds_keep_their_order_and_the_state(open_tree: Opener) -> None:
    """Each round has an id of its own; the answers reach the tool, and the journal says by whom."""
    tools = [AskingTool()]
    async with open_tree(booking_model(2), tools=tools, agents=AGENTS, limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (first,) = await waiting(tree)
        assert first.question.items[0].question == "Part 1?"
        await first.answer("one", surface="notebook")
        (second,) = await waiting(tree, 2)
        assert second.question.items[0].question == "Part 2?"
        assert second.question.question_id != first.question.question_id
        with pytest.raises(AnswerTooLate, match="already answered"):
            await first.answer("again")
        await second.answer("two", surface="terminal")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert json.loads(message.text) == {"taken": ["one", "two"]}
        given = await facts_of(tree, InputGiven)
        assert [(fact.by, fact.surface) for fact in given] == [("person", "notebook"), ("person", "terminal")]
        assert given[1].input.state == {"taken": ["one"], "request_state": "opaque"}
        assert len(await facts_of(tree, CallIntended)) == 1
        assert [each.how for each in await facts_of(tree, ClientCallEnded)] == ["ok", "ok"]


async def test_input_where_nobody_can_be_asked_is_an_error_at_once(open_tree: Opener) -> None:
    """The model hears so and goes on."""
    tools = [AskingTool()]
    async with open_tree(booking_model(1), tools=tools, agents=AGENTS, limits=ENDLESS, channel=None) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert "nobody can be asked" in message.text
        assert await facts_of(tree, CallDelegated) == []


async def test_input_that_nobody_gives_expires(open_tree: Opener) -> None:
    """The call ends with an error, and never runs again."""
    limits, tools = Limits(approval_patience_s=None, approval_expiry_s=0.3), [AskingTool()]
    async with open_tree(booking_model(1), tools=tools, agents=AGENTS, limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert "nobody answered within" in message.text
        assert await facts_of(tree, InputGiven) == []


async def test_interrupt_ends_a_call_that_waits_for_input(open_tree: Opener) -> None:
    """Its question is withdrawn, and an answer after that is refused."""
    tools = [AskingTool()]
    async with open_tree(booking_model(1), tools=tools, agents=AGENTS, limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        await branch.interrupt()
        await until(tree, CallResolved)
        with pytest.raises(AnswerTooLate):
            await one.answer("late")


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_input_is_given_after_a_kill(open_tree: Opener) -> None:
    """SIGKILL while it waits; resumed elsewhere it has the same id, and the second round follows."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.behaviour.tool_input_program"),
        *(open_tree.backend, open_tree.workspace, open_tree.state_dir),
        stdout=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert program.stdout is not None
            tree_id, question_id = (await program.stdout.readline()).decode().split()
    finally:
        program.kill()
    assert await program.wait() == -signal.SIGKILL
    resumed = open_tree.resume(tree_id, booking_model(2), tools=[AskingTool()])
    async with await resumed as tree, asyncio.timeout(PATIENCE_S):
        (again,) = tree.questions.pending()
        assert again.question.question_id == question_id
        await again.answer("one")
        (second,) = await waiting(tree, 2)
        await second.answer("two")
        assert (await tree.session("main/b1").result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert json.loads(message.text) == {"taken": ["one", "two"]}
