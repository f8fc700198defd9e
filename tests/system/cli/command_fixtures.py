"""The command: inside the test where that is enough, else as people run it, on a pipe or on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from typer.testing import CliRunner

from sessiontree.cli.app import app
from tests.system.forked_fixtures import Forked, fork, open_forked, run_forked

COMMAND = Path(sys.executable).with_name("sessiontree")
MAX_S = 120.0
"""After this a test gives a program up."""

RESTRICTED = """
import ctypes, os, sys
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert libc.prctl(24, capability, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a program for which file modes count even where the tests run as root."""


@dataclass(frozen=True, slots=True)
class Done:
    """A program that ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it said."""
        return self.out.splitlines()


class Program:
    """Runs the command with a home of its own.

    Args:
        home: Where its state folder is.
    """

    def __init__(self, home: Path) -> None:
        self.state_home = home / "state"
        self.config_home = home / "config"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}},
            "HOME": str(home),
            "XDG_STATE_HOME": str(self.state_home),
            "XDG_CONFIG_HOME": str(self.config_home),
        }

    def call(self, *arguments: str | Path, given: str = "") -> Done:
        """Run a command to its end inside this process; ``given`` is what its input holds."""
        done = CliRunner().invoke(app, [str(each) for each in arguments], input=given, env=self.environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    def run(self, *arguments: str | Path, given: str = "", restricted: bool = False) -> Done:
        """Run a command to its end in a process of its own; ``given`` is what its input holds."""
        if restricted:
            done = subprocess.run(
                [sys.executable, "-c", RESTRICTED, COMMAND, *arguments],
                input=given.encode(),
                env=self.environment,
                capture_output=True,
                timeout=MAX_S,
                check=False,
            )
        else:
            done = run_forked(COMMAND, *arguments, given=given.encode(), environment=self.environment)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str | Path) -> Forked:
        """Start a command whose output holds little: it goes on only as far as it is read."""
        return open_forked(COMMAND, *arguments, kind="command", environment=self.environment, pipe_bytes=4096)

    def at_terminal(self, *arguments: str | Path) -> Terminal:
        """Start a command at a terminal."""
        return Terminal(arguments, self.environment)


def read_until(output: IO[bytes] | None, words: tuple[str, ...]) -> str:
    """Read whole lines up to the first that holds all words, and no further."""
    assert output is not None
    said = ""
    line = b""
    while byte := output.read(1):
        line += byte
        if byte == b"\n":
            said += line.decode()
            if all(word in line.decode() for word in words):
                return said
            line = b""
    raise AssertionError(f"it ended without saying {words}: {said}")


class Terminal:
    """A person in front of the command.

    Args:
        arguments: The command's arguments.
        environment: All its variables.
        deaf: Whether it is started so that it ignores SIGINT.
        file: A program that runs the command itself; None = the command.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        environment: dict[str, str],
        *,
        deaf: bool = False,
        file: Path | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.said = ""
        self._seen = 0
        try:
            pid, answers = fork(
                file or COMMAND,
                *arguments,
                kind="command" if file is None else "file",
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                environment=environment,
                own_session=True,
                deaf=deaf,
            )
        finally:
            os.close(theirs)
        self.process = Forked(pid, answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def wait_for(self, words: str) -> None:
        """Read until words are on the screen, after those waited for before."""
        while (place := self.said.find(words, self._seen)) < 0:
            assert self._read(), f"it ended without saying {words!r}: {self.said}"
        self._seen = place + len(words)

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code; a program that goes on drawing is given up, too."""
        deadline = time.monotonic() + 2 * MAX_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end: {self.said[-2000:]}"
        return self.process.wait(MAX_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], MAX_S)
        assert ready, f"nothing happens any more: {self.said}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is gone
            return False
        self.said += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
