"""Five providers' own libraries against the fake provider, and three of them against a real local model.

What the real model says is its own affair: the tests hold how its reply comes, and what is left. The fake
says what a test gives it. Tests with ``both`` run against either; the real model's server is started once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import messages as theirs

from sessiontree.contracts.errors import (
    ContextOverflow,
    ModelBusy,
    ModelError,
    ModelKeyRefused,
    ModelUnreachable,
)
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.reports.events import TextDelta
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    decode_message,
)
from sessiontree.contracts.values.request_names import REQUEST_HEADER
from sessiontree.models.local.local_model import LocalModel
from sessiontree.models.port import ModelRequest, ToolSpec
from sessiontree.models.providers.conversation import keep_provider_form
from sessiontree.models.providers.provider_model import CallTimeouts, ProviderModel
from sessiontree.models.stream_assembler import StreamAssembler, request_reply
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider

MODELS = {
    "openai": "openai:gpt-5",
    "openai-responses": "openai-responses:gpt-5",
    "anthropic": "anthropic:claude-sonnet-5",
    "google": "google:gemini-3-pro-preview",
    "mistral": "mistral:mistral-large-latest",
}
KEY = "sk-sentinel-7Jq2"
ESTABLISHED = "01"
"""As ``/proc/net/tcp`` says it."""
READ = ToolSpec(
    "read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@dataclass
class Asking:
    """One provider's model, and the fake behind it."""

    provider: str
    fake: FakeProvider
    model: ProviderModel
    events: list[Any] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, event: Any) -> None:
        """Take what watchers see."""
        self.events.append(event)
        self.begun.set()

    async def reply(self, *messages: Message, **changes: Any) -> AssistantMessage:
        """Ask, and return the assembled reply."""
        request = question(*messages, **changes)
        return await request_reply(self.model, request, StreamAssembler(1, self.hear), self.hear)


def question(*messages: Message, **changes: Any) -> ModelRequest:
    """Return a question with one tool."""
    given = messages or (said("Hi."),)
    return ModelRequest("main", SessionKind.MAIN, 1, "Be brief.", [READ], given, None, **changes)


def said(text: str) -> UserMessage:
    """Return what a person says."""
    return UserMessage((TextContent(text),), 0)


BY_LOCAL = {"openai": "/v1", "openai-responses": "/v1", "anthropic": ""}
"""The wire forms of the real model's server, each with its address there."""
real = [pytest.mark.slow, pytest.mark.timeout(240)]
SERVERS = [
    *(pytest.param((provider, "fake"), id=provider) for provider in MODELS),
    *(pytest.param((provider, "real"), id=f"{provider}-real", marks=real) for provider in BY_LOCAL),
]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalModel]:
    """The real model, whose server runs from the first test that asks for it to the last."""
    model = LocalModel()
    yield model
    asyncio.run(model.close())


@dataclass
class Served:
    """One provider's model on either server; the fake is given its reply beforehand."""

    model: ProviderModel
    fake: FakeProvider | None
    open_connections: Callable[[], int]
    events: list[Any] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, event: Any) -> None:
        """Take what watchers see."""
        self.events.append(event)
        self.begun.set()

    def asked(self, text: str, fakes: FakeReply, tokens: int = 24) -> ModelRequest:
        """Return a question whose reply is the same each time; the fake gets its reply here."""
        if self.fake is not None:
            self.fake.script = [fakes]
            return question(said(text), settings=ModelSettings(max_output_tokens=tokens))
        settings = ModelSettings(temperature=0, max_output_tokens=tokens, seed=1)
        return replace(question(said(text), settings=settings), tools=())  # it would call any that it has

    async def reply(self, asked: ModelRequest) -> AssistantMessage:
        """Ask, and return the assembled reply."""
        return await request_reply(self.model, asked, StreamAssembler(1, self.hear), self.hear)

    async def check_left(self) -> None:
        """Require that nobody is connected."""
        if self.fake is not None:
            await self.fake.until(lambda counts: counts.open_connections + counts.running_requests == 0)
            assert self.fake.counts.broken_off == 1
        assert self.open_connections() == 0


