"""What stands in a directory, and in the directories below it.

Room: reading names from open directories, one level or all. Links are reported, never followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from sessiontree.contracts.ports import Entry
from sessiontree.workspace.failures import failed
from sessiontree.workspace.hidden_paths import HiddenPlaces
from sessiontree.workspace.kernel_calls import pseudo_file_system
from sessiontree.workspace.place import Identity, entry_of, identity_of
from sessiontree.workspace.replacement import TEMPORARY_PREFIX

OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_OPEN: Final = 16
"""Directories a walk keeps open at once; those further up are found again by ``..``."""

# Running out of something says nothing about the directory: passing it over would hide files.
_OWN_TROUBLE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def entries_in(fd: int, path: str, hidden: HiddenPlaces) -> list[tuple[str, Entry]]:
    """Return a directory's names and entries, sorted by name, without hidden ones and unfinished writes.

    Args:
        fd: The directory, open for reading.
        path: Its path beneath the root.
        hidden: What is left out.

    Raises:
        OSError: it may not be read, or its entries may not be looked at.
    """
    identities = hidden.identities()
    prefix = "" if path == "." else f"{path}/"
    found = []
    for name in sorted(os.listdir(fd)):
        if name.startswith(TEMPORARY_PREFIX) or hidden.covers(prefix + name):
            continue
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:  # gone since the names were read
            continue
        if identity_of(status) not in identities:
            found.append((name, entry_of(prefix + name, status)))
    return found


class _Level:
    """One directory of a walk: what is left of it, and its descriptor while that is among the open ones."""

    __slots__ = ("fd", "identity", "left")

    def __init__(self, fd: int, entries: list[tuple[str, Entry]]) -> None:
        self.fd = fd  # -1: closed to spare descriptors
        self.identity: Identity = identity_of(os.fstat(fd))
        self.left = iter(entries)


def walk_below(fd: int, path: str, hidden: HiddenPlaces) -> Iterator[Entry]:
    """Yield files and links below a directory, depth first, names sorted.

    Directories that may not be read, and the kernel's file systems, are passed over.

    Args:
        fd: The directory, open for reading; taken over and closed.
        path: Its path beneath the root.
        hidden: What is left out.

    Raises:
        OSError: the directory itself may not be read.
        ExecutionError: a directory was moved away while the walk was in it.
    """
    levels: list[_Level] = []
    try:
        try:
            levels.append(_Level(fd, entries_in(fd, path, hidden)))
        except BaseException:
            os.close(fd)
            raise
        while levels:
            entered = False
            for name, entry in levels[-1].left:
                if entry.type == "directory":
                    below = _enter(levels[-1], name, entry.path, hidden)
                    if below is not None:
                        _push(levels, below)
                        entered = True
                        break
                elif entry.type != "other":
                    yield entry
            if not entered:
                _pop(levels, path)
    finally:
        for level in levels:
            if level.fd >= 0:
                os.close(level.fd)


def _enter(level: _Level, name: str, path: str, hidden: HiddenPlaces) -> _Level | None:
    """Open and read one directory below; None where that is not allowed."""
    fd = -1
    below = None
    try:
        fd = os.open(name, OPEN_DIRECTORY, dir_fd=level.fd)
        if identity_of(os.fstat(fd)) not in hidden.identities() and pseudo_file_system(fd) is None:
            below = _Level(fd, entries_in(fd, path, hidden))
    except OSError as error:
        if error.errno in _OWN_TROUBLE:
            raise
    finally:
        if below is None and fd >= 0:
            os.close(fd)
    return below


def _push(levels: list[_Level], below: _Level) -> None:
    levels.append(below)
    if len(levels) > _MOST_OPEN:
        far = levels[-1 - _MOST_OPEN]
        if far.fd >= 0:
            os.close(far.fd)
            far.fd = -1


def _pop(levels: list[_Level], path: str) -> None:
    """Leave the innermost directory; the one above is open afterwards."""
    done = levels.pop()
    try:
        if levels and levels[-1].fd < 0:
            levels[-1].fd = os.open("..", OPEN_DIRECTORY, dir_fd=done.fd)
            if identity_of(os.fstat(levels[-1].fd)) != levels[-1].identity:
                raise failed("walk", path, "a directory below it was moved meanwhile")
    finally:
        os.close(done.fd)
