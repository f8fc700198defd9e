"""Cassettes: recorded once, replayed strictly; a miss shows the nearest question; no secret is written."""

from __future__ import annotations

import asyncio
import json
import pickle
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import (
    AsyncFunctionModel,
    CallPiece,
    ConfigError,
    FunctionModel,
    ModelBusy,
    ModelError,
    ModelPiece,
    ModelRequest,
    ModelSettings,
    RecordedModel,
    SessionKind,
    StopPiece,
    StreamFunctionModel,
    ThinkingPiece,
    Usage,
    UserMessage,
    script_call,
)
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ProviderForm,
    StopReason,
    TextContent,
    ToolResultMessage,
)
from sessiontree.hooks.redact import Redact
from sessiontree.models.cassettes.cassette import Cassette, Exchange, add_exchanges
from sessiontree.models.cassettes.piece_forms import decode_pieces, encode_pieces
from sessiontree.models.cassettes.recorded_model import RecordableModel
from sessiontree.models.port import Piece, ToolSpec
from sessiontree.models.stream_assembler import StreamAssembler, request_reply
from tests.unit.models.stream_strategies import Block, assembled, in_turn, interleaved, replies, stops

SECRET = "sk-ant-" + "a1B2" * 8
WHOLE: tuple[Piece, ...] = (
    ThinkingPiece("Let me "),
    ThinkingPiece("look."),
    ThinkingPiece(signature="sig"),
    "One ",
    "moment",
    CallPiece('{"path"', 0, "c1", "read"),
    CallPiece(': "a.md"}', 0),
    CallPiece({"path": "b.md"}, 1, "c2", "read", ends=True),
    Usage(10, 5, 0.25, cache_read_tokens=3),
    ModelPiece("openai:gpt-5-2026"),
    StopPiece("toolUse"),
    ProviderForm(1, "openai", "openai", {"parts": ["…"]}),
)


def said(text: str) -> UserMessage:
    """Return what a person says."""
    return UserMessage((TextContent(text),), 0)


def question(*messages: Message, **changes: Any) -> ModelRequest:
    """Return a question with one tool."""
    tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
    given = {"tools": [tool], "system_prompt": "Be brief.", **changes}
    return ModelRequest(
        session_id="main", kind=SessionKind.MAIN, turn=1, messages=messages, result_schema=None, **given
    )


def streaming(*pieces: Piece, error: Exception | None = None) -> StreamFunctionModel:
    """Return a model that streams these pieces, and then fails with an error, if one is given."""

    async def stream(request: ModelRequest) -> AsyncIterator[Piece]:
        for piece in pieces:
            yield piece
        if error is not None:
            raise error

    return StreamFunctionModel(stream, "openai:gpt-5")


def taking_turns(*models: StreamFunctionModel) -> StreamFunctionModel:
    """Return a model that asks these, one after the other."""
    left = iter(models)
    return StreamFunctionModel(lambda request: next(left).stream(request), "openai:gpt-5")


async def heard(model: RecordedModel, request: ModelRequest) -> list[Piece]:
    """Return the pieces of a reply."""
    return [piece async for piece in model.stream(request)]


def unheard(event: object) -> None:
    """Take what watchers see."""


async def reply(model: RecordedModel, request: ModelRequest) -> AssistantMessage:
    """Return a whole reply."""
    return await request_reply(model, request, StreamAssembler(1, unheard), unheard)


async def test_reply_is_replayed_as_it_came(tmp_path: Path) -> None:
    """Thoughts, text, calls in pieces, usage, name and replay come back in the same pieces."""
    path = tmp_path / "new" / "cassette.json"
    recorder = RecordedModel(path, streaming(*WHOLE))
    assert tuple(await heard(recorder, question(said("Hi.")))) == WHOLE
    replayed = RecordedModel(path)
    assert replayed.name == "openai:gpt-5"
    pieces = await heard(replayed, question(said("Hi.")))
    assert pieces[:5] == list(WHOLE[:5])
    assert pieces[5:] == list(WHOLE[5:])
    assert await reply(replayed, question(said("Hi."))) == await reply(recorder, question(said("Hi.")))


