"""Replies and the many ways a provider may cut them into pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from sessiontree.contracts.reports.events import ModelEvent
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ReplyContent,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from sessiontree.models.port import CallPiece, Piece, StopPiece, ThinkingPiece
from sessiontree.models.stream_assembler import StreamAssembler
from sessiontree.schema.argument_text import read_arguments

TURN = 3
USED = Usage(10, 5)


@dataclass(frozen=True)
class Call:
    """A call as a provider means it."""

    id: str
    """Empty where the provider has none."""
    name: str
    words: str
    """Its argument text."""


Block = str | ThinkingContent | Call
objects = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=8), max_size=3)
words = (
    objects.map(json.dumps)
    | objects.map(lambda made: json.dumps(made)[:-1])
    | st.sampled_from(["", "no", "["])
)
calls = st.builds(Call, st.sampled_from(["", "c1", "c2", "c3"]), st.sampled_from(["read", "write"]), words)
thoughts = st.builds(ThinkingContent, st.text(min_size=1, max_size=8), st.sampled_from(["", "sig", "nature"]))
texts = st.text(min_size=1, max_size=8)
stops: st.SearchStrategy[StopReason | None] = st.sampled_from([None, "stop", "toolUse", "length"])


@st.composite
def replies(draw: st.DrawFn) -> tuple[Block, ...]:
    """Return blocks of a reply, neither two texts nor two open thoughts in a row, no id twice."""
    blocks: list[Block] = []
    for block in draw(st.lists(texts | thoughts | calls, max_size=6)):
        last = blocks[-1] if blocks else None
        if isinstance(block, str) and isinstance(last, str):
            continue
        if isinstance(block, ThinkingContent) and isinstance(last, ThinkingContent) and not last.signature:
            continue
        if (
            isinstance(block, Call)
            and block.id
            and any(isinstance(b, Call) and b.id == block.id for b in blocks)
        ):
            continue
        blocks.append(block)
    return tuple(blocks)


def meant(blocks: tuple[Block, ...], stop: StopReason | None) -> AssistantMessage:
    """Return the message the blocks are, made without any assembling."""
    has_calls = any(isinstance(block, Call) for block in blocks)
    reason: StopReason = "length" if stop == "length" else "toolUse" if has_calls else "stop"
    content: list[ReplyContent] = []
    for place, block in enumerate(blocks):
        if isinstance(block, str):
            content.append(TextContent(block))
        elif isinstance(block, ThinkingContent):
            content.append(block)
        else:
            found = read_arguments(block.words)
            whole = found is not None and not (found.closed and reason == "length")
            arguments = found.values if found is not None and whole else {}
            unread = None if whole else block.words
            content.append(ToolCall(block.id or f"call_{TURN}_{place}", block.name, arguments, unread))
    return AssistantMessage(tuple(content), reason, USED)


def cuts(text: str, random: Random) -> list[str]:
    """Return a text in parts, some of them empty."""
    places = sorted(random.randint(0, len(text)) for _ in range(random.randint(0, 4)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def interleaved(blocks: tuple[Block, ...], stop: StopReason | None, random: Random) -> Iterator[Piece]:
    """Yield pieces as a provider does that counts its calls: fragments of several calls take turns."""
    open_calls: list[list[CallPiece]] = []
    index = 0
    for block in blocks:
        if isinstance(block, Call):
            pieces = _of_call(block, index, random)
            index += 1
            yield pieces.pop(0)
            open_calls.append(pieces)
        else:
            for piece in _of_words(block, random):
                yield piece
                yield from _some(open_calls, random)
        yield from _some(open_calls, random)
    while open_calls:
        yield from _some(open_calls, random)
    yield from _end(stop, random)


def in_turn(blocks: tuple[Block, ...], stop: StopReason | None, random: Random) -> Iterator[Piece]:
    """Yield pieces as a provider does that counts nothing: one block after the other."""
    for block in blocks:
        if not isinstance(block, Call):
            yield from _of_words(block, random)
            continue
        parts = cuts(block.words, random)
        repeats = random.random() < 0.5
        for number, part in enumerate(parts):
            call_id = block.id if number == 0 or repeats else ""
            yield CallPiece(part, id=call_id, name=block.name if number == 0 else "")
        if random.random() < 0.5:
            yield CallPiece(id=block.id if repeats else "", ends=True)
    yield from _end(stop, random)


def _of_call(block: Call, index: int, random: Random) -> list[CallPiece]:
    parts = cuts(block.words, random)
    named, told = random.randrange(len(parts)), random.randrange(len(parts))
    repeats = random.random() < 0.3
    pieces = [
        CallPiece(
            part,
            index,
            block.id if number == told or (repeats and number > told) else "",
            block.name if number == named or (repeats and number > named) else "",
        )
        for number, part in enumerate(parts)
    ]
    if random.random() < 0.5:
        pieces.append(CallPiece(index=index, ends=True))
    return pieces


def _of_words(block: str | ThinkingContent, random: Random) -> Iterator[Piece]:
    if isinstance(block, str):
        yield from cuts(block, random)
        return
    for part in cuts(block.thinking, random):
        yield ThinkingPiece(part)
    for part in cuts(block.signature, random):
        yield ThinkingPiece(signature=part)


def _some(open_calls: list[list[CallPiece]], random: Random) -> Iterator[CallPiece]:
    for _ in range(random.randint(0, 2)):
        open_calls[:] = [pieces for pieces in open_calls if pieces]
        if open_calls:
            yield random.choice(open_calls).pop(0)
    open_calls[:] = [pieces for pieces in open_calls if pieces]


def _end(stop: StopReason | None, random: Random) -> Iterator[Piece]:
    if random.random() < 0.5:
        yield Usage(10, 1)
    if stop is not None:
        yield StopPiece(stop)
    yield USED


def assembled(pieces: Iterator[Piece]) -> tuple[AssistantMessage, list[ModelEvent]]:
    """Return the message pieces make, and what watchers saw."""
    events: list[ModelEvent] = []
    assembly = StreamAssembler(TURN, events.append)
    for piece in pieces:
        assembly.take(piece)
    return assembly.message(), events
