"""How a tool starts a file of its own package and keeps the process; no workspace can redirect it."""

from __future__ import annotations

import sys
from pathlib import Path

from sessiontree.interpreter.import_guard import build_command


def program_words(program: Path, *, packages: bool) -> list[str]:
    """Return the arguments that start a file with the current interpreter.

    The program imports nothing from the working directory, from a directory named by an environment variable,
    or from entries that a program added to ``sys.path``.

    Args:
        program: Absolute path of the file.
        packages: Whether it may import installed packages in addition to the standard library.
    """
    if packages:
        return build_command("-B", str(program))
    return [sys.executable, "-I", "-S", str(program)]


_kept: set[int] = set()


def keep_process(pid: int) -> None:
    """Keep a child process that a tool started beyond the session whose call started it.

    Other processes that a session leaves in its host end with it, and the host with them. A process that
    is kept serves calls of later sessions of the host, so it must hold nothing of the earlier ones. It is
    confined as its host is and ends with it at the latest.

    Args:
        pid: Its id. Call ``release_process`` as soon as the process has been waited for, because the kernel
            gives the id to others then.
    """
    _kept.add(pid)


def release_process(pid: int) -> None:
    """Stop keeping the process ``pid``; it is as any other that its session started."""
    _kept.discard(pid)


def list_kept_processes() -> frozenset[int]:
    """Return the ids of the processes that are kept here."""
    return frozenset(_kept)
