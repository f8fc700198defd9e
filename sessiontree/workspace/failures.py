"""How the workspace says no: one form of text, "can't <verb> '<path>': <reason>".

Room: turning system errors and refusals into typed errors. A path is shown escaped and shortened: it may
hold control characters, undecodable bytes or a megabyte.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.tiers import PermissionTier

_LONGEST_SHOWN: Final = 300
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a link",
}


def failed(verb: str, path: str, reason: str) -> ExecutionError:
    """Return the error of something that was tried and did not work."""
    return ExecutionError(f"can't {verb} {_shown(path)}: {reason}")


def refused(
    verb: str, path: str, reason: str, tier: PermissionTier = PermissionTier.ELEVATED
) -> PermissionDenied:
    """Return the error of something that is not allowed here."""
    return PermissionDenied(tier, f"can't {verb} {_shown(path)}: {reason}")


@contextmanager
def system_errors(verb: str, path: str) -> Iterator[None]:
    """Turn whatever the system refuses inside the block into an :class:`ExecutionError`."""
    try:
        yield
    except OSError as error:
        raise failed(verb, path, reason_of(error)) from error


def reason_of(error: OSError) -> str:
    """Return a system error's text, beginning small."""
    text = error.strerror or os.strerror(error.errno or 0)
    return text[:1].lower() + text[1:]


def check_regular(verb: str, path: str, status: os.stat_result) -> None:
    """Refuse anything but a regular file.

    Raises:
        ExecutionError: it is a directory, FIFO, socket, device or link.
    """
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "of an unknown type")
        raise failed(verb, path, f"it is {kind}, not a regular file")


def _shown(path: str) -> str:
    if len(path) > _LONGEST_SHOWN:
        half = _LONGEST_SHOWN // 2
        path = f"{path[:half]}…{path[-half:]}"
    return repr(path)
