"""A service on the loopback that reads whole requests, with their bodies, and answers by path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakSet

from sessiontree.testing.fake_provider.fake_server import cut_connections


@dataclass(frozen=True, slots=True)
class Reply:
    """What one path answers."""

    status: int = 200
    body: bytes = b"done"
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(slots=True)
class Service:
    """A service: where it listens, what it answers, and what it received."""

    port: int
    replies: Mapping[str, Reply]
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and answer it by its path; any other path is answered ``done``."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ")
            self.received.append(Received(method, path, headers, body))
            reply = self.replies.get(path, Reply())
            shown = b"" if method == "HEAD" else reply.body
            said = [f"HTTP/1.1 {reply.status} Words", f"Content-Length: {len(reply.body)}", *reply.headers]
            writer.write("\r\n".join([*said, "", ""]).encode("latin-1") + shown)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def service(replies: Mapping[str, Reply] | None = None) -> AsyncIterator[Service]:
    """Serve as long as the block runs."""
    writers: WeakSet[asyncio.StreamWriter] = WeakSet()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        await found.handle(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    found = Service(server.sockets[0].getsockname()[1], replies or {})
    try:
        yield found
    finally:
        server.close()
        await cut_connections(writers)