@pytest.fixture(params=SERVERS)
async def both(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A model of each provider on each server that speaks its wire form."""
    provider, server = request.param
    if server == "real":
        local: LocalModel = request.getfixturevalue("local")
        place = local.server.place(local)
        address = place.address + BY_LOCAL[provider]
        model = ProviderModel(f"{provider}:smollm2", api_key=place.key, base_url=address)
        yield Served(model, None, partial(connections_to, place.address))
        await model.close()
        return
    async with FakeProvider() as fake:
        model = ProviderModel(MODELS[provider], api_key=KEY, base_url=fake.url(provider))
        yield Served(model, fake, lambda: fake.counts.open_connections + fake.counts.running_requests)
        await model.close()


def connections_to(address: str) -> int:
    """Return how many connections to a loopback server there are, of any process."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(port) and row[3] == ESTABLISHED for row in rows)


LONG_STORY = FakeReply("word " * 4_000, between_s=0.02)


@pytest.mark.short(3)
async def test_text_arrives_in_deltas(both: Served) -> None:
    """Text, the usage and the reason of the end arrive; watchers see the text in pieces."""
    fakes = FakeReply("The capital of France is Paris.", delta_chars=5)
    reply = await both.reply(both.asked("What is the capital of France?", fakes, 120))
    assert "Paris" in reply.text
    assert len([each for each in both.events if isinstance(each, TextDelta) and each.delta]) >= 4
    assert (reply.stop_reason, reply.model) == ("stop", both.model.name)
    if both.fake is None:
        assert reply.usage.input_tokens == 24
        assert 5 < reply.usage.output_tokens <= 120
        return
    assert reply.text == "The capital of France is Paris."
    assert reply.usage.output_tokens == 8
    assert reply.usage.input_tokens > 10
    assert len(both.events) > 5
    assert both.fake.requests[0].is_streamed


async def test_leaving_a_stream_closes_its_connection(both: Served) -> None:
    """Nothing of the reply is waited for."""
    asked = both.asked("Write a long story about a house.", LONG_STORY, 1_000)
    async with asyncio.timeout(60):
        async with aclosing(both.model.stream(asked)) as pieces:
            await anext(pieces)
            assert both.open_connections() >= 1
        await both.check_left()


@pytest.mark.short(3)
async def test_cancelling_a_question_closes_its_connection(both: Served) -> None:
    """A question that is given up in the middle leaves no connection behind; the next one is answered."""
    asked = both.asked("Write a long story about a house.", LONG_STORY, 1_000)
    task = asyncio.create_task(both.reply(asked))
    async with asyncio.timeout(60):
        await both.begun.wait()
        assert both.open_connections() >= 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await both.check_left()
        assert (await both.reply(both.asked("Say yes.", FakeReply("Yes.")))).text


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_real_model_calls_tools_by_the_schema_of_its_reply(local: LocalModel) -> None:
    """``constrained:`` on chat completions: a whole call, whatever the model would rather say."""
    place = local.server.place(local)
    model = ProviderModel(
        "constrained:openai:smollm2", api_key=place.key, base_url=place.address + BY_LOCAL["openai"]
    )
    settings = ModelSettings(temperature=0, max_output_tokens=60, tool_choice="required", seed=1)
    asked = question(said("Read the file notes.txt"), settings=settings)
    reply = await request_reply(model, asked, StreamAssembler(1, lambda event: None), lambda event: None)
    await model.close()
    (made,) = reply.tool_calls
    assert (made.name, set(made.arguments), made.unread) == ("read", {"path"}, None)
    assert reply.stop_reason == "toolUse"


@pytest.fixture(params=MODELS)
async def asking(request: pytest.FixtureRequest) -> AsyncIterator[Asking]:
    """A model of each provider, whose server is the fake."""
    async with FakeProvider() as fake:
        model = ProviderModel(
            MODELS[request.param], api_key=KEY, base_url=fake.url(request.param), timeouts=CallTimeouts()
        )
        yield Asking(request.param, fake, model)
        await model.close()


async def test_parallel_calls_arrive_whole(asking: Asking) -> None:
    """Two calls after text keep their order, names, ids and arguments."""
    calls = (FakeCall("read", '{"path": "a.md"}'), FakeCall("read", '{"path": "Ω/\\u00e9.md"}'))
    asking.fake.script = [FakeReply("Reading.", calls=calls, delta_chars=3)]
    reply = await asking.reply()
    assert [(each.name, each.arguments) for each in reply.tool_calls] == [
        ("read", {"path": "a.md"}),
        ("read", {"path": "Ω/é.md"}),
    ]
    assert len({each.id for each in reply.tool_calls}) == 2
    assert reply.text == "Reading."
    assert reply.stop_reason == "toolUse"


async def test_result_goes_back_with_its_call(asking: Asking) -> None:
    """The next question holds call and result under the same id, and the words that came with the call."""
    asking.fake.script = [
        FakeReply("Reading.", calls=(FakeCall("read", '{"path": "a.md"}'),)),
        FakeReply("Done."),
    ]
    first = await asking.reply()
    call = first.tool_calls[0]
    result = ToolResultMessage(call.id, "read", (TextContent("forty-two"),))
    assert (await asking.reply(said("Hi."), first, result)).text == "Done."
    body = str(asking.fake.requests[1].body)
    assert body.count(call.id) >= 2 or asking.provider == "google"
    assert "forty-two" in body
    assert "Reading." in body


async def test_schemas_are_sent_as_given(asking: Asking) -> None:
    """The schema of a tool arrives as it was given: the dialect was decided before."""
    odd: dict[str, Any] = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "title": "N"}},
        "title": "T",
    }
    await request_reply(
        asking.model,
        ModelRequest("main", SessionKind.MAIN, 1, "", [ToolSpec("odd", "Odd.", odd)], [said("Hi.")], None),
        StreamAssembler(1, asking.hear),
        asking.hear,
    )
    assert odd in list(values_of(asking.fake.requests[0].body))


