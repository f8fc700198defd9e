"""Starting one of this package's files as a program of its own, in a session of its own, and ending it.

Not here: what is said to it, and how long it may take.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.tools.own_program import program_words


def start_process(program: Path, *, purpose: str, packages: bool) -> subprocess.Popen[bytes]:
    """Start a file with the interpreter that runs us: three unbuffered pipes, next to no environment.

    Args:
        program: Absolute path of the file.
        packages: Whether it may import installed packages as well as the standard library.
        purpose: What it is for, such as ``to search in``.

    Raises:
        ExecutionError: the system starts no process.
    """
    try:
        return subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
            program_words(program, packages=packages),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # a read-only process may not open the null device for writing
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ExecutionError(f"can't start a process {purpose}: {error.strerror}") from error


def get_pipe_descriptor(stream: IO[bytes] | None) -> int:
    """Return the descriptor of one of a process's pipes."""
    if stream is None:
        raise RuntimeError("the process has no such pipe")
    return stream.fileno()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process nobody has waited for, with all of its session, and close its pipes."""
    # It is not yet waited for, so the id is still its own.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
