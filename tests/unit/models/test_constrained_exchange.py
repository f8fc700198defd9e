"""Questions to an endpoint without tools, and what its replies mean: pure, without an endpoint."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.models.constrained_exchange import constrain_request, stream_constrained
from sessiontree.models.port import ModelRequest, Piece, StopPiece, ToolSpec
from sessiontree.models.stream_assembler import StreamAssembler
from tests.unit.models.conversation_strategies import messages, reply, result, turns, user

READ = ToolSpec(
    "read",
    "Read a file.\nMore about it.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
LIST = ToolSpec("list", "", {"type": "object"})
NUMBER = {"type": "integer"}


def request(
    *conversation: Message,
    tools: tuple[ToolSpec, ...] = (READ, LIST),
    result_schema: dict[str, Any] | None = None,
    choice: str | None = None,
) -> ModelRequest:
    """Return a question."""
    settings = ModelSettings(tool_choice=choice, temperature=0)
    given_messages = conversation or (user("hello"),)
    return ModelRequest(
        "main/w1",
        SessionKind.WORKER,
        1,
        "You read.",
        tools,
        given_messages,
        result_schema,
        settings=settings,
    )


def replies_of(asked: ModelRequest) -> set[str]:
    """Return which tools a reply may call, and ``reply`` or ``result`` where it may be final."""
    assert asked.result_schema is not None
    variants: Any = asked.result_schema["anyOf"]
    found = set()
    for each in variants:
        properties = each["properties"]
        found |= set(properties["tool"]["enum"]) if "tool" in properties else set(properties)
    return found


def test_question_has_a_schema_and_words_instead_of_tools() -> None:
    """One line for each tool; settings stay, but for the choice of a tool."""
    asked = constrain_request(request(choice="auto"))
    assert replies_of(asked) == {"read", "list", "reply"}
    assert asked.tools == ()
    assert asked.system_prompt == (
        "You read.\n\nAnswer with one JSON object and nothing else.\n"
        'To answer: {"reply": "your answer"}\n'
        'To call a tool: {"tool": "its name", "arguments": {…}}. The tools:\n'
        'read {"path": string}: Read a file\n'
        "list object\n"
        'Call a tool only if you need it. Else answer with {"reply": "your answer"}.'
    )
    assert asked.settings == ModelSettings(temperature=0)


@pytest.mark.parametrize(
    ("choice", "replies"),
    [
        (None, {"read", "list", "result"}),
        ("required", {"read", "list"}),
        ("list", {"list"}),
    ],
)
def test_choice_of_a_tool_decides_what_a_reply_may_be(choice: str | None, replies: set[str]) -> None:
    """Where one must be called, no final message is offered."""
    assert replies_of(constrain_request(request(result_schema=NUMBER, choice=choice))) == replies


def test_result_alone_is_asked_for_by_its_own_schema() -> None:
    """Nothing is put around it, and the schema is in words as well; without either any text will do."""
    asked = constrain_request(request(tools=(), result_schema=NUMBER))
    assert asked.result_schema == NUMBER
    assert asked.system_prompt.endswith("Answer with this JSON and nothing else: integer")
    plain = request(tools=())
    assert constrain_request(plain) == replace(plain, messages=[user("hello")])
    assert constrain_request(request(choice="none")).result_schema is None


def test_calls_and_results_are_text_in_the_form_of_replies() -> None:
    """Failures say so; images stay; neighbours of one role are one message."""
    calls = AssistantMessage(
        (TextContent("I look."), ToolCall("a", "read", {"path": "é"}), ToolCall("b", "list", {}, "{x")),
        "toolUse",
    )
    image = ImageContent("aGk=", "image/png")
    seen = ToolResultMessage("a", "read", (TextContent("text"), image))
    failed = ToolResultMessage("b", "list", (TextContent("no such folder"),), is_error=True)
    asked = constrain_request(request(user("go"), calls, seen, failed, user("on")))
    assert [type(message) for message in asked.messages] == [UserMessage, AssistantMessage, UserMessage]
    said, heard = asked.messages[1], asked.messages[2]
    assert [json.loads(line) for line in said.text.split("\n")] == [
        {"reply": "I look."},
        {"tool": "read", "arguments": {"path": "é"}},
        {"tool": "list", "arguments": "{x"},
    ]
    assert isinstance(heard, UserMessage)
    assert heard.content == (
        TextContent("The tool read gave:\ntext"),
        image,
        TextContent("The tool list failed:\nno such folder\non"),
    )


@given(messages())
def test_roles_of_any_conversation_are_in_turn_where_a_person_speaks(conversation: list[Message]) -> None:
    """No tool message is left, nothing is empty, and what was given is not changed."""
    before = list(conversation)
    asked = constrain_request(request(*conversation, user("last")))
    assert conversation == before
    kinds = [type(message) for message in asked.messages]
    assert set(kinds) <= {UserMessage, AssistantMessage}
    assert all((first, second) != (UserMessage, UserMessage) for first, second in pairwise(kinds))
    assert all(not message.tool_calls for message in asked.messages if isinstance(message, AssistantMessage))


@given(turns(), turns())
def test_conversation_that_grew_gives_one_that_grew(
    earlier: list[list[Message]], later: list[list[Message]]
) -> None:
    """So that an endpoint's cache of the beginning holds."""
    past = [message for turn in earlier for message in turn]
    more = [message for turn in later for message in turn]
    short = constrain_request(request(*past, reply())).messages
    long = constrain_request(request(*past, reply(), *more)).messages
    assert list(long[: len(short)]) == list(short)


