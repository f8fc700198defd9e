"""A server of embeddings on the loopback that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    key: str | None
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back."""

    body: bytes
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Whether the connection ends midway."""


def vector_of(text: str) -> list[float]:
    """Return the vector this server gives a text: three numbers that tell texts apart."""
    return [len(text), sum(map(ord, text)) % 97, 3.0]


def honest(asked: Asked) -> Answer:
    """Answer as such servers do, the last text first."""
    rows = [{"index": index, "embedding": vector_of(text)} for index, text in enumerate(asked.body["input"])]
    return Answer(json.dumps({"object": "list", "data": rows[::-1]}).encode())


@dataclass(slots=True)
class VectorServer:
    """Where it is, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def serving(answer: Callable[[Asked], Answer] = honest) -> Iterator[VectorServer]:
    """Serve on a free port of the loopback."""
    served = VectorServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = Asked(self.path, self.headers["Authorization"], body)
            served.asked.append(asked)
            given = answer(asked)
            self.send_response(given.code)
            for name, value in given.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.body) + given.cut))
            self.end_headers()
            with suppress(ConnectionError):  # who asked may have given up
                self.wfile.write(given.body)
            self.close_connection = given.cut

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
