"""Pieces of replies: whatever is lost or late among them, an editor gets each reply once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.reports.events import Done, TextDelta, ThinkingDelta
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, ThinkingContent
from sessiontree.doors.acp.replies import ReplyStream

TEXT = st.text("ab", min_size=1, max_size=6)
REPLIES = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4)


def pieces_of(text: str, thoughts: str) -> Iterator[Any]:
    """Yield a reply's events, one for each character."""
    for letter in thoughts:
        yield ThinkingDelta(letter)
    for letter in text:
        yield TextDelta(letter)
    yield Done("stop")


@given(REPLIES, st.data())
def test_each_reply_is_sent_once(replies: list[tuple[str, str]], data: st.DataObject) -> None:
    """For pieces that come before their turn is known, after it, late by any number, or not at all."""
    stream, dropped = ReplyStream(), 0
    sent: dict[tuple[str, str], str] = {}

    def keep(chunks: Iterator[Any]) -> None:
        for chunk in chunks:
            key = (chunk.message_id, chunk.session_update)
            sent[key] = sent.get(key, "") + chunk.content.text

    def come(events: list[Any]) -> None:
        nonlocal dropped
        for event in events:
            if data.draw(st.integers(0, 3)) == 0:
                dropped += 1
            else:
                keep(stream.take(event, dropped))

    left = [list(pieces_of(*reply)) for reply in replies]
    for turn, (text, thoughts) in enumerate(replies, 1):
        events = left[turn - 1]
        early = data.draw(st.integers(0, len(events)))
        come(events[:early])
        keep(stream.begin(turn))
        come(events[early:])
        if turn < len(left):  # the next reply begins before the fact of this one is read
            ahead = data.draw(st.integers(0, 2))
            come(left[turn][:ahead])
            del left[turn][:ahead]
        keep(stream.end(turn, AssistantMessage((ThinkingContent(thoughts), TextContent(text)))))
    assert sent == {
        (f"main.{turn}", f"agent_{kind}_chunk"): whole
        for turn, (text, thoughts) in enumerate(replies, 1)
        for kind, whole in (("message", text), ("thought", thoughts))
    }


def test_pieces_are_sent_as_they_come() -> None:
    """Nothing waits for the end of a reply if nothing is lost."""
    stream = ReplyStream()
    assert list(stream.begin(1)) == []
    assert [chunk.content.text for chunk in stream.take(TextDelta("a"), 0)] == ["a"]
    assert list(stream.end(1, AssistantMessage((TextContent("a"),)))) == []
