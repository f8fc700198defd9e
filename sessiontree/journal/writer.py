"""The thread that commits: it makes everything that waits durable at once, and reports to the event loop.

After a failed commit nothing more is written: what the disk kept of it is unknown, and a second try could
report as durable what the first one lost.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from sessiontree.contracts.errors import JournalError, JournalUnwritable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.commit import Commit, Numbered, Tail, empty_log, mend_numbering
from sessiontree.journal.segment import Advance
from sessiontree.journal.tables import FAULTS, disable_waiting, get_log_path, write_error

STEP_BYTES = 1024 * 1024
"""How much is prepared at a time: room for about 60 commits of one turn's facts."""
FROM_BYTES = 128 * 1024
"""A shorter log gets no room: one message (60 KiB) does not need it, and an emptied log stays empty."""
SPARE_BYTES = 64 * STEP_BYTES
"""No room is made if less of the disk is free, because blobs and the database need theirs."""
_ZEROS = bytes(STEP_BYTES)


class LogSpace:
    """Keeps room at the end of the write-ahead log, so that a commit need not ask the file system for it.

    The log is filled with zeros beyond its end; SQLite and its readers do not take them for frames. A commit
    that grows a file also waits for the log of the file system. One that overwrites blocks waits only for its
    bytes, half as long on ext4. The database's write lock is held while zeros are written, so that no other
    program appends to the log or empties it meanwhile. SQLite locks other files, so closing this descriptor
    drops none of its locks.

    Args:
        log: The write-ahead log of a database that this process has open for writing.
        connection: Writes that database; used by the thread that calls.
        spare_bytes: How much of the disk must be free for room to be made.

    Source: the SQLite file format, "The Write-Ahead Log" and "WAL-mode File Format".
    """

    def __init__(self, log: Path, connection: sqlite3.Connection, *, spare_bytes: int = SPARE_BYTES) -> None:
        self._log = log
        self._connection = connection
        self._spare_bytes = spare_bytes
        self._descriptor: int | None = None
        self._ready_bytes = 0

    def keep(self) -> None:
        """Make room again if commits have used it up; call it while nothing waits for a commit.

        If that fails (a disk nearly full, a limit, another writer), nothing changes: a commit that needs more
        space fails by itself.

        Raises:
            sqlite3.Error: the write lock can't be released.
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
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self) -> bool:
        with suppress(sqlite3.Error), disable_waiting(self._connection):
            self._connection.execute("BEGIN IMMEDIATE")
        return self._connection.in_transaction

    def _fill(self, descriptor: int) -> None:
        end = os.fstat(descriptor).st_size
        try:
            if os.pwrite(descriptor, _ZEROS, end) < STEP_BYTES:
                raise OSError(errno.ENOSPC, "less than one step could be written")
            os.fdatasync(descriptor)
        except OSError:
            # On a full disk a partial fill would take the space that the next commit needs.
            os.ftruncate(descriptor, end)
            raise
        self._ready_bytes = end + STEP_BYTES


_LOG_BYTES_IDLE = 4 * 1024 * 1024
"""A longer log is emptied as soon as nothing waits."""
_LOG_BYTES_BUSY = 16 * 1024 * 1024
"""A longer log is emptied even while something waits."""
_LONG_COMMIT_BYTES = 128 * 1024
"""After a longer commit no room is made: its own bytes take the time, and the room would be written twice."""


@dataclass(frozen=True, slots=True)
class NewTree:
    """A tree to be created."""

    tail: Tail
    created_ms: int
    row0: str
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class NewFacts:
    """Facts to be appended; an empty tuple only waits for earlier commits."""

    tail: Tail
    facts: tuple[Numbered, ...]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class JournalTask:
    """Work that needs the connection for itself; it runs in its turn."""

    run: Callable[[sqlite3.Connection], None]
    done: Future[None]


@dataclass(frozen=True, slots=True)
class StopWriter:
    """A request to end the thread."""

    done: asyncio.Future[None]


_New: TypeAlias = NewTree | NewFacts
Item: TypeAlias = _New | JournalTask | StopWriter


class JournalWriter:
    """The only writer of a journal. Only the event loop calls :meth:`stop`; any thread may call the others.

    Once it stops, it refuses everything: what came after the request to stop would never be run.

    Args:
        connection: The writing connection; closed by :meth:`stop`.
        blobs: Takes long texts.
        path: The database, for errors.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: BlobStore, path: Path) -> None:
        self._connection = connection
        self._blobs = blobs
        self._path = path
        self._file = _read_identity(path)
        self._log = get_log_path(path)
        self._log_space = LogSpace(self._log, connection)
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._gate = threading.Lock()
        """Held while the queue takes something, so that nothing follows the request to stop."""
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log_bytes = _measure_length(self._log)  # a killed writer's log counts too
        self._emptying_owed = False
        self._commit_bytes = 0
        """What the last commit wrote into the log, roughly."""
        self.advances: dict[str, Advance] = {}
        """How far each tree is durable now; the reader removes the entries that it has seen."""
        self.broken: JournalError | None = None
        """Why nothing more is written; None = the journal can be written."""

    @property
    def started(self) -> bool:
        """True once there is a thread."""
        return self._thread is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; futures are resolved on ``loop``."""
        self._loop = loop
        # A daemon: a program that ends without `close` must not hang. What is not durable yet was
        # acknowledged to nobody.
        self._thread = threading.Thread(target=self._run, name="sessiontree-journal", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise why nothing more is written: the journal is broken or closed."""
        self._check_broken()
        if self._stopped:
            raise JournalUnwritable(str(self._path), "it is closed; open it again")

    def _check_broken(self) -> None:
        if self.broken is not None:
            raise type(self.broken)(self.broken.path, self.broken.reason)

    def put(self, item: Item) -> None:
        """Put something in the queue for the next commit.

        Raises:
            JournalUnwritable: the writer stops or has stopped.
        """
        with self._gate:
            if self._stopped:
                self.check()
            self._stopped = isinstance(item, StopWriter)
            self._queue.put(item)

    def do(self, run: Callable[[sqlite3.Connection], None]) -> None:
        """Run a function after everything that waits; block until it is done, and raise what it raises.

        Raises:
            JournalUnwritable: the writer stops or has stopped.
        """
        task = JournalTask(run, Future())
        if self.started:
            self.put(task)
        else:
            self.check()
            self._run_task(task)
        task.done.result()

    def mend(self) -> None:
        """Rebuild the index over segment numbers, unless the journal can't be written any more."""
        if self.broken is None:
            self.do(mend_numbering)

    async def stop(self) -> None:
        """Commit what waits, then end the thread and close the connection."""
        if self._thread is None or self._loop is None:
            self.close()
            return
        stop = StopWriter(
            asyncio.get_running_loop().create_future()
        )  # it may be another loop than at the start
        self.put(stop)
        await stop.done
        self._thread.join()

    def close(self) -> None:
        """Close the connection of a writer whose thread was never started."""
        self._stopped = True
        if self.broken is None and (self._log_bytes or self._emptying_owed):
            self._empty_log()
        self._log_space.close()
        self._connection.close()

    def _run(self) -> None:
        while True:
            group: list[_New] = []
            for item in self._take_waiting():
                if isinstance(item, JournalTask | StopWriter):
                    self._commit(group)
                    group = []
                if isinstance(item, JournalTask):
                    self._run_task(item)
                elif isinstance(item, StopWriter):
                    self.close()
                    self._tell([item.done], None)
                    return
                else:
                    group.append(item)
            self._commit(group)
            self._tend_log()

    def _take_waiting(self) -> list[Item]:
        """Wait for at least one item and return everything that waits."""
        # All that waits goes into one commit, so that one sync pays for it. Only this thread takes from the
        # queue, so `empty` can't become true between the test and the take.
        items = [self._queue.get()]
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        return items

    def _commit(self, group: Sequence[_New]) -> None:
        if not group:
            return
        futures = [item.done for item in group]
        commit = Commit(self._blobs)
        if self.broken is None:
            try:
                for item in group:
                    _add(commit, item)
                commit.write(self._connection)
                self._commit_bytes = commit.written_bytes
                self._log_bytes += commit.written_bytes
                # After the write, not before it: a file that is replaced in between would take the commit
                # along.
                self._check_file()
            except JournalError as error:
                self.broken = error
            except (*FAULTS, OSError) as error:
                self.broken = write_error(self._path, error)
            except Exception as error:  # noqa: BLE001 - the edge of the thread: callers that wait must get the error
                self.broken = JournalUnwritable(str(self._path), f"a commit failed unexpectedly: {error!r}")
        if self.broken is None:
            # Before the futures resolve, so that whoever reads its own facts then need not check the chain
            # again.
            self.advances.update((advance.tree_id, advance) for advance in commit.advances)
        self._tell(futures, self.broken)

    def _check_file(self) -> None:
        """Raise if the file was replaced: what was written is then in a file without a name."""
        if _read_identity(self._path) != self._file:
            raise JournalUnwritable(
                str(self._path), "the file was deleted, moved or replaced while it was open; bring it back"
            )

    def _run_task(self, task: JournalTask) -> None:
        try:
            self._check_broken()
            task.run(self._connection)
        except FAULTS as error:
            self.broken = write_error(self._path, error)
            task.done.set_exception(self.broken)
        except OSError as error:
            # Only blob files raise it. The database is sound, so later commits may go on.
            task.done.set_exception(write_error(self._path, error))
        except Exception as error:  # noqa: BLE001 - the edge of the thread: callers that wait must get the error
            task.done.set_exception(error)
        else:
            task.done.set_result(None)
        # A reader may have kept the log from being emptied, or a blob may have failed: try again later.
        self._emptying_owed |= _measure_length(self._log) > 0

    def _tend_log(self) -> None:
        """Empty the log if it is long or holds erased bytes; else keep room in it."""
        too_long = self._log_bytes > (_LOG_BYTES_IDLE if self._queue.empty() else _LOG_BYTES_BUSY)
        if self.broken is None and (too_long or self._emptying_owed):
            self._empty_log()
        if self.broken is None and self._queue.empty() and self._commit_bytes <= _LONG_COMMIT_BYTES:
            try:
                self._log_space.keep()
            except FAULTS as error:
                self.broken = write_error(self._path, error)

    def _empty_log(self) -> None:
        try:
            self._emptying_owed &= not empty_log(self._connection)
            self._log_bytes = 0
        except FAULTS as error:
            self.broken = write_error(self._path, error)

    def _tell(self, futures: list[asyncio.Future[None]], error: JournalError | None) -> None:
        if futures:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                # One wake-up for the whole group: its futures belong to one loop, and each wake-up costs a
                # system call.
                futures[0].get_loop().call_soon_threadsafe(_settle, futures, error)


def _read_identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - once a commit
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _measure_length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _settle(futures: list[asyncio.Future[None]], error: JournalError | None) -> None:
    for future in futures:
        # The caller was cancelled and its future with it; the facts are in the journal all the same.
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            # Each caller gets an error of its own: an object raised in several tasks collects all their
            # tracebacks.
            future.set_exception(type(error)(error.path, error.reason))


def _add(commit: Commit, item: _New) -> None:
    if isinstance(item, NewFacts):
        commit.add_facts(item.tail, item.facts)
    else:
        commit.add_tree(item.tail, item.created_ms, item.row0)
