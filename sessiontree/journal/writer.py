"""The thread that commits: it takes all that waits, makes it durable at once, and tells the event loop.

After a failed commit nothing more is written: what the disk kept of it is unknown, and a second try
could report as durable what the first one lost.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sessiontree.contracts.errors import JournalError, JournalUnwritable
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.chain import Advance
from sessiontree.journal.commit import Commit, Numbered, Tail, mend_numbering
from sessiontree.journal.erasure import empty_log
from sessiontree.journal.sqlite_errors import FAULTS, write_error
from sessiontree.journal.tables import log_of
from sessiontree.journal.wal_preallocation import LogSpace

_LOG_BYTES_IDLE = 4 * 1024 * 1024
"""The log is emptied beyond this as soon as nothing waits."""
_LOG_BYTES_BUSY = 16 * 1024 * 1024
"""Beyond this even while something waits."""
_LONG_COMMIT_BYTES = 128 * 1024
"""A longer commit spends its time on its own bytes; room for more like it would be written twice."""


@dataclass(frozen=True, slots=True)
class NewTree:
    """A tree to be created."""

    tail: Tail
    created_ms: int
    row0: str
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class NewFacts:
    """Facts to be appended; without any it only waits for what came before."""

    tail: Tail
    facts: tuple[Numbered, ...]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot to be kept."""

    tree_id: str
    session: str
    seq: int
    body: str


@dataclass(frozen=True, slots=True)
class JournalTask:
    """Something else to be done with the connection, alone and in turn."""

    run: Callable[[sqlite3.Connection], None]
    done: Future[None]


@dataclass(frozen=True, slots=True)
class StopWriter:
    """The end of the thread."""

    done: asyncio.Future[None]


_New: TypeAlias = NewTree | NewFacts | NewSnapshot
Item: TypeAlias = _New | JournalTask | StopWriter


class JournalWriter:
    """The one that writes a journal. :meth:`put` and :meth:`stop` are the event loop's alone.

    Args:
        connection: The writing connection; closed by :meth:`stop`.
        blobs: Takes long texts.
        path: The database, for errors.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: BlobStore, path: Path) -> None:
        self._connection = connection
        self._blobs = blobs
        self._path = path
        self._file = _identity_of(path)
        self._log = log_of(path)
        self._log_space = LogSpace(self._log, connection)
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log_bytes = _length_of(self._log)  # what a killed writer left is emptied in its time, too
        self._emptying_owed = False
        self._commit_bytes = 0
        """What the last commit wrote into the log, roughly."""
        self.advances: dict[str, Advance] = {}
        """How far each tree has become durable; whoever takes an entry out learns of it once."""
        self.broken: JournalError | None = None
        """Why nothing more is written; None while all is well."""

    @property
    def started(self) -> bool:
        """True once there is a thread."""
        return self._thread is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; futures are resolved on ``loop``."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="sessiontree-journal", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what broke the journal, if anything did."""
        if self.broken is not None:
            raise type(self.broken)(self.broken.path, self.broken.reason)

    def put(self, item: Item) -> None:
        """Let something wait for the next commit."""
        self._queue.put(item)

    def do(self, run: Callable[[sqlite3.Connection], None]) -> None:
        """Run an errand after everything that waits; blocks until it is done and raises as it does."""
        errand = JournalTask(run, Future())
        if self.started:
            self._queue.put(errand)
        else:
            self._run_errand(errand)
        errand.done.result()

    def mend(self) -> None:
        """Make the index over segment numbers anew, unless nothing can be written any more."""
        if self.broken is None:
            self.do(mend_numbering)

    async def stop(self) -> None:
        """Commit what waits, then end the thread and close the connection."""
        if self._thread is None or self._loop is None:
            self.close()
            return
        stop = StopWriter(asyncio.get_running_loop().create_future())  # which may be another one by now
        self._queue.put(stop)
        await stop.done
        self._thread.join()

    def close(self) -> None:
        """Close the connection of a writer whose thread was never started."""
        if self.broken is None and (self._log_bytes or self._emptying_owed):
            self._empty_log()
        self._log_space.close()
        self._connection.close()

    def _run(self) -> None:
        while True:
            group: list[_New] = []
            for item in self._waiting():
                if isinstance(item, JournalTask | StopWriter):
                    self._commit(group)
                    group = []
                if isinstance(item, JournalTask):
                    self._run_errand(item)
                elif isinstance(item, StopWriter):
                    self.close()
                    self._tell([item.done], None)
                    return
                else:
                    group.append(item)
            self._commit(group)
            self._tend_log()

    def _waiting(self) -> list[Item]:
        """Return everything that waits, at least one item."""
        items = [self._queue.get()]
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        return items

    def _commit(self, group: Sequence[_New]) -> None:
        if not group:
            return
        futures = [item.done for item in group if not isinstance(item, NewSnapshot)]
        commit = Commit(self._blobs)
        if self.broken is None:
            try:
                for item in group:
                    _add(commit, item)
                commit.write(self._connection)
                self._commit_bytes = commit.written_bytes
                self._log_bytes += commit.written_bytes
                self._check_file()
            except JournalError as error:
                self.broken = error
            except (*FAULTS, OSError) as error:
                self.broken = write_error(self._path, error)
            except Exception as error:  # noqa: BLE001 - the thread's edge: who waits must hear of it
                self.broken = JournalUnwritable(str(self._path), f"a commit failed unexpectedly: {error!r}")
        if self.broken is None:
            self.advances.update((advance.tree_id, advance) for advance in commit.advances)
        self._tell(futures, self.broken)

    def _check_file(self) -> None:
        """Raise where what was written went into a file that nobody finds again."""
        if _identity_of(self._path) != self._file:
            raise JournalUnwritable(
                str(self._path), "the file was deleted, moved or replaced while it was open; bring it back"
            )

    def _run_errand(self, errand: JournalTask) -> None:
        try:
            self.check()
            errand.run(self._connection)
        except FAULTS as error:
            self.broken = write_error(self._path, error)
            errand.done.set_exception(self.broken)
        except OSError as error:
            errand.done.set_exception(write_error(self._path, error))
        except Exception as error:  # noqa: BLE001 - the thread's edge: who waits must hear of it
            errand.done.set_exception(error)
        else:
            errand.done.set_result(None)
        # A reader may hold on to what was erased, or a blob have stood in the way: then again, later.
        self._emptying_owed |= _length_of(self._log) > 0

    def _tend_log(self) -> None:
        """Empty the log where it is long or keeps what was erased; else keep room in it."""
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
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                futures[0].get_loop().call_soon_threadsafe(_settle, futures, error)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - once a commit
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _length_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _settle(futures: list[asyncio.Future[None]], error: JournalError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(type(error)(error.path, error.reason))


def _add(commit: Commit, item: _New) -> None:
    if isinstance(item, NewFacts):
        commit.add_facts(item.tail, item.facts)
    elif isinstance(item, NewTree):
        commit.add_tree(item.tail, item.created_ms, item.row0)
    else:
        commit.add_snapshot(item.tree_id, item.session, item.seq, item.body)
