"""One confined command as a process: it is started, read, watched, and ended with everything it started.

Nothing here blocks the loop for longer than a start takes, and no thread is used. The outer bubblewrap
process is the only child. The first process inside ends all others with it, and bubblewrap ends after it.

A command that times out, or whose result is no longer needed, is asked to end (SIGTERM, to everything inside)
and killed when its time for that is over. A command that uses too much is killed at once. The beginning and
the end of its output are kept; the bytes between them are counted.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from typing import Final, NamedTuple, Protocol

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.ports import Finished, HowEnded
from sessiontree.sandbox.commands.command_bounds import Bounds, Excess
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.process_tree import (
    ProcessIdentity,
    find_living_below,
    find_process_identity,
    list_children,
)

SHOWN_AS: Final = "\ufffd"
"""Replaces bytes that are not UTF-8, and NUL."""
_MAX_CHARACTER: Final = 4
_CONTINUES, _CONTINUATION = 0xC0, 0x80


class OutputKeeper:
    """Takes output piece by piece and keeps a limited number of its bytes.

    Args:
        keep_bytes: How many: half from the beginning, half from the end; at least 8.
    """

    __slots__ = ("_half", "_head", "_tail", "total_bytes")

    def __init__(self, keep_bytes: int) -> None:
        self._half = max(_MAX_CHARACTER, keep_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self.total_bytes += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cutting at every piece would move the kept bytes each time; a command that writes byte by byte would
        # make that quadratic.
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    def kept(self) -> tuple[str, str, int]:
        """Return beginning, end, and the number of bytes dropped between them.

        If nothing was dropped, the end is empty. No character is split.
        """
        tail = bytes(self._tail[-self._half :])
        if self.total_bytes <= len(self._head) + len(tail):
            return decode_output(bytes(self._head) + tail), "", 0
        head = trim_partial_end(bytes(self._head))
        tail = _trim_partial_start(tail)
        return decode_output(head), decode_output(tail), self.total_bytes - len(head) - len(tail)


class Decoder:
    """Decodes output piece by piece; a character in two pieces belongs to the second piece."""

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes, *, last: bool = False) -> str:
        """Return the text that the next piece completes."""
        return self._decoder.decode(data, last).replace("\0", SHOWN_AS)


def decode_output(data: bytes) -> str:
    """Return bytes as text."""
    return data.decode("utf-8", "replace").replace("\0", SHOWN_AS)


def trim_partial_end(data: bytes) -> bytes:
    """Return the bytes without an incomplete character at their end."""
    for back in range(1, min(_MAX_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte & _CONTINUES != _CONTINUATION:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= _CONTINUES else 1
            return data[:-back] if needed > back else data
    return data


def _trim_partial_start(data: bytes) -> bytes:
    """Return the bytes without an incomplete character at their beginning."""
    parts = 0
    while parts < min(_MAX_CHARACTER - 1, len(data)) and data[parts] & _CONTINUES == _CONTINUATION:
        parts += 1
    return data[parts:]


LOOK_EVERY_S: Final = 0.1
SHARE_OF_LOOKING: Final = 0.1
"""The largest share of the loop's time that checks may take."""
END_WITHIN_S: Final = 60.0
"""Seconds that a killed command may take to disappear; then an error is raised."""
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
"""What programs print when they reach a limit of the kernel, with the limit."""
LAST_WORDS_CHARS: Final = 2000

SHOWN_BYTES: Final = 80

OnOutput = Callable[[str], None]
TIMED_OUT: Final = Excess("timeout", 0)
NO_LIMIT: Final = (None, None)
STARTED: Final = b"started\n"
MAX_REPORT_BYTES: Final = 4096
_REPORT: Final = re.compile(
    r"failed (?P<reason>[^\n]*)\n|"
    r"(?P<started>started)\n(?:exited (?P<code>[0-9]{1,3})\n|signal (?P<number>[0-9]{1,2})\n)?"
)


class Report(NamedTuple):
    """What the first process inside has reported, at most once each."""

    started: bool = False
    """The command runs and can be asked to end."""
    code: int | None = None
    """It exited with this code."""
    number: int | None = None
    """It was ended by this signal."""
    reason: str = ""
    """Why it was not started."""


