"""The gateway's questions: a model sees its provider's form of the conversation, and may stream."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.reports.events import (
    Done,
    ModelEvent,
    TextDelta,
    ToolCallDelta,
    TranscriptRepaired,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, Message, TextContent, ToolCall
from sessiontree.models.port import CallPiece, GatewayModel, ModelRequest, Piece, StopPiece, ToolSpec
from sessiontree.models.scripted import AsyncFunctionModel, StreamFunctionModel
from sessiontree.models.stream_assembler import PIECES_AT_ONCE
from sessiontree.runtime.gateway.model_gateway import MOST_SHARED, GatewayCore
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt
from tests.behaviour.bad_tool_fakes import junk
from tests.unit.models.conversation_strategies import is_paired, reply, result, user
from tests.unit.runtime.runtime_fakes import HeardAsker

PATIENCE_S = 60.0
Stream = Callable[[ModelRequest], AsyncIterator[Piece]]


class Questions:
    """Asks one session's questions and keeps what comes back."""

    def __init__(self, model: GatewayModel) -> None:
        self.core = GatewayCore(lambda tree_id: {"default": model})
        self.events: list[ModelEvent] = []
        self.order: list[str] = []
        """What happened besides, as it did."""
        self._given = 0
        self._answer: asyncio.Future[AssistantMessage | tuple[str, str]]

    def begin(self, *messages: Message) -> None:
        """Ask with what is new in the conversation."""
        self._answer = asyncio.get_running_loop().create_future()
        prompt = ModelPrompt("", (), None) if self._given == 0 else None
        question = AskModel(1, self._given, messages, prompt)
        self._given += len(messages)
        self.core.ask(
            question,
            HeardAsker(
                "tree",
                "main",
                "default",
                SessionKind.MAIN,
                self._answered,
                lambda failure: self._answered((failure.reason, failure.said)),
                lambda: self._answer.set_exception(AssertionError("asked for the whole conversation")),
                self.events.append,
            ),
        )

    def _answered(self, answer: AssistantMessage | tuple[str, str]) -> None:
        self.order.append("answered")
        self._answer.set_result(answer)

    async def answer(self) -> AssistantMessage | tuple[str, str]:
        """Return the answer, or reason and text of a failure."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._answer

    async def ask(self, *messages: Message) -> AssistantMessage | tuple[str, str]:
        """Ask and wait."""
        self.begin(*messages)
        return await self.answer()


@asynccontextmanager
async def asking(model: GatewayModel) -> AsyncIterator[Questions]:
    """Return questions to a model, ended afterwards."""
    questions = Questions(model)
    try:
        yield questions
    finally:
        await questions.core.close()


def seen(told: list[list[Message]]) -> Stream:
    """Return a stream that keeps what it is shown and calls a tool the provider's way."""

    async def stream(request: ModelRequest) -> AsyncIterator[Piece]:
        told.append(list(request.messages))
        yield CallPiece("{}", 0, "AbCdEfGh1", "read")

    return stream


def ids_in(messages: Sequence[Message]) -> list[str]:
    """Return the ids of all calls."""
    return [call.id for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls]


@pytest.mark.covers("I17", "REL-P32")
async def test_provider_is_shown_its_own_ids_from_turn_to_turn_and_the_session_keeps_its() -> None:
    """REL-P32 at the gateway: what a model answers with an id it was shown comes back as the session's."""
    told: list[list[Message]] = []
    async with asking(StreamFunctionModel(seen(told), name="mistral:large")) as questions:
        first = await questions.ask(user("go"))
        assert ids_in([first] if isinstance(first, AssistantMessage) else []) == ["AbCdEfGh1"]
        await questions.ask(reply("AbCdEfGh1"), result("AbCdEfGh1"), reply("call_2_0"), result("call_2_0"))
        await questions.ask(reply("AbCdEfGh1"), result("AbCdEfGh1"))
    assert told[1] == told[2][: len(told[1])]
    shown = ids_in(told[2])
    assert shown[0] == "AbCdEfGh1"
    assert len(set(shown)) == 3
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in shown)
    assert is_paired(told[2])

    async def repeat(request: ModelRequest) -> AssistantMessage:
        return reply(*ids_in(request.messages))

    async with asking(AsyncFunctionModel(repeat, name="anthropic:opus")) as questions:
        answer = await questions.ask(reply("a|b"), result("a|b"))
        assert answer == reply("a|b")


