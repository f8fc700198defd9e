"""What follows a tree: a program that is killed at any time leaves no gap in the tree's trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.recorded.codec import from_wire
from sessiontree.journal.export import load_export
from sessiontree.journal.place import JournalPlace
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.telemetry.spans import SpanRecord
from sessiontree.runtime.telemetry.tree_tracer import TraceMarks, TreeTracer
from sessiontree.runtime.transport.supervisor_api import SupervisorApi
from tests.unit.golden.scenario_fixtures import GOLDEN
from tests.unit.runtime.span_oracle import spans_of

STEP = 10
"""Facts that become durable at a time."""


class Facts:
    """Answers for a tree of which so many facts are durable; more each time it is asked."""

    def __init__(self, records: Sequence[JournalRecord], last: int) -> None:
        self._records = records[:last]
        self.is_read = asyncio.Event()

    async def read(self, tree_id: str, after: int, most: int, wait_s: float) -> list[JournalRecord]:
        """Return the next facts; wait for good after the last."""
        found = [each for each in self._records if each.seq > after][: min(most, STEP)]
        if not found:
            self.is_read.set()
            await asyncio.Event().wait()
        return found

    async def last_seq(self, tree_id: str) -> int:
        """Return the number of the newest fact."""
        return self._records[-1].seq


class Sink:
    """Keeps the spans that it is offered."""

    def __init__(self) -> None:
        self.spans: list[SpanRecord] = []

    def samples(self, trace_id: str, name: str) -> bool:
        """Return True."""
        return True

    def offer(self, records: Sequence[SpanRecord], traced: object) -> None:
        """Take spans."""
        self.spans += records

    def call_when_idle(self, action: Callable[[], None]) -> None:
        """Call the action."""
        action()


async def life(
    config: TreeConfig, records: Sequence[JournalRecord], place: Path, first: int, last: int, **options: Any
) -> list[SpanRecord]:
    """Return what a program hands over that opens the tree after a fact, sees a later one, and is killed."""
    sink, facts = Sink(), Facts(records, last)
    tracer = TreeTracer(cast("SupervisorApi", facts), config, sink, place, **options)
    tracer.open(first)
    await facts.is_read.wait()
    reader = tracer._reader
    assert reader is not None
    reader.cancel()
    await asyncio.wait({reader})
    return sink.spans


@pytest.mark.short(1)
@pytest.mark.parametrize("seen", [STEP, 25, 60])
async def test_spans_that_a_killed_program_did_not_send_are_made_again(tmp_path: Path, seen: int) -> None:
    """What was not noted as sent comes with the next life, equal to what was handed over before."""
    with GOLDEN.open() as lines:
        export = load_export(lines)
    assert export.manifest is not None
    config: TreeConfig = from_wire(export.manifest.row0)
    records = list(export.records)
    lost = await life(config, records, tmp_path, 0, seen)
    assert TraceMarks(JournalPlace(tmp_path).trace_marks(config.tree_id)).sent == 0
    again = await life(config, records, tmp_path, seen, records[-1].seq)
    assert again[: len(lost)] == lost
    assert again == [span for span in spans_of(config, records) if not span.attributes.get(UNFINISHED)]


UNFINISHED = "sessiontree.unfinished"


async def test_spans_that_were_sent_before_a_kill_come_once(tmp_path: Path) -> None:
    """Up to the fact that is noted nothing is repeated, and nothing after it is missing."""
    with GOLDEN.open() as lines:
        export = load_export(lines)
    assert export.manifest is not None
    config: TreeConfig = from_wire(export.manifest.row0)
    records = list(export.records)
    handed_over = await life(config, records, tmp_path, 0, 60, settled_s=0.0)
    sent = TraceMarks(JournalPlace(tmp_path).trace_marks(config.tree_id)).sent
    assert sent is not None
    assert 0 < sent < 60
    rest = await life(config, records, tmp_path, 60, records[-1].seq)
    known = [span for span in spans_of(config, records[:sent]) if not span.attributes.get(UNFINISHED)]
    assert known
    assert handed_over[: len(known)] == known
    assert not {span.span_id for span in known} & {span.span_id for span in rest}
    whole = [span for span in spans_of(config, records) if not span.attributes.get(UNFINISHED)]
    assert sorted([*known, *rest], key=repr) == sorted(whole, key=repr)
