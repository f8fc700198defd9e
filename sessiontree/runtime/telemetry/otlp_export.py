"""Exports spans to an OTLP collector over HTTP, as the standard ``OTEL_*`` variables say.

It needs the extra ``otel``, so it is loaded when spans are exported.

Address, headers and certificates are read from the program's environment by the exporter itself. They are
never copied, logged, or sent to another process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

_LIBRARY: Final = "opentelemetry"
_UNNAMED: Final = "unknown_service"


class _Warnings(logging.Filter):
    """Counts log records and shows none."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.count += record.levelno >= logging.WARNING
        return False


@contextmanager
def _silence_library() -> Iterator[None]:
    """Keep the library from logging what it reads: its warnings quote variables, which may hold a token.

    Raises:
        ValueError: it had a warning to log.
    """
    warnings = _Warnings()
    named = logging.root.manager.loggerDict.items()
    loggers = [each for name, each in named if name.startswith(_LIBRARY) and isinstance(each, logging.Logger)]
    for logger in loggers:
        logger.addFilter(warnings)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(warnings)
    if warnings.count:
        raise ValueError("a variable is not valid")


class CountingExporter(SpanExporter):
    """Counts the spans that another exporter delivers, and can give it up.

    Args:
        exporter: The exporter.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._given_up = threading.Event()
        self.delivered = 0
        """How many spans the collector has accepted."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Deliver spans, unless the exporter was given up."""
        if self._given_up.is_set():
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.delivered += len(spans)
        return result

    def give_up(self) -> None:
        """Deliver nothing more; an attempt that waits to be repeated ends."""
        if not self._given_up.is_set():
            self._given_up.set()
            self._exporter.shutdown()

    def shutdown(self) -> None:
        """End, after everything was delivered."""
        self.give_up()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is kept here."""
        return True


class _Counted(BatchSpanProcessor):
    """Counts the spans that it is given and that are sampled."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self.given = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self.given += 1
        super().on_end(span)


class OtlpExport:
    """A tracer provider that exports to the collector that the variables name."""

    def __init__(self) -> None:
        """Read the variables.

        Raises:
            ValueError, OSError: a variable is not valid, or a certificate can't be read.
        """
        with _silence_library():
            resource = Resource.create()
            exporter = OTLPSpanExporter()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith(_UNNAMED):
            resource = resource.merge(Resource({SERVICE_NAME: "sessiontree"}))
        self._exporter = CountingExporter(exporter)
        self._processor = _Counted(self._exporter)
        self.provider: Any = TracerProvider(resource=resource, shutdown_on_exit=False)
        """The provider."""
        self.provider.add_span_processor(self._processor)

    @property
    def lost(self) -> int:
        """How many spans were not delivered; those that still wait count."""
        return self._processor.given - self._exporter.delivered

    def finish(self) -> None:
        """Deliver everything; takes until the exporter has answered or was given up."""
        self.provider.shutdown()

    def give_up(self) -> None:
        """Drop what was not delivered."""
        self._exporter.give_up()
