"""The process of one connection: it takes orders over a socket, and ends with the process that started it."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from sessiontree.mcp.frames import FrameFault, encode_frame, read_message
from sessiontree.mcp.inside.connection import CallFailed, OwnedConnection
from sessiontree.mcp.inside.http_streams import HttpStreams
from sessiontree.mcp.inside.login import log_in
from sessiontree.mcp.inside.server_streams import ServerStreams

MAX_DATA_BYTES: Final = 2 * 2**30
"""Memory of this process: a reply without an end ends it, and not the machine."""
REASON_CHARS: Final = 1_000
LEAVE_S: Final = 8.0
"""How long a connection may take to end."""
SETTLE_S: Final = 0.5
"""How long the library may take to notice that its streams have ended."""


class ConnectionOrders:
    """Takes the parent's orders and answers them.

    Args:
        reader: The parent's messages.
        writer: To the parent.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._over = asyncio.Event()

    async def serve(self) -> None:
        """Carry out the first order: connect and take calls, or log in."""
        try:
            order = await read_message(self._reader)
        except (EOFError, FrameFault):
            return
        if order.get("do") == "login":
            await self._log_in(order)
            return
        await self._connect(order)

    async def _connect(self, order: dict[str, Any]) -> None:
        streams = ServerStreams(order["command"], order["env"], order["cwd"]) if order["command"] else None
        http = HttpStreams(order["url"], order["headers"], order["tokens"])
        connection = OwnedConnection(http.open() if streams is None else streams.open(), self._tell)

        async def on_ready(found: dict[str, Any]) -> None:
            process = None if streams is None else streams.process
            await self._tell({"ready": {**found, "pid": None if process is None else process.pid}})

        owner = asyncio.create_task(connection.run(on_ready, self._over))
        ends = [asyncio.create_task(self._over.wait())]
        if streams is not None:
            ends.append(asyncio.create_task(streams.has_ended.wait()))
        listening = asyncio.create_task(self._listen(connection))
        await asyncio.wait({owner, *ends}, return_when=asyncio.FIRST_COMPLETED)
        failed = "" if streams is None else streams.fault
        if self._over.is_set():
            failed = ""
            await asyncio.wait({owner}, timeout=LEAVE_S)
        elif not owner.done():
            await asyncio.wait({owner}, timeout=SETTLE_S)  # its own error says more
        owner.cancel()
        # The owner opens and closes everything itself, so nothing may be torn down before it has ended.
        await asyncio.wait({owner})
        for task in (listening, *ends, *self._calls.values()):
            task.cancel()
        if not self._over.is_set():
            error = None if owner.cancelled() else owner.exception()
            reason = failed or ("it ended" if error is None else _describe_error(error))
            kind = "needs_login" if streams is None and http.needs_login else "failed"
            said = "" if streams is None else streams.last_words
            with suppress(OSError):
                await self._tell({"failed": {"kind": kind, "reason": reason[:REASON_CHARS], "said": said}})

    async def _listen(self, connection: OwnedConnection) -> None:
        with suppress(EOFError, FrameFault, OSError):
            while True:
                order = await read_message(self._reader)
                number = order.get("id", 0)
                if "cancel" in order:
                    await self._cancel(order["cancel"])
                elif "tool" in order:
                    self._calls[number] = asyncio.create_task(self._call(connection, number, order))
        self._over.set()

    async def _cancel(self, number: int) -> None:
        task = self._calls.get(number)
        if task is not None:
            task.cancel()
        # Confirmed also for a call that is unknown here: its reply and the cancellation may have crossed.
        await self._tell({"id": number, "cancelled": True})

    async def _call(self, connection: OwnedConnection, number: int, order: dict[str, Any]) -> None:
        try:
            answer: dict[str, Any] = {"reply": await connection.call(order)}
        except CallFailed as error:
            answer = {"error": {"kind": error.kind, "reason": error.reason}}
        except asyncio.CancelledError:
            self._calls.pop(number, None)
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library raises is this call's failure
            answer = {"error": {"kind": "failed", "reason": _describe_error(error)[:REASON_CHARS]}}
        # Before the answer is sent: a cancellation that comes from here on finds no call, and can't stop the
        # answer.
        self._calls.pop(number, None)
        with suppress(OSError):
            try:
                await self._tell({"id": number, **answer})
            except FrameFault as error:
                await self._tell({"id": number, "error": {"kind": "server", "reason": str(error)}})

    async def _log_in(self, order: dict[str, Any]) -> None:
        async def show(address: str) -> None:
            await self._tell({"open": address})

        try:
            await log_in(order["url"], order["tokens"], show)
        except Exception as error:  # noqa: BLE001 - as above
            await self._tell(
                {"failed": {"kind": "failed", "reason": _describe_error(error)[:REASON_CHARS], "said": ""}}
            )
        else:
            await self._tell({"ready": {}})

    async def _tell(self, message: dict[str, Any]) -> None:
        self._writer.write(encode_frame(message))
        await self._writer.drain()


def _describe_error(error: BaseException) -> str:
    """Return what went wrong first, without the groups around it."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _main(descriptor: int) -> None:
    near = socket.socket(fileno=descriptor)
    near.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=near)
    await ConnectionOrders(reader, writer).serve()
    writer.close()


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    logging.disable(logging.CRITICAL)  # its words may quote what a server sent
    asyncio.run(_main(int(sys.argv[1])))


if __name__ == "__main__":
    main()
