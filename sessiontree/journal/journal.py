"""The journal: the durable log of many trees, as programs of this package open it.

The appender gives out seqs at once and checks facts on the event loop; the thread of ``writer.py`` commits
them. A thread that comes back from the disk waits one switch interval for the interpreter. The
interpreter's default of 5 ms would be paid several times a commit, so the interval is shorter while any
writer is open.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from sessiontree.contracts.errors import JournalUnwritable
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.commit import Numbered, Repair, Tail, compact, erase_trees, import_tree
from sessiontree.journal.contents import JournalContents
from sessiontree.journal.export import Manifest
from sessiontree.journal.place import JournalLock, JournalPlace
from sessiontree.journal.reader import ChainState, Flaw, JournalReader, Rows, make_no_tree_error
from sessiontree.journal.record import JournalRecord, Packed
from sessiontree.journal.segment import compute_genesis_hash
from sessiontree.journal.tables import (
    FAULTS,
    connect_reader,
    connect_writer,
    convert_read_errors,
    write_error,
)
from sessiontree.journal.writer import JournalWriter, NewFacts, NewTree

_MAX_NAME_CHARS = 1024
_INT64 = 2**63


class Appender:
    """Accepts what is to be written.

    Only the thread of the event loop calls its methods, except ``import_tree``.

    Args:
        writer: Commits it.
        reader: Reads what is already stored.
        blobs: Holds the long texts.
    """

    def __init__(self, writer: JournalWriter, reader: JournalReader, blobs: BlobStore) -> None:
        self._writer = writer
        self._reader = reader
        self._blobs = blobs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tails: dict[str, Tail] = {}
        self._importing: set[str] = set()
        """Trees whose import is under way."""
        self._naming = threading.Lock()
        """Race: an import, on another thread, may find the same id free. One of them takes it first."""

    @property
    def started(self) -> bool:
        """True once there is a loop."""
        return self._loop is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start committing; futures belong to ``loop`` from now on.

        Raises:
            RuntimeError: it was started before.
        """
        if self._loop is not None:
            raise RuntimeError("the journal was started before")
        self._loop = loop
        self._writer.start(loop)

    async def stop(self) -> None:
        """Commit what waits and end the writer's thread."""
        await self._writer.stop()

    def close(self) -> None:
        """Close a writer that was never started."""
        self._writer.close()

    def create_tree(self, tree_id: str, row0: Mapping[str, JsonValue] | str) -> asyncio.Future[None]:
        """Create a tree; see :meth:`Journal.create_tree`."""
        loop = self._require_loop()
        text = row0 if isinstance(row0, str) else dump_json(dict(row0))
        created_ms = time.time_ns() // 1_000_000
        with self._naming:
            self._check_new(tree_id)
            genesis = compute_genesis_hash(tree_id, created_ms, text)
            tail = self._tails[tree_id] = Tail(tree_id, genesis, 0, 0, genesis)
        done = loop.create_future()
        self._writer.put(NewTree(tail, created_ms, text, done))
        return done

    def append(
        self, tree_id: str, chunks: Sequence[tuple[str, Sequence[Packed]]]
    ) -> tuple[int, asyncio.Future[None]]:
        """Append facts; see :meth:`Journal.append`."""
        loop = self._require_loop()
        tail = self._find_tail(tree_id)
        seq = tail.last_seq
        numbered: list[Numbered] = []
        for session, facts in chunks:
            own = tuple(facts)
            _check_name(session)
            _check_facts(own)
            if own:
                numbered.append((session, seq + 1, own))
                seq += len(own)
        # Only now, when all facts are checked: a refused append must leave no gap in the numbers.
        tail.last_seq = seq
        done = loop.create_future()
        self._writer.put(NewFacts(tail, tuple(numbered), done))
        return seq, done

    def import_tree(self, manifest: Manifest, records: Sequence[JournalRecord]) -> None:
        """Write a whole tree; see :meth:`Journal.import_tree`."""
        self._writer.check()
        with self._naming:
            self._check_new(manifest.tree_id)
            self._importing.add(manifest.tree_id)
        try:
            for seq, record in enumerate(records, 1):
                if record.seq != seq:
                    raise ValueError(f"record {seq} was expected, not {record.seq}")
                _check_name(record.session)
                _check_facts((Packed(record.cause, record.at_ms, record.text),))
            self._writer.do(partial(import_tree, blobs=self._blobs, manifest=manifest, records=records))
        finally:
            self._importing.discard(manifest.tree_id)

    def erase(self, tree_ids: Sequence[str]) -> None:
        """Delete trees; see :meth:`Journal.erase`."""
        self._writer.check()
        for tree_id in tree_ids:
            if tree_id not in self._tails and not self._reader.has_tree(tree_id):
                raise make_no_tree_error(self._reader.path, tree_id)
        for tree_id in tree_ids:
            # A later tree of this id begins at its own row 0, not at this end.
            self._tails.pop(tree_id, None)
        self._writer.do(partial(erase_trees, blobs=self._blobs, tree_ids=tree_ids))
        self._reader.forget(tree_ids)

    def compact(self) -> None:
        """Rewrite the database; see :meth:`Journal.compact`."""
        self._writer.check()
        self._writer.do(compact)

    def _check_new(self, tree_id: str) -> None:
        _check_name(tree_id)
        if not tree_id:
            raise ValueError("the id of a tree can't be empty")
        if tree_id in self._importing:
            raise ValueError(f"a tree {tree_id!r} is being imported already")
        if tree_id in self._tails or self._reader.has_tree(tree_id):
            raise ValueError(f"there is a tree {tree_id!r} already")

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the journal was not started")
        self._writer.check()
        return self._loop

    def _find_tail(self, tree_id: str) -> Tail:
        tail = self._tails.get(tree_id)
        if tail is None:
            progress, flaw = self._reader.end(tree_id)
            tail = self._tails[tree_id] = _build_tail(self._reader, progress, flaw)
        return tail


