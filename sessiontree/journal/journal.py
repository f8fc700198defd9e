"""How long a busy event loop may keep the interpreter from the writer thread.

A thread that comes back from the disk waits one switch interval for the interpreter. The interpreter's
default of 5 ms is paid several times a commit, so it is lowered while any writer is open.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TextIO

from sessiontree.contracts.errors import JournalError, JournalUnwritable
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.journal.appender import Appender
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.export import write_export
from sessiontree.journal.place import JournalLock, JournalPlace
from sessiontree.journal.reader import JournalReader
from sessiontree.journal.record import Packed, Record, TreeRow, Verification
from sessiontree.journal.rows import Rows
from sessiontree.journal.sqlite_errors import FAULTS, typed_reads, write_error
from sessiontree.journal.tables import connect_reader, connect_writer
from sessiontree.journal.writer import JournalWriter

WRITER_INTERVAL_S = 0.0005


class SwitchInterval:
    """Lowers the process's switch interval while at least one holder has it.

    Args:
        interval_s: The interval while held; a shorter one already in force stays.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._holders = 0
        self._before_s = 0.0

    def hold(self) -> None:
        """Lower the interval, if this is the first holder."""
        with self._lock:
            if self._holders == 0:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._interval_s, self._before_s))
            self._holders += 1

    def release(self) -> None:
        """Put the interval back, if this was the last holder."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                sys.setswitchinterval(self._before_s)


WRITERS = SwitchInterval(WRITER_INTERVAL_S)
"""The interval is the process's, and so is its one count of holders."""


