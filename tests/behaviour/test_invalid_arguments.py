"""A model whose arguments never fit is stopped early; the tool never runs and the session goes on."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PermissionTier,
    QueueChannel,
    ScriptedModel,
    SessionKind,
    SessionStatus,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import (
    ArgumentsRejected,
    CallIntended,
    CallResolved,
    ChildTroubleNoted,
    ToolGivenUp,
)
from sessiontree.contracts.facts.tree_facts import ChannelSaid
from sessiontree.contracts.values.messages import UserMessage
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import facts, facts_of, results, until
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener


class Amount(BaseModel):
    """A number that must be small."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(ge=1, le=9)


class Pay(Tool[Amount]):
    """Leaves a trace whenever its body runs."""

    name = "pay"
    description = "Pay so much."
    Params: ClassVar[type[BaseModel]] = Amount
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    def __init__(self, board: Switchboard) -> None:
        self.paid = Log(board)

    async def execute(self, params: Amount, ctx: ToolContext) -> ToolResult:
        self.paid.append([ctx.call_id, params.count])
        return ToolResult("paid")


@pytest.mark.short(3)
@pytest.mark.covers("A28", "A29", "A26", "REL-P24")
@pytest.mark.parametrize(
    ("wrong", "attempts", "field"),
    [([10, 11, 12, 13], 3, "/count"), ([10, 10, 10, 10], 2, "/count"), ([10, 11, 11, 11], 3, "/count")],
    ids=["three different", "two identical", "different, then identical"],
)
@pytest.mark.parametrize("kind", ["branch", "worker"])
async def test_always_invalid_child_is_stopped_and_its_parent_told(
    open_tree: Opener, board: Switchboard, wrong: list[int], attempts: int, field: str, kind: str
) -> None:
    """REL-P21, REL-P24: at most 3 attempts (2 if identical), a typed fact here and at the parent."""
    child = f"main/{kind[0]}1"
    model = ScriptedModel(
        {
            "main": [script_call("sessions_spawn", kind=kind, task="pay"), "waiting", "understood"],
            child: [*(script_call("pay", count=count) for count in wrong), "went on"],
        }
    )
    pay = Pay(board)
    async with open_tree(model, tools=[pay]) as tree:
        await tree.main.send("go")
        result = await tree.session(child).result()
        assert (result.status, result.summary) == (SessionStatus.COMPLETED, "went on")
        (line,) = result.given_up
        assert line.startswith(f"pay: no valid call in {attempts} attempts at {field}: ")
        rejected = await facts_of(tree, ArgumentsRejected, child)
        assert [fact.attempt for fact in rejected] == list(range(1, attempts + 1))
        assert [fact.final for fact in rejected] == [False] * (attempts - 1) + [True]
        (given_up,) = await facts_of(tree, ToolGivenUp, child)
        assert (given_up.tool, given_up.attempts, given_up.field) == ("pay", attempts, field)
        (noted,) = await until(tree, ChildTroubleNoted, session="main")
        assert (noted.child, noted.trouble) == (child, given_up)
        outcomes = [fact.outcome for fact in await facts_of(tree, CallResolved, child)]
        assert outcomes == ["invalid"] * attempts + ["denied"] * (4 - attempts)
        assert not await facts_of(tree, CallIntended, child)
        assert pay.paid == []


@pytest.mark.covers("A27")
async def test_each_failure_goes_back_with_the_schema_and_the_failing_field(
    open_tree: Opener, board: Switchboard
) -> None:
    """The model learns what is wrong where, and what would fit."""
    model = ScriptedModel([script_call("pay", count=10), script_call("pay", count=3), "done"])
    pay = Pay(board)
    async with open_tree(model, tools=[pay]) as tree:
        worker = await tree.main.spawn("worker", "pay")
        await worker.result()
        wrong, right = results(tree, worker.session_id)
        assert wrong.is_error
        assert '"field":"/count"' in wrong.text
        assert '"maximum":9' in wrong.text
        assert '"attempt":1' in wrong.text
        assert right.text == "paid"
        assert [count for _, count in pay.paid] == [3]
        assert not await facts_of(tree, ToolGivenUp)


