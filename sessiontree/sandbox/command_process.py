"""One confined command as a process: started, listened to, watched, and ended with all it started.

Nothing here blocks the loop for longer than a start takes, and no thread is used. bubblewrap outside is the
one child; the first process inside takes all others with it when it ends, and bubblewrap ends after it.

A command whose time is up, or that nobody wants any more, is asked to end (SIGTERM, to everything inside) and
killed when the window for that is over. One that uses too much is killed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.ports import Finished, HowEnded
from sessiontree.sandbox.bounds import Bounds
from sessiontree.sandbox.command_output import Decoder, OutputKeeper
from sessiontree.sandbox.command_watch import CommandWatch, Excess
from sessiontree.sandbox.process_tree import ProcessIdentity, children, living_below, process_of

LOOK_EVERY_S: Final = 0.1
SHARE_OF_LOOKING: Final = 0.1
"""Most of the loop's time that looking may take."""
END_WITHIN_S: Final = 5.0
"""A killed command that is still there by then is the kernel's to explain."""
CHUNK_BYTES: Final = 65_536
SIGNAL_LIMITS: Final[dict[int, str]] = {signal.SIGXFSZ: "file_bytes", signal.SIGXCPU: "cpu_s"}
LAST_WORDS: Final = (
    (("MemoryError", "Cannot allocate memory", "bad_alloc", "out of memory"), "memory_bytes"),
    (("fork: ", "can't start new thread", "BlockingIOError"), "processes"),
    (("File too large", "File size limit exceeded"), "file_bytes"),
    (("CPU time limit exceeded",), "cpu_s"),
    (("Too many open files",), "open_files"),
    (("No space left on device",), "scratch_bytes"),
)
"""What programs say that ran into a limit of the kernel's, and which."""
LAST_WORDS_CHARS: Final = 2000

OnOutput = Callable[[str], None]
TIMED_OUT: Final = Excess("timeout", 0)
NO_LIMIT: Final = (None, None)
STARTED: Final = "started\n"
"""What the first process inside tells once the command runs, and can be asked to end."""