async def test_model_without_a_known_provider_sees_ids_untouched() -> None:
    """Whatever they look like."""
    told: list[list[Message]] = []
    async with asking(StreamFunctionModel(seen(told))) as questions:
        await questions.ask(reply("a|b", "é" * 99), result("a|b"), result("é" * 99))
    assert ids_in(told[0]) == ["a|b", "é" * 99]


async def test_conversation_that_does_not_match_is_shown_matched_and_that_is_told() -> None:
    """REL-P33 at the gateway; nobody hears of it where nothing was wrong."""
    told: list[list[Message]] = []
    async with asking(StreamFunctionModel(seen(told))) as questions:
        await questions.ask(user("go"), reply("c1"), result("c1"))
        assert not any(isinstance(event, TranscriptRepaired) for event in questions.events)
        await questions.ask(result("c1"), reply("c2", "c3"), user("and?"), result("c3"))
        repairs = [event for event in questions.events if isinstance(event, TranscriptRepaired)]
        assert repairs == [TranscriptRepaired(missing=1, dropped=1, moved=1)]
    assert is_paired(told[1])
    assert ids_in(told[1]) == ["c1", "c2", "c3"]


@pytest.mark.covers("I33")
async def test_stream_is_heard_piece_by_piece_and_answers_as_a_whole() -> None:
    """Also where a coroutine gives the stream, as clients of providers do."""

    class Client:
        name = "client"

        async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
            return self._pieces()

        async def _pieces(self) -> AsyncIterator[Piece]:
            for piece in ("Let me ", "look.", CallPiece('{"a"', 0, "c1", "read"), CallPiece(": 1}", 0)):
                yield piece

    async with asking(junk(Client())) as questions:
        answer = await questions.ask(user("go"))
        call = ToolCall("c1", "read", {"a": 1})
        assert answer == AssistantMessage((TextContent("Let me look."), call), "toolUse")
        deltas = [each.delta for each in questions.events if isinstance(each, TextDelta | ToolCallDelta)]
        assert deltas == ["Let me ", "look.", '{"a"', ": 1}"]
        assert questions.events[-1] == Done("toolUse")


async def fail(request: ModelRequest) -> AsyncIterator[Piece]:
    """Break down."""
    yield "I was about"
    raise ValueError("connection lost")


async def fail_typed(request: ModelRequest) -> AsyncIterator[Piece]:
    """Say what went wrong."""
    yield "I was about"
    raise ModelError("overloaded", True)


async def babble(request: ModelRequest) -> AsyncIterator[Piece]:
    """Give what is no piece."""
    yield "I was about"
    yield junk(5)


@pytest.mark.parametrize(
    ("stream", "words"), [(fail, "connection lost"), (fail_typed, "overloaded"), (babble, "streamed 5")]
)
async def test_stream_that_fails_half_way_fails_with_what_it_said(stream: Stream, words: str) -> None:
    """The reason, the text so far, and an end for whoever listens."""
    async with asking(StreamFunctionModel(stream)) as questions:
        answer = await questions.ask(user("go"))
        assert isinstance(answer, tuple)
        assert words in answer[0]
        assert answer[1] == "I was about"
        assert questions.events == [TextDelta("I was about"), Done("error")]


async def test_stream_that_is_refused_is_ended_before_its_question() -> None:
    """The provider's connection is let go at once, not when somebody collects the garbage."""
    questions: Questions

    async def babbling(request: ModelRequest) -> AsyncIterator[Piece]:
        try:
            yield junk(5)
        finally:
            questions.order.append("ended")

    async with asking(StreamFunctionModel(babbling)) as questions:
        await questions.ask(user("go"))
        assert questions.order == ["ended", "answered"]


