"""One command in a container: it is started, read, and ended by signals to all its processes.

The engine's program is the only process of ours; ending it ends nothing in the container. Therefore every
process of a command carries a mark, and signals are sent by a second program in the container. The wrapper of
a command reports its beginning and its end with the same mark, among its output. A command that forges the
report deceives only about its own exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import BinaryIO, Final, NoReturn

from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_process import (
    LAST_WORDS,
    LAST_WORDS_CHARS,
    Decoder,
    OnOutput,
    OutputKeeper,
)
from sessiontree.sandbox.containers.engine import ask_engine, cut_words, exec_words, run_engine, signal_words
from sessiontree.sandbox.process_tree import ProcessIdentity, find_process_identity

CHUNK_BYTES: Final = 65_536
GONE_WITHIN_S: Final = 20.0
"""How long the engine's program may take to notice that a killed command has ended."""
LAST_WORDS_S: Final = 1.0
_KILLED: Final = 128 + signal.SIGKILL
_TIMED_OUT: Final = "timeout"
_OUTPUT: Final = "output_bytes"
_BEGINNING: Final = re.compile(rb"([0-9a-f]+) started ([0-9]+)\n")
MAX_BEGINNING: Final = 200


class MarkedOutput:
    """Finds the reports of the wrapper in the output, and passes on what is between them.

    Args:
        mark: The command's mark.
        take: Gets the output.
    """

    def __init__(self, mark: str, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._mark = mark.encode()
        self._ending = b"\n" + self._mark + b" exited "
        self._end = re.compile(self._ending + rb"([0-9]{1,3})\n")
        self._held = b""
        self.session = ""
        """The command's session in the container; empty = it has not begun."""
        self.code: int | None = None
        """Its exit code, once it has ended."""
        self.strange = b""
        """What came in place of its beginning."""
        self.is_nowhere = False
        """Whether the directory in which it was to start is missing."""

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        if self.code is not None or self.strange:
            return  # of processes that the command left behind
        self._held += data
        if not self.session and not self._has_begun():
            return
        found = self._end.search(self._held)
        if found is not None:
            self.code = int(found[1])
            kept, self._held = self._held[: found.start()], b""
        else:
            # The report may arrive in two pieces; its first one must not be passed on as output.
            start = self._find_possible_end()
            kept, self._held = self._held[:start], self._held[start:]
        if kept:
            self._take(kept)

    def _find_possible_end(self) -> int:
        """Return where in what is held the report of the end may have begun, of which more is to come."""
        start = self._held.find(b"\n", max(0, len(self._held) - len(self._ending) - len("255")))
        while start >= 0:
            rest = self._held[start:]
            if self._ending.startswith(rest) or rest.startswith(self._ending):
                return start
            start = self._held.find(b"\n", start + 1)
        return len(self._held)

    def _has_begun(self) -> bool:
        found = _BEGINNING.match(self._held)
        if found is not None and found[1] == self._mark:
            self.session = found[2].decode()
            self._held = self._held[found.end() :]
        elif self._held == self._mark + b" nowhere\n":
            self.strange, self.is_nowhere = self._held, True
        elif b"\n" in self._held or len(self._held) > MAX_BEGINNING:
            self.strange = self._held
        return bool(self.session)

    def close(self) -> None:
        """Pass on what is held: nothing more comes."""
        if self.code is None and self.session and self._held:
            self._take(self._held)
        self._held = b""


class ContainerCommand:
    """Runs one command in a container; use it once.

    Args:
        program: The engine's program.
        name: The container.
        memory_bytes: The container's memory; None = not limited.
        output_bytes: Maximum output, kept or not.
        cleanup_s: Returns how long a command may take to end after it was asked to, in seconds.
        keep_bytes: Maximum bytes of output that are kept.
        on_output: Called with output as it arrives.
        channel: Gets the bytes of the output; None = nobody does.
    """

    def __init__(  # noqa: PLR0913 - what it is started with, by name
        self,
        program: str,
        name: str,
        *,
        memory_bytes: int | None,
        output_bytes: int,
        cleanup_s: Callable[[], float],
        keep_bytes: int,
        on_output: OnOutput | None,
        channel: CommandChannel | None = None,
    ) -> None:
        self._program = program
        self._name = name
        self._memory_bytes = memory_bytes
        self._output_bytes = output_bytes
        self._cleanup_s = cleanup_s
        self._keeper = OutputKeeper(keep_bytes)
        self._decoder = Decoder()
        self._on_output = on_output
        self._channel = channel or CommandChannel()
        self._mark = secrets.token_hex(16)
        self._marked = MarkedOutput(self._mark, self._take)
        self._killing = asyncio.Event()
        self._asked = False
        """Whether everything that it started was asked to end."""
        self._pid = 0
        """The engine's program, while it runs."""

    def kill(self) -> set[ProcessIdentity]:
        """Have it killed as soon as possible; return the engine's program, which ends with it."""
        self._killing.set()
        running = find_process_identity(self._pid) if self._pid else None
        return set() if running is None else {running}

    async def run(self, command: str, workdir: str, env: Mapping[str, str], timeout_s: float) -> Finished:
        """Run it to its end; cancelling ends it too, and cancelling again kills it at once.

        Raises:
            ConfinementUnavailable: the container or its engine was lost; the command may have run.
            ConfinementUnavailable: the engine could not start it.
            ExecutionError: the directory in which it was to start is missing.
        """
        began = time.monotonic()
        words = exec_words(self._name, workdir, env, command, self._mark)
        # Pipes of our own: asyncio's would have us wait for processes that the command leaves behind.
        async with AsyncExitStack() as stack:
            output, write_output = await stack.enter_async_context(open_pipe_to_read())
            errors, write_errors = await stack.enter_async_context(open_pipe_to_read())
            nothing = asyncio.subprocess.DEVNULL
            starting = run_engine(
                self._program, words, stdin=nothing, stdout=write_output, stderr=write_errors
            )
            process = await stack.enter_async_context(starting)
            write_output.close()
            write_errors.close()
            self._pid = process.pid
            self._channel.started(process.pid)
            over = asyncio.create_task(self._read(output))
            killing = asyncio.create_task(self._killing.wait())
            try:
                why = await self._wait_until_over(over, killing, began + timeout_s)
            finally:
                try:
                    await self._end(over)
                finally:
                    self._pid = 0
                    for task in (over, killing):
                        task.cancel()
            self._marked.close()
            if self._marked.code is None and not why:
                await process.wait()
                if self._marked.is_nowhere:
                    raise ExecutionError(f"the command was not started: no directory {workdir!r} is there")
                await self._raise_unreported(errors)
        return self._describe_end(why, time.monotonic() - began)

    async def _read(self, output: asyncio.StreamReader) -> None:
        """Read until the command has reported its end, or the engine's program has closed its output."""
        while self._marked.code is None and (data := await output.read(CHUNK_BYTES)):
            self._marked.add(data)

    async def _wait_until_over(
        self, over: asyncio.Task[None], killing: asyncio.Task[bool], deadline: float
    ) -> str:
        """Wait until it has ended (empty), or must be ended: its time is up, or it writes too much."""
        try:
            why = await self._wait(over, killing, deadline)
        except asyncio.CancelledError:
            await self._let_end(over, killing)
            raise
        if why == _TIMED_OUT:
            await self._let_end(over, killing)
        return why

    async def _wait(self, over: asyncio.Task[None], killing: asyncio.Task[bool], deadline: float) -> str:
        while not over.done():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or killing.done():
                return _TIMED_OUT
            if self._keeper.total_bytes > self._output_bytes:
                return _OUTPUT
            await asyncio.wait((over, killing), timeout=min(left_s, 0.1), return_when=asyncio.FIRST_COMPLETED)
        return ""

    async def _let_end(self, over: asyncio.Task[None], killing: asyncio.Task[bool]) -> None:
        """Ask everything that it started to end, and wait until it has or its time for that is over."""
        window_s = self._cleanup_s()
        if window_s > 0 and self._marked.session and not killing.done():
            await self._signal("TERM")
            self._asked = True
            await asyncio.wait((over, killing), timeout=window_s, return_when=asyncio.FIRST_COMPLETED)

    async def _end(self, over: asyncio.Task[None]) -> None:
        """Kill it if it still runs, and wait until it has ended, even if the waiting is cancelled."""
        if over.done():
            if self._asked:  # it has ended; what it started may not have
                await self._signal("KILL")
            return
        # A task, so that a second cancellation can't interrupt the signal half way and leave the command
        # running.
        killed = asyncio.create_task(self._signal("KILL"))
        cancelled: asyncio.CancelledError | None = None
        deadline = time.monotonic() + GONE_WITHIN_S
        while not (killed.done() and over.done()) and time.monotonic() < deadline:
            try:
                await asyncio.wait({killed, over} - {t for t in (killed, over) if t.done()}, timeout=0.1)
            except asyncio.CancelledError as error:
                cancelled = error
        if killed.done() and not killed.cancelled():
            killed.exception()  # the engine does not answer: the container's end ends the command
        if cancelled is not None:
            raise cancelled

    async def _signal(self, name: str) -> None:
        await ask_engine(self._program, signal_words(self._name, self._mark, name, self._marked.session))

    async def _raise_unreported(self, errors: asyncio.StreamReader) -> NoReturn:
        """Raise what it means that the engine's program has ended without a report of the command."""
        said = b""
        with contextlib.suppress(TimeoutError):  # a process that the command left may hold the pipe
            async with asyncio.timeout(LAST_WORDS_S):
                while data := await errors.read(CHUNK_BYTES):
                    said += data
        told = cut_words(said or self._marked.strange) or "the engine said nothing"
        if self._marked.session:
            raise ConfinementUnavailable(
                f"the container of this command was lost while it ran ({told}), and it may have run",
                "what commands changed outside the workspace is gone; the next one gets a new container",
                may_have_run=True,
            )
        raise ConfinementUnavailable(
            f"the engine could not run the command in its container: {told}",
            "see whether the container still exists, and whether its image has /bin/sh",
        )

    def _take(self, data: bytes) -> None:
        self._keeper.add(data)
        self._channel.take(data)
        if self._on_output is not None and (text := self._decoder.text(data)):
            self._on_output(text)

    def _describe_end(self, why: str, elapsed_s: float) -> Finished:
        head, tail, dropped = self._keeper.kept()
        code = self._marked.code
        # First, because a command that was ended for its output may still report an exit; the limit is what
        # its caller must know.
        if why == _OUTPUT:
            return Finished(
                "limit", None, signal.SIGKILL, head, tail, dropped, elapsed_s, _OUTPUT, self._output_bytes
            )
        if why:
            number = signal.SIGKILL if code is None else None
            return Finished("timeout", code, number, head, tail, dropped, elapsed_s)
        limit = self._suspect_limit(tail or head) if code else None
        allowed = self._memory_bytes if limit else None
        return Finished("exited", code, None, head, tail, dropped, elapsed_s, limit, allowed)

    def _suspect_limit(self, text: str) -> str | None:
        """Return the limit that the end of a failed command suggests: only memory has one that is known."""
        if self._memory_bytes is None:
            return None
        words = next(words for words, name in LAST_WORDS if name == "memory_bytes")
        is_out = self._marked.code == _KILLED or any(map(text[-LAST_WORDS_CHARS:].count, words))
        return "memory_bytes" if is_out else None


@contextlib.asynccontextmanager
async def open_pipe_to_read() -> AsyncIterator[tuple[asyncio.StreamReader, BinaryIO]]:
    """Yield a reader and the file to write to, which the caller closes once it was handed on."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
    )
    with os.fdopen(write, "wb") as file:
        try:
            yield reader, file
        finally:
            transport.close()
