"""Every provider's own library encodes every conversation: no half of a surrogate pair is sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    ProviderForm,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.contracts.values.whole_text import join_halves, repair_object, repair_text, repair_value
from sessiontree.models.port import ModelRequest, ToolSpec
from sessiontree.models.providers.provider_model import ProviderModel
from sessiontree.models.sendable.provider_view import GRAMMARS, NAMES, NAMES_OF, ProviderView
from sessiontree.models.sendable.sendable_message import repair_message, repair_tools
from sessiontree.models.stream_assembler import StreamAssembler, request_reply
from sessiontree.schema.dialect import choose_dialect
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.unit.models.test_provider_models import MODELS

HIGH, LOW, WHOLE = "\ud83d", "\ude00", "\U0001f600"
PIECES = ["", "a", "é", HIGH, LOW, HIGH + LOW, "\udce9", "\ufffd", '"', "\\ud800"]
texts = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(text=texts)
def test_text_is_joined_and_then_replaced(text: str) -> None:
    """What can be encoded is the very same text; each lone half becomes one U+FFFD, and no pair is lost."""
    shown = repair_text(text)
    shown.encode()
    assert (shown is text) == (text == shown)
    assert len(shown) == len(join_halves(text))
    assert shown.count(WHOLE) == text.count(HIGH + LOW)


@given(value=st.dictionaries(texts, values, max_size=4))
def test_value_keeps_its_members(value: dict[str, JsonValue]) -> None:
    """Keys that would become one stay two; what is whole is not copied."""
    shown = repair_object(value)
    json.dumps(shown, ensure_ascii=False).encode()
    assert len(shown) == len(value)
    assert repair_value(dict(shown)) == shown
    assert (shown is value) == (shown == value)


def _reply(text: str, arguments: dict[str, JsonValue], *, replayed: bool) -> AssistantMessage:
    payload: JsonValue = {
        "kind": "response",
        "parts": [
            {"part_kind": "text", "content": text, "id": "m1"},
            {
                "part_kind": "tool-call",
                "tool_name": "odd",
                "args": json.dumps(arguments),
                "tool_call_id": "abcdefghi",
            },
        ],
    }
    call = ToolCall("abcdefghi", "odd", arguments)
    return AssistantMessage(
        (ThinkingContent("hm"), TextContent(text), call),
        "toolUse",
        replay=ProviderForm(1, "any", "any", payload) if replayed else None,
    )


def _conversation(bad: str, *, replayed: bool) -> list[Message]:
    """Return a conversation with a text at every place that there is."""
    unread = AssistantMessage((ToolCall(f"c{bad}", f"n{bad}", {}, f'{{"a": "{bad}", "b": "\\ud800"}}'),))
    return [
        UserMessage((TextContent(bad), TextContent("b")), 1),
        _reply(bad, {bad: [bad, {"k": bad}]}, replayed=replayed),
        ToolResultMessage("abcdefghi", "odd", (TextContent(bad),), {"x": bad}, is_error=True),
        unread,
        ToolResultMessage(f"c{bad}", f"n{bad}", (TextContent(bad),)),
        AssistantMessage((ThinkingContent(bad, bad), TextContent(bad))),
        UserMessage((TextContent(f"{HIGH}{LOW} and {bad}"),), 1, "notice"),
    ]


def _asked(model: ProviderModel, messages: Sequence[Message]) -> ModelRequest:
    """Return the question as the gateway makes it."""
    dialect = choose_dialect(model.name).name
    told = ProviderView(GRAMMARS.get(dialect), NAMES_OF.get(dialect, NAMES))
    for message in messages:
        told.take(len(told), [message])
    tools = [ToolSpec("odd", f"says {HIGH}", {"type": "object", "properties": {"p": {"enum": [HIGH]}}})]
    shown, prompt = repair_tools(tools), repair_text(f"Be {LOW} brief.")
    return ModelRequest("main", SessionKind.MAIN, 1, prompt, shown, told.shown, None)


@pytest.mark.parametrize("provider", MODELS)
async def test_every_library_encodes_half_a_pair_anywhere(provider: str) -> None:
    """In text, thoughts, arguments and their keys, names, ids, results, prompt, tools, and kept replies."""
    async with FakeProvider([FakeReply("fine")]) as fake:
        model = ProviderModel(MODELS[provider], api_key="key", base_url=fake.url(provider))
        for bad in (HIGH, LOW, HIGH + LOW, f"{HIGH}{HIGH}{LOW}"):
            for replayed in (False, True):
                messages = _conversation(bad, replayed=replayed)
                if replayed:
                    messages = [_belonging(message, model.system) for message in messages]
                request = _asked(model, messages)
                events: list[Any] = []
                reply = await request_reply(model, request, StreamAssembler(1, events.append), events.append)
                assert reply.text == "fine"
        await model.close()
    for asked in fake.requests:
        body = json.dumps(asked.body, ensure_ascii=False)
        assert body.encode()
        assert WHOLE in body


def _belonging(message: Message, system: str) -> Message:
    """Return a message whose replay is for a system."""
    if not isinstance(message, AssistantMessage) or message.replay is None:
        return message
    replay = ProviderForm(1, "any", system, message.replay.payload)
    return AssistantMessage(message.content, message.stop_reason, replay=replay)


def test_what_needs_no_change_is_the_same_object() -> None:
    """Also a signed reply; the signature of a changed thought is not sent with other words."""
    sound = AssistantMessage(
        (ThinkingContent("é", "sig"),), replay=ProviderForm(1, "p", "s", {"parts": ["é"]})
    )
    assert repair_message(sound) is sound
    odd = AssistantMessage((ThinkingContent(HIGH, "sig"),), replay=sound.replay)
    shown = repair_message(odd)
    assert isinstance(shown, AssistantMessage)
    assert shown.replay is None
    said = AssistantMessage(
        (TextContent(HIGH),), replay=ProviderForm(1, "p", "s", {"args": HIGH, "signature": "x"})
    )
    kept = repair_message(said)
    assert isinstance(kept, AssistantMessage)
    assert kept.replay is not None
    assert kept.replay.payload == {"args": "\ufffd", "signature": "x"}
