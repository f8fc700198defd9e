"""Messages on the wire: the specification's own objects, and round trips of everything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.reports.events import (
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TranscriptRepaired,
)
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ProviderForm,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    decode_message,
)

FromWire = Callable[[Mapping[str, Any]], Message]


def paired(text: str) -> str:
    """Return a text whose surrogate pairs are the characters they stand for; lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# Texts as models and tools send them: every code point, halves of surrogate pairs too.
ANY_TEXT = st.text(st.characters(exclude_categories=())).map(paired) | st.sampled_from(
    ["\ud800", "a\udfffb", "\ude00\ud83d"]
)
NUMBERS = (
    st.integers()
    | st.sampled_from([2**53 + 1, -(2**63) - 1, 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.builds(TextContent, ANY_TEXT)
BLOCKS = TEXTS | st.builds(ImageContent, ANY_TEXT, ANY_TEXT)
CALLS = st.builds(
    ToolCall, ANY_TEXT, ANY_TEXT, st.dictionaries(ANY_TEXT, JSON, max_size=3), st.none() | ANY_TEXT
)
THOUGHTS = st.builds(ThinkingContent, ANY_TEXT, ANY_TEXT)
TIMES = st.integers(0, 2**53)
COUNTS = st.integers(0, 10**9)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        UserMessage,
        st.lists(BLOCKS, max_size=3).map(tuple),
        TIMES,
        st.sampled_from(["user", "parent", "child", "notice"]),
    ),
    st.builds(
        AssistantMessage,
        st.lists(TEXTS | THOUGHTS | CALLS, max_size=3).map(tuple),
        st.sampled_from(get_args(StopReason)),
        st.builds(Usage, COUNTS, COUNTS, st.floats(0, 1e6), COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
        TIMES,
        ANY_TEXT,
        ANY_TEXT,
        st.none() | st.builds(ProviderForm, COUNTS, ANY_TEXT, ANY_TEXT, JSON),
    ),
    st.builds(
        ToolResultMessage,
        ANY_TEXT,
        ANY_TEXT,
        st.lists(BLOCKS, max_size=3).map(tuple),
        JSON,
        st.booleans(),
        TIMES,
    ),
)

HOME = "/" + "home/user"
"""The home in the specification's examples; spelled in two, for no file here holds a machine's path."""

CALL_REPLY = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "I'll read that file for you."},
        {
            "type": "toolCall",
            "id": "call_abc123",
            "name": "read",
            "arguments": {"file_path": f"{HOME}/project/main.ts", "offset": 0, "limit": 200},
        },
    ],
    "stopReason": "toolUse",
}
RESULTS: list[dict[str, Any]] = [
    {
        "role": "toolResult",
        "toolCallId": "call_abc123",
        "toolName": "read",
        "content": [{"type": "text", "text": "// main.ts\nimport { createServer } from 'http';\n..."}],
        "details": {"file_path": f"{HOME}/project/main.ts", "lines": 200},
        "isError": False,
        "timestamp": 1740000000000,
    },
    {
        "role": "toolResult",
        "toolCallId": "call_abc123",
        "toolName": "exec",
        "content": [{"type": "text", "text": '{"status":"error","tool":"exec","error":"command required"}'}],
        "details": None,
        "isError": True,
        "timestamp": 1740000000000,
    },
    {
        "role": "toolResult",
        "toolCallId": "call_abc123",
        "toolName": "image",
        "content": [
            {"type": "text", "text": "MEDIA:/path/to/screenshot.png"},
            {"type": "image", "data": "iVBORw0KGgo...", "mimeType": "image/png"},
        ],
        "details": {"path": "/path/to/screenshot.png"},
        "isError": False,
        "timestamp": 1740000000000,
    },
]
"""The specification's objects (seed 000, section 3); an undefined member is null in JSON."""


@pytest.mark.covers("I1", "I11")
def test_specifications_reply_is_read_and_written_member_by_member() -> None:
    """Seed 000, section 2.1; usage and time stand for its "other fields"."""
    wire = {**CALL_REPLY, "usage": Usage(3, 5, 0.25, 1, 1).to_wire(), "timestamp": 7}
    message = decode_message(wire)
    assert message == AssistantMessage(
        (
            TextContent("I'll read that file for you."),
            ToolCall(
                "call_abc123", "read", {"file_path": f"{HOME}/project/main.ts", "offset": 0, "limit": 200}
            ),
        ),
        "toolUse",
        Usage(3, 5, 0.25, 1, 1),
        7,
    )
    assert message.to_wire() == wire
    assert message.text == "I'll read that file for you."
    assert [call.name for call in message.tool_calls] == ["read"]


