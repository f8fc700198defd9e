"""The interpreters of one session: a confined process, started with its first program, asked, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from typing import Any, Final

from sessiontree.contracts.thread_calls import in_thread
from sessiontree.programs.found import confined_words, found_interpreter
from sessiontree.sandbox.process_tree import ProcessIdentity, living_below, process_of
from sessiontree.sandbox.socket_process import SocketProcess

START_S: Final = 20.0
MAX_LINE_BYTES: Final = 64 * 2**20
MOST_PROGRAMS: Final = 8
"""Programs of one session that have an interpreter at a time."""


class InterpreterEndedError(Exception):
    """The process ended, with every program in it; the text says why."""


class InterpreterProcess:
    """One process of interpreters; use it once."""

    def __init__(self) -> None:
        self._process = SocketProcess("the interpreter", self.end, self._note_end)
        self._is_over = False
        """Whether it takes no orders any more."""
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._orders = 0
        self._listening: asyncio.Task[None] | None = None

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
        found = found_interpreter()
        words = await in_thread(confined_words, found)
        await self._process.start(
            lambda far: [*words, str(far), found.binary, str(MOST_PROGRAMS)], self._meet, START_S
        )

    async def _meet(self, near: socket.socket) -> None:
        near.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=near, limit=MAX_LINE_BYTES)
        if not await reader.readline():
            raise EOFError("it did not say that it is ready")
        self._listening = asyncio.create_task(self._listen(reader))

    def _note_end(self) -> None:
        self._fail("the interpreter's process ended unexpectedly")

    async def ask(self, program: str, order: dict[str, Any]) -> dict[str, Any]:
        """Return what a program says to an order.

        Raises:
            InterpreterEndedError: the process ended.
        """
        if self._writer is None or self._is_over:
            raise InterpreterEndedError("the interpreter's process has ended")
        self._orders += 1
        number = self._orders
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._writer.write(_line({**order, "id": program, "order": number}))
            return await answer
        finally:
            self._asked.pop(number, None)

    def drop(self, program: str) -> None:
        """End a program's interpreter, whatever it does."""
        if self._writer is not None and not self._is_over:
            self._writer.write(_line({"id": program, "op": "end", "order": 0}))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                told = json.loads(line)
                answer = self._asked.get(told["order"])
                if answer is not None and not answer.done():
                    answer.set_result(told)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass  # what it says makes no sense, so nothing of it is believed any more
        self._note_end()
        self.end()

    def _fail(self, why: str) -> None:
        self._is_over = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(InterpreterEndedError(why))
        if self._writer is not None:
            self._writer.transport.abort()

    def end(self) -> set[ProcessIdentity]:
        """Kill it and all that it started; return the processes that are ending."""
        pid = self._process.pid
        own = None if pid is None else process_of(pid)
        self._fail("the session has left")
        if own is None:
            return set()
        ending = {own, *living_below(own.pid)}
        with suppress(ProcessLookupError):
            os.killpg(own.pid, signal.SIGKILL)
        return ending

    async def ended(self) -> None:
        """Wait until it has ended; it was killed before."""
        await self._process.gone()


def _line(order: dict[str, Any]) -> bytes:
    return json.dumps(order, separators=(",", ":")).encode() + b"\n"
