"""The timeline of sessions: when each asked its model, ran a tool, or waited, and for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final, Literal, TypeAlias

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts.tree_facts import Fact
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import JournalRecord

MAX_WHY_CHARS: Final = 200

What: TypeAlias = Literal["model", "tool", "waiting"]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a session's time."""

    start_ms: int
    """Milliseconds since 1970."""
    end_ms: int | None
    """None = it has not ended."""
    what: What
    name: str
    """The model's turn or the tool, safe to show."""
    why: str = ""
    """What it waits for, or how it ended where it failed; safe to show."""


def collect_spans(records: Iterable[JournalRecord]) -> Iterator[Span]:
    """Yield the spans of a session's facts, each when its end is known, and those without an end last."""
    lane = _Lane()
    for record in records:
        for fact in record.facts:
            yield from lane.take(fact, record.at_ms)
    yield from lane.open_spans()


@dataclass(slots=True)
class _Lane:
    """What is under way in one session."""

    turn: tuple[int, int] | None = None
    """Number of the turn that waits for its model, and since when."""
    retry: tuple[int, str] | None = None
    """Since when the session waits to ask again, and why."""
    calls: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By key, since when a call runs, and its tool."""
    approvals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By request, since when it waits, and for which tool."""

    def take(self, fact: Fact, at_ms: int) -> Iterator[Span]:
        yield from self._take_turn(fact, at_ms)
        yield from self._take_call(fact, at_ms)

    def _take_turn(self, fact: Fact, at_ms: int) -> Iterator[Span]:
        match fact:
            case said.TurnStarted(turn=turn) | said.TurnRetried(turn=turn) | said.CompactionBegun(turn=turn):
                if self.retry is not None:
                    yield Span(self.retry[0], at_ms, "waiting", "", self.retry[1])
                self.turn, self.retry = (turn, at_ms), None
            case said.TurnFailed(reason=reason, retry_at_ms=retry):
                yield from self._end_model(at_ms, reason)
                self.retry = None if retry is None else (at_ms, _cut_words(reason))
            case said.TurnCut(reason=reason) | said.CompactionFailed(reason=reason):
                yield from self._end_model(at_ms, reason)
            case said.TurnReplied() | said.ContextCompacted():
                yield from self._end_model(at_ms, "")

    def _take_call(self, fact: Fact, at_ms: int) -> Iterator[Span]:
        match fact:
            case said.TurnReplied(turn=turn, message=message):
                for index, call in enumerate(message.tool_calls):
                    self.calls[f"{turn}.{index}"] = (at_ms, make_visible(call.name))
            case said.CallOpened(key=key, tool=tool):
                self.calls[key] = (at_ms, make_visible(tool))
            case said.ApprovalWanted(request_id=request_id, call=checked):
                self.calls.pop(checked.key, None)
                self.approvals[request_id] = (at_ms, make_visible(checked.tool))
            case said.ApprovalSettled(request_id=request_id):
                start, tool = self.approvals.pop(request_id, (at_ms, ""))
                yield Span(start, at_ms, "waiting", tool, f"approval: {_cut_words(fact.decision)}")
                self.calls[fact.key] = (at_ms, tool)
            case said.CallResolved(key=key) | said.CallParked(key=key):
                start, tool = self.calls.pop(key, (at_ms, make_visible(fact.message.tool_name)))
                yield Span(start, at_ms, "tool", tool, "failed" if fact.message.is_error else "")

    def open_spans(self) -> Iterator[Span]:
        if self.turn is not None:
            yield Span(self.turn[1], None, "model", f"turn {self.turn[0]}")
        if self.retry is not None:
            yield Span(self.retry[0], None, "waiting", "", self.retry[1])
        for start, tool in self.approvals.values():
            yield Span(start, None, "waiting", tool, "approval")
        for start, tool in self.calls.values():
            yield Span(start, None, "tool", tool)

    def _end_model(self, at_ms: int, why: str) -> Iterator[Span]:
        if self.turn is not None:
            yield Span(self.turn[1], at_ms, "model", f"turn {self.turn[0]}", _cut_words(why))
        self.turn = None


def _cut_words(text: str) -> str:
    return make_visible(text[:MAX_WHY_CHARS])
