"""Copying a workspace's files to a place of their own, and finding later what differs there.

Every file is opened below an open directory without following links, so a link that is swapped in meanwhile
leads nowhere. What is named ``.git`` is never copied to a child's workspace, wherever it is: it decides
which programs git runs. Templates of suites are copied by the same walk, :class:`FileCopy`, with other rules.
A copy shares nothing with its source: no hard link, and blocks of the disk only where the file system copies
them on the first write (``FICLONE``). Source: ioctl_ficlone(2).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Final, NamedTuple

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.workspace.resolver import Identity, get_file_identity
from sessiontree.workspace.root import TEMPORARY_PREFIX

MAX_FILES: Final = 100_000
MAX_BYTES: Final = 2 * 2**30
MAX_DEPTH: Final = 200
"""Most directories above a file; each is held open while what it holds is copied."""
GIT: Final = ".git"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE: Final = 0x40049409
_CHUNK: Final = 1 << 20


class FileState(NamedTuple):
    """A file or link of a copy as it was at one time."""

    digest: str
    """SHA-256 of its content, or of ``link:`` and its target, in hexadecimal."""
    bytes: int
    executable: bool
    is_link: bool
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    def is_unchanged(self, now: os.stat_result) -> bool:
        """Whether the file was not written since; nobody can set ``ctime``."""
        times = (now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)
        return times == (self.size, self.mtime_ns, self.ctime_ns, self.inode)


@dataclass(frozen=True, slots=True)
class FileBounds:
    """What a copy may hold."""

    files: int = MAX_FILES
    bytes: int = MAX_BYTES

    def check(self, files: int, size: int) -> None:
        """Refuse more.

        Raises:
            ExecutionError: the numbers are over the bounds.
        """
        if files > self.files:
            raise ExecutionError(f"it has more than {self.files:,} files; remove or ignore some")
        if size > self.bytes:
            raise ExecutionError(f"its files have more than {self.bytes:,} bytes; remove or ignore some")


@dataclass(slots=True)
class Copied:
    """The content of a copy."""

    files: dict[str, FileState] = field(default_factory=dict)
    """By path, in the order of the walk. A name that is not UTF-8 holds surrogates (``os.fsdecode``)."""
    bytes: int = 0

    @property
    def digest(self) -> str:
        """SHA-256 of the paths and contents."""
        content = hashlib.sha256()
        for path in sorted(self.files):
            seen = self.files[path]
            content.update(os.fsencode(path) + f"\0{seen.digest}\0{seen.executable:d}\n".encode())
        return content.hexdigest()


def copy_files(
    source: str,
    target: str,
    *,
    hidden: Collection[Identity] = (),
    only: Collection[str] | None = None,
    bounds: FileBounds | None = None,
) -> Copied:
    """Copy files and relative links of a directory into a new one; the rest is left out.

    Args:
        source: The directory.
        target: An empty directory.
        hidden: Files and directories that are left out.
        only: Paths of the files to copy; None = all.
        bounds: How much may be copied; None = the usual.

    Raises:
        ExecutionError: there is more.
        OSError: the system refused.
    """
    work = _WorkspaceCopy(bounds or FileBounds(), frozenset(hidden), only)
    work.copy(source, target)
    return work.copied


class FileCopy(ABC):
    """Copies what a directory holds into an empty one; a subclass decides what that is.

    Raises:
        ExecutionError: it is too deep, or the subclass refuses it.
        OSError: the system refused.
    """

    def __init__(self) -> None:
        self._clones = True
        """Whether the file system may share blocks; the first refusal ends the attempts."""

    def copy(self, source: str, target: str) -> None:
        """Copy everything that the subclass takes."""
        with _open_folder(source) as top, _open_folder(target) as place:
            self._copy_folder(top, place, "", 0)

    @abstractmethod
    def takes(self, path: str, name: str, status: os.stat_result) -> bool:
        """Return whether an entry belongs to the copy."""

    @abstractmethod
    def can_take_opened(self, status: os.stat_result) -> bool:
        """Return whether what was opened in its place does; it may be another thing by then."""

    @abstractmethod
    def count(self, entries: int, more: int) -> None:
        """Refuse to go on where the copy would hold too much, with further files or links, and bytes."""

    def count_folder(self, path: str) -> None:  # noqa: B027 - optional
        """Refuse a directory where the copy would hold too much."""

    @abstractmethod
    def fill(self, old: int, new: int, status: os.stat_result) -> tuple[str, int]:
        """Copy the content of an open file; return its digest, if it is wanted, and its length."""

    @abstractmethod
    def note_file(self, path: str, new: int, status: os.stat_result, digest: str, size: int) -> None:
        """Note a file that is copied; ``new`` is open."""

    def note_folder(self, path: str, made: int, status: os.stat_result) -> None:  # noqa: B027 - optional
        """Note a directory whose content is copied; ``made`` is open."""

    @abstractmethod
    def take_link(self, path: str, to: str, name: str, target: int) -> None:
        """Make a link in the open directory ``target``, or note it."""

    def refuse(self, path: str) -> None:  # noqa: B027 - optional
        """Refuse or leave out what is neither a file, a directory nor a link."""

    def note_gone(self, path: str) -> None:  # noqa: B027 - optional
        """Refuse or leave out what was there when it was listed, and is gone or another thing now."""

    def share_content(self, old: int, new: int) -> bool:
        """Let an empty file share the blocks of an open one until either is written; False = it can't."""
        if self._clones:
            try:
                fcntl.ioctl(new, _FICLONE, old)
            except OSError:
                # The whole copy is on one file system, so one refusal is the answer for all files.
                self._clones = False
        return self._clones

    def _copy_folder(self, source: int, target: int, place: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ExecutionError(f"{place!r} is below more than {MAX_DEPTH} directories")
        for name, status in _list_entries(source):
            path = f"{place}{name}"
            if not self.takes(path, name, status):
                continue
            if stat.S_ISDIR(status.st_mode):
                self._copy_inner(source, target, name, path, depth)
            elif stat.S_ISLNK(status.st_mode):
                self._link(source, target, name, path)
            elif stat.S_ISREG(status.st_mode):
                self._copy_file(source, target, name, path)
            else:
                self.refuse(path)

    def _copy_inner(self, source: int, target: int, name: str, path: str, depth: int) -> None:
        try:
            inner = os.open(name, _FOLDER, dir_fd=source)
        except (FileNotFoundError, NotADirectoryError):
            self.note_gone(path)
            return
        try:
            status = os.fstat(inner)
            if not self.can_take_opened(status):
                return
            self.count_folder(path)
            os.mkdir(name, 0o755, dir_fd=target)
            with _open_folder(name, target) as made:
                self._copy_folder(inner, made, f"{path}/", depth + 1)
                self.note_folder(path, made, status)
        finally:
            os.close(inner)

    def _link(self, source: int, target: int, name: str, path: str) -> None:
        try:
            to = os.readlink(name, dir_fd=source)
        except OSError:
            self.note_gone(path)
            return
        self.count(1, 0)
        self.take_link(path, to, name, target)

    def _copy_file(self, source: int, target: int, name: str, path: str) -> None:
        try:
            old = os.open(name, _READ, dir_fd=source)
        except OSError as error:
            # Since it was listed it was removed, or a link (ELOOP) or a socket (ENXIO) took its place.
            if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
                self.note_gone(path)
                return
            raise
        try:
            status = os.fstat(old)
            if not stat.S_ISREG(status.st_mode) or not self.can_take_opened(status):
                return
            # Counted before it is copied, so that one huge file does not fill the disk first.
            self.count(1, status.st_size)
            new = os.open(name, _NEW, (status.st_mode & 0o777) | 0o600, dir_fd=target)
            try:
                digest, size = self.fill(old, new, status)
                # The umask may have taken bits away when the file was made.
                os.fchmod(new, (status.st_mode & 0o777) | 0o600)
                self.note_file(path, new, status, digest, size)
            finally:
                os.close(new)
        finally:
            os.close(old)


class _WorkspaceCopy(FileCopy):
    """Copies what counts of a workspace, with digests; bounds count files and links."""

    def __init__(self, bounds: FileBounds, hidden: frozenset[Identity], only: Collection[str] | None) -> None:
        super().__init__()
        self.copied = Copied()
        self._bounds = bounds
        self._hidden = hidden
        self._only = None if only is None else frozenset(only)
        self._ways = frozenset(_list_parents(only or ()))

    def takes(self, path: str, name: str, status: os.stat_result) -> bool:
        if _is_never_copied(name) or not self.can_take_opened(status):
            return False
        return self._only is None or path in (self._ways if stat.S_ISDIR(status.st_mode) else self._only)

    def can_take_opened(self, status: os.stat_result) -> bool:
        return get_file_identity(status) not in self._hidden

    def count(self, entries: int, more: int) -> None:
        self._bounds.check(len(self.copied.files) + entries, self.copied.bytes + more)

    def fill(self, old: int, new: int, status: os.stat_result) -> tuple[str, int]:
        """Copy an open file; return its digest and its length, which may differ from what it was."""
        is_shared = bool(status.st_size) and self.share_content(old, new)
        # Counted again while it is read: a file may grow meanwhile.
        return _digest(old, lambda more: self.count(0, more), None if is_shared else new)

    def note_file(self, path: str, new: int, status: os.stat_result, digest: str, size: int) -> None:
        self.copied.bytes += size
        self.copied.files[path] = _build_state(digest, size, os.fstat(new))

    def take_link(self, path: str, to: str, name: str, target: int) -> None:
        os.symlink(to, name, dir_fd=target)
        self.copied.files[path] = _record_link(to, os.stat(name, dir_fd=target, follow_symlinks=False))


def scan_files(
    root: str, before: Copied, *, only: Collection[str] | None = None, bounds: FileBounds | None = None
) -> Copied:
    """Return what a copy holds now; only files that were written since ``before`` are read.

    Raises:
        ExecutionError: there is more than the bounds allow.
        OSError: the system refused.
    """
    bounds = bounds or FileBounds()
    now = Copied()
    wanted = None if only is None else frozenset(only)
    with _open_folder(root) as top:
        for folder, name, path, status in _walk(top, "", 0):
            if wanted is not None and path not in wanted:
                continue
            seen = before.files.get(path)
            if seen is None or not seen.is_unchanged(status):
                seen = _look(folder, name, status)
                if seen is None:
                    continue
            now.bytes += seen.bytes
            bounds.check(len(now.files) + 1, now.bytes)
            now.files[path] = seen
    return now


def _walk(top: int, place: str, depth: int) -> Iterator[tuple[int, str, str, os.stat_result]]:
    if depth > MAX_DEPTH:
        raise ExecutionError(f"{place!r} is below more than {MAX_DEPTH} directories")
    for name, status in _list_entries(top):
        if _is_never_copied(name):
            continue
        path = f"{place}{name}"
        if stat.S_ISDIR(status.st_mode):
            with _open_folder(name, top) as inner:
                yield from _walk(inner, f"{path}/", depth + 1)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield top, name, path, status


def _look(folder: int, name: str, status: os.stat_result) -> FileState | None:
    if stat.S_ISLNK(status.st_mode):
        return _record_link(os.readlink(name, dir_fd=folder), status)
    opened = os.open(name, _READ, dir_fd=folder)
    try:
        # The state is taken before the content: after a write in between it is old, and the file is read
        # again.
        now = os.fstat(opened)
        if not stat.S_ISREG(now.st_mode):
            return None
        digest, size = _digest(opened, lambda more: None)
        return _build_state(digest, size, now)
    finally:
        os.close(opened)


def read_file(root: str, path: str) -> bytes:
    """Return the content of a file below a directory; no link on the way is followed.

    Raises:
        OSError: the file does not exist, or a link is on the way.
    """
    folders = path.split("/")
    here = os.open(root, _FOLDER)
    try:
        for name in folders[:-1]:
            inner = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        with os.fdopen(os.open(folders[-1], _READ, dir_fd=here), "rb") as stream:
            return stream.read()
    finally:
        os.close(here)


def _is_never_copied(name: str) -> bool:
    # On file systems that fold case, git takes `.GIT` for its own.
    return name.lower() == GIT or name.startswith(TEMPORARY_PREFIX)


def _list_entries(folder: int) -> list[tuple[str, os.stat_result]]:
    """Return names and states of what an open directory holds, by name."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda each: each[0])


def _list_parents(paths: Collection[str]) -> Iterator[str]:
    for path in paths:
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            yield "/".join(parts[:count])


def _digest(source: int, count: Callable[[int], None], target: int | None = None) -> tuple[str, int]:
    """Return digest and length of the rest of an open file; write it to another one, if given.

    ``count`` is called with the length so far before more is written, and may refuse it.
    """
    content, size = hashlib.sha256(), 0
    while data := os.read(source, _CHUNK):
        size += len(data)
        count(size)
        content.update(data)
        if target is not None:
            left = memoryview(data)
            while left:
                left = left[os.write(target, left) :]
    return content.hexdigest(), size


def _build_state(digest: str, size: int, status: os.stat_result) -> FileState:
    runs = bool(status.st_mode & stat.S_IXUSR)
    return FileState(
        digest, size, runs, False, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    )


def _record_link(to: str, status: os.stat_result) -> FileState:
    digest = hashlib.sha256(b"link:" + os.fsencode(to)).hexdigest()
    times = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    return FileState(digest, 0, False, True, *times)


@contextmanager
def _open_folder(name: str, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
