"""Answers of the creating program while messages are lost, repeated and late, and hosts die under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sessiontree import (
    AnswerTooLate,
    ClientTool,
    FunctionModel,
    Hook,
    HookContext,
    Limits,
    ModelRequest,
    PermissionTier,
    SessionTree,
    script_call,
)
from sessiontree.backends.local.backend import Faults
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.facts.stimuli import ClientAnswered
from sessiontree.contracts.facts.tree_facts import ClientCallEnded as Closed
from sessiontree.contracts.facts.tree_facts import ClientCallOpened
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.hooks import EndedCall
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.models.answers import Answer
from sessiontree.runtime.scheduling.live_session import LiveSession
from tests.behaviour.fact_fixtures import facts_of, results
from tests.unit.runtime.runtime_fakes import FaultyRuntime, KillAt, faults_of

PATIENCE_S = 60.0
ROUNDS = 3
CALLS = 3


class Question(BaseModel):
    """What is asked."""

    text: str


TOOLS = (
    ClientTool("ask", "Ask.", Question, tier=PermissionTier.WORKSPACE, timeout_s=600.0),
    ClientTool("peek", "Look.", Question, tier=PermissionTier.READ_ONLY, timeout_s=600.0),
)


def reply(request: ModelRequest) -> Answer:
    """Ask several things a few times, then end."""
    asked = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if asked >= ROUNDS:
        return "done"
    return [script_call(("ask", "peek")[number % 2], text=f"{asked}.{number}") for number in range(CALLS)]


async def serve(tree: SessionTree, told: dict[str, str]) -> None:
    """Answer each call twice; note the answer that was acknowledged, and that it is durable by then."""
    async for waiting in tree.client_calls:
        for word in ("first", "second"):
            answer = f"{word} {waiting.params.text}"
            try:
                await waiting.answer(answer)
            except AnswerTooLate:
                continue
            assert waiting.call_id not in told, "two answers of one call were taken"
            told[waiting.call_id] = answer
            durable = [fact.message.text for fact in await facts_of(tree, CallResolved)]
            assert answer in durable, "an answer was acknowledged and is not durable"


async def run(directory: Path, faults: Faults | None, hooks: tuple[Hook, ...] = ()) -> None:
    """Let a Branch ask all it asks under faults, and check that what was acknowledged is what it heard."""
    workspace = directory / "workspace"
    workspace.mkdir(parents=True)
    async with FaultyRuntime(directory / "state", faults, 1) as runtime:
        tree = SessionTree(
            workspace,
            model=FunctionModel(reply),
            tools=TOOLS,
            limits=Limits(approval_patience_s=None),
            runtime=runtime,
            hooks=hooks,
        )
        told: dict[str, str] = {}
        async with tree, asyncio.timeout(PATIENCE_S):
            serving = asyncio.create_task(serve(tree, told))
            branch = await tree.main.spawn("branch", "go")
            assert (await branch.result()).summary == "done"
            await tree.finish("over")
            await serving
            opened = {fact.call.call_id: fact for fact in await facts_of(tree, ClientCallOpened)}
            closed = {fact.client_id: fact for fact in await facts_of(tree, Closed)}
            assert opened.keys() == closed.keys() == told.keys()
            assert all(fact.how == "ok" and fact.answer_id for fact in closed.values())
            heard = [message.text for message in results(tree, "main/b1")]
            expected = [f"{turn}.{number}" for turn in range(ROUNDS) for number in range(CALLS)]
            assert [text.partition(" ")[2] for text in heard] == expected
            assert sorted(heard) == sorted(told.values())


@pytest.mark.short(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_acknowledged_answer_is_what_the_session_heard(tmp_path: Path, seed: int) -> None:
    """Whatever is lost, repeated or late, however many hosts die: one answer each, durable when reported."""
    await run(tmp_path, faults_of(seed, deaths=3 * (seed % 2)))


@pytest.mark.short(5)
@pytest.mark.slow
@pytest.mark.parametrize("point", range(3, 60, 4))
async def test_host_that_dies_at_any_point_loses_no_answer(tmp_path: Path, point: int) -> None:
    """Its next host hears every answer again that was not settled."""
    await run(tmp_path, KillAt(point))


class Slow(Hook):
    """Lets the loop go round before a result is kept, so that hosts die meanwhile."""

    name = "slow"

    async def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.mark.short(3)
@pytest.mark.slow
@pytest.mark.parametrize("point", range(6, 40, 4))
async def test_host_that_dies_while_hooks_look_at_an_answer_loses_none(tmp_path: Path, point: int) -> None:
    """Taken in is not taken: an answer on its way past the hooks is brought to the next host."""
    await run(tmp_path, KillAt(point), (Slow(),))


async def test_answer_asked_about_again_is_taken_once(tmp_path: Path) -> None:
    """A program that asks again after its supervisor was lost hears that this very answer was taken."""
    async with FaultyRuntime(tmp_path / "state") as runtime:
        tree = SessionTree(tmp_path, model=FunctionModel(reply), tools=TOOLS, runtime=runtime)
        async with tree, asyncio.timeout(PATIENCE_S):
            asking = asyncio.ensure_future(tree.main.call("ask", {"text": "now"}))
            waiting = await anext(aiter(tree.client_calls))
            supervisor, given = runtime.local.supervisor, ClientAnswer(ToolResult("yes"))
            for again in (False, True):
                await supervisor.answer(tree.tree_id, waiting.call_id, given, "a1", again)
            assert (await asking).text == "yes"
            for answer_id, again in (("a1", False), ("a2", True)):
                with pytest.raises(AnswerTooLate, match="is ok"):
                    await supervisor.answer(tree.tree_id, waiting.call_id, given, answer_id, again)


def test_answer_that_is_on_its_way_already_is_not_brought_twice() -> None:
    """What waits for the next host is not added to it again."""

    def check(bring: Callable[[LiveSession], None]) -> None:
        live: Any = LiveSession(None, "main/b1", None, dedicated=False)  # type: ignore[arg-type]
        answered = [ClientAnswered(0, "c", name, ClientAnswer(None, "no")) for name in ("a", "b")]
        live.answers = {each.answer_id: each for each in answered}
        bring(live)
        bring(live)
        assert [each.stimulus.answer_id for each in live.waiting] == ["a", "b"]

    check(LiveSession.requeue_answers)
    with pytest.raises(AssertionError):
        check(lambda live: None)