def read_report(written: bytes) -> Report:
    """Return what was reported; nothing may be missing, repeated or added.

    Raises:
        ExecutionError: it is not a report, so how the command ended is unknown.
    """
    if not written:
        return Report()
    found = _REPORT.fullmatch(written.decode(errors="replace"))
    if found is None:
        raise ExecutionError(
            f"how the command ended is unknown: its launcher reported {written[:SHOWN_BYTES]!r}, which is "
            "not 'started' and then 'exited CODE' or 'signal NUMBER'. It may have run; look at what it "
            "changed before you run it again"
        )
    code, number = (int(found[name]) if found[name] else None for name in ("code", "number"))
    return Report(found["started"] is not None, code, number, found["reason"] or "")


class ExcessWatch(Protocol):
    """Looks after what a command uses."""

    def find_excess(self, launcher_io: FileIO | None = None) -> Excess | None:
        """Return the first limit that is exceeded, or None."""
        ...


class CommandProcess:
    """Runs one command; use it once.

    Args:
        words: bubblewrap's words, up to the launcher; the numbers of two descriptors are added.
        plan: What the launcher reads.
        watch: Makes the watch on the process that was started.
        bounds: What it may use.
        cleanup_s: Returns how long a command may take to end, in seconds; called when it is asked to end.
        keep_bytes: Maximum bytes of output that are kept.
        on_output: Called with output as it arrives.
        channel: What it is connected to besides; None = it has no input and no terminal.
    """

    def __init__(  # noqa: PLR0913 - what it is started with, by name
        self,
        words: Sequence[str],
        plan: bytes,
        watch: Callable[[int], ExcessWatch],
        bounds: Bounds,
        *,
        cleanup_s: Callable[[], float],
        keep_bytes: int,
        on_output: OnOutput | None,
        channel: CommandChannel | None = None,
    ) -> None:
        self._words = words
        self._plan = plan
        self._make_watch = watch
        self._bounds = bounds
        self._cleanup_s = cleanup_s
        self._asked = False
        """Whether everything inside was asked to end."""
        self._told = b""
        """What the first process inside has reported."""
        self._opened = contextlib.ExitStack()
        self._launcher_io: FileIO | None = None
        """The kernel's count of what the first process inside has written."""
        self._keeper = OutputKeeper(keep_bytes)
        self._decoder = Decoder()
        self._on_output = on_output
        self._channel = channel or CommandChannel()
        self._terminal: FileIO | None = None
        """This end of its terminal, once it has arrived."""
        self._heard: set[int] = set()
        """Descriptors whose output is taken as it arrives."""
        self._pid = 0
        """The outer process, while it runs."""

    def kill(self) -> set[ProcessIdentity]:
        """Kill the command if it runs; return the processes that it had. Its runner is informed as usual."""
        outer = find_process_identity(self._pid) if self._pid else None
        if outer is None:
            return set()
        killed = {outer, *find_living_below(outer.pid)}
        _kill(outer.pid)
        return killed

    async def run(self, timeout_s: float) -> Finished:
        """Run it to its end; cancelling ends it too, and cancelling again skips its final output.

        Raises:
            ExecutionError: it could not be started, or not be ended.
        """
        began = time.monotonic()
        with self._opened as stack:
            output, write_output = _open_pipe(stack)
            # Not a pipe: nobody inside could open a socket again, even if its descriptor were found.
            status, write_status = map(stack.enter_context, socket.socketpair())
            plan = _open_memory_file(stack, self._plan)
            # Closed with the pipes, because a writer that still held the number could write to whatever file
            # gets it next.
            stack.callback(self._channel.close)
            process = self._start(plan.fileno(), write_output.fileno(), write_status.fileno())
            # While this process kept its copies open, neither the output nor the reports would ever come to
            # an end.
            write_output.close()
            write_status.close()
            # The exit is watched outside the reading: what a dead command wrote is still in the pipe, and is
            # read when the inner block ends.
            with _watch_exit(process) as gone, self._listen(output.fileno(), status):
                self._pid = process.pid
                self._channel.started(process.pid)
                try:
                    ended_for = await self._wait_until_over(process.pid, gone, began + timeout_s, status)
                finally:
                    try:
                        # Also after success: until the process is collected its id is not used again, so no
                        # signal can reach another one.
                        await _end(process, gone)
                    finally:
                        # From here on `kill` must not signal: the id may belong to a stranger.
                        self._pid = 0
        return self._describe_end(ended_for, time.monotonic() - began)

    def _start(self, plan: int, output: int, status: int) -> subprocess.Popen[bytes]:
        given = self._channel.open_input()
        try:
            return subprocess.Popen(  # noqa: S603 - the words are this package's own
                [*self._words, str(plan), str(status)],
                stdin=subprocess.DEVNULL if given is None else given,
                stdout=output,
                stderr=output,
                pass_fds=(plan, status),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ExecutionError(f"can't start {self._words[0]!r}: {error}") from error
        finally:
            if given is not None:
                os.close(given)

    async def _wait_until_over(
        self, pid: int, gone: asyncio.Future[None], deadline: float, status: socket.socket
    ) -> Excess | None:
        """Wait until it has ended (None) or must be killed: its time is up, or it uses too much."""
        watch = self._make_watch(pid)
        try:
            ended_for = await self._watch_over(watch, gone, deadline, status)
        except asyncio.CancelledError:
            await self._let_end(pid, watch, gone, status)
            raise
        if ended_for is TIMED_OUT:
            await self._let_end(pid, watch, gone, status)
        return ended_for

    async def _let_end(
        self, pid: int, watch: ExcessWatch, gone: asyncio.Future[None], status: socket.socket
    ) -> None:
        """Ask everything inside to end, and wait until it has, its time is over, or it uses too much.

        Before the command has started, no process inside can receive the signal.
        """
        window_s = self._cleanup_s()
        # The start may have been reported since the last look, and only a command that has started can
        # receive the signal.
        self._hear(status)
        if window_s > 0 and self._told.startswith(STARTED):
            self._asked = _signal_inner(pid, signal.SIGTERM)
        if self._asked:
            await self._watch_over(watch, gone, time.monotonic() + window_s, status)

    async def _watch_over(
        self, watch: ExcessWatch, gone: asyncio.Future[None], deadline: float, status: socket.socket
    ) -> Excess | None:
        """Wait until it has ended (None), its time is up, or it uses too much."""
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
            self._hear(status)
            if excess := watch.find_excess(self._launcher_io):
                return excess
            # A command with very many processes makes each look slow; without this, looking would take the
            # whole loop.
            pause_s = max(LOOK_EVERY_S, (time.monotonic() - began) / SHARE_OF_LOOKING)
        return None

    @contextlib.contextmanager
    def _listen(self, output: int, status: socket.socket) -> Iterator[None]:
        """Take output while the block runs, and what is left of it and of the reports afterwards."""
        self._listen_to(output)
        try:
            yield
        finally:
            self._hear(status)
            for descriptor in (output, *([] if self._terminal is None else [self._terminal.fileno()])):
                # The loop must not read from a descriptor that is read to its end here: each byte would go to
                # one of the two, in any order.
                self._listen_no_more(descriptor)
                _read_all(descriptor, self._take)
            self._take(b"", last=True)
            self._channel.close()

    def _listen_to(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)

        def read() -> None:
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:  # a terminal that no process has open
                data = b""
            if data:
                self._take(data)
            else:
                self._listen_no_more(descriptor)

        self._heard.add(descriptor)
        asyncio.get_running_loop().add_reader(descriptor, read)

    def _listen_no_more(self, descriptor: int) -> None:
        if descriptor in self._heard:
            self._heard.discard(descriptor)
            asyncio.get_running_loop().remove_reader(descriptor)

    def _hear(self, status: socket.socket) -> None:
        """Read what the first process inside has reported so far, and take what it opened for this one."""
        status.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            # Only the launcher can write here, but a bound costs nothing and keeps a broken one from filling
            # the memory.
            while len(self._told) <= MAX_REPORT_BYTES:
                data, opened, _, _ = socket.recv_fds(status, MAX_REPORT_BYTES, 2)
                self._told += data
                self._accept(opened)
                if not data:
                    return

    def _accept(self, opened: list[int]) -> None:
        """Take the descriptors that came with the report of the start: the terminal's, and the counts."""
        files = [self._opened.enter_context(FileIO(descriptor, "rb")) for descriptor in opened]
        # The terminal comes before the counts; at most one is taken, so a second message can't replace it.
        if files and self._channel.window is not None and self._terminal is None:
            self._terminal = files.pop(0)
            self._listen_to(self._terminal.fileno())
            self._channel.attach_terminal(self._terminal.fileno())
        if files:
            self._launcher_io = files[0]

    def _take(self, data: bytes, *, last: bool = False) -> None:
        self._keeper.add(data)
        self._channel.take(data)
        if self._on_output is not None and (text := self._decoder.text(data, last=last)):
            self._on_output(text)

    def _describe_end(self, ended_for: Excess | None, elapsed_s: float) -> Finished:
        """Return how it ended. A bound that was exceeded counts for more than what its launcher reported."""
        head, tail, dropped = self._keeper.kept()
        if ended_for is not None and ended_for is not TIMED_OUT:
            return Finished("limit", None, signal.SIGKILL, head, tail, dropped, elapsed_s, *ended_for)
        # Read only now: a launcher that was killed for an exceeded bound may leave half a line, and
        # `read_report` may raise an error for that.
        report = read_report(self._told)
        if self._asked:
            return _describe_timeout(report, head, tail, dropped, elapsed_s)
        if report.code is not None:
            limit, allowed = self._suspect_limit(tail or head) if report.code else NO_LIMIT
            return Finished("exited", report.code, None, head, tail, dropped, elapsed_s, limit, allowed)
        if report.number is not None:
            limit, allowed = self._bound(SIGNAL_LIMITS.get(report.number))
            how: HowEnded = "signal" if limit is None else "limit"
            return Finished(how, None, report.number, head, tail, dropped, elapsed_s, limit, allowed)
        if ended_for is TIMED_OUT and not report.reason:
            return Finished("timeout", None, signal.SIGKILL, head, tail, dropped, elapsed_s)
        if report.started:
            raise ExecutionError(
                "how the command ended is unknown: the first process of its sandbox was killed before it "
                "reported. The command ran; look at what it changed before you run it again"
            )
        said = report.reason or (head + tail).strip() or "its launcher ended without a report"
        raise ExecutionError(f"the command was not started: {said}")

    def _suspect_limit(self, text: str) -> tuple[str | None, int | None]:
        """Return the limit that the final output of a failed command names."""
        last = text[-LAST_WORDS_CHARS:]
        return self._bound(next((name for words, name in LAST_WORDS if any(map(last.count, words))), None))

    def _bound(self, name: str | None) -> tuple[str | None, int | None]:
        return NO_LIMIT if name is None else (name, getattr(self._bounds, name))


def _open_pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """Return the reading and the writing end of a pipe; both are closed with the stack."""
    read, write = os.pipe()
    return stack.enter_context(FileIO(read, "rb")), stack.enter_context(FileIO(write, "wb"))


def _read_all(descriptor: int, take: Callable[[bytes], None]) -> None:
    """Read what is left; no process writes to it any more."""
    with contextlib.suppress(OSError):  # empty, or a terminal that no process has open
        while data := os.read(descriptor, CHUNK_BYTES):
            take(data)


def _open_memory_file(stack: contextlib.ExitStack, data: bytes) -> FileIO:
    """Return a file in memory that contains the data, positioned at its beginning."""
    file = stack.enter_context(FileIO(os.memfd_create("plan"), "r+b"))
    file.write(data)
    file.seek(0)
    return file


@contextlib.contextmanager
def _watch_exit(process: subprocess.Popen[bytes]) -> Iterator[asyncio.Future[None]]:
    """Yield a future that is done when a process has ended and can be waited for without blocking."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        # Without a descriptor of the process nothing would report its end, and nobody could bound it.
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
    """Kill the process if it still runs, and wait until it has ended, even if the waiting is cancelled."""
    deadline = time.monotonic() + END_WITHIN_S
    cancelled: asyncio.CancelledError | None = None
    while not gone.done():
        _kill(process.pid)
        try:
            await asyncio.wait((gone,), timeout=LOOK_EVERY_S)
        except asyncio.CancelledError as error:
            cancelled = error
        if time.monotonic() > deadline:
            raise ExecutionError(
                f"process {process.pid} was killed and still exists after {END_WITHIN_S:g} s"
            )
    # It does not block: the descriptor has reported the end, so this only collects the process.
    process.wait()
    # Raised only now: a caller that saw the cancellation while processes still ran would believe that the
    # command is over.
    if cancelled is not None:
        raise cancelled


def _kill(pid: int) -> None:
    """Kill the first process inside, which ends all others; or the outer one, while nothing runs inside.

    At first the inner process is in the group of the outer one; later it ends with the outer one. So killing
    the group ends both.
    """
    if not _signal_inner(pid, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _signal_inner(pid: int, number: signal.Signals) -> bool:
    """Send a signal to the first process inside; return False if it has ended."""
    inner = list_children(pid)
    for child in inner:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(child)
            try:
                if child in list_children(pid):  # its id belongs to the same process
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)
    return bool(inner)


def _describe_timeout(report: Report, head: str, tail: str, dropped: int, elapsed_s: float) -> Finished:
    """Return how a command ended after it was asked to: by itself, by a signal, or killed."""
    killed = signal.SIGKILL if report.code is None else None
    number = report.number or killed
    return Finished("timeout", report.code, number, head, tail, dropped, elapsed_s)
