"""Streams as compatible servers send them, read by the providers' own libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sessiontree.contracts.errors import ModelUnreachable
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.messages import AssistantMessage, StopReason, TextContent, UserMessage
from sessiontree.models.port import ModelRequest
from sessiontree.models.providers.provider_model import ProviderModel
from sessiontree.models.stream_assembler import StreamAssembler, request_reply
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider

MODELS = {"openai": "openai:any", "ollama": "ollama:any", "mistral": "mistral:any"}
served = pytest.mark.parametrize("provider", MODELS)
Event = Mapping[str, Any] | str


def chunk(delta: Mapping[str, Any] | None, finish: str | None = None, **beside: Any) -> dict[str, Any]:
    """Return one chunk of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "any"}
    return {**head, "choices": [choice], **beside}


def used(asked: int, said: int) -> dict[str, Any]:
    """Return what a chunk says of the tokens so far."""
    return {"usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}}


def piece(index: int, words: str, **beside: Any) -> dict[str, Any]:
    """Return a delta with a piece of a call; ``name`` and ``id`` are left out unless they are given."""
    name = {"name": beside.pop("name")} if "name" in beside else {}
    call = {"index": index, "type": "function", "function": {**name, "arguments": words}, **beside}
    return {"tool_calls": [call]}


async def reply_to(provider: str, events: Sequence[Event]) -> AssistantMessage:
    """Return the reply that a stream of these events becomes."""
    async with FakeProvider([FakeReply(events=(*events, "[DONE]"))]) as fake:
        where = "openai" if provider == "ollama" else provider
        model = ProviderModel(MODELS[provider], api_key="key", base_url=fake.url(where))
        asked = (UserMessage((TextContent("Hi."),), 0),)
        request = ModelRequest("main", SessionKind.MAIN, 1, "", (), asked, None)
        try:
            seen: list[Any] = []
            return await request_reply(model, request, StreamAssembler(1, seen.append), seen.append)
        finally:
            await model.close()


@served
async def test_last_usage_of_a_stream_counts(provider: str) -> None:
    """Whether it comes once, with each chunk, or twice at the end: tokens are not added up."""
    words = [chunk({"content": "w"}, **used(1000, number)) for number in range(1, 31)]
    last = chunk({}, "stop", **used(1000, 30))
    for events in ([*words, last], [chunk({"content": "w"}), last], [*words, last, last]):
        usage = (await reply_to(provider, events)).usage
        assert (usage.input_tokens, usage.output_tokens) == (1000, 30)


SPELT: list[tuple[str, StopReason]] = [
    ("stop", "stop"),
    ("end_turn", "stop"),
    ("eos", "stop"),
    ("eos_token", "stop"),
    ("COMPLETE", "stop"),
    ("stop_sequence", "stop"),
    ("max_tokens", "length"),
    ("MAX_TOKENS", "length"),
    ("model_length", "length"),
    ("content_filtered", "refusal"),
    ("SAFETY", "refusal"),
]


@pytest.mark.covers("PRV18")
async def test_finish_reasons_are_read_as_servers_send_them() -> None:
    """A whole reply is a reply, however its end is spelt; an unknown word is still no end."""
    for word, reason in SPELT:
        reply = await reply_to("openai", [chunk({"content": "fine"}), chunk({}, word)])
        assert (reply.text, reply.stop_reason) == ("fine", reason), word
    for word in ("tool_call", "tool_use", "TOOL_CALL", "function_call", "eos"):
        events = [chunk(piece(0, "{}", name="read", id="c1")), chunk({}, word)]
        reply = await reply_to("openai", events)
        assert [call.name for call in reply.tool_calls] == ["read"], word
    for word in ("error", "network_error", "insufficient_system_resource", "abort"):
        with pytest.raises(ModelUnreachable, match=word):
            await reply_to("openai", [chunk({"content": "half"}), chunk({}, word)])


@pytest.mark.parametrize("provider", ["openai", "ollama"])
async def test_last_chunk_without_a_delta_ends_the_reply(provider: str) -> None:
    """Its finish reason counts; chunks without a delta in between add nothing."""
    events = [chunk({"content": "fi"}), chunk(None), chunk({"content": "ne"}), chunk(None, "stop")]
    assert (await reply_to(provider, events)).text == "fine"


@served
async def test_call_without_a_name_is_a_call(provider: str) -> None:
    """An empty name, no name at all, or one that comes late: the session answers it, nothing is dropped."""
    empty: dict[str, Any] = {"name": ""}
    # Mistral's library accepts no piece without the member.
    for given in [empty] if provider == "mistral" else [empty, {}]:
        first = chunk(piece(0, '{"a"', id="abcdefghi", **given))
        events = [first, chunk(piece(0, ": 1}", **given)), chunk({}, "stop")]
        (call,) = (await reply_to(provider, events)).tool_calls
        assert (call.name, call.arguments) == ("", {"a": 1})
        late = [chunk(piece(0, "", id="abcdefghi", **given)), chunk(piece(0, "{}", name="read"))]
        (call,) = (await reply_to(provider, [*late, chunk({}, "tool_calls")])).tool_calls
        assert (call.name, call.arguments) == ("read", {})


async def test_piece_with_an_index_that_nobody_opened_continues_the_open_call() -> None:
    """It has neither a name nor an id, so it begins nothing."""
    events = [
        chunk(piece(0, '{"path"', name="read", id="c1")),
        chunk(piece(1, ': "a.txt"}')),
        chunk(piece(1, "", name="stat", id="c2")),
        chunk(piece(2, '{"path": "b"}')),
        chunk({}, "tool_calls"),
    ]
    first, second = (await reply_to("openai", events)).tool_calls
    assert (first.name, json.dumps(dict(first.arguments))) == ("read", '{"path": "a.txt"}')
    assert (second.name, dict(second.arguments)) == ("stat", {"path": "b"})
