"""Whatever a model replies, its session takes it in or learns why not; the tree goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from sessiontree import (
    AssistantMessage,
    AsyncFunctionModel,
    FunctionModel,
    Limits,
    ModelError,
    ModelRequest,
    PermissionTier,
    RawTool,
    ScriptedModel,
    SessionFailed,
    SessionStatus,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    script_call,
)
from sessiontree.contracts.facts.session_facts import TurnFailed
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Message, TextContent, UserMessage
from sessiontree.models.answers import Answer
from sessiontree.models.port import EmitEvent, Model
from tests.behaviour.bad_tool_fakes import NESTED, RING, Outcry, cancelled_from_within, junk, raising
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, calls, facts_of, results
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

Reply = Callable[[], object]
Replies = Callable[[ModelRequest], object]


class Instant:
    """Replies without any help of the library."""

    name = "instant"

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def reply(self, request: ModelRequest) -> AssistantMessage:
        return self._replies(request)  # type: ignore[return-value]


class Waiting:
    """Replies after others had their turn, without any help of the library."""

    name = "waiting"

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        await asyncio.sleep(0)
        return self._replies(request)  # type: ignore[return-value]


class Anything(RawTool):
    """Takes any object and tells how it looks."""

    name = "anything"
    description = "Take anything."
    tier = PermissionTier.WORKSPACE
    parameters: Mapping[str, JsonValue] = {"type": "object"}

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult(f"took {sorted(params)}")


MODELS: dict[str, Callable[[Replies], Model]] = {
    "instant": Instant,
    "waiting": Waiting,
    "function": lambda replies: FunctionModel(lambda request: junk(replies(request))),
    "async function": lambda replies: AsyncFunctionModel(_later(replies)),
}


def _later(replies: Replies) -> Callable[[ModelRequest], Any]:
    async def function(request: ModelRequest) -> Any:
        await asyncio.sleep(0)
        return replies(request)

    return function


def nested(depth: int) -> list[Any]:
    """Return lists within lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def message(*content: object) -> AssistantMessage:
    """Return a message of blocks of any sort."""
    return AssistantMessage(junk(content))


FAILURES: dict[str, tuple[Reply, str]] = {
    "raises": (raising(ValueError("no good")), "no good"),
    "raises ModelError": (raising(ModelError("overloaded", True)), "overloaded"),
    "raises ModelError of no text": (raising(ModelError(junk(object()))), "ModelError"),
    "raises SystemExit": (raising(SystemExit(2)), "SystemExit"),
    "raises an outcry": (raising(Outcry("help")), "help"),
    "raises CancelledError": (cancelled_from_within, "cancelled"),
    "returns None": (lambda: None, "NoneType"),
    "returns a number": (lambda: 5, "int"),
    "returns a class": (lambda: AssistantMessage, "type"),
    "a block of no sort": (lambda: message(5), "int"),
    "no blocks": (lambda: AssistantMessage(junk(None)), "NoneType"),
    "a text of no text": (lambda: message(TextContent(junk(None))), "TextContent"),
    "a name of no text": (lambda: message(ToolCall("c1", junk(None), {})), "None"),
    "arguments of no mapping": (lambda: message(ToolCall("c1", "look", junk("x"))), "look with str"),
    "no arguments": (lambda: message(ToolCall("c1", "look", junk(None))), "look with NoneType"),
    "arguments in a circle": (lambda: message(ToolCall("c1", "look", RING)), "nested too deeply"),
    "arguments 10 000 deep": (lambda: message(ToolCall("c1", "look", {"text": NESTED})), "nested too deeply"),
}


