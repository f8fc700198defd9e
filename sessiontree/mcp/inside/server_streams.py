"""A server's process and its standard streams: bounded lines, garbage passed over, no process left behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage

MAX_LINE_BYTES: Final = 32 * 2**20
MAX_GARBAGE: Final = 1_000
"""Lines that are not messages; more of them end the connection."""
SAID_CHARS: Final = 2_000
"""How much of its last complaints is kept."""
EXIT_S: Final = 2.0
"""How long it may take to end after its input was closed, and again after SIGTERM."""
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


class ServerStreams:
    """One server's process.

    Args:
        command: The program and its arguments.
        env: All its variables.
        cwd: Its working directory; None = the root.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._command = tuple(command)
        self._env = dict(env)
        self._cwd = cwd or "/"
        self._said = ""
        self.process: asyncio.subprocess.Process | None = None
        self.fault = ""
        """Why its streams can't be read any more; empty = they can."""
        self.has_ended = asyncio.Event()

    @property
    def last_words(self) -> str:
        """What it complained about last."""
        return self._said.strip()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[Any, Any], None]:
        """Start it, and give the streams of its messages; it has ended when this is left.

        Raises:
            OSError: it can't be started.
        """
        incoming, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self.process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._cwd,
            env=self._env,
            limit=MAX_LINE_BYTES,
            # A group of its own, so that what the server starts ends with it, and the parent's signals do not
            # reach it.
            start_new_session=True,
            preexec_fn=die_with_parent(os.getpid()),
        )
        work = [
            asyncio.create_task(self._read(process, incoming)),
            asyncio.create_task(self._write(process, outgoing)),
            asyncio.create_task(self._listen(process)),
        ]
        try:
            yield inbox, outbox
        finally:
            # Before the tasks: they read until the process has ended, so a full pipe can't keep it from
            # ending.
            await self._end(process)
            for task in work:
                task.cancel()
            await asyncio.wait(work)
            for stream in (incoming, inbox, outbox, outgoing):
                stream.close()

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        garbage = 0
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError), incoming:
            while not self.fault:
                try:
                    line = await process.stdout.readuntil(b"\n")
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except asyncio.IncompleteReadError:
                    self.fault = "its process has ended"
                except asyncio.LimitOverrunError:
                    self.fault = f"it wrote a line of more than {MAX_LINE_BYTES:,} bytes"
                # Programs print to their standard output in spite of the protocol; a few such lines are no
                # reason to fail.
                except ValueError:
                    garbage += 1
                    if garbage > MAX_GARBAGE:
                        self.fault = f"it wrote more than {MAX_GARBAGE:,} lines that are not messages"
                else:
                    await incoming.send(SessionMessage(message))
        self.has_ended.set()

    async def _write(
        self, process: asyncio.subprocess.Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None  # noqa: S101 - as above
        with suppress(OSError):
            async with outgoing:
                async for each in outgoing:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None  # noqa: S101 - as above
        while data := await process.stderr.read(65_536):
            self._said = (self._said + data.decode(errors="replace"))[-SAID_CHARS:]

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Close its input, then end its group, ever harder; a child that it left is in the group."""
        if process.stdin is not None:
            process.stdin.close()
        ended = asyncio.ensure_future(process.wait())
        # The protocol's own way comes first: a server whose input has closed ends by itself.
        for sent in (None, signal.SIGTERM):
            if sent is not None:
                _signal_group(process.pid, sent)
            done, _ = await asyncio.wait({ended}, timeout=EXIT_S)
            if done:
                break
        # Also after a gentle end, because a child of the server may have stayed in the group.
        _signal_group(process.pid, signal.SIGKILL)
        await ended


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a new process does first, so that the kernel ends it with the process that started it."""

    def begin() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have ended before the request reached the kernel, which would then never signal.
        if os.getppid() != parent:
            os._exit(1)

    return begin


def _signal_group(leader: int, sent: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sent)
