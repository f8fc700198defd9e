"""The interpreters of one session: a confined process, started with its first program, asked, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from typing import IO, Any, Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.programs.found import confined_words, found_interpreter
from sessiontree.sandbox.process_tree import ProcessIdentity, living_below, process_of

START_S: Final = 20.0
MAX_LINE_BYTES: Final = 64 * 2**20
MOST_PROGRAMS: Final = 8
"""Programs of one session that have an interpreter at a time."""
SHOWN_CHARS: Final = 1_000


class InterpreterEndedError(Exception):
    """The process ended, with every program in it; the text says why."""


class InterpreterProcess:
    """One process of interpreters; use it once."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._orders = 0
        self._gone = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self._process is not None and not self._gone.is_set()

    async def start(self) -> None:
        """Start it; return when it takes orders.

        Raises:
            ConfinementUnavailable: this machine can't confine it, or has no interpreter.
            ExecutionError: it did not start.
        """
        found = found_interpreter()
        words = await in_thread(confined_words, found)
        near, far = socket.socketpair()
        complaint = os.fdopen(os.memfd_create("complaint"), "w+b")
        with far:
            words += [str(far.fileno()), found.binary, str(MOST_PROGRAMS)]
            try:
                self._process = self._started(words, far, complaint)
            except BaseException:
                near.close()
                complaint.close()
                raise
        try:
            async with asyncio.timeout(START_S):
                near.setblocking(False)
                reader, self._writer = await asyncio.open_connection(sock=near, limit=MAX_LINE_BYTES)
                line = await reader.readline()
            if not line:
                await self._give_up("it ended at once", complaint)
            self._listening = asyncio.create_task(self._listen(reader))
        except TimeoutError:
            await self._give_up(f"it did not start within {START_S:g} s", complaint)
        except BaseException:
            self.end()
            raise
        finally:
            complaint.close()

    async def _give_up(self, why: str, complaint: IO[bytes]) -> None:
        self.end()
        await self.ended()
        complaint.seek(0)
        said = complaint.read(2**16).decode(errors="replace").strip()[-SHOWN_CHARS:]
        raise ExecutionError(f"the interpreter can't be started: {why}{': ' if said else ''}{said}")

    def _started(self, words: list[str], far: socket.socket, complaint: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(  # noqa: S603 - the words are this package's own
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaint,
                pass_fds=(far.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ExecutionError(f"the interpreter can't be started: {error}") from error
        descriptor = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(descriptor, self._note_end, descriptor, process)
        return process

    def _note_end(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        process.wait()
        self._fail("the interpreter's process ended unexpectedly")

    async def ask(self, program: str, order: dict[str, Any]) -> dict[str, Any]:
        """Return what a program says to an order.

        Raises:
            InterpreterEndedError: the process ended.
        """
        if self._writer is None or self._gone.is_set():
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
        if self._writer is not None and not self._gone.is_set():
            self._writer.write(_line({"id": program, "op": "end", "order": 0}))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                told = json.loads(line)
                answer = self._asked.get(told["order"])
                if answer is not None and not answer.done():
                    answer.set_result(told)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.end()  # what it says makes no sense, so nothing of it is believed any more
        self._fail("the interpreter's process ended unexpectedly")

    def _fail(self, why: str) -> None:
        self._gone.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(InterpreterEndedError(why))
        if self._writer is not None:
            self._writer.transport.abort()

    def end(self) -> set[ProcessIdentity]:
        """Kill it and all that it started; return the processes that are ending."""
        process = self._process
        if process is None or self._gone.is_set():
            return set()
        own = process_of(process.pid)
        ending = {*living_below(process.pid), *([] if own is None else [own])}
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for each in ending:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        self._fail("the session has left")
        return ending

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self._process is not None:
            await in_thread(self._process.wait)


def _line(order: dict[str, Any]) -> bytes:
    return json.dumps(order, separators=(",", ":")).encode() + b"\n"
