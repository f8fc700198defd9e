"""Resolving a path one component at a time, for kernels without ``openat2`` and for links it refuses.

Room: the walk. Each step opens one name below an open directory without following it; links are read from
their own descriptor and stepped in turn. Nothing is looked up by a longer path, so nothing can be swapped
between looking and stepping.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from sessiontree.workspace.place import Identity, WorkspacePath, components, identity_of
from sessiontree.workspace.root_fd import Anchor

MAX_LINKS: Final = 40
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: Final = _LOOK | os.O_DIRECTORY


class _Cursor:
    """A directory beneath the root and the way back up: one descriptor, however deep."""

    __slots__ = ("_root_fd", "_trail", "fd", "links", "names")

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self.links = 0
        self.names: list[str] = []
        self.fd = os.dup(root_fd)
        self._trail: list[Identity] = [identity_of(os.fstat(root_fd))]

    def down(self, name: str, fd: int) -> None:
        """Step into a directory already opened; takes the descriptor over."""
        self._trail.append(identity_of(os.fstat(fd)))
        self.names.append(name)
        self._replace(fd)

    def up(self) -> None:
        """Step to the directory this one was reached from."""
        if not self.names:
            raise OSError(errno.EXDEV, "it leads outside the root")
        self._replace(os.open("..", _STEP, dir_fd=self.fd))
        self.names.pop()
        self._trail.pop()
        # The parent may be another one by now: only the directory passed before is known to be beneath.
        if identity_of(os.fstat(self.fd)) != self._trail[-1]:
            raise OSError(errno.EAGAIN, "a directory on the way was moved meanwhile")

    def follow(self, link_fd: int, anchor: Anchor) -> list[str]:
        """Return the components a link stands for, having gone back to the root if it is absolute."""
        self.links += 1
        if self.links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        # A link of the kernel's own (procfs) counts by its text alone, which leads nowhere a path could not.
        target = os.readlink("", dir_fd=link_fd)
        if not target.startswith("/"):
            return components(target)
        beneath = anchor.relative(target)
        if beneath is None:
            raise OSError(errno.EXDEV, "it leads outside the root")
        self._replace(os.dup(self._root_fd))
        self.names.clear()
        del self._trail[1:]
        return beneath

    def place(self, names: tuple[str, ...]) -> WorkspacePath:
        """Give the directory away as a place; the cursor is spent."""
        if len(names) > 1 and (".." in names or names[-1] == "."):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        place = WorkspacePath(self.fd, "/".join(self.names) or ".", names)
        self.fd = -1
        return place

    def close(self) -> None:
        """Close the directory unless it was given away."""
        if self.fd >= 0:
            os.close(self.fd)

    def _replace(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def resolve_by_walk(anchor: Anchor, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
    """Step components from the root, following links while they stay beneath it.

    Args:
        anchor: The root.
        names: Components as :func:`~sessiontree.workspace.place.components` gives them.
        follow_last: Whether a link in the last place is followed, too.

    Returns:
        The place, whose first missing name ends the walk: what follows it is kept as further names.

    Raises:
        OSError: ``EXDEV`` where the path leaves the root, ``ELOOP`` after 40 links, ``ENOTDIR`` where a file
            stands in the way, ``EAGAIN`` where a directory was moved meanwhile, else the system's reason.
    """
    cursor = _Cursor(anchor.fd)
    left = names[::-1]
    try:
        while left:
            name = left.pop()
            if name == ".":
                continue
            if name == "..":
                cursor.up()
                continue
            if _step(cursor, anchor, name, left, follow_last):
                return cursor.place((name, *reversed(left)))
        return cursor.place(())
    finally:
        cursor.close()


def _step(cursor: _Cursor, anchor: Anchor, name: str, left: list[str], follow_last: bool) -> bool:
    """Take one name; returns whether the walk ends before it."""
    try:
        fd = os.open(name, _LOOK, dir_fd=cursor.fd)
    except FileNotFoundError:
        return True
    entered = False
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode) and (left or follow_last):
            left.extend(reversed(cursor.follow(fd, anchor)))
            return False
        if not left:
            return True
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        cursor.down(name, fd)
        entered = True
        return False
    finally:
        if not entered:
            os.close(fd)