def test_usage_counts_tokens_of_cache_and_reasoning_beside_the_totals() -> None:
    """They add up and are written where there are any; journals without them are read as 0."""
    used = Usage(100, 50, 0.5, 1, 2, 60, 20, 30)
    assert used + used - used == used
    assert (used + used).cache_read_tokens == 120
    assert used.tokens == 150
    assert Usage.from_wire(used.to_wire()) == used
    assert used.to_wire().keys() - Usage(100, 50).to_wire().keys() == {
        "cacheReadTokens",
        "cacheWriteTokens",
        "reasoningTokens",
    }
    assert Usage.from_wire(Usage(100, 50).to_wire()) == Usage(100, 50)


def test_reply_without_replay_is_written_as_by_earlier_releases() -> None:
    """Who answered, the provider's words about the end and its own form are written where there are any."""
    plain = AssistantMessage((TextContent("hi"),), timestamp=3)
    assert plain.to_wire().keys() == {"role", "content", "stopReason", "timestamp"}
    replay = ProviderForm(1, "openai", "openai", {"id": "rs_1", "encrypted": "x"})
    full = replace(plain, model="openai:big", stop_detail="filtered", replay=replay)
    assert decode_message(full.to_wire()) == full
    assert full.to_wire()["replay"] == {
        "version": 1,
        "provider": "openai",
        "system": "openai",
        "payload": {"id": "rs_1", "encrypted": "x"},
    }


def test_replay_goes_to_its_own_system_alone() -> None:
    """Any other system gets the reply's blocks."""
    replay = ProviderForm(1, "bedrock", "anthropic", {})
    reply = AssistantMessage((TextContent("hi"),), replay=replay)
    assert reply.replay_for("anthropic") is replay
    assert reply.replay_for("bedrock") is None
    assert AssistantMessage(()).replay_for("") is None


@pytest.mark.covers("I7", "I14", "I16")
@pytest.mark.parametrize("wire", RESULTS)
def test_specifications_results_are_read_and_written_member_by_member(wire: dict[str, Any]) -> None:
    """Seed 000, sections 3.1 to 3.3: result, error, image."""
    message = decode_message(wire)
    assert isinstance(message, ToolResultMessage)
    assert message.to_wire() == wire
    assert list(message.to_wire()) == list(wire)
    assert message.text == wire["content"][0]["text"]


def test_error_text_of_the_specification_is_json_of_its_envelope() -> None:
    """Seed 000, section 8.1: compact, status first, as the result's one text block carries it."""
    envelope = {"status": "error", "tool": "exec", "error": "command required"}
    assert decode_message(RESULTS[1]).text == dump_json(envelope)


@pytest.mark.covers("I12")
def test_call_assembled_from_its_pieces_is_the_specifications_event() -> None:
    """Seed 000, section 2.2: start, deltas, end, each with its content index."""
    deltas = ['{"file_', 'path": "/hom', 'e/user/main.ts"}']
    call = ToolCall("call_abc123", "read", json.loads("".join(deltas)))
    assert ToolCallStart(1).to_wire() == {"type": "toolcall_start", "contentIndex": 1}
    assert ToolCallDelta(1, deltas[0]).to_wire() == {
        "type": "toolcall_delta",
        "contentIndex": 1,
        "delta": '{"file_',
    }
    assert ToolCallEnd(1, call).to_wire() == {
        "type": "toolcall_end",
        "contentIndex": 1,
        "toolCall": {
            "type": "toolCall",
            "id": "call_abc123",
            "name": "read",
            "arguments": {"file_path": f"{HOME}/main.ts"},
        },
    }


def test_what_watchers_see_of_a_call_has_the_specifications_members() -> None:
    """Seed 000, section 1, steps 1 and 7, and section 5.4."""
    assert ToolExecutionStart("c", "read", {"path": "a"}).to_wire() == {
        "type": "tool_execution_start",
        "toolCallId": "c",
        "toolName": "read",
        "args": {"path": "a"},
    }
    assert ThinkingDelta("hm").to_wire() == {"type": "thinking_delta", "delta": "hm"}
    assert TranscriptRepaired(missing=1, dropped=2, moved=3).to_wire() == {
        "type": "transcript_repaired",
        "missing": 1,
        "dropped": 2,
        "moved": 3,
    }
    update = ToolExecutionUpdate("c", "read", "50% done...").to_wire()
    assert update["type"] == "tool_execution_update"
    assert ToolExecutionEnd("c", "read", {"text": "x"}, True).to_wire() == {
        "type": "tool_execution_end",
        "toolCallId": "c",
        "toolName": "read",
        "result": {"text": "x"},
        "isError": True,
    }