def fail(request: ModelRequest) -> object:
    """Fail in the way of a session's number, Main at its every message in the next way; then say hello."""
    heard = sum(isinstance(message, UserMessage) for message in request.messages)
    number = heard if request.session_id == "main" else int(request.session_id.removeprefix("main/w"))
    replies = [reply for reply, _ in FAILURES.values()]
    return replies[number - 1]() if number <= len(replies) else "hello"


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
async def test_failing_model_ends_the_run_typed_and_nothing_else(open_tree: Opener, kind: str) -> None:
    """The child has failed, with the reason; Main raises SessionFailed, and answers the next message."""
    async with open_tree(MODELS[kind](fail), tools=TOOLS) as tree:
        for name, (_, words) in FAILURES.items():
            async with asyncio.timeout(60):
                worker = await tree.main.spawn("worker", "look")
                result = await worker.result()
                assert result.status is SessionStatus.FAILED, name
                assert words in result.summary, name
                with pytest.raises(SessionFailed) as caught:
                    await tree.main.send("hello")
                assert words in caught.value.reason, name
        assert await tree.main.send("and now?") == "hello"
        final = [fact for fact in await facts_of(tree, TurnFailed) if fact.retry_at_ms is None]
        assert len(final) == 2 * len(FAILURES)


@dataclass(frozen=True)
class Oddity:
    """A reply that is odd and usable, and its call's arguments in the transcript."""

    reply: Reply
    arguments: Mapping[str, JsonValue]
    refused: str | None = None
    """Why the tool does not get them; None where it does."""


ODDITIES = {
    "NaN": Oddity(
        lambda: script_call("anything", x=math.nan, y=[math.inf], z=-math.inf),
        {"x": "nan", "y": ["inf"], "z": "-inf"},
    ),
    "lone surrogates": Oddity(
        lambda: script_call("anything", x="\udfff\ud800"), {"x": "\udfff\ud800"}, "half of a surrogate pair"
    ),
    "a surrogate as name": Oddity(
        lambda: script_call("anything", **{"\ud800": 1}), {"\ud800": 1}, "half of a surrogate pair"
    ),
    "whole numbers beyond floats": Oddity(
        lambda: script_call("anything", x=2**53 + 1, y=2**70), {"x": 2**53 + 1, "y": 2**70}
    ),
    "a number of 400 digits": Oddity(lambda: script_call("anything", x=10**400), {"x": 10**400}, "too large"),
    "names of no text": Oddity(lambda: ToolCall("c", "anything", junk({1: 2, None: 3})), {"1": 2, "None": 3}),
    "nul": Oddity(lambda: script_call("anything", x="a\0b"), {"x": "a\0b"}),
    "400 deep": Oddity(lambda: script_call("anything", x=nested(400)), {"x": nested(400)}, "deep"),
    "100 deep": Oddity(lambda: script_call("anything", x=nested(100)), {"x": nested(100)}),
    "an id of no text": Oddity(lambda: message(ToolCall(junk(7), "anything", {"x": 1})), {"x": 1}),
    "tuples": Oddity(lambda: ToolCall("c", "anything", {"x": junk((1, 2))}), {"x": [1, 2]}),
    "a list of blocks": Oddity(lambda: AssistantMessage(junk([script_call("anything", x=1)])), {"x": 1}),
    "no stop reason": Oddity(
        lambda: AssistantMessage((script_call("anything", x=1),), junk("tired")), {"x": 1}
    ),
    "a time of no number": Oddity(
        lambda: AssistantMessage((script_call("anything", x=1),), timestamp=junk("now")), {"x": 1}
    ),
    "NaN dollars": Oddity(
        lambda: AssistantMessage((script_call("anything", x=1),), usage=Usage(1, 1, math.nan)), {"x": 1}
    ),
    "usage of no number": Oddity(
        lambda: AssistantMessage((script_call("anything", x=1),), usage=Usage(junk("many"), 1)), {"x": 1}
    ),
    "no usage": Oddity(lambda: AssistantMessage((script_call("anything", x=1),), usage=junk(None)), {"x": 1}),
    "negative usage": Oddity(
        lambda: AssistantMessage((script_call("anything", x=1),), usage=Usage(-5, -5, -1.0)), {"x": 1}
    ),
}


