"""Changing files beneath one root.

Room: :class:`WorkspaceWriter`, the implementation of :class:`~sessiontree.contracts.ports.Writer`.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.ports import Written
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.protected import OwnPlaces, protected_places
from sessiontree.workspace.failures import check_regular, failed, refused, system_errors
from sessiontree.workspace.openat2_resolver import Resolver
from sessiontree.workspace.place import WorkspacePath
from sessiontree.workspace.replacement import FileReplacement
from sessiontree.workspace.root import WorkspaceRoot

_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceWriter:
    """Changes files beneath one root; see :class:`~sessiontree.contracts.ports.Writer` for what is promised.

    A link beneath the root is written through: its target is replaced, the link stays. Paths in results are
    relative to the root with links resolved. Safe to use from many threads.

    Args:
        root: An existing directory; held open, so that renaming it changes nothing.
        hidden: Absolute paths of files or directories that are refused.
        resolver: How paths are resolved; None = the best this kernel offers.
        own: What processes of ours import from: protected, as what tells git which programs to run.

    Raises:
        ConfigError: the root is missing or no directory, or a hidden path is relative or holds the root.
    """

    __slots__ = ("_allowed", "_last_look", "_protected", "_root")

    def __init__(
        self,
        root: Path,
        *,
        hidden: Sequence[Path] = (),
        resolver: Resolver | None = None,
        own: OwnPlaces | None = None,
    ) -> None:
        self._root = WorkspaceRoot(root, hidden, resolver)
        self._last_look = threading.Lock()
        self._protected = protected_places(os.path.realpath(root), own or OwnPlaces())
        self._allowed: frozenset[str] | None = frozenset()

    def allowing(self, standings: frozenset[str] | None) -> WorkspaceWriter:
        """Return a writer of the same root for one call that was asked about.

        Args:
            standings: The protected places it may change, as :meth:`standings` names them; None = all.
        """
        other = copy.copy(self)
        other._allowed = standings  # noqa: SLF001 - of its own class
        return other

    def standings(self, path: str) -> frozenset[str]:
        """Return the protected places that a path stands for right now, as what it names and as a link.

        A place is named by its path and its directory's identity. Empty: it is none, or leads to no place.
        """
        found = set()
        for follows in (True, False):
            with suppress(ToolError), self._root.place("look at", path, follow_last=follows) as place:
                standing, why = self._standing(place)
                if why:
                    found.add(standing)
        return frozenset(found)

    def write(self, path: str, data: bytes, *, expect_mtime_ns: int | None = None) -> Written:
        """Write a whole file in one step: readers see the old content or the new, never a part.

        Missing parents are made, and taken away again if the write fails. A replaced file keeps its
        permission bits, and owner and group where the system allows it; its modification time always
        changes.

        Args:
            path: The file.
            data: Its whole content.
            expect_mtime_ns: Refuse when the file's ``mtime_ns`` is another one by now, or the file is gone.
                Two writes of one writer are told apart for certain; another program may still come between
                the last look and the rename.

        Raises:
            PermissionDenied: it is outside the root, hidden, on a kernel file system or protected, or has
                further names.
            ExecutionError: it changed, is no regular file, is write-protected, or the system refused; what
                stood there stands there still.
        """
        with self._root.place("write", path) as place, system_errors("write", path):
            if not place.names:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._check_protected("write", path, place)
            name = place.names[-1]
            with _directory_for(place) as directory_fd:
                standing = self._look(path, directory_fd, name, expect_mtime_ns)
                with FileReplacement(directory_fd, standing) as replacement:
                    replacement.fill(data)
                    with self._last_look:
                        standing = self._look(path, directory_fd, name, expect_mtime_ns)
                        replacement.commit(name)
            return Written(place.path, len(data), created=standing is None)

    def remove(self, path: str) -> None:
        """Delete one regular file or link (the link itself).

        Raises:
            PermissionDenied: it is outside the root, hidden, on a kernel file system, or protected.
            ExecutionError: it does not exist, is neither file nor link, or the system refused.
        """
        with self._root.place("remove", path, follow_last=False) as place, system_errors("remove", path):
            self._check_protected("remove", path, place)
            status = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
            self._root.check_status("remove", path, status)
            if not stat.S_ISLNK(status.st_mode):
                check_regular("remove", path, status)
            os.unlink(place.name, dir_fd=place.directory_fd)

    def _standing(self, place: WorkspacePath) -> tuple[str, str]:
        """Return what names a place, and why it is protected; empty where it is not."""
        why = self._protected.why(place.directory_fd, place.directory, place.names)
        status = os.fstat(place.directory_fd)
        return f"{place.path}\0{status.st_dev}:{status.st_ino}", why

    def _check_protected(self, verb: str, path: str, place: WorkspacePath) -> None:
        """Refuse what changes a protected place, unless the call was asked about and allowed to."""
        if self._allowed is None:
            return
        standing, why = self._standing(place)
        if why and standing not in self._allowed:
            raise refused(verb, path, f"it is protected ({why}); a call that changes it needs an approval")

    def _look(self, path: str, directory_fd: int, name: str, expected: int | None) -> os.stat_result | None:
        """Return what a write would replace, or None; raises where it may not be replaced."""
        try:
            standing = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            if expected is not None:
                raise failed("write", path, "it changed since it was read: it is gone") from None
            return None
        self._root.check_status("write", path, standing)
        check_regular("write", path, standing)
        if standing.st_nlink > 1:
            raise refused(
                "write",
                path,
                f"it has {standing.st_nlink} names (hard links), and others may lie outside the workspace",
                PermissionTier.WORKSPACE,
            )
        if expected is not None and standing.st_mtime_ns != expected:
            raise failed("write", path, "it changed since it was read; read it again first")
        # Renaming over a file asks nothing of the file itself: its protection is honoured here.
        if not os.access(name, os.W_OK, dir_fd=directory_fd, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return standing


@contextmanager
def _directory_for(place: WorkspacePath) -> Iterator[int]:
    """Make a place's missing directories; they go again if the block fails."""
    made: list[tuple[int, str]] = []
    with ExitStack() as opened:
        try:
            fd = place.directory_fd
            for name in place.names[:-1]:
                with suppress(FileExistsError):  # another write made it first
                    os.mkdir(name, dir_fd=fd)
                    made.append((fd, name))
                fd = os.open(name, _STEP, dir_fd=fd)
                opened.callback(os.close, fd)
            yield fd
        except BaseException:
            for parent_fd, name in reversed(made):
                with suppress(OSError):  # by now it holds someone else's file
                    os.rmdir(name, dir_fd=parent_fd)
            raise