async def test_valid_call_resets_the_count(open_tree: Opener, board: Switchboard) -> None:
    """REL-P25: valid on attempt k is exactly one execution, and the next mistake is the first again."""
    counts = [10, 11, 1, 12, 13, 2]
    model = ScriptedModel([*(script_call("pay", count=count) for count in counts), "done"])
    pay = Pay(board)
    async with open_tree(model, tools=[pay]) as tree:
        worker = await tree.main.spawn("worker", "pay")
        await worker.result()
        assert [fact.attempt for fact in await facts_of(tree, ArgumentsRejected)] == [1, 2, 1, 2]
        assert [count for _, count in pay.paid] == [1, 2]


async def test_failures_within_one_reply_count_once(open_tree: Opener, board: Switchboard) -> None:
    """Ten wrong calls in one reply are one attempt."""
    reply: list[str | ToolCall] = [script_call("pay", count=10 + number) for number in range(10)]
    model = ScriptedModel([reply, script_call("pay", count=1), "done"])
    pay = Pay(board)
    async with open_tree(model, tools=[pay]) as tree:
        worker = await tree.main.spawn("worker", "pay")
        await worker.result()
        assert {fact.attempt for fact in await facts_of(tree, ArgumentsRejected)} == {1}
        assert len(pay.paid) == 1


async def test_next_message_gives_the_tool_back(open_tree: Opener, board: Switchboard) -> None:
    """A tool that was given up is refused until the next incoming message, and no longer."""

    def reply(request: ModelRequest) -> str | ToolCall:
        said = [message for message in request.messages if isinstance(message, UserMessage)]
        if len(said) == 1:
            return script_call("pay", count=99) if request.turn < 4 else "gave up"
        return script_call("pay", count=1) if request.turn == 5 else "paid at last"

    pay = Pay(board)
    async with open_tree(FunctionModel(reply), tools=[pay]) as tree:
        assert await tree.main.send("pay") == "gave up"
        assert "refused until the next message" in results(tree, "main")[-1].text
        assert await tree.main.send("again") == "paid at last"
        assert len(pay.paid) == 1


@pytest.mark.covers("Z6")
async def test_when_main_gives_a_tool_up_the_channel_is_told(open_tree: Opener, board: Switchboard) -> None:
    """Main has no parent: the person learns it, and so does the event stream."""
    channel = QueueChannel()
    model = ScriptedModel([*(script_call("pay", count=count) for count in (10, 11, 12)), "sorry"])
    pay = Pay(board)
    async with open_tree(model, tools=[pay], channel=channel) as tree:
        assert await tree.main.send("pay") == "sorry"
        assert len(await facts_of(tree, ToolGivenUp, "main")) == 1
        (said,) = await until(tree, ChannelSaid)
        assert "pay" in said.text
        assert "/count" in said.text
        assert await channel.messages.get() == said.text


async def test_without_a_channel_mains_trouble_is_a_fact_and_nothing_fails(
    open_tree: Opener, board: Switchboard
) -> None:
    """A tree nobody listens to goes on all the same."""
    model = ScriptedModel([*(script_call("pay", count=count) for count in (10, 11, 12)), "sorry"])
    pay = Pay(board)
    async with open_tree(model, tools=[pay], channel=None) as tree:
        assert await tree.main.send("pay") == "sorry"
        assert len(await facts_of(tree, ToolGivenUp, "main")) == 1
        assert not await facts_of(tree, ChannelSaid)


async def test_call_of_an_unknown_tool_costs_no_attempt(open_tree: Opener) -> None:
    """An unknown name is an error that names what the session holds; nothing is given up."""
    model = ScriptedModel([script_call("dance"), script_call("launch", text="x"), "done"])
    async with open_tree(model, tools=TOOLS) as tree:
        worker = await tree.main.spawn("worker", "dance")
        await worker.result()
        unknown, not_held = results(tree, worker.session_id)
        assert "no tool is named 'dance'" in unknown.text
        assert "look" in unknown.text
        assert not_held.details == {"code": "permission_denied", "status": 403, "tier": "Elevated"}
        assert not [fact for fact in await facts(tree) if isinstance(fact, ArgumentsRejected)]