def values_of(value: Any) -> Any:
    """Yield every value within a JSON value."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from values_of(each)


async def test_reply_cut_by_its_length_says_so(asking: Asking) -> None:
    """A reply whose tokens were used up ends with ``length``."""
    asking.fake.script = [FakeReply("Once upon a", finish="length")]
    reply = await asking.reply()
    assert (reply.text, reply.stop_reason) == ("Once upon a", "length")


FAILURES: dict[int, tuple[type[ModelError], bool]] = {
    400: (ModelError, False),
    401: (ModelKeyRefused, False),
    402: (ModelKeyRefused, False),
    403: (ModelKeyRefused, False),
    404: (ModelKeyRefused, False),
    500: (ModelUnreachable, True),
    503: (ModelBusy, True),
    529: (ModelBusy, True),
    429: (ModelBusy, True),  # the last: it asks to wait
}


async def test_failures_are_typed(asking: Asking) -> None:
    """Each status is an error of its own, says whether asking again helps, and holds no key."""
    for status, (kind, is_retryable) in FAILURES.items():
        after_s = 7 if status == 429 else None
        asking.fake.script = [FakeReply(status=status, error=f"no: {KEY}", retry_after_s=after_s)]
        with pytest.raises(ModelError) as caught:
            await asking.reply()
        error = caught.value
        assert (type(error), error.retryable, error.retry_after_s) == (kind, is_retryable, after_s)
        assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    assert asking.fake.counts.requests == len(FAILURES), "the provider's library asks once"


OVERFLOWS = (
    "the request exceeds the available context size, try increasing it",
    "This model's maximum context length is 8192 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "Input is too long for requested model.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
    "Input validation error: `inputs` must have less than 4095 tokens. Given: 6001",
    "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
    "the question has more than the maximum allowed number of input tokens",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Range of input length should be [1, 30720]",
    "Request payload size exceeds the limit: 20971520 bytes.",
    "messages.3.content.1.image.source.base64: image exceeds 5 MB maximum: 5336100 bytes > 5242880 bytes",
    "image dimensions exceed max allowed size for many-image requests: 2000 pixels",
    "Too many images and documents: 101 + 0 > 100",
    "Invalid 'input': too many images. Expected at most 500 images",
)
NO_OVERFLOWS = (
    "tools.0.custom.description: String should have at most 1024 characters",
    "messages.1.content: text content blocks must be non-empty",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
    "Unsupported parameter: 'temperature'",
    "image is not a PNG",
)


async def test_overflow_is_its_own_failure(asking: Asking) -> None:
    """A status 400 or 422 that says the question is too long is a ContextOverflow, in any server's words.

    Words are judged alike for all providers, so each wording has one provider and one status.
    """
    own = list(MODELS).index(asking.provider)
    for at, words in enumerate(OVERFLOWS[own :: len(MODELS)]):
        asking.fake.script = [FakeReply(status=(400, 422)[at % 2], error=words)]
        with pytest.raises(ContextOverflow):
            await asking.reply()
    for words in NO_OVERFLOWS[own % len(NO_OVERFLOWS) :][:1]:
        asking.fake.script = [FakeReply(status=400, error=words)]
        with pytest.raises(ModelError) as caught:
            await asking.reply()
        assert not isinstance(caught.value, ContextOverflow), words


async def test_too_many_bytes_are_an_overflow(asking: Asking) -> None:
    """Whatever the server says of it; a limit of a rate in the same words is not."""
    asking.fake.script = [FakeReply(status=413, error="no")]
    with pytest.raises(ContextOverflow):
        await asking.reply()
    asking.fake.script = [
        FakeReply(status=429, error="too many input tokens in a minute, prompt is too long")
    ]
    with pytest.raises(ModelBusy):
        await asking.reply()


async def test_key_of_one_letter_hides_no_overflow() -> None:
    """Placeholders of local servers stand in every word; the failure is judged before a key is hidden."""
    for key in ("x", "e", "context"):
        async with FakeProvider([FakeReply(status=400, error=OVERFLOWS[0])]) as fake:
            model = ProviderModel(MODELS["openai"], api_key=key, base_url=fake.url("openai"))
            with pytest.raises(ContextOverflow) as caught:
                await Asking("openai", fake, model).reply()
            await model.close()
        assert key not in str(caught.value).partition("status 400: ")[2]


async def test_refusal_is_no_answer(asking: Asking) -> None:
    """A refusal is the reason of the end, with what the provider said about it."""
    asking.fake.script = [FakeReply(refusal="I can't help with that.")]
    reply = await asking.reply()
    if asking.provider == "mistral":  # it has no word for refusals
        assert reply.text == "I can't help with that."
    else:
        assert (reply.text, reply.stop_reason) == ("", "refusal")
        assert reply.stop_detail


async def test_thoughts_go_back_to_who_had_them(asking: Asking) -> None:
    """A thought arrives in pieces, and its signature goes back with the call to the same server alone."""
    thinking = FakeReply(
        thinking="The file, of course.", calls=(FakeCall("read", '{"path": "a"}'),), delta_chars=4
    )
    asking.fake.script = [thinking, FakeReply("Done.")]
    first = await asking.reply()
    thoughts = [block.thinking for block in first.content if isinstance(block, ThinkingContent)]
    assert thoughts == ["The file, of course."]
    result = ToolResultMessage(first.tool_calls[0].id, "read", (TextContent("ok"),))
    talk = (said("Hi."), first, result)
    if asking.provider in {"openai-responses", "anthropic", "google"}:
        assert first.replay is not None
        assert first.replay.system == asking.model.system
        with pytest.raises(ModelError, match="signature must be sent back"):
            await asking.reply(said("Hi."), replace(first, replay=None), result)
        asking.fake.script = [FakeReply("Done.")]
        elsewhere = replace(first, replay=replace(first.replay, system="somebody"))
        async with FakeProvider() as other:
            model = ProviderModel(MODELS[asking.provider], api_key=KEY, base_url=other.url(asking.provider))
            await Asking(asking.provider, other, model).reply(said("Hi."), elsewhere, result)
            await model.close()
        travelled = decode_message(json.loads(first.to_json()))
        assert travelled == first
        talk = (said("Hi."), travelled, result)
    assert (await asking.reply(*talk)).text == "Done."


def test_citations_are_kept_with_the_reply() -> None:
    """The sources that a provider names for its text are in the reply's replay; plain text has no replay."""
    source = theirs.WebCitationSource("https://example.org/a", title="A")
    anchor = theirs.ContentCitationAnchor(start=0, end=2)
    cited = theirs.TextPart("So.", citations=[theirs.Citation([source], anchor=anchor)])
    replay = keep_provider_form(theirs.ModelResponse(parts=[cited]), "openai", "openai")
    assert replay is not None
    assert isinstance(replay.payload, dict)
    assert "https://example.org/a" in str(replay.payload["parts"])
    assert (
        keep_provider_form(theirs.ModelResponse(parts=[theirs.TextPart("So.")]), "openai", "openai") is None
    )


