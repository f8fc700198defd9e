"""The trace of a tree: spans made from its facts, with the times of the facts. Pure: no clock, no exporter.

One trace per tree: the tree, in it ``invoke_agent`` for each session, in it its turns and child sessions, in
a turn ``chat`` and ``execute_tool``; approvals are events of the call that waits.

Spans hold names, numbers and states. What sessions read and wrote is in them only if it is asked for.
"""

from __future__ import annotations

from typing import Final, get_args

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.codec import list_recorded_classes
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_facts
from sessiontree.runtime.telemetry.open_spans import OpenSpans
from sessiontree.runtime.telemetry.session_reducer import SessionReducer, SessionSpanFact, TraceState
from sessiontree.runtime.telemetry.span_writer import Content, SpanWriter
from sessiontree.runtime.telemetry.spans import SpanRecord
from sessiontree.runtime.telemetry.tree_reducer import TreeReducer, TreeSpanFact

_KINDS: Final = list_recorded_classes()
_TREE_KINDS: Final = frozenset(_KINDS[each] for each in get_args(TreeSpanFact))
_SESSION_KINDS: Final = frozenset(_KINDS[each] for each in get_args(SessionSpanFact))


class TreeSpans:
    """Makes the spans of one tree. Two reducers follow its facts: one its own, one those of its sessions.

    Args:
        config: The tree's configuration.
        content: Passes what sessions read and wrote on to attributes, without secrets; None = it is left out.
        display: The same for the lines that tools give to people.
        spans: Its open spans; None = they begin with its first fact.
    """

    def __init__(
        self,
        config: TreeConfig,
        content: Content | None = None,
        display: Content | None = None,
        spans: OpenSpans | None = None,
    ) -> None:
        self._spans = OpenSpans(config) if spans is None else spans
        self._trace = TraceState()
        writer = SpanWriter(config, self._spans, content)
        self._tree = TreeReducer(config, writer, self._trace)
        self._sessions = SessionReducer(config, writer, self._trace, display)

    @property
    def trace_id(self) -> str:
        """Id of the tree's trace: 32 hexadecimal digits."""
        return self._spans.digest("trace", 16)

    @property
    def open_spans(self) -> int:
        """How many spans have begun and not ended."""
        return len(self._spans)

    def add(self, record: JournalRecord) -> list[SpanRecord]:
        """Take the next fact in; return the spans that it ends, children first.

        Raises:
            JournalError: the fact can't be read.
        """
        self._spans.advance(record.seq, record.at_ms)
        kind = read_kind(record.text)  # facts of other kinds are not read
        if not record.session and kind in _TREE_KINDS:
            for fact in read_facts(record.text):
                if isinstance(fact, TreeSpanFact):  # others may be joined with it
                    self._tree.take(fact)
        elif record.session in self._trace.sessions and kind in _SESSION_KINDS:
            for fact in read_facts(record.text):
                self._sessions.take(record.session, fact)
        return self._spans.take_ended()

    def cut(self, seq: int) -> list[SpanRecord]:
        """End every open span, because the tree is closed after the fact of a number; children first.

        The spans continue with the next fact, under new ids.
        """
        return self._spans.cut(seq)
