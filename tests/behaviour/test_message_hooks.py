"""What hooks make of messages is what session, model, journal and people get; nothing else of it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AsyncFunctionModel,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    ProviderForm,
    ScriptedModel,
    SessionClosed,
    SessionFailed,
    SessionStatus,
    StreamFunctionModel,
    ThinkingPiece,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import (
    CallOpened,
    HookFailed,
    MessageReceived,
    RunFinished,
    TurnFailed,
    TurnReplied,
)
from sessiontree.contracts.facts.tree_facts import ChannelSaid
from sessiontree.contracts.recorded.capabilities import CHANNEL
from sessiontree.contracts.values.messages import TextContent, ThinkingContent, UserMessage
from sessiontree.models.answers import Answer
from sessiontree.models.port import Piece
from tests.behaviour.effect_fakes import TOOLS, Words
from tests.behaviour.fact_fixtures import PATIENCE_S, facts, facts_of, records, results, until
from tests.behaviour.session_hook_fakes import Marking, Overhearing, Reading
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Held

only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)


class Say(Tool[Words]):
    """Says something on the session's channel."""

    name = "say"
    description = "Tell people."
    Params: ClassVar[type[BaseModel]] = Words
    tier = PermissionTier.SYSTEM
    capabilities = frozenset({"channel"})

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        await ctx.require(CHANNEL).send(params.text)
        return ToolResult("said")


def echo(request: ModelRequest) -> Answer:
    """Say what was heard last."""
    return f"heard {request.messages[-1].text}"


async def async_echo(request: ModelRequest) -> Answer:
    """Say what was heard last, taking time over it."""
    await asyncio.sleep(0)
    return echo(request)


@pytest.mark.parametrize("waits", [False, True], ids=["instant", "waiting"])
async def test_each_hook_sees_what_the_ones_before_it_left(
    open_tree: Opener, board: Switchboard, waits: bool
) -> None:
    """Plain ones by priority, then guards; the one who sent gets what is kept; what was said is seen once."""
    log = Log(board)
    hooks = [Marking("g", priority=9, guards=True), Marking("a"), Marking("b", priority=1), Overhearing(log)]
    model = AsyncFunctionModel(async_echo) if waits else FunctionModel(echo)
    heard = "go b<user> a<user> g<user>"
    said = f"heard {heard} b> a> g>"
    async with open_tree(model, hooks=hooks) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == said
            assert await log.holds(1) == [f"main model: {said}"]
        (message,) = [fact.message for fact in await facts_of(tree, MessageReceived)]
        assert message.text == heard
        assert [fact.message.text for fact in await facts_of(tree, TurnReplied)] == [said]
        assert [fact.text for fact in await facts_of(tree, RunFinished)] == [said]
        kept = "".join(record.text for record in await records(tree))
    assert "heard go" not in kept.replace(f"heard {heard}", "")