async def test_thought_that_broke_off_has_no_signature(asking: Asking) -> None:
    """Of a stream that was cut no signature is kept: it would be refused."""
    asking.fake.script = [FakeReply("so", thinking="hm " * 20, cut_after_bytes=1500)]
    assembly = StreamAssembler(1, asking.hear)
    with pytest.raises(ModelUnreachable):
        await request_reply(asking.model, question(), assembly, asking.hear)
    assert assembly.message().replay is None


async def test_what_was_asked_before_is_read_from_the_cache(asking: Asking) -> None:
    """Of a conversation that goes on the provider reads the beginning from its cache; the usage says so."""
    asking.fake.script = [FakeReply("word " * 50), FakeReply("Bye.", reasoning_tokens=5)]
    first = await asking.reply()
    assert first.usage.cache_read_tokens == 0
    second = await asking.reply(said("Hi."), first, said("And now?"))
    assert second.usage.cache_read_tokens >= first.usage.input_tokens - 5
    assert second.usage.cache_read_tokens < second.usage.input_tokens
    if asking.provider == "anthropic":
        assert first.usage.cache_write_tokens > 0
    elif asking.provider != "mistral":
        assert second.usage.reasoning_tokens == 5
    assert second.usage.output_tokens == 6


async def test_settings_reach_the_provider(asking: Asking) -> None:
    """Length, stops, seed and the choice of a tool are in the question, where the provider has words."""
    warms = asking.provider in {"google", "mistral"}  # these models of the others have no temperature
    settings = ModelSettings(
        max_output_tokens=77,
        temperature=0.25 if warms else None,
        stop=("END",),
        tool_choice="required",
        seed=9,
    )
    await asking.reply(settings=settings)
    sent = list(values_of(asking.fake.requests[0].body))
    assert 77 in sent
    assert 0.25 in sent or not warms
    assert ["END"] in sent or asking.provider == "openai-responses"
    assert 9 in sent or asking.provider in {"openai-responses", "anthropic"}
    assert {"required", "any", "ANY"} & {each for each in sent if isinstance(each, str)}


