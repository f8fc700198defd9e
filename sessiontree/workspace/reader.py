"""Reading files and directories below one root.

:class:`WorkspaceReader` implements :class:`~sessiontree.contracts.handles.ports.Reader`. Lists of directories
report links and never follow them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from sessiontree.contracts.handles.ports import Entry
from sessiontree.workspace.resolver import (
    Identity,
    Resolver,
    find_pseudo_file_system,
    get_file_identity,
    to_entry,
)
from sessiontree.workspace.root import (
    TEMPORARY_PREFIX,
    HiddenPlaces,
    WorkspaceRoot,
    check_regular,
    convert_system_errors,
    make_failure,
)

OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_OPEN: Final = 16
"""How many directories a walk keeps open at once; it returns to those further up by ``..``."""

# A lack of resources is not a property of the directory: skipping it would hide its files.
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def list_entries(fd: int, path: str, hidden: HiddenPlaces) -> list[tuple[str, Entry]]:
    """Return a directory's names and entries, sorted by name, without hidden ones and unfinished writes.

    Args:
        fd: The directory, open for reading.
        path: Its path below the root.
        hidden: Places that are left out.

    Raises:
        OSError: the directory or its entries cannot be read.
    """
    identities = hidden.find_identities()
    prefix = "" if path == "." else f"{path}/"
    found = []
    for name in sorted(os.listdir(fd)):
        if name.startswith(TEMPORARY_PREFIX) or hidden.covers(prefix + name):
            continue
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:  # it was removed after the names were read
            continue
        if get_file_identity(status) not in identities:
            found.append((name, to_entry(prefix + name, status)))
    return found


class _Level:
    """One directory of a walk: its remaining entries, and its descriptor while it is open."""

    __slots__ = ("fd", "identity", "left")

    def __init__(self, fd: int, entries: list[tuple[str, Entry]]) -> None:
        self.fd = fd  # -1 = closed, to save descriptors
        self.identity: Identity = get_file_identity(os.fstat(fd))
        self.left = iter(entries)


def walk_below(fd: int, path: str, hidden: HiddenPlaces) -> Iterator[Entry]:
    """Yield files and links below a directory, depth first, names sorted.

    Directories that cannot be read, and kernel file systems, are skipped.

    Args:
        fd: The directory, open for reading; this function closes it.
        path: Its path below the root.
        hidden: Places that are left out.

    Raises:
        OSError: the directory itself cannot be read.
        ExecutionError: a directory was moved while the walk was in it.
    """
    levels: list[_Level] = []
    try:
        try:
            levels.append(_Level(fd, list_entries(fd, path, hidden)))
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
    """Open and read one directory below; return None if that is not allowed."""
    fd = -1
    below = None
    try:
        fd = os.open(name, OPEN_DIRECTORY, dir_fd=level.fd)
        if (
            get_file_identity(os.fstat(fd)) not in hidden.find_identities()
            and find_pseudo_file_system(fd) is None
        ):
            below = _Level(fd, list_entries(fd, path, hidden))
    except OSError as error:
        if error.errno in _OUT_OF_RESOURCES:
            raise
    finally:
        if below is None and fd >= 0:
            os.close(fd)
    return below


def _push(levels: list[_Level], below: _Level) -> None:
    levels.append(below)
    if len(levels) > _MAX_OPEN:
        far = levels[-1 - _MAX_OPEN]
        if far.fd >= 0:
            os.close(far.fd)
            far.fd = -1


def _pop(levels: list[_Level], path: str) -> None:
    """Leave the innermost directory, and reopen the one above if necessary."""
    done = levels.pop()
    try:
        if levels and levels[-1].fd < 0:
            levels[-1].fd = os.open("..", OPEN_DIRECTORY, dir_fd=done.fd)
            if get_file_identity(os.fstat(levels[-1].fd)) != levels[-1].identity:
                raise make_failure("walk", path, "a directory below it was moved meanwhile")
    finally:
        os.close(done.fd)


# A FIFO or terminal may replace the file at the last moment: do not wait for it, do not adopt it.
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class WorkspaceReader:
    """Reads files below one root; see :class:`~sessiontree.contracts.handles.ports.Reader` for its promises.

    Paths in results are relative to the root with links resolved. Files on kernel file systems (procfs, sysfs
    and others) are refused. Safe to use from several threads.

    Args:
        root: An existing directory; held open, so that renaming it changes nothing.
        hidden: Absolute paths of files or directories that are refused, and left out of lists and walks.
        resolver: How paths are resolved; None = the best way that this kernel offers.

    Raises:
        ConfigError: the root is missing or not a directory, or a hidden path is relative or holds the root.
    """

    __slots__ = ("_root",)

    def __init__(self, root: Path, *, hidden: Sequence[Path] = (), resolver: Resolver | None = None) -> None:
        self._root = WorkspaceRoot(root, hidden, resolver)

    @classmethod
    def at(cls, root: WorkspaceRoot) -> WorkspaceReader:
        """Return a reader of a root that is open already."""
        reader = cls.__new__(cls)
        reader._root = root  # noqa: SLF001 - of its own class
        return reader

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes; the caller closes it.

        Raises:
            PermissionDenied: it is outside the root, hidden, or on a kernel file system.
            ExecutionError: it does not exist, is not a regular file, or the system refused.
        """
        with self._root.open_existing("read", path) as place:
            # Checked before it is opened, because opening a device may have effects.
            check_regular("read", path, os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False))
            fd = os.open(place.name, _OPEN_FILE, dir_fd=place.directory_fd)
            try:
                # Race: the file may be replaced between the look and the opening. This look is at what is
                # open.
                status = os.fstat(fd)
                check_regular("read", path, status)
                self._root.check_descriptor("read", path, fd, status)
            except BaseException:
                os.close(fd)
                raise
            return os.fdopen(fd, "rb")

    def stat(self, path: str) -> Entry:
        """Return the entry at a path of any type, links followed; raises as :meth:`open`."""
        return to_entry(*self._root.look_at(path))

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries sorted by name, links not followed.

        Bytes of names that are not UTF-8 are surrogates; unfinished writes are left out.

        Raises:
            PermissionDenied: it is outside the root, hidden, or on a kernel file system.
            ExecutionError: it does not exist, is not a directory, or cannot be read.
        """
        fd, found = self._open_directory("list", path)
        try:
            with convert_system_errors("list", path):
                return [entry for _, entry in list_entries(fd, found, self._root.hidden)]
        finally:
            os.close(fd)

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Yield files and links below a directory, depth first, names sorted; links are not entered.

        Directories below that cannot be read, and kernel file systems, are skipped.

        Raises (at the first entry):
            PermissionDenied, ExecutionError: as :meth:`list`; later, ExecutionError if a directory was moved
                while the walk was in it.
        """
        fd, found = self._open_directory("walk", path)
        with convert_system_errors("walk", path):
            yield from walk_below(fd, found, self._root.hidden)

    def _open_directory(self, verb: str, path: str) -> tuple[int, str]:
        """Return a directory opened for reading, and its path below the root."""
        with self._root.open_existing(verb, path) as place:
            fd = os.open(place.name, OPEN_DIRECTORY, dir_fd=place.directory_fd)
            try:
                self._root.check_descriptor(verb, path, fd, os.fstat(fd))
            except BaseException:
                os.close(fd)
                raise
            return fd, place.path
