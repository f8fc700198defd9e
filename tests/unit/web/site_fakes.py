"""Servers on the loopback, and a network in which public names lead to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import TypeAlias
from weakref import WeakSet

import httpcore

from sessiontree.testing.fake_provider.fake_server import cut_connections
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb

PUBLIC = "93.184.215.14"
OTHER = "2606:2800:21f:cb07::1"
Respond: TypeAlias = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
"""Answers one request, given as text up to its empty line."""


@dataclass(slots=True)
class Site:
    """A server: where it listens and what it was asked."""

    port: int
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def headers(self, at: int = -1) -> dict[str, str]:
        """Return the headers of one request, names in small letters."""
        lines = self.requests[at].split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}


@asynccontextmanager
async def serving(respond: Respond, *, tls: SSLContext | None = None) -> AsyncIterator[Site]:
    """Serve as long as the block runs; connections still open then are cut."""
    tasks: set[asyncio.Task[None]] = set()
    writers: WeakSet[asyncio.StreamWriter] = WeakSet()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.add(writer)
        try:
            site.requests.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            await respond(site.requests[-1], writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    site = Site(server.sockets[0].getsockname()[1])
    try:
        yield site
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await cut_connections(writers)


def answer(
    body: bytes = b"", *, status: int = 200, headers: Iterable[str] = (), content_type: str = "text/plain"
) -> Respond:
    """Return what answers everything the same."""

    async def respond(request: str, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
        if content_type:
            lines.append(f"Content-Type: {content_type}")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()

    return respond


def redirect(location: str, *, status: int = 302) -> Respond:
    """Return what leads on to another place."""
    return answer(b"gone on", status=status, headers=[f"Location: {location}", "Set-Cookie: secret=1"])


class Detour(httpcore.AsyncNetworkBackend):
    """Leads every connection to one loopback port, whatever address it is for; writes the address down."""

    def __init__(self, port: int | None) -> None:
        self.asked: list[tuple[str, int]] = []
        self.port = port
        self.refusing: set[str] = set()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.asked.append((host, port))
        if self.port is None or host in self.refusing:
            raise httpcore.ConnectError("nobody there")
        return await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.port, timeout)


class Names:
    """A name server; each question gets the next of a name's answers, the last for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        given = self.answers.get(host)
        if given is None:
            raise OSError(f"{host}: no such name")
        return given.pop(0) if len(given) > 1 else given[0]


def local_web(*sites: Site, **settings: object) -> OutboundWeb:
    """Return a web in which these servers may be read."""
    allowed = tuple(f"127.0.0.1:{site.port}" for site in sites)
    return OutboundWeb(WebSettings.model_validate({"allow_private": allowed, **settings}))
