"""Files made to be attacked, and what can be seen of them before and after.

They are made outside the jail, where its inmate can read but is not meant to write.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox.attempts import ATTEMPTS

NAMES: Final = frozenset(ATTEMPTS) - {"create"}
_MODIFIED_NS: Final = 1_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """All that can be seen of one file or directory, but when it was last read."""

    name: str
    """Relative to the directory of victims, which is ``.`` itself."""
    mode: int
    """Type and permissions."""
    owner: tuple[int, int]
    """User and group."""
    links: int
    modified_ns: int
    changed_ns: int
    """When content or metadata changed last, which nobody can set."""
    content: str
    """SHA-256 of a file's bytes; what else it is has none."""


def prepare_victims(directory: Path) -> tuple[Trace, ...]:
    """Make the victims of one self-test.

    Args:
        directory: Missing or empty; whoever tests itself must be able to read it, and be of the same user.

    Returns:
        What can be seen of them, as ``traces`` would tell.

    Raises:
        ConfigError: something lies in the directory already.
        OSError: it can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ConfigError(f"can't prepare a self-test in {str(directory)!r}: it is not empty")
    for name in sorted(NAMES):
        victim = directory / name
        victim.write_bytes(f"must stay as it is: {name}\n".encode())
        victim.chmod(0o644)
        os.utime(victim, ns=(_MODIFIED_NS, _MODIFIED_NS))
    return traces(directory)


def traces(directory: Path) -> tuple[Trace, ...]:
    """Return what can be seen of a directory and all in it, sorted by name.

    Raises:
        OSError: something can't be read.
    """
    return tuple(_trace(directory, path) for path in [directory, *sorted(directory.rglob("*"))])


def _trace(directory: Path, path: Path) -> Trace:
    status = path.lstat()
    return Trace(
        name=path.relative_to(directory).as_posix(),
        mode=status.st_mode,
        owner=(status.st_uid, status.st_gid),
        links=status.st_nlink,
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns,
        content=hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else "",
    )


def differences(before: Sequence[Trace], after: Sequence[Trace]) -> list[str]:
    """Return one line per file or directory that came, went or changed, sorted by name."""
    old, new = ({trace.name: trace for trace in side} for side in (before, after))
    lines = []
    for name in sorted(old.keys() | new.keys()):
        was, became = old.get(name), new.get(name)
        if was is None:
            lines.append(f"{name!r} appeared")
        elif became is None:
            lines.append(f"{name!r} is gone")
        elif was != became:
            fields = [field for field in Trace.__slots__ if getattr(was, field) != getattr(became, field)]
            lines.append(f"{name!r} changed: {', '.join(fields)}")
    return lines
