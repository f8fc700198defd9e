"""Whether a path leads to the same directory on two machines, such as one on a shared file system.

Numbers of devices differ between machines, and a copy of a disk has the same inode numbers and times as its
original. So one side first renews the time of the directory's last change, which a user cannot choose. The
other side is then asked what it sees. Only the same directory has the same inode number together with a
change that has just happened.

No file is made or changed for that, and no time of modification. Only the owner of a directory can renew its
time; without that, the names, inode numbers and times of its first entries are compared as well, and the copy
of a disk that was not changed since looks like its original.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_ENTRIES: Final = 64
ROUNDS: Final = 2
"""How often the directory must be found to be the same."""
LATE_ANSWERS: Final = 8
"""How often an answer may be older than the change: file systems keep what they know for a while."""
_UTIME_OMIT: Final = 0x3FFFFFFE
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """What a machine sees of a directory."""

    inode: int
    changed_ns: int
    """When its entries or metadata last changed, by the clock of the file system."""
    entries: tuple[tuple[str, int, int, int], ...] = ()
    """Of the first names in order: name, inode number, size of a file, time of the last change."""


def look_at_directory(path: Path, *, entries: bool) -> DirectoryView:
    """Look at a directory. Blocks.

    Args:
        path: The directory.
        entries: Whether to look at its entries, too.

    Raises:
        OSError: it is not a directory, or can't be read.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # a shared one is looked up again
    try:
        found = os.fstat(folder)
        seen = []
        for name in _list_first_names(folder) if entries else ():
            try:
                each = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:  # it was removed just now
                continue
            size = each.st_size if stat.S_ISREG(each.st_mode) else 0
            seen.append((name, each.st_ino, size, each.st_ctime_ns))
        return DirectoryView(found.st_ino, found.st_ctime_ns, tuple(seen))
    finally:
        os.close(folder)


def _list_first_names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return sorted(entry.name for entry in found)[:MAX_ENTRIES]


def mark_changed(path: Path) -> bool:
    """Renew the time of a directory's last change, and nothing else; return False if this user may not."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The time of the last access is set to what it is. The time of modification is left out, and not set
        # to what it was: an entry made meanwhile would not be noticed then.
        seconds, nanoseconds = divmod(os.fstat(folder).st_atime_ns, 1_000_000_000)
        times = (ctypes.c_long * 4)(seconds, nanoseconds, 0, _UTIME_OMIT)
        return int(_LIBC.futimens(folder, times)) == 0
    finally:
        os.close(folder)


async def explain_difference(
    path: Path,
    look: Callable[[bool], Awaitable[DirectoryView | str]],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str | None:
    """Return why a path leads to another directory on another machine; None = it is the same one.

    Args:
        path: The directory on this machine.
        look: Returns what the other machine sees, with or without entries, or why it sees none.
        pause: Waits for some seconds.
    """
    try:
        return await _find_difference(path, look, pause)
    except OSError as error:
        return f"it can't be looked at on the node of the state directory: {describe_error(error)}"


async def _find_difference(
    path: Path,
    look: Callable[[bool], Awaitable[DirectoryView | str]],
    pause: Callable[[float], Awaitable[None]],
) -> str | None:
    held, reason = 0, ""
    for round_number in range(LATE_ANSWERS):
        is_marked = await asyncio.to_thread(mark_changed, path)
        before = await asyncio.to_thread(look_at_directory, path, entries=not is_marked)
        there = await look(not is_marked)
        if isinstance(there, str):
            return there
        after = await asyncio.to_thread(look_at_directory, path, entries=False)
        if there.inode != before.inode:
            return f"the directory there has inode {there.inode}, and here it has {before.inode}"
        if before.changed_ns <= there.changed_ns <= after.changed_ns:
            if before.changed_ns == after.changed_ns and there.entries != before.entries:
                return f"other entries are there: {_find_first_difference(before.entries, there.entries)}"
            held += 1
            if held == ROUNDS:
                return None
            continue
        is_older = there.changed_ns < before.changed_ns
        reason = (
            "a change of the directory here is not seen there"
            if is_older
            else "the directory there has changed later than here"
        )
        await pause(0.05 * 2**round_number)
    return reason


def _find_first_difference(
    here: tuple[tuple[str, int, int, int], ...], there: tuple[tuple[str, int, int, int], ...]
) -> str:
    odd = sorted(set(here) ^ set(there))
    return repr(odd[0][0]) if odd else "in another order"