@pytest.mark.parametrize("given", [5, None, "text", [1]])
async def test_what_is_no_stream_fails_its_question(given: object) -> None:
    """Typed, and before a word was said."""

    class Odd:
        name = "odd"

        def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
            return junk(given)  # type: ignore[no-any-return]

    async with asking(Odd()) as questions:
        answer = await questions.ask(user("go"))
        assert isinstance(answer, tuple)
        assert "must yield pieces" in answer[0]
        assert answer[1] == ""


async def test_withdrawn_stream_is_ended_and_those_who_listen_hear_it() -> None:
    """What was said stays said; it ends as aborted."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: ModelRequest) -> AsyncIterator[Piece]:
        try:
            yield "I was about"
            begun.set()
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with asking(StreamFunctionModel(endless)) as questions:
        questions.begin(user("go"))
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            questions.core.withdraw("tree", "main")
            await ended.wait()
        await asyncio.sleep(0)
        assert questions.events == [TextDelta("I was about"), Done("aborted")]


async def test_stream_that_never_waits_lets_others_have_their_turn() -> None:
    """One hasty model must not keep the gateway to itself."""
    heard = asyncio.Event()

    async def hasty(request: ModelRequest) -> AsyncIterator[Piece]:
        pieces = 0
        while not heard.is_set():
            pieces += 1
            yield "." if pieces < 1_000_000 else StopPiece(junk("nobody had a turn"))

    async with asking(StreamFunctionModel(hasty)) as questions:
        questions.begin(user("go"))
        others: Awaitable[None] = asyncio.sleep(0)
        await others
        await asyncio.sleep(0)
        heard.set()
        answer = await questions.answer()
        assert isinstance(answer, AssistantMessage)
        assert len(answer.text) <= 4 * PIECES_AT_ONCE


async def test_sessions_with_equal_tools_share_one_list_of_them() -> None:
    """Each prompt arrives as a copy; a session whose tools differ keeps its own."""
    held: dict[str, ModelRequest] = {}
    arrived = asyncio.Event()

    async def hold(request: ModelRequest) -> str:
        held[request.session_id] = request
        if len(held) == len(tools_of):
            arrived.set()
        await asyncio.Event().wait()
        return "never"

    def unexpected(*_: object) -> None:
        raise AssertionError("nothing was answered")

    model = AsyncFunctionModel(hold)
    core = GatewayCore(lambda tree_id: {"default": model})
    schema: Mapping[str, JsonValue] = {"type": "object", "properties": {"path": {"type": "string"}}}
    one, two = ToolSpec("one", "Does one thing.", schema), ToolSpec("two", "Does another.", schema)
    changed = replace(two, description="Does a third.")
    tools_of = {f"main/w{number}": (one, two) if number % 2 else (one,) for number in range(50)}
    tools_of["main/other"] = (one, changed)
    for session, tools in tools_of.items():
        prompt: ModelPrompt = pickle.loads(pickle.dumps(ModelPrompt(f"You are {session}.", tools, None)))
        callbacks = (unexpected, unexpected, unexpected, unexpected)
        asker = HeardAsker("tree", session, "default", SessionKind.WORKER, *callbacks)
        core.ask(AskModel(1, 0, (user("go"),), prompt), asker)
    async with asyncio.timeout(PATIENCE_S):
        await arrived.wait()
    assert all(held[session].tools == tools for session, tools in tools_of.items())
    assert len({id(request.tools) for request in held.values()}) == 3
    assert {request.system_prompt for request in held.values()} == {f"You are {each}." for each in tools_of}
    await core.close()


async def test_what_a_gateway_remembers_to_share_is_bounded() -> None:
    """However many trees and agents there were, few lists of tools are kept beyond their conversations."""
    core = GatewayCore(lambda tree_id: {})
    for number in range(3 * MOST_SHARED):
        core._share_tools(f"tree{number}", ModelPrompt("", (ToolSpec(f"tool{number}", "", {}),), None))
    assert len(core._shared) == MOST_SHARED
