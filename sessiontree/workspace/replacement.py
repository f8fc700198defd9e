"""Replacing a file in one step: a temporary file beside it, written, synced and renamed over it.

Room: one replacement. Whoever opens the name sees the old content or the new, whatever fails in between.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from types import TracebackType
from typing import Final

TEMPORARY_PREFIX: Final = ".sessiontree-unfinished-"
"""Begins the name of every temporary file; one that outlives a crash may be deleted by hand."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileReplacement:
    """A file being prepared in the directory where it will stand. Use it in a ``with``.

    Unless :meth:`commit` was reached, leaving the block removes every trace.

    Args:
        directory_fd: The directory.
        standing: The file that will be replaced, or None: permission bits are kept, owner and group where the
            system allows it.

    Raises (every method):
        OSError: the system refused: no space, no permission, a limit on sizes.
    """

    __slots__ = ("_committed", "_directory_fd", "_fd", "_name", "_standing")

    def __init__(self, directory_fd: int, standing: os.stat_result | None) -> None:
        """Choose a name; nothing is created yet."""
        self._directory_fd = directory_fd
        self._standing = standing
        self._name = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        self._committed = False
        self._fd = -1

    def __enter__(self) -> FileReplacement:
        """Create the temporary file."""
        # Until it has the old file's mode, a replacement is nobody else's to read.
        mode = 0o666 if self._standing is None else 0o600
        self._fd = os.open(self._name, _CREATE, mode, dir_fd=self._directory_fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file, and remove it unless it took its place."""
        os.close(self._fd)
        if not self._committed:
            with suppress(OSError):  # the failure that led here is the one to report
                os.unlink(self._name, dir_fd=self._directory_fd)

    def fill(self, content: bytes) -> None:
        """Write the whole content and wait until the disk has it."""
        left = memoryview(content)
        while left:
            left = left[os.write(self._fd, left) :]
        if self._standing is not None:
            self._resemble(self._standing)
        os.fsync(self._fd)

    def commit(self, name: str) -> None:
        """Put the file in its place."""
        os.rename(self._name, name, src_dir_fd=self._directory_fd, dst_dir_fd=self._directory_fd)
        self._committed = True
        # The new content is in place already; syncing the directory only makes the name survive a power cut,
        # and a directory that may be written but not read cannot be synced.
        with suppress(OSError):
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory_fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _resemble(self, standing: os.stat_result) -> None:
        """Take over owner, group and mode, and make sure the modification time is another one."""
        fresh = os.fstat(self._fd)
        owner = standing.st_uid, standing.st_gid
        if owner != (fresh.st_uid, fresh.st_gid) and not self._give_to(*owner):
            self._give_to(-1, standing.st_gid)
        # Set-user-ID bits were meant for the old content; the kernel drops them on an ordinary write, too.
        os.fchmod(self._fd, stat.S_IMODE(standing.st_mode) & 0o1777)
        # Clocks tick coarser than two writes may follow each other; a reader tells versions apart by this.
        if fresh.st_mtime_ns == standing.st_mtime_ns:
            os.utime(self._fd, ns=(fresh.st_atime_ns, fresh.st_mtime_ns + 1_000))

    def _give_to(self, user: int, group: int) -> bool:
        try:
            os.fchown(self._fd, user, group)
        except OSError:
            return False
        return True