async def test_stream_that_breaks_off_is_no_reply(asking: Asking) -> None:
    """A connection cut at any of several places is retryable, and nothing of it is a reply."""
    for cut in (0, 40, 150, 400):
        asking.fake.script = [FakeReply("word " * 80, cut_after_bytes=cut)]
        with pytest.raises(ModelUnreachable):
            await asking.reply()


async def test_pieces_are_one_reply_however_they_are_cut(asking: Asking) -> None:
    """Every byte in a packet of its own, and every character in a delta of its own, give the same reply."""
    calls = (FakeCall("read", '{"path": "ü\\n\\"Ω"}'), FakeCall("read", '{"path": "b"}'))
    replies = [
        FakeReply("Grüße, 世界 🌍!", calls=calls, delta_chars=chars, write_bytes=at_once)
        for chars, at_once in ((1, 1), (1, None), (2, 7), (1000, None))
    ]
    asking.fake.script = replies
    got = [await asking.reply() for _ in replies]
    assert {each.text for each in got} == {"Grüße, 世界 🌍!"}
    assert [[call.arguments for call in each.tool_calls] for each in got] == [
        [{"path": 'ü\n"Ω'}, {"path": "b"}]
    ] * 4


BROKEN = ("not JSON", "[1, 2]", "{", "")


