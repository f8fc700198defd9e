"""What holds for the spans of every tree, however its facts look and however often it was closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from sessiontree.contracts.facts.session_facts import TurnReplied
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.codec import get_kind
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_facts
from sessiontree.runtime.telemetry.spans import SpanRecord
from sessiontree.runtime.telemetry.tree_spans import TreeSpans

Make: TypeAlias = Callable[[TreeConfig], TreeSpans]


def lives_of(
    config: TreeConfig, records: Iterable[JournalRecord], cuts: Collection[int] = (), make: Make = TreeSpans
) -> list[list[SpanRecord]]:
    """Return the spans of each life of a tree that is closed after facts of these numbers and at the end."""
    spans, last = make(config), 0
    lives: list[list[SpanRecord]] = [[]]
    for record in records:
        lives[-1] += spans.add(record)
        last = record.seq
        if last in cuts:
            lives[-1] += spans.cut(last)
            lives.append([])
    lives[-1] += spans.cut(last)
    return lives


def spans_of(
    config: TreeConfig, records: Iterable[JournalRecord], cuts: Collection[int] = ()
) -> list[SpanRecord]:
    """Return the spans of facts, where the tree is closed after the facts of these numbers and at the end."""
    return [span for life in lives_of(config, records, cuts) for span in life]


def check_lives(lives: Sequence[Sequence[SpanRecord]]) -> None:
    """A trace whose spans have their parents in their own life of the tree, unless these ended before it."""
    found = [span for life in lives for span in life]
    check_trace(found)
    whole: dict[str, str] = {}
    for span in found:  # a part comes after the one that it continues
        whole[span.span_id] = span.span_id if span.continues is None else whole[span.continues]
    for life in lives:
        parts = {whole[span.span_id]: span.span_id for span in life}
        for span in life:
            if span.parent_id is not None:
                renewed = parts.get(whole[span.parent_id], span.parent_id)
                assert span.parent_id == renewed, f"{span.name} has a parent of an earlier life"


def check_trace(found: Sequence[SpanRecord]) -> None:
    """Every id is used once, every parent exists, and no span ends before it begins."""
    counts = Counter(span.span_id for span in found)
    assert max(counts.values(), default=1) == 1, "a span was exported twice"
    for span in found:
        assert span.start_ms <= span.end_ms
        assert int(span.span_id, 16)
        assert span.parent_id is None or span.parent_id in counts, f"{span.name} has no parent"
        assert span.continues is None or span.continues in counts, f"{span.name} continues nothing"
        assert all(span.start_ms <= event.at_ms <= span.end_ms for event in span.events)


def check_complete(found: Sequence[SpanRecord], records: Sequence[JournalRecord]) -> None:
    """The first parts of the spans are one for each session, turn, question to a model and call."""
    facts = [fact for record in records for fact in read_facts(record.text)]
    kinds = Counter(map(get_kind, facts))
    replies = [fact for fact in facts if isinstance(fact, TurnReplied)]
    names = Counter(span.name.split(" ")[0] for span in found if span.continues is None)
    assert names["session"] == 1
    assert names["invoke_agent"] == kinds["session_spawned"]
    assert names["turn"] == kinds["turn_started"]
    assert names["compaction"] == kinds["compaction_begun"]
    assert names["chat"] == kinds["turn_started"] + kinds["turn_retried"] + kinds["compaction_begun"]
    calls = sum(len(reply.message.tool_calls) for reply in replies) + kinds["call_opened"]
    assert names["execute_tool"] == calls
