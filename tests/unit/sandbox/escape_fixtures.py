"""What an attempt to escape is given, how it is made, and how what came of it is reported.

Only the standard library is used: the attempts must start under any jail.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CONTENT = b"untouched"
LIBC = ctypes.CDLL(None, use_errno=True)
IS_ARM = os.uname().machine == "aarch64"


@dataclass(frozen=True, slots=True)
class Grounds:
    """What one attempt is given."""

    here: Path
    """Its own directory, readable; holds ``victim`` and ``empty``."""
    logs: Path
    """The writable directory; holds ``log``."""
    hidden: Path
    """The hidden directory; holds ``secret``, an executable script; ``secret.txt`` alongside it is hidden."""
    pid: int
    socket: str

    @property
    def victim(self) -> Path:
        return self.here / "victim"


Attempt = Callable[[Grounds], object]


def row(table: dict[str, Attempt]) -> Callable[[Attempt], Attempt]:
    """Enter a function into a table under its own name, without the underscore."""

    def enter(attempt: Attempt) -> Attempt:
        table[attempt.__name__.removeprefix("_")] = attempt
        return attempt

    return enter


def call(name: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library that returns -1 on failure."""
    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    answer: int = getattr(LIBC, name)(*words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), name)
    return answer


def system_call(on_x86: int, on_arm: int, *arguments: int | bytes | None) -> int:
    """Make a system call the C library has no function for."""
    return call("syscall", on_arm if IS_ARM else on_x86, *arguments)


def opened(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open without going through Python's own layers."""
    return os.open(path, flags, 0o644)


def outcome(attempt: Attempt, grounds: Grounds) -> str:
    """Make one attempt in a process of its own; return ``succeeded``, an errno's name or a signal's."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            attempt(grounds)
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    code = os.WEXITSTATUS(status)
    return "succeeded" if code == 0 else errno.errorcode.get(code, f"errno {code}")