async def replied(pieces: list[Piece], asked: ModelRequest) -> tuple[AssistantMessage, list[ModelRequest]]:
    """Return the message that an endpoint's pieces come to, and what the endpoint was asked."""
    questions: list[ModelRequest] = []

    async def ask(question: ModelRequest) -> AsyncGenerator[Piece]:
        questions.append(question)
        for piece in pieces:
            yield piece

    assembly = StreamAssembler(1, lambda event: None)
    async for piece in stream_constrained(ask, asked):
        assembly.take(piece)
    return assembly.message(), questions


async def test_call_is_a_call_and_usage_stays() -> None:
    """Also where the endpoint calls the reply finished in the ordinary way."""
    words = ['{"tool": "re', 'ad", "argum', 'ents": {"path": "a"}}']
    message, questions = await replied([*words, Usage(5, 2), StopPiece("stop")], request())
    assert message.tool_calls == (ToolCall("call_1_0", "read", {"path": "a"}),)
    assert (message.stop_reason, message.usage, message.text) == ("toolUse", Usage(5, 2), "")
    assert questions == [constrain_request(request())]


async def test_call_that_is_cut_short_is_never_acted_on() -> None:
    """It stays a call whose arguments can't be read."""
    half = '{"tool": "read", "arguments": {"path": "a'
    unsaid, _ = await replied([half], request())
    said, _ = await replied([half, StopPiece("length")], request())
    for message in (unsaid, said):
        (cut,) = message.tool_calls
        assert (cut.name, dict(cut.arguments), cut.unread) == ("read", {}, '{"path": "a')
    assert said.stop_reason == "length"


@pytest.mark.parametrize(
    ("given_text", "text"),
    [
        ('{"reply": "It is 4."}', "It is 4."),
        ('{"result": {"n": 4}}', '{"n":4}'),
        ("It is 4.", "It is 4."),
        ("", ""),
    ],
)
async def test_final_message_is_its_text(given_text: str, text: str) -> None:
    """A reply, a result, and what an endpoint says that does not hold the model to the schema."""
    message, _ = await replied([*given_text, StopPiece("stop")], request())
    assert (message.text, message.tool_calls, message.stop_reason) == (text, (), "stop")


async def test_text_of_a_reply_is_streamed() -> None:
    """Piece by piece, as it comes."""

    async def ask(question: ModelRequest) -> AsyncGenerator[Piece]:
        for piece in ('{"reply"', ': "one', " two", ' three"}'):
            yield piece

    pieces = [piece async for piece in stream_constrained(ask, request())]
    assert pieces == ["one", " two", " three"]
    pieces = [piece async for piece in stream_constrained(ask, request(tools=()))]
    assert len(pieces) == 4  # any text will do: it passes as it is


async def test_stream_that_is_left_closes_the_endpoints() -> None:
    """A cancelled question leaves nothing open."""
    closed: list[bool] = []

    async def ask(question: ModelRequest) -> AsyncGenerator[Piece]:
        try:
            yield '{"reply": "one'
            yield " two"
        finally:
            closed.append(True)

    pieces = stream_constrained(ask, request())
    assert await anext(pieces) == "one"
    await pieces.aclose()
    assert closed == [True]


@given(st.text(max_size=30), st.integers(1, 4))
def test_request_and_reply_fit_together(text: str, size: int) -> None:
    """What a model said comes back to it as it wrote it."""
    said = json.dumps({"reply": text})
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    asked = constrain_request(request(user("go"), AssistantMessage((TextContent(text),)), user("on")))
    shown = [message for message in asked.messages if isinstance(message, AssistantMessage)]
    assert [json.loads(message.text) for message in shown] == ([json.loads("".join(pieces))] if text else [])


def test_result_that_came_from_elsewhere_is_text_as_well() -> None:
    """Also where the question itself has no tools any more."""
    asked = constrain_request(replace(request(user("go"), reply("a"), result("a")), tools=()))
    assert [message.text for message in asked.messages][-1] == "The tool read gave:\nhere"
    assert not any(isinstance(message, ToolResultMessage) for message in asked.messages)