async def test_malformed_arguments_are_a_call_that_was_not_read(asking: Asking) -> None:
    """A call whose arguments are no object keeps its name, and the text that came, if there was any."""
    if asking.provider in {"google", "mistral"}:  # their libraries make objects of them
        return
    for words in BROKEN:
        asking.fake.script = [FakeReply(calls=(FakeCall("read", words), FakeCall("read", '{"path": "b"}')))]
        broken, whole = (await asking.reply()).tool_calls
        assert (broken.name, broken.arguments) == ("read", {})
        assert bool(broken.unread) == bool(words), words
        assert (whole.arguments, whole.unread) == ({"path": "b"}, None)


async def test_empty_reply_is_a_reply(asking: Asking) -> None:
    """It has no text and no calls, ends with ``stop``, and counts its input."""
    asking.fake.script = [FakeReply()]
    reply = await asking.reply()
    assert (reply.text, reply.tool_calls, reply.stop_reason) == ("", (), "stop")
    assert reply.usage.input_tokens > 0


async def test_very_long_reply_arrives_whole(asking: Asking) -> None:
    """A million characters, in pieces of four thousand."""
    text = "0123456789abcde\n" * 65_536
    asking.fake.script = [FakeReply(text, delta_chars=4_096)]
    reply = await asking.reply()
    assert reply.text == text
    assert reply.usage.output_tokens == len(text) // 4


async def test_slow_provider_is_given_up(asking: Asking) -> None:
    """A first piece that takes longer than allowed is retryable; so is a pause in the middle."""
    asking.model.timeouts = CallTimeouts(first_s=0.2)
    asking.fake.script = [FakeReply("late", first_s=5)]
    with pytest.raises(ModelUnreachable):
        await asking.reply()


async def test_conversation_of_many_kinds_is_accepted(asking: Asking) -> None:
    """Words in a row, an empty reply, an unread call and a failed result are put as a provider takes them."""
    call = ToolCall("abcdefgh1", "read", {}, unread='{"path": ')
    messages: list[Message] = [
        said("One."),
        said("Two."),
        AssistantMessage((TextContent(""),)),
        said("Three."),
        AssistantMessage((call,), "toolUse"),
        ToolResultMessage("abcdefgh1", "read", (TextContent('{"error": "unreadable"}'),), is_error=True),
        said("Four."),
    ]
    assert (await asking.reply(*messages)).text == "Hello."
    body = str(asking.fake.requests[0].body)
    assert all(word in body for word in ("One.", "Two.", "Three.", "Four.", "unreadable"))


async def test_price_is_known_or_said_to_be_unknown(asking: Asking) -> None:
    """The provider's own model has a cost; another server's tokens, and an unknown model's, are unpriced."""
    elsewhere = (await asking.reply()).usage
    assert (elsewhere.cost_usd, elsewhere.unpriced_tokens) == (0.0, elsewhere.tokens)
    asking.model.is_priced = True  # as if its own address were the fake's
    at_home = (await asking.reply()).usage
    assert at_home.unpriced_tokens == 0
    assert 0 < at_home.cost_usd < 0.01
    nobodys = ProviderModel(
        f"{asking.provider}:of-nobody", api_key=KEY, base_url=asking.fake.url(asking.provider)
    )
    nobodys.is_priced = True
    unknown = (await Asking(asking.provider, asking.fake, nobodys).reply()).usage
    await nobodys.close()
    assert (unknown.cost_usd, unknown.unpriced_tokens) == (0.0, unknown.tokens)


async def test_key_is_sent_and_never_shown(asking: Asking) -> None:
    """The server gets the key; neither the model's repr nor its pickle holds it."""
    await asking.reply()
    sent = asking.fake.requests[0].headers
    assert any(KEY in value for value in sent.values())
    assert KEY not in repr(asking.model)
    assert KEY not in repr(vars(asking.model))


async def test_server_of_the_owners_hears_which_request_it_is(asking: Asking) -> None:
    """A trainer between us and a model joins its records with the edges; a provider hears nothing."""
    await asking.reply()
    asking.model.is_priced = True  # as if its own address were the fake's
    await asking.reply()
    named = [request.headers.get(REQUEST_HEADER.lower()) for request in asking.fake.requests]
    assert named == [None if asking.provider == "mistral" else "main:1", None]
