"""Main's reply while its model writes it: pieces are sent as they come, and nothing twice or lost.

Pieces are progress, which may be lost; the whole reply is a fact. Between the two, turns are the order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, TypeAlias

from acp.schema import AgentMessageChunk, AgentThoughtChunk, TextContentBlock

from sessiontree.contracts.reports.events import Done, Event, TextDelta, ThinkingDelta
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, ThinkingContent
from sessiontree.contracts.values.quick_dataclass import dataclass

Chunk: TypeAlias = AgentMessageChunk | AgentThoughtChunk
MAX_EARLY: Final = 4_096
"""Most pieces that are kept until the fact that their turn has started is read."""


@dataclass(slots=True)
class _Stream:
    """What was sent of a reply's text, or of its thoughts."""

    sent: str = ""

    def take_rest(self, whole: str) -> str:
        """Return what is still to be sent of the whole; nothing if a hook has changed what was sent."""
        return whole[len(self.sent) :] if whole.startswith(self.sent) else ""


def make_message_chunk(text: str, message_id: str) -> AgentMessageChunk:
    """Return a piece of a message to the person."""
    content = TextContentBlock(type="text", text=text)
    return AgentMessageChunk(session_update="agent_message_chunk", content=content, message_id=message_id)


def make_thought_chunk(text: str, message_id: str) -> AgentThoughtChunk:
    """Return a piece of the model's thinking."""
    content = TextContentBlock(type="text", text=text)
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=content, message_id=message_id)


class ReplyStream:
    """The pieces of Main's replies, each under the number of its turn."""

    def __init__(self) -> None:
        self._turn: int | None = None
        """The turn whose reply is written; None = pieces that come belong to a turn that is not known yet."""
        self._early: deque[tuple[Event, int]] = deque(maxlen=MAX_EARLY)
        self._text, self._thoughts = _Stream(), _Stream()
        self._dropped = 0
        self._is_torn = False
        """Whether a piece of this reply was lost: the rest waits for the whole."""
        self._has_run_on = False
        """Whether the end of a reply was lost: pieces of the next one may have been taken for its own."""

    def take(self, event: Event, dropped: int) -> Iterator[Chunk]:
        """Yield what an event of Main's progress adds; ``dropped`` is how many events were lost so far."""
        if self._turn is None:
            if isinstance(event, TextDelta | ThinkingDelta | Done):
                self._early.append((event, dropped))
            return
        if dropped != self._dropped:
            self._dropped, self._is_torn = dropped, True
        if isinstance(event, Done):
            self._turn = None
        elif isinstance(event, TextDelta | ThinkingDelta) and event.delta and not self._is_torn:
            yield self._make_piece(event, self._turn)

    def _make_piece(self, event: TextDelta | ThinkingDelta, turn: int) -> Chunk:
        if isinstance(event, TextDelta):
            self._text.sent += event.delta
            return make_message_chunk(event.delta, f"main.{turn}")
        self._thoughts.sent += event.delta
        return make_thought_chunk(event.delta, f"main.{turn}")

    def begin(self, turn: int) -> Iterator[Chunk]:
        """Yield the pieces that came before the fact that their turn has started."""
        self._turn, self._is_torn = turn, self._has_run_on or len(self._early) == MAX_EARLY
        self._text, self._thoughts = _Stream(), _Stream()
        while self._early and self._turn is not None:
            yield from self.take(*self._early.popleft())

    def end(self, turn: int, reply: AssistantMessage) -> Iterator[Chunk]:
        """Yield what was not sent of a reply that is durable; call it when all its pieces were taken."""
        thoughts = "".join(each.thinking for each in reply.content if isinstance(each, ThinkingContent))
        text = "".join(each.text for each in reply.content if isinstance(each, TextContent))
        if rest := self._thoughts.take_rest(thoughts):
            yield make_thought_chunk(rest, f"main.{turn}")
        if rest := self._text.take_rest(text):
            yield make_message_chunk(rest, f"main.{turn}")
        self.drop()

    def drop(self) -> None:
        """Forget the reply that was written: its turn has ended."""
        self._has_run_on = self._turn is not None and self._is_torn
        self._turn = None
        self._text, self._thoughts = _Stream(), _Stream()
