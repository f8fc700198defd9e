"""Models that stream: what they say is heard as it comes, what they call is called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel

from sessiontree import (
    CallPiece,
    ModelError,
    ModelRequest,
    PermissionTier,
    ScriptedModel,
    SessionFailed,
    SessionStatus,
    StopPiece,
    StreamFunctionModel,
    ThinkingPiece,
    Tool,
    ToolContext,
    ToolResult,
    Usage,
)
from sessiontree.contracts.facts.session_facts import TurnFailed
from sessiontree.contracts.reports.events import Done, Event, TextDelta, ThinkingDelta, ToolCallEnd
from sessiontree.contracts.values.messages import AssistantMessage, ThinkingContent, ToolCall, UserMessage
from sessiontree.models.port import Piece
from tests.behaviour.fact_fixtures import PATIENCE_S, calls, facts_of, results
from tests.behaviour.tree_fixtures import Opener


class Echo(Tool[BaseModel]):
    """Says a text again."""

    name = "echo"
    description = "Say a text again."
    tier = PermissionTier.READ_ONLY

    class Params(BaseModel):
        """What to say."""

        text: str = "nothing"

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        return ToolResult(f"echo {params.model_dump()['text']}")


class Shout(Echo):
    """Says a text again that must be given."""

    name = "shout"

    class Params(BaseModel):
        """What to say."""

        text: str


async def speak(request: ModelRequest) -> AsyncIterator[Piece]:
    """Think, call twice by turns, call once with a reply cut short; then answer in three pieces."""
    step = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if step == 0:
        yield ThinkingPiece("two of ")
        yield ThinkingPiece("them", signature="s1")
        yield CallPiece('{"te', 0, "call|one", "echo")
        yield CallPiece("{'text': 'b'", 1, name="echo")
        yield CallPiece('xt": "a"}', 0, ends=True)
        yield Usage(7, 3)
    elif step == 1:
        yield CallPiece('{"text": "half of wha', 0, "c3", "echo")
        yield CallPiece("loudly!", 1, "c4", "shout")
        yield StopPiece("length")
    else:
        for piece in ("it ", "is ", "done"):
            yield piece


async def break_down(request: ModelRequest) -> AsyncIterator[Piece]:
    """Fail in the middle of the first reply; say what is in the conversation in the second."""
    if sum(isinstance(message, UserMessage) for message in request.messages) == 1:
        yield "I was about to say"
        raise ConnectionError("the line is dead")
    yield str([type(message).__name__ for message in request.messages])


async def think_aloud(request: ModelRequest) -> AsyncIterator[Piece]:
    """Say something before each call; the second answer is cut short and asked for again."""
    match request.turn, request.messages[-1]:
        case 1, _:
            yield "let me "
            yield "look"
            yield CallPiece("{}", 0, "c1", "echo")
        case 2, _ if not CUT:
            CUT.append(True)
            yield "Hello my friend"
            raise ModelError("overloaded", retryable=True, retry_after_s=0)
        case 2, _:
            yield CallPiece("{}", 0, "c2", "echo")
        case _:
            yield "it says "
            yield "nothing"


CUT: list[bool] = []
"""Whether an answer was cut short."""


async def linger(request: ModelRequest) -> AsyncIterator[Piece]:
    """Say a word and never end."""
    yield "I was about to say"
    await asyncio.get_running_loop().create_future()


@pytest.mark.covers("I12")
async def test_streamed_reply_is_heard_and_acted_on(open_tree: Opener) -> None:
    """Text comes in pieces; calls run once whole; one cut short is refused, whatever its tool would take."""
    async with open_tree(StreamFunctionModel(speak, name="anthropic:test"), tools=[Echo(), Shout()]) as tree:
        watching = tree.progress("main")
        reply = tree.main.send("go")
        async with asyncio.timeout(PATIENCE_S):
            pieces = [piece async for piece in reply]
            assert await reply == "it is done"
            events: list[Event] = []
            while not events or events[-1] != Done("stop"):
                events.append((await watching.next()).event)
        watching.close()
        assert [event.delta for event in events if isinstance(event, TextDelta)] == ["it ", "is ", "done"]
        assert "".join(pieces) == "it is done"
        assert calls(tree, "main") == [
            ToolCall("call|one", "echo", {"text": "a"}),
            ToolCall("call_1_2", "echo", {"text": "b"}),
            ToolCall("c3", "echo", {}, '{"text": "half of wha'),
            ToolCall("c4", "shout", {}, "loudly!"),
        ]
        one, two, three, four = results(tree, "main")
        assert ["echo a" in one.text, "echo b" in two.text] == [True, True]
        assert [three.is_error, four.is_error] == [True, True]
        assert 'not a whole JSON object: \'{\\"text\\": \\"half of wha\'' in three.text
        assert "not a whole JSON object: 'loudly!'; a call needs: text required" in four.text
        said = [message for message in tree.main.history() if isinstance(message, AssistantMessage)]
        assert said[0].content[0] == ThinkingContent("two of them", "s1")
        assert said[0].usage == Usage(7, 3)
        assert [event.delta for event in events if isinstance(event, ThinkingDelta)] == ["two of ", "them"]
        ends = [event.tool_call for event in events if isinstance(event, ToolCallEnd)]
        assert sorted(each.id for each in ends) == ["c3", "c4", "call_1_2", "call|one"]
        history = tree.main.history()
    async with await open_tree.resume(
        tree.tree_id, ScriptedModel(["more"]), tools=[Echo(), Shout()]
    ) as again:
        assert again.main.history() == history


@pytest.mark.covers("MDL9")
@pytest.mark.on_ray
async def test_texts_of_two_replies_are_separated(open_tree: Opener) -> None:
    """A separator is between two turns and after a reply that was cut short, and nowhere else."""
    CUT.clear()
    async with open_tree(StreamFunctionModel(think_aloud), tools=[Echo()]) as tree:
        reply = tree.main.send("go")
        async with asyncio.timeout(PATIENCE_S):
            pieces = [piece async for piece in reply]
        assert pieces == ["let me ", "look", "\n\n", "Hello my friend", "\n\n", "it says ", "nothing"]
        assert await reply == "it says nothing"
        async with asyncio.timeout(PATIENCE_S):
            assert [piece async for piece in tree.main.send("again")] == ["it says ", "nothing"]


async def test_what_a_stream_said_before_it_failed_is_in_the_journal(open_tree: Opener) -> None:
    """And not in the conversation: the next question is asked without it."""
    async with open_tree(StreamFunctionModel(break_down)) as tree:
        with pytest.raises(SessionFailed, match="the line is dead"):
            await tree.main.send("go")
        (failed,) = await facts_of(tree, TurnFailed)
        assert failed.said == "I was about to say"
        assert await tree.main.send("and now?") == "['UserMessage', 'UserMessage']"


async def test_who_listens_to_a_session_that_is_cancelled_hears_its_reply_end(open_tree: Opener) -> None:
    """What was said stays said, and is reported to be all there is."""
    async with open_tree(StreamFunctionModel(linger)) as tree:
        watching = tree.progress("main/w1")
        worker = await tree.main.spawn("worker", "look")
        async with asyncio.timeout(PATIENCE_S):
            assert (await watching.next()).event == TextDelta("I was about to say")
            await worker.cancel()
            assert (await watching.next()).event == Done("aborted")
        watching.close()
        assert (await worker.result()).status is SessionStatus.CANCELLED
