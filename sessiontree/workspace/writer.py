"""Changing files below one root.

:class:`WorkspaceWriter` implements :class:`~sessiontree.contracts.handles.ports.Writer`.

A file is replaced in one step: a temporary file next to it is written, synced and renamed over it. Whoever
opens the name sees the old content or the new content, whatever fails.
"""

from __future__ import annotations

import copy
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.handles.ports import Written
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.protected import OwnPlaces, ProtectedPlaces, find_protected_places
from sessiontree.workspace.reader import WorkspaceReader
from sessiontree.workspace.resolver import Resolver, WorkspacePath
from sessiontree.workspace.root import (
    TEMPORARY_PREFIX,
    WorkspaceRoot,
    check_regular,
    convert_system_errors,
    make_failure,
    make_refusal,
)

CHANGED: Final = "it changed since it was read; read it again first"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileReplacement:
    """A temporary file that will replace a file in its directory. Use it in a ``with``.

    Leaving the block without :meth:`commit` removes it.

    Args:
        directory_fd: The directory.
        replaced: The file that will be replaced, or None. Its permission bits are kept, and owner and group
            if the system allows it.

    Raises (every method):
        OSError: the system refused: no space, no permission, a size limit.
    """

    __slots__ = ("_committed", "_directory_fd", "_fd", "_name", "_replaced")

    def __init__(self, directory_fd: int, replaced: os.stat_result | None) -> None:
        """Choose a name; no file is created yet."""
        self._directory_fd = directory_fd
        self._replaced = replaced
        self._name = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        self._committed = False
        self._fd = -1

    def __enter__(self) -> FileReplacement:
        """Create the temporary file."""
        # Until it has the old file's mode, nobody else may read it.
        mode = 0o666 if self._replaced is None else 0o600
        self._fd = os.open(self._name, _CREATE, mode, dir_fd=self._directory_fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file, and remove it unless it was committed."""
        os.close(self._fd)
        if not self._committed:
            with suppress(OSError):  # the original failure is reported instead
                os.unlink(self._name, dir_fd=self._directory_fd)

    def fill(self, content: bytes, executable: bool | None = None) -> None:
        """Write the whole content, and wait until it is on the disk; ``executable`` as for a writer."""
        left = memoryview(content)
        while left:
            left = left[os.write(self._fd, left) :]
        if self._replaced is not None:
            self._copy_attributes(self._replaced)
        if executable is not None:
            mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
            os.fchmod(self._fd, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)
        # Synced before the rename: after a power failure some file systems show the new name without the
        # content.
        os.fsync(self._fd)

    def commit(self, name: str, *, only_new: bool = False) -> None:
        """Give the file its final name.

        Raises:
            FileExistsError: ``only_new``, and there is a file of that name.
        """
        fd = self._directory_fd
        if only_new:
            # A rename would replace what another program has put there since the last look.
            os.link(self._name, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            os.unlink(self._name, dir_fd=fd)
        else:
            os.rename(self._name, name, src_dir_fd=fd, dst_dir_fd=fd)
        self._committed = True
        # The file has its new content already. Syncing the directory only lets the name survive a power
        # failure, and a directory that may be written but not read cannot be synced.
        with suppress(OSError):
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory_fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _copy_attributes(self, replaced: os.stat_result) -> None:
        """Copy owner, group and mode, and make sure that the modification time differs."""
        fresh = os.fstat(self._fd)
        owner = replaced.st_uid, replaced.st_gid
        if owner != (fresh.st_uid, fresh.st_gid) and not self._change_owner(*owner):
            self._change_owner(-1, replaced.st_gid)
        # Set-user-ID bits belong to the old content; the kernel also drops them on an ordinary write.
        os.fchmod(self._fd, stat.S_IMODE(replaced.st_mode) & 0o1777)
        # Two writes may follow within one tick of the clock; readers distinguish versions by this time.
        if fresh.st_mtime_ns == replaced.st_mtime_ns:
            os.utime(self._fd, ns=(fresh.st_atime_ns, fresh.st_mtime_ns + 1_000))

    def _change_owner(self, user: int, group: int) -> bool:
        try:
            os.fchown(self._fd, user, group)
        except OSError:
            return False
        return True


_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceWriter:
    """Changes files below one root as :class:`~sessiontree.contracts.handles.ports.Writer` promises.

    Writing to a link below the root replaces the link's target and keeps the link. Paths in results are
    relative to the root with links resolved. Safe to use from several threads.

    Args:
        root: An existing directory; held open, so that renaming it changes nothing.
        hidden: Absolute paths of files or directories that are refused.
        resolver: How paths are resolved; None = the best way that this kernel offers.
        own: Places from which processes of the runtime import. They are protected, and so are the settings
            that tell git which programs to run.

    Raises:
        ConfigError: the root is missing or not a directory, or a hidden path is relative or holds the root.
    """

    __slots__ = ("_allowed", "_last_look", "_own", "_places", "_root")

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
        self._own = own or OwnPlaces()
        self._places: ProtectedPlaces | None = None
        self._allowed: frozenset[str] | None = frozenset()

    @property
    def _protected(self) -> ProtectedPlaces:
        """The protected places, found before the first change: most sessions change nothing by a writer."""
        if self._places is None:
            self._places = find_protected_places(self._root.path, self._own)
        return self._places

    @property
    def root(self) -> str:
        """Path of the root with links resolved, as it was when the root was opened."""
        return self._root.path

    def is_at(self, root: Path) -> bool:
        """Whether a path leads now to the directory that is held open, which is still at :attr:`root`."""
        return self._root.is_at(root)

    def holds(self, path: str) -> bool:
        """Whether an absolute path begins with that of the root; links and ``..`` are not looked at."""
        return self._root.holds(path)

    def name_place(self, path: str) -> str:
        """Return the name of the place to which a path leads now: absolute, with its directory's identity.

        Raises:
            PermissionDenied: it leads outside the root, into a hidden place or into a kernel file system.
            ExecutionError: it is not a valid path, or the system refused.
        """
        with self._root.place("look at", path) as place:
            status = os.fstat(place.directory_fd)
            return f"{self.root.rstrip('/')}/{place.path}\0{status.st_dev}:{status.st_ino}"

    def reader(self) -> WorkspaceReader:
        """Return a reader of the same root, which refuses the same hidden places."""
        return WorkspaceReader.at(self._root)

    def allow_places(self, places: frozenset[str] | None) -> WorkspaceWriter:
        """Return a writer of the same root for one approved call.

        Args:
            places: The protected places that it may change, as named by :meth:`find_places`; None = all.
        """
        # A shallow copy shares the root and the lock, so its last looks exclude those of all others.
        other = copy.copy(self)
        other._allowed = places  # noqa: SLF001 - of its own class
        return other

    def find_places(self, path: str) -> frozenset[str]:
        """Return the protected places that a path names now, both with a last link followed and without.

        A place is named by its path and its directory's identity. Empty = the path is not valid, or names no
        protected place.
        """
        found = set()
        with suppress(ToolError), self._root.place("look at", path, follow_last=False) as place:
            standing, why = self._describe_standing(place)
            if why:
                found.add(standing)
            # Resolving is most of what a call costs here. Only a link has a second place to name. If it
            # becomes one after this look, the change itself is refused: it asks again.
            if not _is_link(place):
                return frozenset(found)
        with suppress(ToolError), self._root.place("look at", path) as place:
            standing, why = self._describe_standing(place)
            if why:
                found.add(standing)
        return frozenset(found)

    def write(
        self,
        path: str,
        data: bytes,
        *,
        expect_mtime_ns: int | None = None,
        only_new: bool = False,
        like: str | None = None,
        executable: bool | None = None,
    ) -> Written:
        """Write a whole file in one step: readers see the old content or the new content, never a part.

        Missing parent directories are made, and removed again if the write fails. A replaced file keeps its
        permission bits, and owner and group if the system allows it; its modification time always changes.

        Args:
            path: The file.
            data: Its whole content.
            expect_mtime_ns: Refuse if the file has another ``mtime_ns``, or was removed. Two writes of one
                writer are always distinguished; another program may write between the last check and the
                rename.
            only_new: Refuse if there is such a file, also if another program makes it meanwhile.
            like: A file of the workspace; a new file gets its permission bits, owner and group.
            executable: Whether those who may read it may run it; None = as its other permission bits say.

        Raises:
            PermissionDenied: it is outside the root, hidden, on a kernel file system or protected, or has
                several names.
            ExecutionError: it changed, is there although it should be new, is not a regular file, is
                write-protected, or the system refused; the old file is unchanged.
        """
        model = None
        if like is not None:
            _, model = self._root.look_at(like)
            check_regular("look at", like, model)
        with self._root.place("write", path) as place, convert_system_errors("write", path):
            if not place.names:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._check_protected("write", path, place)
            name = place.names[-1]
            with _make_directories(place) as directory_fd:
                # Looked at twice: now, so that nothing is written in vain, and again when the content is on
                # the disk, because that takes time in which the file may change.
                standing = self._look(path, directory_fd, name, expect_mtime_ns, only_new=only_new)
                with FileReplacement(directory_fd, standing or model) as replacement:
                    replacement.fill(data, executable)
                    # Race: two writes may both find the file unchanged; the second would then replace what
                    # the first wrote.
                    with self._last_look:
                        standing = self._look(path, directory_fd, name, expect_mtime_ns, only_new=only_new)
                        replacement.commit(name, only_new=only_new)
            return Written(place.path, len(data), created=standing is None)

    def remove(self, path: str, *, expect_mtime_ns: int | None = None) -> None:
        """Delete one regular file or link (the link itself).

        Args:
            path: The file or link.
            expect_mtime_ns: Refuse if it has another ``mtime_ns``.

        Raises:
            PermissionDenied: it is outside the root, hidden, on a kernel file system, or protected.
            ExecutionError: it does not exist, changed, is neither file nor link, or the system refused.
        """
        with (
            self._root.place("remove", path, follow_last=False) as place,
            convert_system_errors("remove", path),
        ):
            self._check_protected("remove", path, place)
            status = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
            self._root.check_status("remove", path, status)
            if not stat.S_ISLNK(status.st_mode):
                check_regular("remove", path, status)
            if expect_mtime_ns is not None and status.st_mtime_ns != expect_mtime_ns:
                raise make_failure("remove", path, CHANGED)
            os.unlink(place.name, dir_fd=place.directory_fd)

    def _describe_standing(self, place: WorkspacePath) -> tuple[str, str]:
        """Return the name of a place, and why it is protected; an empty reason = it is not."""
        why = self._protected.why(place.directory_fd, place.directory, place.names)
        status = os.fstat(place.directory_fd)
        return f"{place.path}\0{status.st_dev}:{status.st_ino}", why

    def _check_protected(self, verb: str, path: str, place: WorkspacePath) -> None:
        """Refuse a change of a protected place, unless the call was approved."""
        if self._allowed is None:
            return
        standing, why = self._describe_standing(place)
        if why and standing not in self._allowed:
            raise make_refusal(
                verb, path, f"it is protected ({why}); a call that changes it needs an approval"
            )

    def _look(
        self, path: str, directory_fd: int, name: str, expected: int | None, *, only_new: bool
    ) -> os.stat_result | None:
        """Return the file that a write would replace, or None; raise if it may not be replaced."""
        try:
            standing = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            if expected is not None:
                raise make_failure("write", path, "it was removed since it was read") from None
            return None
        self._root.check_status("write", path, standing)
        if only_new:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        check_regular("write", path, standing)
        if standing.st_nlink > 1:
            raise make_refusal(
                "write",
                path,
                f"it has {standing.st_nlink} names (hard links), and others may be outside the workspace",
                PermissionTier.WORKSPACE,
            )
        if expected is not None and standing.st_mtime_ns != expected:
            raise make_failure("write", path, CHANGED)
        # A rename ignores the permissions of the file that it replaces, so they are checked here.
        if not os.access(name, os.W_OK, dir_fd=directory_fd, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return standing


def _is_link(place: WorkspacePath) -> bool:
    """Whether the last name of a path is a link now; not so for a missing file, or for the root itself."""
    if len(place.names) != 1:
        return False
    try:
        return stat.S_ISLNK(os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # what can't be looked at is looked at both ways


@contextmanager
def _make_directories(place: WorkspacePath) -> Iterator[int]:
    """Make a place's missing directories; remove them again if the block fails."""
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
                with suppress(OSError):  # another program has put a file into it
                    os.rmdir(name, dir_fd=parent_fd)
            raise