def survives_the_wire(from_wire: FromWire, message: Message) -> None:
    """A message written as JSON text and read again is the same, to the type of every number (REL-P34)."""
    text = dump_json(message.to_wire())
    again = from_wire(json.loads(text))
    assert again == message
    assert repr(again) == repr(message)
    assert text.isascii()


def without_halves(message: Message) -> bool:
    """Whether no text of the message holds a high half followed by a low half, which JSON joins."""
    return bool(message.to_wire() == json.loads(dump_json(message.to_wire())))


@pytest.mark.covers("REL-P34")
@given(MESSAGES.filter(without_halves))
def test_every_message_survives_the_wire(message: Message) -> None:
    """REL-P34: any script, lone surrogates, whole numbers beyond 2**53."""
    survives_the_wire(decode_message, message)


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        "a\udfff",
        "\ude00\ud83d",
        "\x00",
        "\u2028",
        2**53 + 1,
        10**30,
        5e-324,
        -0.0,
        {"\ud800": [None]},
    ],
)
def test_hard_values_survive_the_wire(value: Any) -> None:
    """The ones that other encoders lose, by name."""
    survives_the_wire(decode_message, ToolResultMessage("c", "t", (TextContent("x"),), value))


@pytest.mark.slow
def test_reader_that_loses_whole_numbers_is_caught() -> None:
    """The property fails where numbers go through a float."""

    def lossy(wire: Mapping[str, Any]) -> Message:
        return decode_message(json.loads(json.dumps(wire), parse_int=float))

    message = find(
        MESSAGES.filter(without_halves),
        lambda message: isinstance(message, ToolResultMessage) and isinstance(message.details, int),
        settings=settings(database=None, max_examples=2000, derandomize=True, phases=[Phase.generate]),
    )
    with pytest.raises(AssertionError):
        survives_the_wire(lossy, message)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_number_that_is_none_does_not_reach_the_wire(number: float) -> None:
    """JSON has no word for it; writing one would make a journal nobody reads."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(ToolResultMessage("c", "t", (), number).to_wire())


@pytest.mark.parametrize(
    "wire",
    [
        {"role": "system", "content": [], "timestamp": 0},
        {"role": "user", "content": [{"type": "audio"}], "timestamp": 0},
        {
            "role": "user",
            "content": [{"type": "toolCall", "id": "a", "name": "b", "arguments": {}}],
            "timestamp": 0,
        },
        {
            **CALL_REPLY,
            "content": [{"type": "image", "data": "", "mimeType": ""}],
            "usage": {},
            "timestamp": 0,
        },
    ],
)
def test_unknown_role_or_block_is_refused(wire: dict[str, Any]) -> None:
    """A reply holds text and calls; a user's words hold no calls."""
    with pytest.raises(ValueError, match=r"has the (role|type)"):
        decode_message(wire)


def test_missing_member_is_refused() -> None:
    """Half a message is not one."""
    for member in RESULTS[0]:
        wire = {name: value for name, value in RESULTS[0].items() if name != member}
        with pytest.raises(KeyError):
            decode_message(wire)


def test_users_message_names_its_origin_and_is_a_persons_where_it_does_not() -> None:
    """Children's results and notices come in the user role; messages of the specification do not say."""
    assert UserMessage((TextContent("a"), TextContent("b")), 1, "child").to_wire()["origin"] == "child"
    message = decode_message({"role": "user", "content": [{"type": "text", "text": "a"}], "timestamp": 1})
    assert message == UserMessage((TextContent("a"),), 1, "user")


@pytest.mark.covers("I29")
def test_result_without_content_gets_a_block_however_it_is_made() -> None:
    """Made, replaced, or read."""
    made = ToolResultMessage("c", "look", ())
    assert [block.to_json() for block in made.content] == ['{"type":"text","text":"(no content)"}']
    full = ToolResultMessage("c", "look", (TextContent("x"),))
    assert replace(full, content=()).content == made.content
    assert decode_message({**full.to_wire(), "content": []}) == made