def _build_tail(reader: JournalReader, progress: ChainState, flaw: Flaw | None) -> Tail:
    """Return the end of a tree that another process wrote, with the repair that the next commit makes."""
    tail = Tail(progress.tree_id, progress.genesis, progress.seq, progress.n, progress.head)
    index = None
    if not progress.index_good:
        index = tuple(chunk.span(n) for n, chunk in reader.chunks(progress.tree_id, progress.n))
    if flaw is not None:
        tail.last_seq = flaw.last_seq
        tail.repair = Repair(progress.n + 1, flaw.reason, flaw.shares, flaw.last_seq, index)
    elif index is not None:
        tail.repair = Repair(progress.n + 1, "the session index is damaged", (), progress.seq, index)
    return tail


def _check_name(name: str) -> None:
    if not name.isprintable() or len(name) > _MAX_NAME_CHARS:
        raise ValueError(f"the id {name[:80]!r} is too long or holds characters that can't be printed")


def _check_facts(facts: Sequence[Packed]) -> None:
    for _, at_ms, text in facts:
        # Facts are stored without being parsed, so the test is of what would break a chunk: a line break, or
        # bytes that its counts do not fit.
        is_object = text.isascii() and text[:1] == "{" and text[-1:] == "}"
        if not is_object or "\n" in text or "\r" in text:
            raise ValueError(f"a fact must be a JSON object in ASCII on one line, not {text[:80]!r}")
        if not -_INT64 <= at_ms < _INT64:
            raise ValueError(f"a fact's time must fit 64 bits, not {at_ms}")


WRITER_INTERVAL_S = 0.0005


class SwitchInterval:
    """Lowers the switch interval of the process while it has at least one holder.

    Args:
        interval_s: The interval while held, in seconds; a shorter one that is already in force stays.
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
        """Restore the interval, if this was the last holder."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                sys.setswitchinterval(self._before_s)


WRITERS = SwitchInterval(WRITER_INTERVAL_S)
"""The interval belongs to the process, and so does the count of holders."""


