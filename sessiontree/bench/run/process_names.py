"""Names of processes that work on a run: others on the same machine can see whether one has ended."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PARTS: Final = 6


def own_name(pid: int | None = None) -> str:
    """Return a new name of a process: machine, boot, process namespace, id, start, and a random part.

    Others on the same machine can see from it whether the process has ended. Source: proc_pid_stat(5); the
    identity of a boot is in random(4).

    Args:
        pid: The process; None = this one.
    """
    pid = os.getpid() if pid is None else pid
    host = socket.gethostname().replace(" ", "_") or "-"
    return " ".join([host, *_identify_here(), str(pid), _read_start(pid) or "-", secrets.token_hex(4)])


def has_ended(name: str) -> bool:
    """Return whether a process is known to have ended; False where this machine can't know."""
    parts = name.split(" ")
    if len(parts) != _PARTS or "-" in parts[1:5] or tuple(parts[1:3]) != _identify_here():
        return False
    start = _read_start(int(parts[3]))
    # An id may belong to another process by now; only with the same start is it the same one.
    return start is None or start != parts[4]


def _identify_here() -> tuple[str, str]:
    """Return what identifies this boot and this process namespace; ``-`` where it is unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        space = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return "-", "-"
    return boot, space


def _read_start(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; None = it does not run."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]
