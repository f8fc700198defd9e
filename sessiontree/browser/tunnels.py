"""The browser's way to the web: a proxy on a socket that only the browser can reach.

The listening socket belongs to the browser's own network, which has nothing else. It is accepted here, in the
host, where each connection is judged and made by the web's own code. TLS goes on from end to end: nothing
here reads what is sent. Whoever connects is hostile.
Source: RFC 1928 (SOCKS 5), without authentication, command CONNECT alone.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Protocol

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ToolError

STEP_BYTES: Final = 64 * 1024
MAX_AT_ONCE: Final = 128
ASKING_S: Final = 15.0
"""How long a connection may take to say where it leads."""
IDLE_S: Final = 300.0
"""How long a connection may be silent."""
KEPT_REFUSALS: Final = 20
_VERSION, _NO_AUTHENTICATION, _CONNECT = 5, 0, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_DONE, _NOT_ALLOWED, _UNREACHABLE, _NO_SUCH_COMMAND = 0, 2, 4, 7


class JudgedConnection(Protocol):
    """A connection to a judged address."""

    async def read(self, max_bytes: int) -> bytes:
        """Return the next bytes; none at the end.

        Raises:
            OSError: it was lost.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; raises as :meth:`read`."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


class Network(Protocol):
    """Makes connections under the owner's address rules."""

    async def connect(self, host: str, port: int) -> JudgedConnection:
        """Return a connection to a host.

        Raises:
            ValidationError: it is not a host.
            PermissionDenied: a rule forbids it.
            ExecutionError: it can't be reached.
        """
        ...


class Allowance(Protocol):
    """How much a page may still load."""

    def spend(self, connections: int, received_bytes: int) -> bool:
        """Count connections and bytes; return whether they were within the bounds."""
        ...


class Tunnels:
    """Accepts the browser's connections and leads them on.

    Args:
        network: Makes connections; None = the owner allows no web, so all are refused.
        allowance: Bounds what is loaded.
    """

    def __init__(self, network: Network | None, allowance: Allowance) -> None:
        self._network = network
        self._allowance = allowance
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusals: deque[tuple[str, str]] = deque(maxlen=KEPT_REFUSALS)
        """Host and reason of the newest connections that were refused or failed."""
        self.connections = 0
        self.received_bytes = 0

    async def serve(self, listener: socket.socket) -> None:
        """Begin to accept connections."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=STEP_BYTES)

    def close(self) -> None:
        """Close the socket and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; it ends with its task, also if that is cancelled before its first step."""
        task = asyncio.create_task(self._take(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())
        if self._server is None or not self._server.is_serving() or len(self._tasks) > MAX_AT_ONCE:
            task.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, ExceptionGroup, TimeoutError):
            await self._lead(reader, writer)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(ASKING_S):
            place = await _read_asked_place(reader, writer)
        if place is None:
            return
        host, port = place
        try:
            far = await self._connect(host, port)
        except ToolError as error:
            self.refusals.append((host.strip("[]"), error.message))
            writer.write(_reply(_NOT_ALLOWED if isinstance(error, PermissionDenied) else _UNREACHABLE))
            await writer.drain()
            return
        self.connections += 1
        try:
            writer.write(_reply(_DONE))
            async with asyncio.TaskGroup() as both:
                sending = both.create_task(self._send_on(reader, far))
                await self._pass_back(far, writer)
                sending.cancel()
        finally:
            with suppress(OSError):
                await far.close()

    async def _connect(self, host: str, port: int) -> JudgedConnection:
        if self._network is None:
            raise ExecutionError("the owner of this tree allows no web")
        if not self._allowance.spend(1, 0):
            raise ExecutionError("the pages have made too many connections since the last call")
        return await self._network.connect(host, port)

    async def _send_on(self, reader: asyncio.StreamReader, far: JudgedConnection) -> None:
        while data := await reader.read(STEP_BYTES):
            await far.write(data)

    async def _pass_back(self, far: JudgedConnection, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(IDLE_S):
                data = await far.read(STEP_BYTES)
            self.received_bytes += len(data)
            if not data or not self._allowance.spend(0, len(data)):
                return
            writer.write(data)
            await writer.drain()


async def _read_asked_place(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[str, int] | None:
    """Return where a connection leads; None if it asks for something else."""
    version, methods = await reader.readexactly(2)
    offered = await reader.readexactly(methods)
    if version != _VERSION or _NO_AUTHENTICATION not in offered:
        return None
    writer.write(bytes((_VERSION, _NO_AUTHENTICATION)))
    version, command, _, kind = await reader.readexactly(4)
    if kind == _IPV4:
        host = str(IPv4Address(await reader.readexactly(4)))
    elif kind == _IPV6:
        host = f"[{IPv6Address(await reader.readexactly(16))}]"
    elif kind == _NAME:
        name = (await reader.readexactly((await reader.readexactly(1))[0])).decode("latin-1")
        host = f"[{name}]" if ":" in name else name
    else:
        return None
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    if version != _VERSION or command != _CONNECT:
        writer.write(_reply(_NO_SUCH_COMMAND))
        await writer.drain()
        return None
    return host, port


def _reply(code: int) -> bytes:
    return bytes((_VERSION, code, 0, _IPV4)) + bytes(6)