@pytest.mark.on_ray
async def test_reply_that_is_blocked_is_never_kept(open_tree: Opener) -> None:
    """Words that say so stand in its place, for the model as well; the session goes on."""
    model = ScriptedModel(["the code is tartan", "never mind"])
    async with open_tree(model, hooks=[Marking("m", forbids="tartan")]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            reply = await tree.main.send("what is it?")
            assert "withheld: nobody says tartan" in reply
            assert await tree.main.send("go on") == "never mind m>"
        kept = "".join(record.text for record in await records(tree))
    assert "the code is" not in kept


async def test_result_is_read_from_what_hooks_left_of_the_words(open_tree: Opener) -> None:
    """What they take away is gone from summary and parent; a typed result is validated afterwards."""
    model = ScriptedModel({"main/w1": ["found"], "main/w2": ["3"] * 3})
    async with open_tree(model, hooks=[Marking("m")]) as tree:
        plain = await tree.main.spawn("worker", "find")
        typed = await tree.main.spawn("worker", "count", result_type=int)
        async with asyncio.timeout(PATIENCE_S):
            assert (await plain.result()).summary == "found m>"
            result = await typed.result()
    assert (result.status, result.output) == (SessionStatus.FAILED, None)
    assert "never fitted" in result.summary


@only_local
async def test_calls_of_a_reply_keep_their_places(open_tree: Opener) -> None:
    """The text is rewritten, what the reply asks for is not."""
    model = ScriptedModel(
        [["first", script_call("look", text="a"), "second", script_call("look", text="b")], "over"]
    )
    async with open_tree(model, tools=TOOLS, hooks=[Marking("m")]) as tree:
        assert await tree.main.send("go") == "over m>"
        reply = (await facts_of(tree, TurnReplied))[0].message
        assert reply.text == "first\nsecond m>"
        assert [each.arguments for each in reply.tool_calls] == [{"text": "a"}, {"text": "b"}]
        assert [each.text for each in results(tree, "main")] == ["looked at a", "looked at b"]


async def test_what_a_tool_says_passes_the_same_hooks(open_tree: Opener, board: Switchboard) -> None:
    """Rewritten, or refused: then the tool is informed, and nobody hears it."""
    log = Log(board)
    reply: Answer = [script_call("say", text="the tower"), script_call("say", text="the tartan")]
    hooks = [Marking("m", forbids="tartan"), Overhearing(log)]
    async with open_tree(ScriptedModel([reply, "over"]), tools=[Say()], hooks=hooks) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "over m>"
            await log.holds(2)
        assert [fact.text for fact in await facts_of(tree, ChannelSaid)] == ["the tower m>"]
        said, refused = results(tree, "main")
        assert (said.is_error, refused.is_error) == (False, True)
        assert "may not say this to people: nobody says tartan" in refused.text
    assert sorted(log.items()) == ["main channel: the tower m>", "main model: over m>"]


@only_local
async def test_all_keeps_its_order_behind_a_message_that_hooks_ponder(
    open_tree: Opener, board: Switchboard
) -> None:
    """What comes later is taken up later: a call of the program's, a steering message."""
    held = Held(board)
    async with open_tree(FunctionModel(echo), tools=TOOLS, hooks=[Reading(held)]) as tree:
        first = asyncio.ensure_future(tree.main.send("slowly"))
        await held.started.wait()
        called = asyncio.ensure_future(tree.main.call("look"))
        second = asyncio.ensure_future(tree.main.send("quickly", mode="steer"))
        async with asyncio.timeout(PATIENCE_S):
            await (await tree.main.spawn("worker", "look")).result()  # by now both have reached the host
            held.let_go.set()
            await asyncio.wait([first, called, second])
        taken = [fact for fact in await facts(tree, "main") if isinstance(fact, MessageReceived | CallOpened)]
    words = [each.tool if isinstance(each, CallOpened) else each.message.text for each in taken]
    assert words == ["slowly", "look", "quickly"]


@only_local
async def test_word_to_stop_does_not_wait_behind_a_message(open_tree: Opener, board: Switchboard) -> None:
    """The message it overtakes is never kept, and its sender learns that the session has ended."""
    held = Held(board)
    async with open_tree(FunctionModel(echo), hooks=[Reading(held)]) as tree:
        sent = tree.main.send("slowly")
        await held.started.wait()
        async with asyncio.timeout(PATIENCE_S):
            await tree.cancel("enough")
            with pytest.raises(SessionClosed, match="enough"):
                await sent
        assert await facts_of(tree, MessageReceived) == []
        assert await facts_of(tree, HookFailed) == []
        held.let_go.set()


@only_local
@pytest.mark.own_runtime
async def test_message_that_is_lost_with_its_host_is_heard_once(
    open_tree: Opener, board: Switchboard
) -> None:
    """Nothing of it was kept: the next host's hooks are asked about it again."""
    held = Held(board)
    async with open_tree(FunctionModel(echo), hooks=[Reading(held), Marking("m")]) as tree:
        sent = tree.main.send("slowly")
        await held.started.wait()
        backend: Any = tree._backend
        for transport in list(backend.transports):
            transport.kill()
        held.let_go.set()
        async with asyncio.timeout(PATIENCE_S):
            assert await sent == "heard slowly m<user> m>"
        assert [fact.message.text for fact in await facts_of(tree, MessageReceived)] == ["slowly m<user>"]


@only_local
async def test_replay_runs_no_hook(open_tree: Opener) -> None:
    """What hooks made of messages is read from the journal: other hooks change nothing of it."""
    opener = open_tree.elsewhere("replayed")
    async with opener(FunctionModel(echo), hooks=[Marking("m")]) as tree:
        await tree.main.send("go")
        before = [message.to_json() for message in tree.main.history()]
        tree_id = tree.tree_id
    async with await opener.resume(tree_id, FunctionModel(echo), hooks=[Marking("other")]) as again:
        assert [message.to_json() for message in again.main.history()] == before
        await again.main.send("on")
        texts = [each.text for each in again.main.history() if isinstance(each, UserMessage)]
    assert texts == ["go m<user>", "on other<user>"]


async def thinking(request: ModelRequest) -> AsyncIterator[Piece]:
    """Think and say things, then fail."""
    if len(request.messages) > 1:
        yield "the tar"
        yield "tan is"
        raise ValueError("lost the thread")
    yield ThinkingPiece("hm", "signed")
    yield "well"
    yield ProviderForm(1, "anthropic", "anthropic", {"text": "well"})


async def test_thoughts_and_what_was_said_half_way_pass_the_same_hooks(open_tree: Opener) -> None:
    """A thought in other words is signed by nobody; of a reply that broke off nothing forbidden is kept.

    The provider's own form of a reply has the words that the hooks took away: it is dropped.
    """
    hooks = [Marking("m", forbids="tartan")]
    async with open_tree(StreamFunctionModel(thinking), hooks=hooks) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "well m>"
            with pytest.raises(SessionFailed, match="lost the thread"):
                await tree.main.send("on")
        (reply,) = [fact.message for fact in await facts_of(tree, TurnReplied)]
        assert reply.content == (ThinkingContent("hm m>"), TextContent("well m>"))
        assert reply.replay is None
        (failed,) = await facts_of(tree, TurnFailed)
        assert "withheld: nobody says tartan" in failed.said
        kept = "".join(record.text for record in await records(tree))
    assert "tartan is" not in kept


async def test_pieces_of_a_reply_are_shown_as_hooks_left_it(open_tree: Opener) -> None:
    """Nobody who watches sees a reply before the hooks did."""
    async with open_tree(AsyncFunctionModel(async_echo), hooks=[Marking("m")]) as tree:
        pieces = [piece async for piece in tree.main.send("go")]
        await until(tree, RunFinished)
    assert "".join(pieces) == "heard go m<user> m>"