async def test_file_is_private_lines_that_a_person_reads(tmp_path: Path) -> None:
    """One object a line: version and models, then exchanges, whose text is whole; only its owner reads it."""
    path = tmp_path / "cassette.json"
    await heard(RecordedModel(path, streaming("Grüße\u2028", "dich")), question(said("Hi.")))
    head, exchange = (json.loads(line) for line in path.read_text("utf-8").rstrip("\n").split("\n"))
    assert head == {"cassette": 1, "models": {"openai:gpt-5": {"contextTokens": None}}}
    assert exchange["reply"] == [{"text": "Grüße\u2028dich", "cuts": [6]}]
    assert exchange["request"]["messages"] == [{"role": "user", "content": [{"text": "Hi."}]}]
    assert "Grüße" in path.read_text("utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names_in(tmp_path) == ["cassette.json"]
    assert await heard(RecordedModel(path), question(said("Hi."))) == ["Grüße\u2028", "dich"]


def conversation(call_id: str, at_ms: int, text: str = "forty-two") -> list[Message]:
    """Return a question, a reply with a call, and its result."""
    asked = AssistantMessage(
        (script_call("read", path="a.md"),),
        "toolUse",
        Usage(at_ms, 1),
        at_ms,
        replay=ProviderForm(1, "a", "a", call_id),
    )
    calls = tuple(type(each)(call_id, each.name, each.arguments) for each in asked.tool_calls)
    told = AssistantMessage(calls, "toolUse", asked.usage, at_ms, replay=asked.replay)
    return [said("Hi."), told, ToolResultMessage(call_id, "read", (TextContent(text),), timestamp=at_ms)]


async def test_ids_times_and_usages_do_not_count(tmp_path: Path) -> None:
    """A question is found whoever asks it and when, and whatever its calls are called."""
    path = tmp_path / "cassette.json"
    await heard(RecordedModel(path, streaming("Done.")), question(*conversation("call_1", 5)))
    replayed = RecordedModel(path)
    other = ModelRequest(
        "main/w7",
        SessionKind.WORKER,
        9,
        "Be brief.",
        question().tools,
        conversation("xyz", 77),
        None,
        "scout",
        "m",
        ModelSettings(deadline_s=3),
    )
    assert await heard(replayed, other) == ["Done."]


CHANGES: dict[str, Callable[[], ModelRequest]] = {
    "system": lambda: question(*conversation("c", 1), system_prompt="Be long."),
    "tools[0].description": lambda: question(
        *conversation("c", 1), tools=[ToolSpec("read", "Reads it.", question().tools[0].parameters)]
    ),
    "settings.temperature": lambda: question(*conversation("c", 1), settings=ModelSettings(temperature=0.5)),
    "messages[2].content[0].text": lambda: question(*conversation("c", 1, "forty-three")),
    "messages[3].role": lambda: question(*conversation("c", 1), said("And?")),
    "messages[0].content[0].image": lambda: question(
        UserMessage((ImageContent("AAAA", "image/png"),), 0), *conversation("c", 1)[1:]
    ),
}


@pytest.mark.parametrize("place", CHANGES)
async def test_miss_shows_the_nearest_question(tmp_path: Path, place: str) -> None:
    """Anything that a model sees counts; the error names the line, the place and both texts."""
    path = tmp_path / "cassette.json"
    recorder = RecordedModel(path, streaming("Done."))
    await heard(recorder, question(said("Something else."), system_prompt="Sing."))
    await heard(recorder, question(*conversation("call_1", 5)))
    with pytest.raises(ModelError) as caught:
        await heard(RecordedModel(path), CHANGES[place]())
    text = str(caught.value)
    assert f"line 3; {place} differs: recorded '" in text
    assert not caught.value.retryable
    if place.endswith("[0].text"):
        assert "recorded 'forty-two', asked 'forty-three'" in text


async def test_what_differs_from_run_to_run_may_be_ignored(tmp_path: Path) -> None:
    """Texts that a pattern matches, and the random number in marks of untrusted text, do not count."""
    path = tmp_path / "cassette.json"

    def asked(number: int) -> ModelRequest:
        mark = f'<<<EXTERNAL_UNTRUSTED_CONTENT id="{number:016x}" kind="page">>>'
        quoted = json.dumps(f'<<<END_EXTERNAL_UNTRUSTED_CONTENT id="{number:016x}">>>')
        return question(said(f"In /tmp/run-{number}: {mark} {quoted}"))

    await heard(RecordedModel(path, streaming("Done.")), asked(1))
    ignoring = [r"/tmp/run-\d+"]
    assert await heard(RecordedModel(path, ignoring=ignoring), asked(2)) == ["Done."]
    with pytest.raises(ModelError, match="recorded 'In /tmp/run-1: "):
        await heard(RecordedModel(path), asked(2))


async def test_failures_are_replayed(tmp_path: Path) -> None:
    """A failure comes back with its type, its wish to wait and the text before it; then what came next."""
    path = tmp_path / "cassette.json"
    asked = question(said("Hi."))
    failing = streaming("Hal", error=ModelBusy("full", retry_after_s=2.5))
    recorder = RecordedModel(path, taking_turns(failing, streaming("Hello.")))
    with pytest.raises(ModelBusy):
        await heard(recorder, asked)
    await heard(recorder, asked)
    replayed = RecordedModel(path)
    pieces = []
    with pytest.raises(ModelBusy) as caught:
        pieces.extend([piece async for piece in replayed.stream(asked)])
    assert (caught.value.message, caught.value.retryable, caught.value.retry_after_s) == ("full", True, 2.5)
    assert [await heard(replayed, asked) for _ in range(2)] == [["Hello."], ["Hello."]]


def names_in(path: Path) -> list[str]:
    """Return the names of a directory's files."""
    return [each.name for each in path.iterdir()]


def texts_of(path: Path) -> str:
    """Return everything in a file."""
    return path.read_text("utf-8")


LEAKS: dict[str, tuple[Sequence[Piece], ModelRequest, Exception | None]] = {
    "in the question": ((), question(said(f"My key is {SECRET}.")), None),
    "in text, cut anywhere": ((SECRET[:9], SECRET[9:20], SECRET[20:]), question(said("Hi.")), None),
    "in a thought": ((ThinkingPiece(SECRET[:9]), ThinkingPiece(SECRET[9:])), question(said("Hi.")), None),
    "in arguments, cut": (
        (CallPiece(f'{{"a": "{SECRET[:12]}', 0, "c", "read"), CallPiece(f'{SECRET[12:]}"}}', 0)),
        question(said("Hi.")),
        None,
    ),
    "in arguments of calls that take turns": (
        (
            CallPiece(f'{{"a": "{SECRET[:12]}', 0, "c", "read"),
            CallPiece("{}", 1, "d", "read"),
            CallPiece(f'{SECRET[12:]}"}}', 0),
        ),
        question(said("Hi.")),
        None,
    ),
    "as a password": ((CallPiece({"password": SECRET}, 0, "c", "read"),), question(said("Hi.")), None),
    "in a replay": (
        ("Hi", ProviderForm(1, "o", "o", {"parts": [{"content": SECRET}]})),
        question(said("Hi.")),
        None,
    ),
    "in a refusal": ((StopPiece("refusal", SECRET),), question(said("Hi.")), None),
    "in a failure": ((), question(said("Hi.")), ModelError(f"bad key {SECRET}")),
    "in text before a failure": ((SECRET[:9], SECRET[9:]), question(said("Hi.")), ModelError("broke off")),
}


@pytest.mark.parametrize("leak", LEAKS)
async def test_no_secret_is_written(tmp_path: Path, leak: str) -> None:
    """Wherever a secret is, the file has a mark instead; the session that records gets what was said."""
    pieces, asked, error = LEAKS[leak]
    path = tmp_path / "cassette.json"
    recorder = RecordedModel(path, streaming(*pieces, error=error))
    got: list[Piece] = []
    try:
        got.extend([piece async for piece in recorder.stream(asked)])
    except ModelError:
        pass
    else:
        assert got == list(pieces)
    assert SECRET[9:20] not in texts_of(path)
    assert "‹redacted›" in texts_of(path)
    replayed = RecordedModel(path)
    if error is None:
        assert (await reply(replayed, asked)).stop_reason in {"stop", "toolUse", "refusal"}
    else:
        with pytest.raises(ModelError):
            await reply(replayed, asked)


async def test_conversation_with_a_secret_goes_on(tmp_path: Path) -> None:
    """The next question holds the secret while recording and the mark while replaying, and is found."""
    path = tmp_path / "cassette.json"
    recorder = RecordedModel(path, taking_turns(streaming("Use ", SECRET), streaming("Done.")))
    first = await reply(recorder, question(said("Hi.")))
    await heard(recorder, question(said("Hi."), first, said("Thanks.")))
    replayed = RecordedModel(path)
    again = await reply(replayed, question(said("Hi.")))
    assert again.text == "Use ‹redacted›"
    assert await heard(replayed, question(said("Hi."), again, said("Thanks."))) == ["Done."]


@given(replies(), stops, st.randoms(use_true_random=False), st.booleans())
def test_pieces_mean_the_same_after_a_file(
    blocks: tuple[Block, ...], stop: StopReason | None, random: Random, mixed: bool
) -> None:
    """However a provider cuts a reply, what was written and read of it gives the same message."""
    pieces = list((interleaved if mixed else in_turn)(blocks, stop, random))
    wire = json.loads(json.dumps(encode_pieces(pieces, Redact(shapes=False))))
    assert assembled(decode_pieces(wire, "here"))[0] == assembled(iter(pieces))[0]


async def test_every_kind_of_model_is_recorded(tmp_path: Path) -> None:
    """Instant models and those that reply as a whole are recorded too, and lists as one."""

    async def waits(request: ModelRequest) -> Any:
        return ["Reading.", script_call("read", path="a")]

    models: dict[str, RecordableModel] = {
        "instant": FunctionModel(lambda request: ["Reading.", script_call("read", path="a")]),
        "whole": AsyncFunctionModel(waits),
        "list": [
            streaming(error=ModelBusy("no")),
            streaming("Reading.", CallPiece({"path": "a"}, 0, "", "read")),
        ],
    }
    for name, model in models.items():
        path = tmp_path / name
        first = await reply(RecordedModel(path, model), question(said("Hi.")))
        second = await reply(RecordedModel(path, model), question(said("Hi.")))
        assert first == second
        assert (first.text, first.tool_calls[0].arguments) == ("Reading.", {"path": "a"})


async def test_question_asked_again_replaces_its_replies(tmp_path: Path) -> None:
    """Recording again replaces what was recorded of the same question, and keeps the others."""
    path = tmp_path / "cassette.json"
    first = RecordedModel(path, streaming("old"))
    for text in ("a", "a", "b"):
        await heard(first, question(said(text)))
    await heard(RecordedModel(path, streaming("new"), record=True), question(said("a")))
    replayed = RecordedModel(path)
    assert [await heard(replayed, question(said(text))) for text in ("a", "a", "b")] == [
        ["new"],
        ["new"],
        ["old"],
    ]


async def test_many_record_to_one_file_at_once(tmp_path: Path) -> None:
    """Sixty-four questions through two recorders at once: no reply is lost, and each gets its own."""
    path = tmp_path / "cassette.json"

    async def echo(request: ModelRequest) -> AsyncIterator[Piece]:
        await asyncio.sleep(0)
        yield request.messages[-1].text

    recorders = [RecordedModel(path, StreamFunctionModel(echo, "echo"), record=True) for _ in range(2)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(heard(recorders[number % 2], question(said(str(number)))))
    replayed = RecordedModel(path)
    assert len(Cassette.read(path).exchanges) == 64
    assert [await heard(replayed, question(said(str(number)))) for number in range(64)] == [
        [str(number)] for number in range(64)
    ]


async def test_interrupted_reply_is_not_recorded(tmp_path: Path) -> None:
    """Of a reply that nobody waited for to its end nothing is in the file."""
    path = tmp_path / "cassette.json"
    stream = RecordedModel(path, streaming("one", "two")).stream(question(said("Hi.")))
    assert await anext(stream) == "one"
    await stream.aclose()
    assert not path.exists()


async def test_replaying_travels_without_the_model(tmp_path: Path) -> None:
    """A pickled copy replays from the beginning; the name of a provider needs no key then."""
    path = tmp_path / "cassette.json"
    recorder = RecordedModel(path, streaming("first"))
    await heard(recorder, question(said("Hi.")))
    replayed = RecordedModel(path, "openai:gpt-5")
    assert await heard(pickle.loads(pickle.dumps(replayed)), question(said("Hi."))) == ["first"]


def test_bad_files_and_arguments_are_named(tmp_path: Path) -> None:
    """Each mistake has an error that says which file or argument it is, and what to do."""
    path = tmp_path / "cassette.json"
    add_exchanges(path, {"a": None, "b": None}, [Exchange("a", {}, [])], ())
    bad = tmp_path / "bad"
    mistakes: dict[str, Callable[[], object]] = {
        r"give the model to record, as model=": lambda: RecordedModel(tmp_path / "none"),
        r"does not exist; record it": lambda: RecordedModel(tmp_path / "none", record=False),
        r"say whose replies are wanted, as model=…; its models: a, b": lambda: RecordedModel(path),
        r"has no reply of c; its models: a, b": lambda: RecordedModel(path, "c"),
        r"ignoring is 'x'; give regular": lambda: RecordedModel(path, "a", ignoring="x"),
        r"ignoring: .*; give regular expressions": lambda: RecordedModel(path, "a", ignoring=["("]),
    }
    for words, mistake in mistakes.items():
        with pytest.raises(ConfigError, match=words):
            mistake()
    files = {
        r"line 1: Expecting value": "",
        r"is not a cassette: line 1 is not": '{"a": 1}',
        r"has version 2; this release reads version 1": '{"cassette": 2, "models": {}}',
        r"line 2: this is not an object": '{"cassette": 1, "models": {}}\n[]',
        r"line 2: an exchange has": '{"cassette": 1, "models": {}}\n{"model": "a"}',
        r"line 3: Unterminated": '{"cassette": 1, "models": {}}\n\n{"mod',
    }
    for words, content in files.items():
        bad.write_text(content, "utf-8")
        with pytest.raises(ConfigError, match=words):
            RecordedModel(bad)


async def test_file_that_cannot_be_written_fails_the_question(tmp_path: Path) -> None:
    """No session gets a reply that is not in the file; the error names the file."""
    place = tmp_path / "file"
    recorder = RecordedModel(place / "cassette.json", streaming("Hi."))
    place.write_text("not a directory", "utf-8")
    with pytest.raises(ModelError, match=r"the reply can't be recorded in .*cassette\.json"):
        await reply(recorder, question(said("Hi.")))


async def test_piece_that_a_person_spoiled_is_named(tmp_path: Path) -> None:
    """A file may be edited; what is no piece any more fails with its line."""
    path = tmp_path / "cassette.json"
    await heard(RecordedModel(path, streaming("Hi.")), question(said("Hi.")))
    for wrong in ('{"txt":"Hi."}', '{"text":7}', '{"text":"Hi.","cuts":[9]}', '{"stop":"never"}'):
        spoiled = tmp_path / "spoiled"
        spoiled.write_text(texts_of(path).replace('"reply":[{"text":"Hi."}]', f'"reply":[{wrong}]'), "utf-8")
        assert wrong in texts_of(spoiled)
        with pytest.raises(ModelError, match=r"line 2: .* is not a piece of a reply"):
            await heard(RecordedModel(spoiled), question(said("Hi.")))
