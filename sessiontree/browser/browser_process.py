"""The browser as a process: it is started confined, asked, watched, and ended with everything it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sessiontree.browser.found import build_confined_command, find_browser
from sessiontree.browser.inside.frames import FrameError, encode_frame, read_frame
from sessiontree.browser.tunnels import Tunnels
from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.handles.browser import PageFile, PageFiles
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.sandbox.commands.command_bounds import measure_usage
from sessiontree.sandbox.process_tree import (
    ProcessIdentity,
    find_living_below,
    find_process_identity,
    list_children,
)
from sessiontree.sandbox.socket_process import SHOWN_CHARS, SocketProcess

START_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0
MEMORY_BYTES: Final = 2 * 2**30
MAX_FILE_BYTES: Final = 16 * 2**20
FILES_AT_ONCE: Final = 4
"""How many files of offline pages are read and sent at once; further requests wait."""
Answer = tuple[dict[str, Any], bytes]


class BrowserProcess:
    """One browser; use it once.

    Args:
        tunnels: Lead its connections on.
        dialog_s: How long a dialog waits for an answer.
        memory_bytes: Memory of all its processes, as far as they share none; checked once a second.
    """

    def __init__(self, tunnels: Tunnels, *, dialog_s: float, memory_bytes: int = MEMORY_BYTES) -> None:
        self._tunnels = tunnels
        self._dialog_s = dialog_s
        self._memory_bytes = memory_bytes
        self._process = SocketProcess("the browser", self.kill, self._note_end)
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = 0
        self._files: dict[int, PageFiles] = {}
        self._answers = asyncio.Semaphore(FILES_AT_ONCE)
        self._work: set[asyncio.Task[None]] = set()
        self.version = ""
        self.ended = ""
        """Why it ended; empty while it runs, or if it was asked to end."""

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self._process.pid is not None

    @property
    def memory_bytes(self) -> int:
        """What all its processes use now."""
        pid = self._process.pid
        return 0 if pid is None else measure_usage(pid).memory_bytes

    async def start(self) -> None:
        """Start it; return when it takes orders.

        Raises:
            ConfinementUnavailable: this machine can't confine it.
            ExecutionError: it did not start.
        """
        words = await run_in_thread(build_confined_command, find_browser())
        order = json.dumps({"program": find_browser().program, "dialog_s": self._dialog_s})
        await self._process.start(lambda far: [*words, str(far), order], self._meet, START_S)
        self._do(self._watch())

    def _note_end(self) -> None:
        self._fail("it ended unexpectedly")

    async def _meet(self, near: socket.socket) -> None:
        """Take the socket of its proxy, and wait until it takes orders."""
        near.setblocking(False)
        try:
            listener = await _receive_socket(near)
        except BaseException:
            near.close()
            raise
        listener.setblocking(False)
        await self._tunnels.serve(listener)
        reader, self._writer = await asyncio.open_connection(sock=near)
        try:
            message, _ = await read_frame(reader)
        except FrameError as error:
            raise EOFError("it said something that is not a frame") from error
        if "ready" not in message:
            raise ExecutionError(f"Chromium can't be started: {str(message.get('failed'))[:SHOWN_CHARS]}")
        self.version = str(message["ready"])[:100]
        self._do(self._listen(reader))

    async def ask(self, order: dict[str, Any], blob: bytes, limit_s: float) -> Answer:
        """Return the answer to an order; the order is withdrawn if the caller is cancelled.

        Raises:
            ExecutionError: it has ended, or did not answer in time and was ended.
            ToolError: as the answer says.
        """
        if self._writer is None or not self.is_running:
            raise ExecutionError(self._describe_end())
        self._numbers += 1
        number = self._numbers
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        try:
            self._writer.write(encode_frame({**order, "id": number}, blob))
            async with asyncio.timeout(limit_s):
                return await asked
        except TimeoutError as error:
            self._fail(f"it did not answer within {limit_s:g} s")
            self.kill()
            raise ExecutionError(self._describe_end()) from error
        except asyncio.CancelledError:
            self._writer.write(encode_frame({"cancel": number}))
            raise
        finally:
            self._asked.pop(number, None)

    def keep_files(self, files: PageFiles) -> int:
        """Return the number by which an offline page asks for its files."""
        self._numbers += 1
        self._files[self._numbers] = files
        return self._numbers

    def drop_files(self, number: int) -> None:
        """Answer no further request of an offline page."""
        self._files.pop(number, None)

    def kill(self) -> set[ProcessIdentity]:
        """Kill it with all its processes; return those that it had."""
        self._tunnels.close()
        for task in self._work:
            task.cancel()
        pid = self._process.pid
        outer = None if pid is None else find_process_identity(pid)
        if outer is None:
            return set()
        killed = {outer, *find_living_below(outer.pid)}
        _kill_inside(outer.pid)
        return killed

    async def gone(self) -> None:
        """Wait until it has ended; it was killed before."""
        await self._process.gone()
        if self._writer is not None:
            self._writer.transport.abort()

    def _describe_end(self) -> str:
        return f"the browser has ended: {self.ended or 'it was stopped'}; the next call starts a new one"

    def _fail(self, why: str) -> None:
        """Note why it ends, and fail whatever waits."""
        self.ended = self.ended or why
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ExecutionError(self._describe_end()))

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message, blob = await read_frame(reader)
                if "ask" in message:
                    self._do(self._answer(message))
                    continue
                asked = self._asked.get(message.get("id", 0))
                if asked is not None and not asked.done():
                    asked.set_result((message, blob))
        except (OSError, EOFError):
            self._fail("it ended unexpectedly")
        # It reads what strangers write, and is not believed either: whoever waits must hear of it.
        except (FrameError, TypeError) as error:
            self._fail(f"it sent something that is not an answer ({error})")
        self.kill()

    async def _answer(self, message: dict[str, Any]) -> None:
        """Answer a request of an offline page for a file."""
        # A page may ask for the same file ten thousand times, faster than the browser takes the answers.
        async with self._answers:
            files = self._files.get(message.get("files", 0))
            found: PageFile | None = None
            if files is not None:
                with suppress(ToolError):
                    found = await run_in_thread(files, str(message.get("path", "")))
            if found is not None and len(found.data) > MAX_FILE_BYTES:
                found = None
            answer = {
                "answer": message["ask"],
                "found": found is not None,
                "content_type": "" if found is None else found.content_type,
            }
            if self._writer is not None and self.is_running:
                self._writer.write(encode_frame(answer, b"" if found is None else found.data))
                with suppress(OSError):  # it has ended
                    await self._writer.drain()

    async def _watch(self) -> None:
        """End it if it uses too much memory."""
        while self.is_running:
            await asyncio.sleep(LOOK_EVERY_S)
            if self.memory_bytes > self._memory_bytes:
                self._fail(f"it used more than {self._memory_bytes // 2**20} MiB of memory")
                self.kill()


async def _receive_socket(near: socket.socket) -> socket.socket:
    """Return the socket that the other side sends first.

    Raises:
        EOFError: it sent none.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(near.fileno(), partial(_settle, ready))
    try:
        await ready
    finally:
        loop.remove_reader(near.fileno())
    data, descriptors, _, _ = socket.recv_fds(near, 1, 1)
    if not data or not descriptors:
        raise EOFError("it sent no socket")
    return socket.socket(fileno=descriptors[0])


def _kill_inside(outer: int) -> None:
    """Kill the first process inside: the kernel ends all others with it, and bubblewrap ends after them.

    While nothing runs inside, kill bubblewrap, whose end is that of what it has begun.
    """
    inside = list_children(outer)
    for child in inside:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(child)
            try:
                if child in list_children(outer):  # its id belongs to the process that was found
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
    if not inside:
        with suppress(ProcessLookupError):
            os.killpg(outer, signal.SIGKILL)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
