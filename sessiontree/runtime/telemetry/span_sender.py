"""Hands ended spans to a tracer provider, in a thread of its own: a slow exporter slows no tree.

The queue is bounded. What does not fit is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.telemetry.spans import SpanRecord
from sessiontree.version import VERSION

QUEUE_SPANS: Final = 8192
"""How many ended spans wait for the exporter at most."""
_LOG = logging.getLogger("sessiontree")
_NS_PER_MS: Final = 1_000_000
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


@dataclass(frozen=True, slots=True)
class Traced:
    """One tree's trace."""

    trace_id: str
    links: tuple[SpanContext, ...]
    """What the tree's own span is linked to: the span in which the program opened the tree."""


class TreeIds:
    """Gives a span the id that it must have; ``opentelemetry.sdk`` asks for it when a span starts."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_span_id(self) -> int:
        """Return the id of the span that starts now."""
        return self.span_id

    def generate_trace_id(self) -> int:
        """Return the id of its trace."""
        return self.trace_id

    def is_trace_id_random(self) -> bool:
        """Whether the id is random; it is derived from random bits of the tree."""
        return False


class SpanSender:
    """Sends spans to one tracer provider.

    Args:
        provider: A ``TracerProvider`` of ``opentelemetry-sdk``.
        finish: Called in the thread when everything was sent and the sender is closed.
    """

    def __init__(self, provider: Any, finish: Callable[[], None] = lambda: None) -> None:
        # A provider gives the same tracer for the same name, so the name is used by this thread alone.
        self._tracer = provider.get_tracer(f"sessiontree.{id(self):x}", VERSION)
        self._sampler = self._tracer.sampler
        self._ids = TreeIds()
        self._tracer.id_generator = self._ids
        self._finish = finish
        self._changed = threading.Condition()
        self._queue: deque[tuple[SpanRecord, Traced]] = deque()
        self._working = False
        self._closed = False
        self._waiting: list[Callable[[], None]] = []
        self.dropped = 0
        """How many spans did not fit into the queue, or were refused by the provider."""
        self._thread: threading.Thread | None = None

    def offer(self, records: Sequence[SpanRecord], traced: Traced) -> None:
        """Take ended spans; never waits."""
        if not records:
            return
        with self._changed:
            room = QUEUE_SPANS - len(self._queue)
            self._queue.extend((record, traced) for record in records[:room])
            self.dropped += max(0, len(records) - room)
            self._wake()

    def call_when_idle(self, action: Callable[[], None]) -> None:
        """Call an action in the thread, once the provider has everything that was offered before."""
        with self._changed:
            self._waiting.append(action)
            self._wake()

    def close(self) -> None:
        """Let the thread end once it has sent everything."""
        with self._changed:
            self._closed = True
            self._wake()

    def abandon(self) -> None:
        """Drop what still waits."""
        with self._changed:
            self.dropped += len(self._queue)
            self._queue.clear()

    def samples(self, trace_id: str, name: str) -> bool:
        """Return whether the provider's sampler wants a tree's trace."""
        found = self._sampler.should_sample(Context(), int(trace_id, 16), name, SpanKind.INTERNAL, {}, ())
        return bool(found.decision.is_recording())

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sessiontree-spans", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._waiting or self._closed)
                batch, waiting = list(self._queue), self._waiting
                self._queue.clear()
                self._waiting = []
                closed = self._closed
            for record, traced in batch:
                self._send(record, traced)
            for action in waiting:
                action()
            if closed and not batch:
                break
        self._finish()

    def _send(self, record: SpanRecord, traced: Traced) -> None:
        try:
            self._make(record, traced)
        except Exception as error:  # noqa: BLE001 - a processor of the program's
            self.dropped += 1
            if self.dropped == 1:
                _LOG.warning("the tracer provider refused a span: %s", type(error).__name__)

    def _make(self, record: SpanRecord, traced: Traced) -> None:
        self._ids.trace_id = trace_id = int(traced.trace_id, 16)
        self._ids.span_id = int(record.span_id, 16)
        above, links = Context(), []
        if record.parent_id is None:
            links = [Link(context) for context in traced.links]
        else:
            above = set_span_in_context(
                NonRecordingSpan(_build_context(trace_id, record.parent_id)), Context()
            )
        if record.continues is not None:
            links.append(Link(_build_context(trace_id, record.continues), {"sessiontree.link": "continues"}))
        span = self._tracer.start_span(
            record.name,
            context=above,
            kind=_KINDS[record.kind],
            attributes=dict(record.attributes),
            links=links,
            start_time=record.start_ms * _NS_PER_MS,
            record_exception=False,
            set_status_on_exception=False,
        )
        for event in record.events:
            span.add_event(event.name, dict(event.attributes), timestamp=event.at_ms * _NS_PER_MS)
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR, record.reason or None))
        span.end(end_time=record.end_ms * _NS_PER_MS)


def _build_context(trace_id: int, span_id: str) -> SpanContext:
    return SpanContext(
        trace_id, int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