def be_odd(request: ModelRequest) -> object:
    """Reply in the way of a Branch's number, then be done."""
    number = int(request.session_id.removeprefix("main/b"))
    return list(ODDITIES.values())[number - 1].reply() if request.turn == 1 else "done"


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
async def test_odd_reply_is_taken_in_and_survives_the_journal(open_tree: Opener, kind: str) -> None:
    """REL-P34: what has no JSON form gets one, the rest is kept; a resumed tree has the same transcripts."""
    histories: dict[str, list[Message]] = {}
    async with open_tree(MODELS[kind](be_odd), tools=[Anything()]) as tree:
        for name, oddity in ODDITIES.items():
            branch = await tree.main.spawn("branch", "go")
            async with asyncio.timeout(60):
                result = await branch.result()
            assert (name, result.summary) == (name, "done")
            (made,) = calls(tree, branch.session_id)
            assert made.arguments == oddity.arguments, name
            assert isinstance(made.id, str), name
            assert made.id, name
            (told,) = results(tree, branch.session_id)
            assert told.is_error is (oddity.refused is not None), name
            assert (oddity.refused or f"took {sorted(oddity.arguments)}") in told.text, name
            assert told.tool_call_id == made.id, name
            assert math.isfinite(branch.status().usage.cost_usd), name
            histories[branch.session_id] = branch.history()
    async with await open_tree.resume(tree.tree_id, ScriptedModel(["done"]), tools=[Anything()]) as again:
        for session, history in histories.items():
            assert again.session(session).history() == history


async def test_half_a_letter_is_a_last_word(open_tree: Opener) -> None:
    """It is broken, and not empty."""
    async with open_tree(ScriptedModel(["\ud800", "more"])) as tree:
        assert await tree.main.send("go") == "\ud800"
        assert await tree.main.send("go on") == "more"


@pytest.mark.covers("LIM14")
async def test_model_that_says_nothing_is_asked_once_more(open_tree: Opener) -> None:
    """The second empty reply completes the run, visibly; a resumed tree knows what was said."""
    nothing = AssistantMessage(())
    silent: dict[str, list[Answer]] = {
        "main": [nothing, "first", nothing, nothing, "more"],
        "*": [nothing, " "],
    }
    async with open_tree(ScriptedModel(silent)) as tree:
        assert await tree.main.send("go") == "first"
        assert tree.main.history()[-2].text.startswith("Your last reply was empty")
        assert await tree.main.send("go on") == ""
        (result,) = await tree.main.map("worker", ["look"])
        assert (result.status, result.summary) == ("completed", "(the model said nothing)")
        assert await tree.main.send("go on") == "more"


@pytest.mark.covers("I13", "ORD6")
async def test_reply_of_many_calls_gets_every_result_in_order(open_tree: Opener) -> None:
    """REL-P33: two hundred calls at once, the same id for all of them."""
    reply = [ToolCall("same", "look", {"text": str(number)}) for number in range(200)]
    model = FunctionModel(lambda request: junk(reply if request.turn == 1 else "done"))
    async with open_tree(model, tools=TOOLS) as tree:
        assert await tree.main.send("go") == "done"
        texts = [told.text for told in results(tree, "main")]
        assert texts == [f"looked at {number}" for number in range(200)]


@pytest.mark.covers("I10", "REL-L56")
async def test_model_that_never_stops_calling_is_stopped_by_max_turns(open_tree: Opener) -> None:
    """The run ends typed after ``max_turns``; the next message gets as many again."""
    model = FunctionModel(lambda request: script_call("look", text=str(request.turn)))
    async with open_tree(model, tools=TOOLS, limits=Limits(max_turns=5)) as tree:
        for turns in (5, 10):
            with pytest.raises(SessionFailed, match="max_turns is 5"):
                await tree.main.send("go")
            assert tree.main.status().turns == turns


async def test_script_that_ends_in_a_call_is_a_failing_model(open_tree: Opener) -> None:
    """A used-up script says so."""
    async with open_tree(ScriptedModel([script_call("look")]), tools=TOOLS) as tree:
        with pytest.raises(SessionFailed, match="ends after 1 answers"):
            await tree.main.send("go")


async def test_waiting_models_question_is_dropped_with_its_session(
    open_tree: Opener, board: Switchboard
) -> None:
    """Cancelling a session withdraws its question; the model's call is cancelled."""
    asked, dropped = Flag(board), Flag(board)

    async def never(request: ModelRequest) -> str:
        asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            dropped.set()
        return "never"

    async with open_tree(AsyncFunctionModel(never)) as tree:
        worker = await tree.main.spawn("worker", "look")
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            (line,) = await worker.cancel()
            assert (line.status, line.forced) == (SessionStatus.CANCELLED, False)
            await dropped.wait()