class Journal:
    """The durable log of many trees. Made by :meth:`open`.

    Appending belongs to one event loop; reading may be done from any thread. What is read is committed,
    and an unbroken prefix of what was written: damage shortens a tree, it never alters one.

    Every method raises JournalCorrupt where the database file itself is damaged, and TreeNotFound for a
    tree that is not there (one just created is there once its future has resolved).
    """

    def __init__(
        self, place: JournalPlace, reader: JournalReader, appender: Appender | None, lock: JournalLock | None
    ) -> None:
        self._path = str(place.database)
        self._reader = reader
        self._appender = appender
        self._lock = lock
        self._closing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    def open(cls, state_dir: Path, *, read_only: bool = False, program_pid: int | None = None) -> Journal:
        """Open the journal of a state directory; the writer's side makes both where they are missing.

        Args:
            state_dir: Directory of its own; made with mode 0700, files in it 0600.
            read_only: Only read, beside a writer or without one. A directory that may not be written
                will do, unless a writer that was killed left its log there.
            program_pid: The process a writer writes for, where that is another.

        Raises:
            JournalLocked: another process writes it; the text names its process id.
            JournalUnwritable: the directory can't be made or written.
            JournalCorrupt: the database file is damaged.
            JournalTooNew: a later release wrote it.
            JournalError: there is nothing to read.
        """
        place = JournalPlace(state_dir)
        blobs = BlobStore(place.blobs)
        if read_only:
            place.require()
            return cls(place, _open_reader(place, blobs, None), None, None)
        lock = JournalLock(place, program_pid)
        try:
            writer = _open_writer(place, blobs, lock)
            try:
                reader = _open_reader(place, blobs, writer)
            except BaseException:
                writer.close()
                raise
        except BaseException:
            lock.release()
            raise
        WRITERS.hold()
        return cls(place, reader, Appender(writer, reader, blobs), lock)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start committing; from now on appends belong to ``loop``.

        Raises:
            RuntimeError: it was started before.
            JournalUnwritable: it is closed, or was opened to read.
        """
        self._writing().start(loop)

    async def close(self) -> None:
        """Commit what waits, then let go of files, thread and lock. Closing again waits for the first."""
        if self._appender is None or not self._appender.started:
            self.release()
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(self._appender))
        await asyncio.shield(self._closing)

    def release(self) -> None:
        """Close at once a journal that was never started, such as one that only reads.

        Raises:
            RuntimeError: it was started; await :meth:`close`.
        """
        if self._appender is not None and self._appender.started:
            raise RuntimeError("the journal was started: await close()")
        if self._closed:
            return
        self._reader.close()
        if self._appender is not None:
            self._appender.close()
        self._let_go()

    def __enter__(self) -> Self:
        """Return the journal; for those that only read."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()

    def create_tree(self, tree_id: str, row0: Mapping[str, JsonValue]) -> asyncio.Future[None]:
        """Create a tree; facts may be appended at once.

        Args:
            tree_id: Printable text, not empty.
            row0: What the tree was configured with; kept as it is and guarded by the chain.

        Returns:
            Resolved once the tree is durable.

        Raises:
            ValueError: the id is taken or no id, or row 0 has no JSON form.
            JournalUnwritable: nothing can be written any more.
        """
        return self._writing().create_tree(tree_id, row0)

    def append(
        self, tree_id: str, chunks: Sequence[tuple[str, Sequence[Packed]]]
    ) -> tuple[int, asyncio.Future[None]]:
        """Append facts; they become durable together, after everything appended before.

        The first append to a tree of an earlier process checks all of it, unless it was read before; a
        damaged end then goes into quarantine with the same commit.

        Args:
            tree_id: The tree.
            chunks: Session (empty = the tree itself) and its facts; seqs are given in this order. None
                at all makes the future wait for what was appended before.

        Returns:
            The last seq given, and a future resolved once the facts are durable.

        Raises:
            ValueError: a session or a fact has a form that can't be kept; nothing was appended.
            JournalUnwritable: nothing can be written any more. The future fails with it, too.
        """
        return self._writing().append(tree_id, chunks)

    def put_snapshot(self, tree_id: str, session: str, seq: int, body: str) -> None:
        """Keep a session's state as of a seq, in place of an older one; a cache that may get lost.

        It becomes durable with the next commit after this call.

        Raises:
            ValueError: the tree has no such seq yet.
            JournalUnwritable: nothing can be written any more.
        """
        self._writing().put_snapshot(tree_id, session, seq, body)

    def snapshot(self, tree_id: str, session: str) -> tuple[int, str] | None:
        """Return (seq, body) of a session's snapshot, or None: then evolve from the facts."""
        return self._reading().snapshot(tree_id, session)

    def read(self, tree_id: str, *, after_seq: int = 0, max_n: int | None = None) -> list[Record]:
        """Return committed records in seq order; the first read of a tree checks all that comes before.

        Args:
            tree_id: The tree.
            after_seq: The last seq already known.
            max_n: At most this many; None = all.
        """
        return self._reading().records(tree_id, after_seq, max_n)

    def read_session(
        self, tree_id: str, session: str, *, after_seq: int = 0, max_n: int | None = None
    ) -> list[Record]:
        """Return one session's committed records in seq order, at most ``max_n``, reading its own bytes only.

        The first read of a tree checks all of it, as :meth:`read` does.
        """
        return self._reading().session_records(tree_id, session, after_seq, max_n)

    def sessions(self, tree_id: str) -> list[str]:
        """Return the sessions that have facts, in order of their first; not the tree itself."""
        return self._reading().sessions(tree_id)

    def trees(self) -> list[TreeRow]:
        """Return all trees, oldest first, without checking them."""
        return self._reading().trees()

    def row0(self, tree_id: str) -> dict[str, JsonValue]:
        """Return what a tree was created with.

        Raises:
            JournalCorrupt: it is altered.
        """
        return self._reading().row0(tree_id)

    def last_seq(self, tree_id: str) -> int:
        """Return the last committed good seq, 0 for none."""
        return self._reading().last_seq(tree_id)

    def verify(self, tree_id: str) -> Verification:
        """Check every byte of a tree, its index and its blobs; says what is wrong instead of raising."""
        return self._reading().verify(tree_id)

    def erase(self, tree_id: str) -> None:
        """Delete a tree, its snapshots, and its blobs no other tree uses. Blocks until it is durable.

        What was appended before is committed first. Its bytes are overwritten; in the log, where a reader
        holds on to them, with the first commit after it lets go, or as this journal is closed. Pieces of some
        hundred bytes may stay in unused parts of the database until SQLite uses those, or it is vacuumed.

        Raises:
            JournalUnwritable: the disk refused.
        """
        self._writing().erase(tree_id)

    def prune(self, older_than_ms: int) -> list[str]:
        """Erase the trees last written before a time, except those written since this journal was opened.

        Args:
            older_than_ms: Milliseconds since the epoch.

        Returns:
            The ids of the trees that are gone.
        """
        return self._writing().prune(older_than_ms)

    def export(self, tree_id: str, out: TextIO) -> int:
        """Write a tree as NDJSON, each line carrying the hash of all before; return how many records.

        Of a damaged tree the good records are written, and the last line tells what is wrong.

        Raises:
            JournalCorrupt: row 0 is altered.
        """
        reader = self._reading()
        verdict = reader.verify(tree_id)
        reader.row0(tree_id)
        return write_export(reader.tree(tree_id), reader.records, verdict, out)

    async def _close(self, appender: Appender) -> None:
        self._reader.close()  # before the writer, which then is the last to leave and tidies the log away
        await appender.stop()
        self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        if self._lock is not None:
            WRITERS.release()
            self._lock.release()

    def _reading(self) -> JournalReader:
        if self._closed or self._closing is not None:
            raise JournalError(self._path, "it is closed; open it again")
        return self._reader

    def _writing(self) -> Appender:
        if self._appender is None:
            raise JournalUnwritable(self._path, "it was opened to read; open it with read_only=False")
        if self._closed or self._closing is not None:
            raise JournalUnwritable(self._path, "it is closed; open it again")
        return self._appender


def _open_reader(place: JournalPlace, blobs: BlobStore, writer: JournalWriter | None) -> JournalReader:
    with typed_reads(place.database):
        rows = Rows(connect_reader(place.database), blobs, place.database)
    if writer is None:
        return JournalReader(rows, {}, None)
    return JournalReader(rows, writer.advances, writer.mend)


def _open_writer(place: JournalPlace, blobs: BlobStore, lock: JournalLock) -> JournalWriter:
    try:
        lock.hold(place.prepare())
        return JournalWriter(connect_writer(place.database), blobs, place.database)
    except (*FAULTS, OSError) as error:
        raise write_error(place.database, error) from error
