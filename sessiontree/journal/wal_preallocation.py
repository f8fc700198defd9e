"""Room kept ready at the end of the write-ahead log, so that a commit need not ask the file system for it."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from sessiontree.journal.tables import without_waiting

STEP_BYTES = 1024 * 1024
"""So much is made ready at a time: about 60 commits of one turn's facts."""
FROM_BYTES = 128 * 1024
"""A shorter log is left alone: one message (60 KiB) is not worth the room, and an emptied log stays empty."""
SPARE_BYTES = 64 * STEP_BYTES
"""No room is made where less of the disk is free: blobs and the database must find theirs."""
_ZEROS = bytes(STEP_BYTES)


class LogSpace:
    """Fills the log with zeros beyond its end: to SQLite they are no frames, and no reader takes them.

    A commit that grows a file waits for the file system's own log, too; one that overwrites blocks waits for
    its bytes alone, half as long on ext4. While zeros are written the database's write lock is held: nobody,
    not even a program that knows nothing of this one, then appends to the log or empties it. SQLite locks
    other files, so that closing this descriptor gives up no lock of its own.

    Args:
        log: The write-ahead log of a database that this process has open for writing.
        connection: Writes that database; used by the thread that calls.
        spare_bytes: What must be free on its disk for room to be made.

    Source: the SQLite file format, "The Write-Ahead Log" and "WAL-mode File Format".
    """

    def __init__(self, log: Path, connection: sqlite3.Connection, *, spare_bytes: int = SPARE_BYTES) -> None:
        self._log = log
        self._connection = connection
        self._spare_bytes = spare_bytes
        self._descriptor: int | None = None
        self._ready_bytes = 0

    def keep(self) -> None:
        """Make room again where commits have used up what there was; call where nothing waits for a commit.

        Where a step of it can't be made (a disk nearly full, a limit, another writer), nothing changes: the
        next commit will tell if it needs more.

        Raises:
            sqlite3.Error: the write lock can't be given back.
        """
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._log, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            end = os.fstat(self._descriptor).st_size
            if end >= FROM_BYTES and end != self._ready_bytes:
                self._ready_bytes = end  # one try for each end, or a full disk would be asked each time
                disk = os.fstatvfs(self._descriptor)
                if disk.f_bavail * disk.f_frsize >= self._spare_bytes and self._lock():
                    try:
                        self._fill(self._descriptor)
                    finally:
                        self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self) -> bool:
        with suppress(sqlite3.Error), without_waiting(self._connection):
            self._connection.execute("BEGIN IMMEDIATE")
        return self._connection.in_transaction

    def _fill(self, descriptor: int) -> None:
        end = os.fstat(descriptor).st_size
        try:
            if os.pwrite(descriptor, _ZEROS, end) < STEP_BYTES:
                raise OSError(errno.ENOSPC, "a limit is nearer than one step")
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        self._ready_bytes = end + STEP_BYTES
