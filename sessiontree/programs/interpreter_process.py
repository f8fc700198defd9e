"""The interpreters of one session: a confined process, started with its first program, asked, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.programs.found import build_confined_command, find_interpreter
from sessiontree.sandbox.process_tree import ProcessIdentity, find_living_below, find_process_identity
from sessiontree.sandbox.socket_process import SocketProcess

START_S: Final = 20.0
MAX_LINE_BYTES: Final = 64 * 2**20
MOST_PROGRAMS: Final = 8
"""Programs of one session that have an interpreter at a time."""


class InterpreterEndedError(Exception):
    """The process ended, with every program in it; the text says why."""


Hearer: TypeAlias = Callable[["dict[str, Any] | InterpreterEndedError"], None]
"""Takes what a program says to an order, or why nobody will."""


class _InterpreterLines(asyncio.Protocol):
    """Passes on the lines of a socket, in its own callback: no task is woken for one.

    Args:
        take: Takes a line; raises ValueError, KeyError, TypeError or RecursionError if it makes no sense.
        lost: Called once, when the socket ended or a line made no sense.
    """

    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take = take
        self._lost = lost
        self._parts: list[bytes] = []
        self._length = 0

    def data_received(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._parts.append(first)
        self._length += len(first)
        try:
            for part in others:
                self._take(b"".join(self._parts))
                self._parts, self._length = [part], len(part)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._lost()  # what it says makes no sense, so nothing of it is believed any more
        # Checked with each piece: a line without an end would be kept in memory as long as it grows.
        if self._length > MAX_LINE_BYTES:
            self._lost()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


class InterpreterProcess:
    """One process of interpreters; use it once."""

    def __init__(self) -> None:
        self._process = SocketProcess("the interpreter", self.end, self._note_end)
        self._is_over = False
        """Whether it takes no orders any more."""
        self._transport: asyncio.WriteTransport | None = None
        self._asked: dict[int, Hearer] = {}
        self._orders = 0
        self._ready = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether it takes orders."""
        return self._process.pid is not None and not self._is_over

    async def start(self) -> None:
        """Start it; return when it takes orders.

        Raises:
            ConfinementUnavailable: this machine can't confine it, or has no interpreter.
            ExecutionError: it did not start.
        """
        found = find_interpreter()
        words = await run_in_thread(build_confined_command, found)
        await self._process.start(
            lambda far: [*words, str(far), found.binary, str(MOST_PROGRAMS)], self._meet, START_S
        )

    async def _meet(self, near: socket.socket) -> None:
        near.setblocking(False)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(
            lambda: _InterpreterLines(self._hear, self._lose), sock=near
        )
        await self._ready.wait()
        if self._is_over:
            raise EOFError("it did not say that it is ready")

    def _note_end(self) -> None:
        self._fail("the interpreter's process ended unexpectedly")

    def send(self, program: str, order: dict[str, Any], hear: Hearer) -> None:
        """Give a program an order; ``hear`` is called with what it says, later.

        Raises:
            InterpreterEndedError: the process has ended.
        """
        if self._transport is None or self._is_over:
            raise InterpreterEndedError("the interpreter's process has ended")
        self._orders += 1
        self._asked[self._orders] = hear
        self._transport.write(_encode_line({**order, "id": program, "order": self._orders}))

    async def ask(self, program: str, order: dict[str, Any]) -> dict[str, Any]:
        """Return what a program says to an order.

        Raises:
            InterpreterEndedError: the process ended.
        """
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def hear(told: dict[str, Any] | InterpreterEndedError) -> None:
            if answer.done():
                return
            if isinstance(told, InterpreterEndedError):
                answer.set_exception(told)
            else:
                answer.set_result(told)

        self.send(program, order, hear)
        return await answer

    def drop(self, program: str) -> None:
        """End a program's interpreter, whatever it does."""
        if self._transport is not None and not self._is_over:
            self._transport.write(_encode_line({"id": program, "op": "end", "order": 0}))

    def _hear(self, line: bytes) -> None:
        told = json.loads(line)
        if not self._ready.is_set():
            self._ready.set()
        # Removed by its first answer; what a process says to an order a second time is not believed.
        elif (hear := self._asked.pop(told["order"], None)) is not None:
            hear(told)

    def _lose(self) -> None:
        self._note_end()
        self.end()

    def _fail(self, why: str) -> None:
        self._is_over = True
        self._ready.set()
        # Taken out first, because a hearer may give an order at once, or end the process again.
        asked, self._asked = self._asked, {}
        for hear in asked.values():
            hear(InterpreterEndedError(why))
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> set[ProcessIdentity]:
        """Kill it and all that it started; return the processes that are ending."""
        pid = self._process.pid
        # Looked up before the end: afterwards the processes below it could not be found.
        own = None if pid is None else find_process_identity(pid)
        self._fail("the session has left")
        if own is None:
            return set()
        ending = {own, *find_living_below(own.pid)}
        with suppress(ProcessLookupError):
            os.killpg(own.pid, signal.SIGKILL)
        return ending

    async def ended(self) -> None:
        """Wait until it has ended; it was killed before."""
        await self._process.gone()


def _encode_line(order: dict[str, Any]) -> bytes:
    return json.dumps(order, separators=(",", ":")).encode() + b"\n"
