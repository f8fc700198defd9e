"""REL-P35: however a reply is cut into pieces, the same message comes of it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.reports.events import (
    Done,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ProviderForm,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    decode_message,
)
from sessiontree.models.answers import check_reply
from sessiontree.models.port import CallPiece, ModelPiece, Piece, StopPiece, ThinkingPiece
from sessiontree.models.stream_assembler import MAX_BLOCKS, MAX_UNREAD_CHARS, StreamAssembler
from tests.unit.models.stream_strategies import (
    TURN,
    Block,
    Call,
    assembled,
    in_turn,
    interleaved,
    meant,
    replies,
    stops,
)

PATIENCE_S = 15.0


@pytest.mark.covers("I12", "REL-P35")
@given(replies(), stops, st.randoms(), st.booleans())
def test_any_split_gives_the_same_message(
    blocks: tuple[Block, ...], stop: StopReason | None, random: Random, counted: bool
) -> None:
    """Parts of any size, calls by turns, ids and names late, once or again; with the events of it."""
    pieces = (interleaved if counted else in_turn)(blocks, stop, random)
    message, events = assembled(pieces)
    assert message == meant(blocks, stop)
    assert check_reply(message, TURN) is message
    assert decode_message(message.to_wire()) == message
    texts = [event.delta for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == "".join(block for block in blocks if isinstance(block, str))
    thoughts = [event.delta for event in events if isinstance(event, ThinkingDelta)]
    assert "".join(thoughts) == "".join(b.thinking for b in blocks if isinstance(b, ThinkingContent))
    for place, block in enumerate(blocks):
        if isinstance(block, Call):
            mine = [event for event in events if getattr(event, "content_index", None) == place]
            assert mine[0] == ToolCallStart(place)
            deltas = [event.delta for event in mine if isinstance(event, ToolCallDelta)]
            assert "".join(deltas) == block.words
            assert [e for e in mine if isinstance(e, ToolCallEnd)] == [
                ToolCallEnd(place, _call(message, place))
            ]
            assert mine[-1] == ToolCallEnd(place, _call(message, place))
    assert events[-1] == Done(message.stop_reason)


def _call(message: AssistantMessage, place: int) -> ToolCall:
    block = message.content[place]
    assert isinstance(block, ToolCall)
    return block


def test_seeds_example() -> None:
    """Seed 000, section 2.2: text, then one call in three fragments."""
    parts = ['{"file_', 'path": "/sr', 'c/user/main.ts"}']
    pieces: list[Piece] = ["I'll read that", " file for you."]
    pieces += [CallPiece(index=1, id="call_abc123", name="read"), *(CallPiece(part, 1) for part in parts)]
    message, events = assembled(iter([*pieces, CallPiece(index=1, ends=True), StopPiece("toolUse")]))
    call = ToolCall("call_abc123", "read", {"file_path": "/src/user/main.ts"})
    assert message.content == (TextContent("I'll read that file for you."), call)
    assert [event.to_wire() for event in events[2:]] == [
        {"type": "toolcall_start", "contentIndex": 1},
        *({"type": "toolcall_delta", "contentIndex": 1, "delta": part} for part in parts),
        {"type": "toolcall_end", "contentIndex": 1, "toolCall": call.to_wire()},
        {"type": "done", "stopReason": "toolUse"},
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        [CallPiece({"a": 1}, name="read"), CallPiece({"a": 2}, name="read")],
        [CallPiece({"a": 1}, 0, name="read", ends=True), CallPiece({"a": 2}, 0, name="read", ends=True)],
        [CallPiece('{"a": 1}', 0, "x", "read"), CallPiece('{"a": 2}', 0, "y", "read")],
        [CallPiece('{"a": 1}', id="x", name="read"), CallPiece('{"a": 2}', id="y", name="read")],
        [CallPiece('{"a": 1}', 0, name="read"), CallPiece('{"a":', 1, name="read"), CallPiece(" 2}", 1)],
        [CallPiece('{"a":', 0, name="read"), CallPiece('{"a": 2}', 1, name="read"), CallPiece(" 1}", 0)],
    ],
    ids=["no index", "one index for all", "distinguished by id", "ids alone", "two indices", "by turns"],
)
def test_two_calls_are_two_calls(pieces: list[CallPiece]) -> None:
    """However little a provider says to tell them apart."""
    message, _ = assembled(iter(pieces))
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"a": 2}]


def test_call_cut_short_is_not_acted_on() -> None:
    """Half a content must not be written, also if the provider does not say that it was cut.

    What came is kept, so that the model sees what it did. A last brace may be missing where nothing was cut.
    """
    half = CallPiece('{"path": "a", "content": "half of', 0, "c1", "write", ends=True)
    whole = CallPiece('{"path": "a"}', 1, "c2", "read", ends=True)
    cut, events = assembled(iter([half, whole, StopPiece("length")]))
    assert cut.tool_calls == (
        ToolCall("c1", "write", {}, '{"path": "a", "content": "half of'),
        ToolCall("c2", "read", {"path": "a"}),
    )
    assert [e.tool_call for e in events if isinstance(e, ToolCallEnd)] == [*reversed(cut.tool_calls)]
    unsaid, _ = assembled(iter([half]))
    assert unsaid.tool_calls == cut.tool_calls[:1]
    open_ended = CallPiece('{"path": "a"', 0, "c1", "read", ends=True)
    read, _ = assembled(iter([open_ended]))
    assert read.tool_calls == (ToolCall("c1", "read", {"path": "a"}),)
    refused, _ = assembled(iter([open_ended, StopPiece("length")]))
    assert refused.tool_calls == (ToolCall("c1", "read", {}, '{"path": "a"'),)


def test_streamed_reply_says_who_answered_and_keeps_its_providers_form() -> None:
    """Model, end and replay come at any place; the last of each counts."""
    replay = ProviderForm(1, "openai", "openai", {"id": "r1"})
    pieces: list[Piece] = [ProviderForm(1, "openai", "openai", None), ModelPiece("openai:big"), "no", replay]
    message, events = assembled(iter([*pieces, StopPiece("refusal", "filtered")]))
    assert message == AssistantMessage(
        (TextContent("no"),), "refusal", model="openai:big", stop_detail="filtered", replay=replay
    )
    assert check_reply(message, TURN) is message
    assert events == [TextDelta("no"), Done("refusal")]


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_replay_of_an_unfinished_reply_is_dropped(reason: StopReason) -> None:
    """Half a signature would be refused by its provider; neither a stream nor a whole message keeps it."""
    replay = ProviderForm(1, "anthropic", "anthropic", {"signature": "half"})
    message, _ = assembled(iter(["hm", replay, StopPiece(reason)]))
    assert message.replay is None
    assert check_reply(replace(message, replay=replay), TURN).replay is None


@pytest.mark.parametrize(
    "odd",
    [
        ProviderForm(1, "a", "b", {"x": object()}),  # type: ignore[dict-item]
        ProviderForm(1, "a", "b", math.nan),
        ProviderForm("1", "a", "b", None),  # type: ignore[arg-type]
        ProviderForm(1, None, "b", None),  # type: ignore[arg-type]
        {"payload": 1},
    ],
)
def test_replay_that_has_no_json_form_is_dropped(odd: Any) -> None:
    """The reply is taken in all the same, with its blocks."""
    message = AssistantMessage((TextContent("hi"),), replay=odd)
    assert check_reply(message, TURN) == AssistantMessage((TextContent("hi"),))


def test_unreadable_arguments_are_kept_to_a_bound() -> None:
    """The call is there, its text is cut."""
    message, _ = assembled(iter([CallPiece("x" * 100_000, name="read")]))
    (call,) = message.tool_calls
    assert call.unread is not None
    assert len(call.unread) == MAX_UNREAD_CHARS


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (None, "streamed None"),
        (5, "streamed 5"),
        (b"x", "streamed b'x'"),
        (StopPiece("tired"), "reason is 'tired'; give one of 'stop', 'toolUse', .*, 'aborted'"),  # type: ignore[arg-type]
        (StopPiece(["stop"]), r"reason is \['stop'\]; give one of"),  # type: ignore[arg-type]
        (StopPiece("stop", None), "a StopPiece whose detail is None, not a str"),  # type: ignore[arg-type]
        (StopPiece, r"StopPiece'> \(a type\); give text"),
        (ThinkingPiece(5), "a ThinkingPiece whose text is 5, not a str"),  # type: ignore[arg-type]
        (ThinkingPiece(signature=b"x"), "whose signature is b'x', not a str"),  # type: ignore[arg-type]
        (ModelPiece(None), "a ModelPiece whose name is None, not a str"),  # type: ignore[arg-type]
        (CallPiece(5, name="read"), "whose arguments are 5, not a str or a mapping"),  # type: ignore[arg-type]
        (CallPiece(id=None), "a CallPiece whose id is None, not a str; leave it out"),  # type: ignore[arg-type]
        (CallPiece(id=5), "whose id is 5, not a str"),  # type: ignore[arg-type]
        (CallPiece(name=None), "whose name is None, not a str"),  # type: ignore[arg-type]
        (CallPiece(index=["0"]), r"whose index is \['0'\], not an int or None"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_piece_is_refused(piece: Any, words: str) -> None:
    """Typed, with what it was."""
    with pytest.raises(ModelError, match=words):
        assembled(iter([piece]))


def test_call_that_goes_on_after_its_end_is_refused() -> None:
    """Its arguments were read and reported already."""
    with pytest.raises(ModelError, match="after its end"):
        assembled(iter([CallPiece("{}", 0, "c1", "read", ends=True), CallPiece("{}", 0)]))


def test_reply_is_bounded() -> None:
    """One argument text, the whole reply and the number of its blocks."""
    small = StreamAssembler(TURN, lambda event: None, max_argument_chars=10, max_reply_chars=20)
    small.take(CallPiece("x" * 10, 0, name="read"))
    small.take(CallPiece("x", 0))
    assert (
        small.message().tool_calls[0].unread == f"{'x' * 10}… cut: 11 characters of arguments, 10 are allowed"
    )
    with pytest.raises(ModelError, match="longer than 20"):
        small.take("x" * 10)
    many = StreamAssembler(TURN, lambda event: None)
    for index in range(MAX_BLOCKS):
        many.take(CallPiece(index=index, name="read"))
    with pytest.raises(ModelError, match="blocks"):
        many.take("x")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["x" * 64, '\\"' * 32], ids=["plain", "escaped"])
async def test_many_small_fragments_cost_what_they_are_long(part: str) -> None:
    """Each is O(its length): joined again each time they would be a hundred gigabytes."""

    def assemble() -> AssistantMessage:
        fragments = (CallPiece(part, 0) for _ in range(60_000))
        return assembled(iter([CallPiece('{"a": "', 0, "c1", "write"), *fragments, CallPiece('"}', 0)]))[0]

    async with asyncio.timeout(PATIENCE_S):
        message = await asyncio.to_thread(assemble)
    assert message.tool_calls[0].arguments == {"a": part.replace("\\", "") * 60_000}
