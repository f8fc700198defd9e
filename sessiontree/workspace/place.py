"""Where a path leads: an open directory beneath the root, and the names still to be stepped from it.

Room: the value both resolvers return, and how a path falls into components.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from sessiontree.contracts.ports import Entry, EntryType

Identity: TypeAlias = tuple[int, int]
"""Device and inode: names one object whatever it is called."""


def identity_of(status: os.stat_result) -> Identity:
    """Return what names the object of a ``stat`` result."""
    return status.st_dev, status.st_ino


def components(path: str) -> list[str]:
    """Split a path as the kernel steps it.

    Returns:
        Its names and ``..``; a path that must name a directory (``a/``, ``a/.``, ``.``) ends in ``.``.
        A leading ``/`` leaves no trace: the caller knows where the path starts.
    """
    pieces = path.split("/")
    names = [piece for piece in pieces if piece not in {"", "."}]
    if pieces[-1] in {"", "."}:
        names.append(".")
    return names


@dataclass(frozen=True, slots=True)
class WorkspacePath:
    """A place beneath the root, held open. Close it, or use it in a ``with``.

    ``directory_fd`` is a directory (``O_PATH``) reached from the root without leaving it. A single name is a
    name in that directory which was no link when looked at: use it with ``O_NOFOLLOW`` or an equal.
    """

    directory_fd: int
    directory: str
    """The directory's path beneath the root, links resolved; ``.`` for the root."""
    names: tuple[str, ...]
    """Empty: the place is the directory itself. More than one: the first does not exist yet."""

    @property
    def path(self) -> str:
        """The whole path beneath the root, links resolved; ``.`` for the root."""
        head = () if self.directory == "." else (self.directory,)
        return "/".join((*head, *self.names)) or "."

    @property
    def name(self) -> str:
        """What to look at relative to ``directory_fd``; ``.`` for the directory itself.

        Raises:
            FileNotFoundError: a directory on the way does not exist.
        """
        if len(self.names) > 1:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.names[0] if self.names else "."

    def __enter__(self) -> WorkspacePath:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the directory."""
        os.close(self.directory_fd)


def entry_of(path: str, status: os.stat_result) -> Entry:
    """Return what a ``stat`` result says of a path beneath the root."""
    return Entry(path, _entry_type(status.st_mode), status.st_size, status.st_mtime_ns)


def _entry_type(mode: int) -> EntryType:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"