class Journal(JournalContents):
    """The durable log of many trees. Call :meth:`open` to make one.

    One event loop appends; any thread may read, as :class:`JournalContents` says.

    Every method raises JournalCorrupt if the database file itself is damaged, and TreeNotFound for a tree
    that does not exist. A new tree exists once its future has resolved.
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
        """Open the journal of a state directory; a writer makes both if they are missing.

        Args:
            state_dir: A directory for this journal; made with mode 0700, its files with 0600.
            read_only: Only read; another process may write meanwhile. A read-only directory is enough, unless
                a killed writer left its log there.
            program_pid: The process that this writer writes for; None = this process.

        Raises:
            JournalLocked: another process writes it; the text names its process id.
            JournalUnwritable: the directory can't be made or written.
            JournalCorrupt: the database file is damaged.
            JournalTooNew: a later release wrote it.
            JournalError: the journal does not exist.
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
        """Start committing; from now on only ``loop`` appends.

        Raises:
            RuntimeError: it was started before.
            JournalUnwritable: it is closed, or was opened to read.
        """
        self._writing().start(loop)

    async def close(self) -> None:
        """Commit what waits, then release files, thread and lock. A second call waits for the first."""
        if self._appender is None or not self._appender.started:
            self.release()
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(self._appender))
        # A cancelled caller must not stop a close halfway that others wait for.
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

    def create_tree(self, tree_id: str, row0: Mapping[str, JsonValue] | str) -> asyncio.Future[None]:
        """Create a tree; facts may be appended at once.

        Args:
            tree_id: Printable text, not empty.
            row0: The configuration of the tree, or its compact JSON text; stored unchanged, and part of the
                hash chain.

        Returns:
            A future that resolves when the tree is durable.

        Raises:
            ValueError: the id is taken or can't be an id, or row 0 has no JSON form.
            JournalUnwritable: the journal can't be written any more.
        """
        return self._writing().create_tree(tree_id, row0)

    def append(
        self, tree_id: str, chunks: Sequence[tuple[str, Sequence[Packed]]]
    ) -> tuple[int, asyncio.Future[None]]:
        """Append facts; they become durable together, after everything that was appended before.

        The first append to a tree of an earlier process checks the whole tree, unless it was read before. The
        same commit moves a damaged end into quarantine.

        Args:
            tree_id: The tree.
            chunks: Session (empty = the tree itself) and its facts; seqs are assigned in this order. Without
                chunks, the future waits for what was appended before.

        Returns:
            The last seq that was assigned, and a future that resolves when the facts are durable.

        Raises:
            ValueError: a session or a fact has a form that can't be stored; nothing was appended.
            JournalUnwritable: the journal can't be written any more. The future fails with it, too.
        """
        return self._writing().append(tree_id, chunks)

    def import_tree(self, manifest: Manifest, records: Sequence[JournalRecord]) -> None:
        """Write a whole tree, such as that of an export. Blocks until it is durable, whole or not at all.

        It may be called on any thread. Its id is taken from the start. An import that the journal was given
        before it was asked to close is finished first.

        Args:
            manifest: Its id, creation time and row 0, which are kept.
            records: In seq order from 1.

        Raises:
            ValueError: the id is taken, or a session or a fact has a form that can't be kept.
            JournalUnwritable: the disk refused, or the journal was closed meanwhile.
        """
        self._writing().import_tree(manifest, records)

    def erase(self, *tree_ids: str) -> None:
        """Delete trees, and their blobs that no other tree uses. Blocks until it is durable.

        Facts appended before are committed first. The bytes of the trees are overwritten in the database. In
        its log they are overwritten with the first commit after the last reader of them ended, or when this
        journal is closed. Some hundred bytes of a row may stay in unused parts: see :meth:`compact`.

        Raises:
            TreeNotFound: one of them does not exist; nothing was deleted.
            JournalUnwritable: the disk refused.
        """
        self._writing().erase(tree_ids)

    def compact(self) -> None:
        """Rewrite the database without unused parts, and give their space back. Blocks until it is durable.

        Raises:
            JournalUnwritable: the disk refused; it needs about twice the size of what is kept.
        """
        self._writing().compact()

    async def _close(self, appender: Appender) -> None:
        self._reader.close()  # before the writer: the last connection to close removes the log
        await appender.stop()
        self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        if self._lock is not None:
            WRITERS.release()
            self._lock.release()

    def _writing(self) -> Appender:
        if self._appender is None:
            raise JournalUnwritable(self._path, "it was opened to read; open it with read_only=False")
        if self._closed or self._closing is not None:
            raise JournalUnwritable(self._path, "it is closed; open it again")
        return self._appender


def _open_reader(place: JournalPlace, blobs: BlobStore, writer: JournalWriter | None) -> JournalReader:
    with convert_read_errors(place.database):
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
