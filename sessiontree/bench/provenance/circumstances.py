"""The circumstances of a command: where, when and how it works on a run. Recorded, and never compared."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

GIT_S: Final = 10.0
"""How long git may take to say which commit a folder is of."""
_COMMAND: Final = ("sessiontree",)


def collect_circumstances(folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return where and how this command works. Blocks: it asks git.

    Args:
        folder: The suite's folder, whose git commit counts.
        options: The command's options, as they are shown.
    """
    return {
        "command_line": command_line(),
        "directory": str(Path.cwd()),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpus": os.cpu_count() or 0,
        **read_git_state(folder),
        **options,
    }


def command_line() -> list[str]:
    """Return how this program was started; the command's own name instead of a module's file."""
    given = list(sys.argv)
    if given and Path(given[0]).name in {"__main__.py", "-m"}:
        return [*_COMMAND, *given[1:]]
    return given


def read_git_state(folder: Path) -> dict[str, Any]:
    """Return the commit of a folder's working tree, and whether files of it differ; empty = it has none."""
    commit = _run_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": "", "git_dirty": None}
    changed = _run_git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"git_commit": commit.strip(), "git_dirty": None if changed is None else bool(changed.strip())}


def _run_git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(  # noqa: S603 - the words are this file's
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GIT_S, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
