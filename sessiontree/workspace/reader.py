"""Reading files beneath one root.

Room: :class:`WorkspaceReader`, the implementation of :class:`~sessiontree.contracts.ports.Reader`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from sessiontree.contracts.ports import Entry
from sessiontree.workspace.entries import OPEN_DIRECTORY, entries_in, walk_below
from sessiontree.workspace.failures import check_regular, system_errors
from sessiontree.workspace.openat2_resolver import Resolver
from sessiontree.workspace.place import entry_of
from sessiontree.workspace.root import WorkspaceRoot

# Should a FIFO or terminal take the file's place at the last moment: neither wait for it nor belong to it.
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class WorkspaceReader:
    """Reads files beneath one root; see :class:`~sessiontree.contracts.ports.Reader` for what is promised.

    Paths in results are relative to the root with links resolved. Files on the kernel's own file systems
    (procfs, sysfs and the like) are refused. Safe to use from many threads.

    Args:
        root: An existing directory; held open, so that renaming it changes nothing.
        hidden: Absolute paths of files or directories that are refused, and left out of lists and walks.
        resolver: How paths are resolved; None = the best this kernel offers.

    Raises:
        ConfigError: the root is missing or no directory, or a hidden path is relative or holds the root.
    """

    __slots__ = ("_root",)

    def __init__(self, root: Path, *, hidden: Sequence[Path] = (), resolver: Resolver | None = None) -> None:
        self._root = WorkspaceRoot(root, hidden, resolver)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes; the caller closes it.

        Raises:
            PermissionDenied: it is outside the root, hidden, or on a kernel file system.
            ExecutionError: it does not exist, is no regular file, or the system refused.
        """
        with self._root.place("read", path) as place, system_errors("read", path):
            # Looked at before it is opened, because opening a device may already do something.
            check_regular("read", path, os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False))
            fd = os.open(place.name, _OPEN_FILE, dir_fd=place.directory_fd)
            try:
                status = os.fstat(fd)
                check_regular("read", path, status)
                self._root.check_descriptor("read", path, fd, status)
            except BaseException:
                os.close(fd)
                raise
            return os.fdopen(fd, "rb")

    def stat(self, path: str) -> Entry:
        """Return what stands at the path, links followed; raises as :meth:`open`, and takes any type."""
        with self._root.place("look at", path) as place, system_errors("look at", path):
            status = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
            self._root.check_status("look at", path, status)
            return entry_of(place.path, status)

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries sorted by name, links not followed.

        Names that are no UTF-8 hold their bytes as surrogates; unfinished writes are left out.

        Raises:
            PermissionDenied: it is outside the root, hidden, or on a kernel file system.
            ExecutionError: it does not exist, is no directory, or may not be read.
        """
        fd, found = self._open_directory("list", path)
        try:
            with system_errors("list", path):
                return [entry for _, entry in entries_in(fd, found, self._root.hidden)]
        finally:
            os.close(fd)

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Yield files and links below a directory, depth first, names sorted, directory links not entered.

        Directories below that may not be read, and kernel file systems, are passed over.

        Raises (at the first entry):
            PermissionDenied, ExecutionError: as :meth:`list`; later, ExecutionError where a directory was
                moved away while the walk was in it.
        """
        fd, found = self._open_directory("walk", path)
        with system_errors("walk", path):
            yield from walk_below(fd, found, self._root.hidden)

    def _open_directory(self, verb: str, path: str) -> tuple[int, str]:
        """Return a directory opened for reading, and its path beneath the root."""
        with self._root.place(verb, path) as place, system_errors(verb, path):
            fd = os.open(place.name, OPEN_DIRECTORY, dir_fd=place.directory_fd)
            try:
                self._root.check_descriptor(verb, path, fd, os.fstat(fd))
            except BaseException:
                os.close(fd)
                raise
            return fd, place.path
