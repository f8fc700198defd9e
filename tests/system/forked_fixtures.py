"""Programs in processes of their own that need no second to start: forks of one interpreter.

A fork differs from a started program in what was loaded before it began, and in nothing that a test of a
command looks at: it has its own id, descriptors, directory, variables, signals and exit code.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from tests.system.forked_program import MAX_BYTES, STATUS

CHECKOUT = Path(__file__).resolve().parents[2]
MAX_S = 240.0
"""After this a test gives a program up."""
Kind = Literal["command", "module", "file"]


class Forked:
    """A program in a process of its own, used as a ``subprocess.Popen`` is.

    Args:
        pid: The process's id.
        answers: The socket that reports its end.
        stdout: What the program prints, where it is read by a pipe.
    """

    def __init__(self, pid: int, answers: socket.socket, stdout: IO[bytes] | None = None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._answers = answers

    def wait(self, timeout: float | None = MAX_S) -> int:
        """Wait for the end and return the exit code; below zero it is the signal that ended the program.

        Raises:
            subprocess.TimeoutExpired: the program goes on after so many seconds.
        """
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            (status,) = STATUS.unpack(self._answers.recv(STATUS.size))
            self.returncode = os.waitstatus_to_exitcode(status)
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the program goes on."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to a program that goes on."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stdout is not None:
            self.stdout.close()
        self.wait()


class Interpreter:
    """The interpreter that is forked; made by the first program of the process that runs tests."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.forked_program", str(theirs.fileno())],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def start(
        self, order: Mapping[str, object], descriptors: tuple[int, int, int]
    ) -> tuple[int, socket.socket]:
        """Have a program begun; return its process's id and the socket that tells of its end."""
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [*descriptors, theirs.fileno()])
        told = answers.recv(STATUS.size)
        assert told, "the interpreter that is forked has ended"
        return STATUS.unpack(told)[0], answers

    def close(self) -> None:
        """End it."""
        self._orders.close()
        assert self._process.wait(MAX_S) == 0


_interpreters: list[Interpreter] = []


def close_interpreter() -> None:
    """End the interpreter, if there was a program to fork."""
    while _interpreters:
        _interpreters.pop().close()


def fork(
    program: str | Path,
    *arguments: str | Path,
    kind: Kind,
    stdin: int,
    stdout: int,
    stderr: int,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    own_session: bool = False,
    deaf: bool = False,
) -> tuple[int, socket.socket]:
    """Start a program; return its process's id and the socket that tells of its end.

    Args:
        program: The command's name, a module's or a file.
        arguments: Its arguments.
        kind: Which of these it is.
        stdin: The descriptor of its input.
        stdout: Of its output.
        stderr: Of its errors.
        environment: All its variables; by default those of this process.
        folder: Its working directory; by default this process's.
        own_session: Whether its process leads a session of its own.
        deaf: Whether it ignores SIGINT, as what a shell without job control starts in the background.
    """
    if not _interpreters:
        _interpreters.append(Interpreter())
    order = {
        "program": str(program),
        "arguments": [os.fsdecode(each) for each in arguments],
        "kind": kind,
        "environment": dict(os.environ if environment is None else environment),
        "folder": str(folder or Path.cwd()),
        "session": own_session,
        "deaf": deaf,
    }
    return _interpreters[0].start(order, (stdin, stdout, stderr))


def open_forked(
    program: str | Path,
    *arguments: str | Path,
    kind: Kind = "module",
    stderr: int | None = None,
    environment: Mapping[str, str] | None = None,
    pipe_bytes: int = 0,
) -> Forked:
    """Start a program with nothing to read and its output on a pipe.

    Args:
        program: The command's name, a module's or a file.
        arguments: Its arguments.
        kind: Which of these it is.
        stderr: The descriptor of its errors; by default they are part of its output.
        environment: All its variables.
        pipe_bytes: What the pipe holds at most; 0 = as much as usual.
    """
    ours, theirs = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        if pipe_bytes:
            fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, pipe_bytes)
        errors = theirs if stderr is None else stderr
        pid, answers = fork(
            program,
            *arguments,
            kind=kind,
            stdin=nothing,
            stdout=theirs,
            stderr=errors,
            environment=environment,
        )
    finally:
        os.close(theirs)
        os.close(nothing)
    return Forked(pid, answers, open(ours, "rb", buffering=0))  # noqa: PTH123 - closed by Forked


def run_forked(
    program: str | Path,
    *arguments: str | Path,
    kind: Kind = "command",
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    max_s: float = MAX_S,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; return its exit code, its output and its errors.

    Args:
        program: The command's name, a module's or a file.
        arguments: Its arguments.
        kind: Which of these it is.
        given: What it can read, less than a pipe holds.
        environment: All its variables.
        folder: Its working directory.
        max_s: After this it is killed, and the test fails.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            os.write(writing, given)
            os.close(writing)
            pid, answers = fork(
                program,
                *arguments,
                kind=kind,
                stdin=reading,
                stdout=out.fileno(),
                stderr=err.fileno(),
                environment=environment,
                folder=folder,
            )
        finally:
            os.close(reading)
        forked = Forked(pid, answers)
        try:
            code = forked.wait(max_s)
        finally:
            forked.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([str(program), *map(str, arguments)], code, out.read(), err.read())
