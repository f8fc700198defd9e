"""An OTLP collector on the loopback: keeps every span that it is sent, or answers as it is asked to."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SECRET = "sk-ant-" + "Zq7" * 12


@dataclass(frozen=True, slots=True)
class Received:
    """A span as received."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty = none."""
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: tuple[str, ...]
    failed: bool
    links: tuple[str, ...]
    """Ids of the spans that it is linked to."""


class Collector:
    """A collector; use it as a context manager.

    Args:
        status: The HTTP status of its answers.
        stalls: Whether it never answers.
    """

    def __init__(self, status: int = 200, *, stalls: bool = False) -> None:
        self.spans: list[Received] = []
        self.headers: list[str] = []
        self.service = ""
        self.text = b""
        """Everything that it was sent, as it came."""
        self._released = threading.Event()
        collector = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if stalls:
                    collector._released.wait()
                if status == 200:
                    collector._take(self.headers.get("authorization", ""), body)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def secret(self) -> str:
        """What its header holds: another text than that of collectors of other tests."""
        return f"{SECRET}-{self._server.server_port}"

    def environment(self) -> dict[str, str]:
        """Return the standard variables that lead to it, with a secret header."""
        header = f"authorization=Bearer%20{self.secret}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_EXPORTER_OTLP_HEADERS": header}

    def _take(self, header: str, body: bytes) -> None:
        self.headers.append(header)
        self.text += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.service = _attributes(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_received(span) for span in scope.spans]

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _received(span: Any) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        tuple(event.name.removeprefix("sessiontree.") for event in span.events),
        span.status.code == 2,
        tuple(link.span_id.hex() for link in span.links),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