class CommandProcess:
    """Runs one command; use it once.

    Args:
        words: bubblewrap's words, up to the launcher; the numbers of two descriptors are added.
        plan: What the launcher reads.
        watch: Makes the watch over the process that was started.
        bounds: What it may use.
        cleanup_s: Gives how long a command that was asked to end may take; looked at when it is asked.
        keep_bytes: Most output kept.
        on_output: Told of output as it comes.
    """

    def __init__(
        self,
        words: Sequence[str],
        plan: bytes,
        watch: Callable[[int], CommandWatch],
        bounds: Bounds,
        *,
        cleanup_s: Callable[[], float],
        keep_bytes: int,
        on_output: OnOutput | None,
    ) -> None:
        self._words = words
        self._plan = plan
        self._make_watch = watch
        self._bounds = bounds
        self._cleanup_s = cleanup_s
        self._asked = False
        """Whether everything inside was asked to end."""
        self._told = b""
        """What the first process inside has told."""
        self._keeper = OutputKeeper(keep_bytes)
        self._decoder = Decoder()
        self._on_output = on_output
        self._pid = 0
        """The one outside, while it runs."""

    def kill(self) -> set[ProcessIdentity]:
        """Kill the command if it runs; return the processes that it was. Whoever runs it is told as ever."""
        outer = process_of(self._pid) if self._pid else None
        if outer is None:
            return set()
        killed = {outer, *living_below(outer.pid)}
        _kill(outer.pid)
        return killed

    async def run(self, timeout_s: float) -> Finished:
        """Run it to its end; cancelling ends it too, and cancelling again without waiting for its last words.

        Raises:
            ExecutionError: it could not be started, or not be ended.
        """
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            output, write_output = _pipe(stack)
            status, write_status = _pipe(stack)
            plan = _memory(stack, self._plan)
            process = self._start(plan.fileno(), write_output.fileno(), write_status.fileno())
            write_output.close()
            write_status.close()
            with _exit_of(process) as gone, self._listening(output.fileno()):
                self._pid = process.pid
                try:
                    ended_for = await self._until_over(process.pid, gone, began + timeout_s, status)
                finally:
                    try:
                        await _end(process, gone)
                    finally:
                        self._pid = 0
            self._hear(status)
        return self._finished(ended_for, time.monotonic() - began)

    def _start(self, plan: int, output: int, status: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - the words are this package's own
                [*self._words, str(plan), str(status)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(plan, status),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ExecutionError(f"can't start {self._words[0]!r}: {error}") from error

    async def _until_over(
        self, pid: int, gone: asyncio.Future[None], deadline: float, status: FileIO
    ) -> Excess | None:
        """Wait until it is gone (None), or is to be killed: its time is up, or it uses too much."""
        watch = self._make_watch(pid)
        try:
            ended_for = await self._watch_over(watch, gone, deadline)
        except asyncio.CancelledError:
            await self._let_end(pid, watch, gone, status)
            raise
        if ended_for is TIMED_OUT:
            await self._let_end(pid, watch, gone, status)
        return ended_for

    async def _let_end(
        self, pid: int, watch: CommandWatch, gone: asyncio.Future[None], status: FileIO
    ) -> None:
        """Ask everything inside to end, and wait until it has, its window is over, or it uses too much.

        Before the command has begun there is nothing that could hear it.
        """
        window_s = self._cleanup_s()
        self._hear(status)
        if window_s > 0 and self._told:
            self._asked = _signal_inner(pid, signal.SIGTERM)
        if self._asked:
            await self._watch_over(watch, gone, time.monotonic() + window_s)

    async def _watch_over(
        self, watch: CommandWatch, gone: asyncio.Future[None], deadline: float
    ) -> Excess | None:
        """Wait until it is gone (None), its time is up, or it uses too much."""
        pause_s = LOOK_EVERY_S
        while not gone.done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return TIMED_OUT
            await asyncio.wait((gone,), timeout=min(pause_s, left_s))
            if gone.done():
                return None
            if self._keeper.total_bytes > self._bounds.output_bytes:
                return Excess("output_bytes", self._bounds.output_bytes)
            began = time.monotonic()
            if excess := watch.excess():
                return excess
            pause_s = max(LOOK_EVERY_S, (time.monotonic() - began) / SHARE_OF_LOOKING)
        return None

    @contextlib.contextmanager
    def _listening(self, output: int) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        os.set_blocking(output, False)

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                data = os.read(output, CHUNK_BYTES)
                self._take(data)
                if not data:
                    loop.remove_reader(output)

        loop.add_reader(output, read)
        try:
            yield
        finally:
            loop.remove_reader(output)
            self._drain(output)

    def _hear(self, status: FileIO) -> None:
        """Take what the first process inside has told by now."""
        os.set_blocking(status.fileno(), False)
        self._told += status.read() or b""

    def _drain(self, output: int) -> None:
        """Take what is left in the pipe; nobody writes to it any more."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(output, CHUNK_BYTES):
                self._take(data)
        self._take(b"", last=True)

    def _take(self, data: bytes, *, last: bool = False) -> None:
        self._keeper.add(data)
        if self._on_output is not None and (text := self._decoder.text(data, last=last)):
            self._on_output(text)

    def _finished(self, ended_for: Excess | None, elapsed_s: float) -> Finished:
        head, tail, dropped = self._keeper.kept()
        told = self._told.decode(errors="replace").removeprefix(STARTED).removesuffix("\n")
        how, _, value = told.partition(" ")
        if self._asked:
            return _timed_out(how, value, head, tail, dropped, elapsed_s)
        if how == "exited":
            code = int(value)
            limit, allowed = self._suspected(tail or head) if code else NO_LIMIT
            return Finished("exited", code, None, head, tail, dropped, elapsed_s, limit, allowed)
        if how == "signal":
            number = int(value)
            limit, allowed = self._bound(SIGNAL_LIMITS.get(number))
            reason: HowEnded = "signal" if limit is None else "limit"
            return Finished(reason, None, number, head, tail, dropped, elapsed_s, limit, allowed)
        if how == "failed" or ended_for is None:
            said = value or (head + tail).strip() or "its launcher ended without a word"
            raise ExecutionError(f"the command was not started: {said}")
        if ended_for is TIMED_OUT:
            return Finished("timeout", None, signal.SIGKILL, head, tail, dropped, elapsed_s)
        return Finished("limit", None, signal.SIGKILL, head, tail, dropped, elapsed_s, *ended_for)

    def _suspected(self, text: str) -> tuple[str | None, int | None]:
        """Return the limit that the last words of a failed command speak of."""
        last = text[-LAST_WORDS_CHARS:]
        return self._bound(next((name for words, name in LAST_WORDS if any(map(last.count, words))), None))

    def _bound(self, name: str | None) -> tuple[str | None, int | None]:
        return NO_LIMIT if name is None else (name, getattr(self._bounds, name))


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """Return the ends of a pipe, to read from and to write to; closed when the stack is left."""
    read, write = os.pipe()
    return stack.enter_context(FileIO(read, "rb")), stack.enter_context(FileIO(write, "wb"))


def _memory(stack: contextlib.ExitStack, data: bytes) -> FileIO:
    """Return a file in memory that holds the data, to be read from its beginning."""
    file = stack.enter_context(FileIO(os.memfd_create("plan"), "r+b"))
    file.write(data)
    file.seek(0)
    return file


@contextlib.contextmanager
def _exit_of(process: subprocess.Popen[bytes]) -> Iterator[asyncio.Future[None]]:
    """Give a future that is done once a process has ended, and can be waited for without blocking."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise ExecutionError(f"the command was not started: {error}") from error

    def note() -> None:
        loop.remove_reader(descriptor)
        gone.set_result(None)

    loop.add_reader(descriptor, note)
    try:
        yield gone
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _end(process: subprocess.Popen[bytes], gone: asyncio.Future[None]) -> None:
    """Kill what still runs and wait until it is gone, however often the waiting is cancelled."""
    deadline = time.monotonic() + END_WITHIN_S
    cancelled: asyncio.CancelledError | None = None
    while not gone.done():
        _kill(process.pid)
        try:
            await asyncio.wait((gone,), timeout=LOOK_EVERY_S)
        except asyncio.CancelledError as error:
            cancelled = error
        if time.monotonic() > deadline:
            raise ExecutionError(f"process {process.pid} was killed and is still there")
    process.wait()
    if cancelled is not None:
        raise cancelled


def _kill(pid: int) -> None:
    """Kill the first process inside, and by that all others; or the one outside, while nothing runs inside.

    Until it goes its own way the inner one is of the outer's group, afterwards it ends with the outer one:
    so killing the group leaves neither behind.
    """
    if not _signal_inner(pid, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _signal_inner(pid: int, number: signal.Signals) -> bool:
    """Send a signal to the first process inside; False where there is none."""
    inner = children(pid)
    for child in inner:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(child)
            try:
                if child in children(pid):  # its number is not somebody else's by now
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)
    return bool(inner)


def _timed_out(how: str, value: str, head: str, tail: str, dropped: int, elapsed_s: float) -> Finished:
    """Return how a command ended that was asked to: by itself, by a signal, or by the kill behind it."""
    code = int(value) if how == "exited" else None
    number = int(value) if how == "signal" else signal.SIGKILL if code is None else None
    return Finished("timeout", code, number, head, tail, dropped, elapsed_s)
