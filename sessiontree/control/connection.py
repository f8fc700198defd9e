"""A conversation: one connection of a peer at the runtime's end, which nothing said there can disturb."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from sessiontree.contracts.cancellation import is_cancelled
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.control.lines import Lines
from sessiontree.control.requests import (
    PROTOCOL,
    SocketRequest,
    Told,
    Withdrawal,
    error_line,
    line_of,
    lines_of,
    said_in,
)
from sessiontree.version import VERSION

READ_BYTES = 64 * 1024
MAX_BUFFER_BYTES = 256 * 1024
"""Beyond this nothing more is written until the peer has taken some."""
MOST_AT_ONCE = 64
"""Questions of one peer that wait for their answers."""

Answer: TypeAlias = Callable[[SocketRequest], Awaitable[Told]]


class Connection:
    """Hears one peer and answers it, many questions at once.

    Args:
        line: The connection.
        answer: Answers a question.
        patience_s: How long a peer may take to end a line, or to take what was said.
        grace_s: How long, at the end, answers under way and what is written may take.
    """

    def __init__(self, line: socket.socket, answer: Answer, *, patience_s: float, grace_s: float) -> None:
        self._line = line
        self._answer = answer
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._speaking = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ends = False

    async def run(self, refusal: SessionTreeError | None = None) -> None:
        """Hear the peer until it hangs up, says what can't be understood, or does not listen.

        Args:
            refusal: Why it may not ask anything; it is told so and hung up on.
        """
        reader, writer = await asyncio.open_unix_connection(sock=self._line, limit=READ_BYTES)
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=MAX_BUFFER_BYTES)
        try:
            self._listening = asyncio.create_task(self._listen(reader, refusal))
            if self._ends:
                self._listening.cancel()
            await asyncio.wait({self._listening})
            if self._ends and self._answering:
                await asyncio.wait(self._answering.values(), timeout=self._grace_s)
        finally:
            await self._hang_up(writer)

    def end(self) -> None:
        """Hear nothing more; what is under way is still answered, for a moment."""
        self._ends = True
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self, reader: asyncio.StreamReader, refusal: SessionTreeError | None) -> None:
        """Hear the peer; ends when nothing more is to be heard from it."""
        lines = Lines()
        with suppress(OSError):  # a time-out is one of those
            if refusal is not None:
                await self._say(error_line(None, refusal))
                return
            await self._say(line_of({"protocol": PROTOCOL, "release": VERSION, "pid": os.getpid()}))
            try:
                while not lines.is_overlong and (data := await self._heard(reader, lines.is_within)):
                    for line in lines.take(data):
                        await self._hear(line)
                if lines.is_overlong:
                    raise ValueError("it is too long")
            except ValueError as error:
                await self._say(error_line(None, ConfigError(f"a line can't be understood: {error}")))

    async def _heard(self, reader: asyncio.StreamReader, is_within: bool) -> bytes:
        async with asyncio.timeout(self._patience_s if is_within else None):
            return await reader.read(READ_BYTES)

    async def _hear(self, line: bytes) -> None:
        said = said_in(line)
        under_way = self._answering.get(said.id)
        if isinstance(said, Withdrawal):
            if under_way is not None:
                under_way.cancel()
        elif under_way is not None:
            raise ValueError(f"question {said.id} is not answered yet, and there can't be two of that id")
        elif len(self._answering) >= MOST_AT_ONCE:
            reason = f"{MOST_AT_ONCE} questions wait for their answers already; ask again later"
            await self._say(error_line(said.id, SessionTreeError(reason)))
        else:
            task = asyncio.create_task(self._reply(said))
            self._answering[said.id] = task
            task.add_done_callback(lambda _: self._answering.pop(said.id, None))

    async def _reply(self, request: SocketRequest) -> None:
        with suppress(OSError):
            try:
                told = await self._answer(request)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                await self._say(error_line(request.id, error))
                return
            try:
                for line in lines_of(request.id, told):
                    await self._say(line)
            except (SessionTreeError, TypeError, ValueError, RecursionError) as error:
                await self._say(error_line(request.id, error))

    async def _say(self, line: bytes) -> None:
        """Write a line, waiting while the peer has not taken what was written before.

        Raises:
            OSError: the peer is gone, or does not listen; nothing more is heard from it.
        """
        writer = self._writer
        if writer is None or writer.is_closing():
            raise ConnectionResetError("nobody is there any more")
        try:
            async with self._speaking:
                writer.write(line)
                async with asyncio.timeout(self._patience_s):
                    await writer.drain()
        except OSError:
            writer.transport.abort()
            if self._listening is not None:
                self._listening.cancel()
            raise

    async def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        under_way = [*self._answering.values(), *filter(None, [self._listening])]
        for task in under_way:
            task.cancel()
        writer.close()
        try:
            if under_way:
                await asyncio.wait(under_way)
            async with asyncio.timeout(self._grace_s):
                await writer.wait_closed()
        except OSError:
            pass
        finally:
            writer.transport.abort()
