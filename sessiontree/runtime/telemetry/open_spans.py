"""The spans of a tree that have begun: their ids, their parents, their events, and their parts.

A tree that is closed ends every open span; when the tree goes on, each continues as a new part, under a new
id. Ids are derived from the tree, from what a span stands for, and from a fact's number, so whoever reads the
facts gets the same ids.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Final, Literal

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.telemetry.spans import Attribute, SpanEvent, SpanRecord

MAX_EVENTS: Final = 100
"""Events of one span at most; later ones are counted in ``sessiontree.events.dropped``."""


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that has begun."""

    what: str
    """What it stands for: the same for every part of a span."""
    span_id: str
    name: str
    session: str
    """The session that it belongs to; empty = the tree."""
    parent: OpenSpan | None
    """None = the tree's own span. A parent that has ended meanwhile keeps the id that it ended under."""
    start_ms: int | None
    """None = it continues with the next fact."""
    attributes: dict[str, Attribute]
    kind: Literal["internal", "client"] = "internal"
    events: list[SpanEvent] = field(default_factory=list)
    dropped: int = 0
    error: str | None = None
    reason: str = ""
    continues: str | None = None

    def end_at(self, at_ms: int) -> SpanRecord:
        """Return the span as it ends at a time."""
        start_ms = at_ms if self.start_ms is None else self.start_ms
        attributes = dict(self.attributes)
        if self.error is not None:
            attributes["error.type"] = self.error
        if self.dropped:
            attributes["sessiontree.events.dropped"] = self.dropped
        return SpanRecord(
            self.name,
            self.span_id,
            None if self.parent is None else self.parent.span_id,
            self.kind,
            start_ms,
            max(start_ms, at_ms),
            attributes,
            tuple(self.events),
            self.error,
            self.reason,
            self.continues,
        )


class OpenSpans:
    """The open spans of one tree, oldest first.

    Args:
        config: The tree's configuration; ids are derived from its nonce.
    """

    def __init__(self, config: TreeConfig) -> None:
        self._tree_id = config.tree_id
        self._key = config.nonce.encode()
        self._spans: dict[str, OpenSpan] = {}
        self._of_session: dict[str, dict[str, None]] = {}
        """By session, what its open spans stand for, oldest first."""
        self._now_ms = self._seq = 0
        self._is_cut = False
        self._ended: list[SpanRecord] = []

    def __len__(self) -> int:
        """Return how many spans are open."""
        return len(self._spans)

    @property
    def now_ms(self) -> int:
        """Time of the newest fact; never steps back."""
        return self._now_ms

    def digest(self, what: str, size: int) -> str:
        """Return an id of a number of bytes, in hexadecimal digits."""
        text = f"{self._tree_id}\n{what}".encode("utf-8", "surrogatepass")
        found = hmac.digest(self._key, text, "sha256")[:size].hex()
        return found if int(found, 16) else "0" * (2 * size - 1) + "1"

    def advance(self, seq: int, at_ms: int) -> None:
        """Come to the next fact: what begins, ends or happens from now on does so at its time."""
        self._now_ms, self._seq = max(self._now_ms, at_ms), seq
        if self._is_cut:
            self._is_cut = False
            for span in self._spans.values():
                span.start_ms = self._now_ms if span.start_ms is None else span.start_ms

    def begin(
        self,
        what: str,
        name: str,
        session: str,
        parents: Iterable[str],
        attributes: dict[str, Attribute],
        kind: Literal["internal", "client"],
    ) -> None:
        """Begin a span; one that stands for the same and is open is abandoned.

        Args:
            what: What it stands for.
            name: Its name in the trace.
            session: The session that it belongs to; empty = the tree.
            parents: What its parents stand for, nearest first; the first that is open becomes its parent.
            attributes: Its first attributes.
            kind: ``client`` = it waits for a service.
        """
        self.end(what, "abandoned")
        parent = next((self._spans[each] for each in parents if each in self._spans), None)
        # The fact that begins a span makes its id unique, whatever a damaged or foreign journal repeats.
        span_id = self.digest(f"{self._seq}|{what}", 8)
        self._spans[what] = OpenSpan(what, span_id, name, session, parent, self._now_ms, attributes, kind)
        self._of_session.setdefault(session, {})[what] = None

    def end(self, what: str, error: str | None = None, reason: str = "") -> None:
        """End a span if it is open.

        Args:
            what: What it stands for.
            error: Short name of the error that ends it; None = it ends well.
            reason: Text of the error; empty = it is not shown.
        """
        span = self._spans.pop(what, None)
        if span is None:
            return
        span.error, span.reason = error, reason
        self._ended.append(span.end_at(self._now_ms))
        others = self._of_session[span.session]
        del others[what]
        if not others:
            del self._of_session[span.session]

    def abandon(self, session: str | None, keep: str) -> None:
        """End the open spans of a session, newest first; None = of all sessions. One is kept."""
        found = self._spans if session is None else self._of_session.get(session, {})
        for what in [each for each in reversed(found) if each != keep]:
            self.end(what, "abandoned")

    def take_ended(self) -> list[SpanRecord]:
        """Return the spans that ended since the last time, in the order in which they ended."""
        ended, self._ended = self._ended, []
        return ended

    def cut(self, seq: int) -> list[SpanRecord]:
        """End every open span, because the tree is closed after the fact of a number; children first.

        The spans continue with the next fact, under new ids.
        """
        if self._is_cut:
            return []  # nothing has happened since the last cut
        self._is_cut = True
        ended = [span.end_at(self._now_ms) for span in reversed(self._spans.values())]
        for span in self._spans.values():
            span.continues, span.span_id = span.span_id, self.digest(f"{seq}+|{span.what}", 8)
            span.start_ms, span.events, span.dropped = None, [], 0
        return [_mark_unfinished(record) for record in ended]

    def note(self, what: str, attributes: dict[str, Attribute]) -> None:
        """Add attributes to a span if it is open."""
        span = self._spans.get(what)
        if span is not None:
            span.attributes |= attributes

    def event(self, what: str, name: str, **attributes: Attribute) -> None:
        """Add an event to a span if it is open; ``__`` in names of attributes becomes a dot."""
        span = self._spans.get(what)
        if span is None:
            return
        if len(span.events) >= MAX_EVENTS:
            span.dropped += 1
            return
        named = {f"sessiontree.{key.replace('__', '.')}": value for key, value in attributes.items()}
        span.events.append(SpanEvent(f"sessiontree.{name}", self._now_ms, named))


def _mark_unfinished(record: SpanRecord) -> SpanRecord:
    return replace(record, attributes={**record.attributes, "sessiontree.unfinished": True})
