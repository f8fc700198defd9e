"""Transactions: a commit of everything that waits, the import of a tree, and the erasure of trees.

A commit packs what waits for the disk into rows and writes them as one statement.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing, suppress
from dataclasses import field
from typing import TypeAlias

from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.export import Manifest
from sessiontree.journal.record import JournalRecord, Packed
from sessiontree.journal.segment import (
    MAX_BODY_BYTES,
    MAX_INLINE_CHARS,
    Advance,
    Segment,
    Share,
    Span,
    build_segment,
    compute_genesis_hash,
    write_line,
)
from sessiontree.journal.tables import INTAKE_COLUMNS, disable_waiting

_DIGEST = re.compile("[0-9a-f]{64}")
_TABLES = ("segments", "touched", "heads", "blob_uses", "quarantine", "trees")


def erase_trees(connection: sqlite3.Connection, blobs: BlobStore, tree_ids: Sequence[str]) -> None:
    """Delete everything of some trees in one transaction, then the blobs no other tree uses.

    The bytes are overwritten in the database and in its log; while a reader uses the log, only with the
    first commit after it ends. If SQLite moved a row within its page before, an unused part of the page may
    keep the first few hundred bytes of the row: :func:`compact` removes them.

    Raises:
        sqlite3.Error: nothing was deleted.
        OSError: the trees are gone, but some of their blobs remain.
    """
    unused: set[str] = set()
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read before the rows go: afterwards nothing says which blobs these trees used.
        for tree_id in tree_ids:
            unused.update(
                _read_digests(connection, "SELECT digest FROM blob_uses WHERE tree_id = ?", tree_id)
            )
        for tree_id in tree_ids:
            for table in _TABLES:
                connection.execute(f"DELETE FROM {table} WHERE tree_id = ?", (tree_id,))  # noqa: S608 - constants
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    # After the commit: a crash in between leaves files that nobody uses, never a tree without its blobs.
    remove_unused(connection, blobs, unused)
    empty_log(connection)


def remove_unused(connection: sqlite3.Connection, blobs: BlobStore, digests: Iterable[str]) -> None:
    """Remove those of some blobs that no tree uses.

    Raises:
        sqlite3.Error, OSError: some of them remain.
    """
    blobs.remove(set(digests).difference(_read_digests(connection, "SELECT DISTINCT digest FROM blob_uses")))


def compact(connection: sqlite3.Connection) -> None:
    """Rewrite the database without its unused parts, which may hold bytes of erased trees.

    Needs free disk space of about twice the size of the trees that are left.

    Raises:
        sqlite3.Error: the database is as it was.
    """
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    # Another connection: the writing one keeps temporary data in memory, which a large journal would fill.
    with closing(sqlite3.connect(path, isolation_level=None)) as vacuuming:
        vacuuming.execute("VACUUM")
    empty_log(connection)


def empty_log(connection: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the database; return False if a reader prevented it, which is harmless.

    The log is emptied and not only copied. A log that repeats pages of the database could combine old
    pages with new ones if it were truncated.
    """
    with disable_waiting(connection):
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return not busy


def _read_digests(connection: sqlite3.Connection, statement: str, *values: str) -> list[str]:
    """Return names of blobs; values of a damaged file that are not names are left out."""
    names = [str(row[0]) for row in connection.execute(statement, values).fetchall()]
    return [name for name in names if _DIGEST.fullmatch(name)]


Numbered: TypeAlias = tuple[str, int, tuple[Packed, ...]]
"""A session, the seq of its first fact here, and its facts."""
_Value: TypeAlias = str | int | bytes | None
_MAX_ROWS = 400
"""Rows of one statement. The smallest usual limit of SQLite's variables allows about 2,900."""
_WIDTH = len(INTAKE_COLUMNS.split(", "))
_PLACES = f"({', '.join('?' * _WIDTH)})"


@dataclass(frozen=True, slots=True)
class Repair:
    """What the next commit to a damaged tree does before it appends."""

    from_n: int
    """This segment and those after it go into quarantine."""
    reason: str
    shares: tuple[Share, ...]
    """Good records of the segment ``from_n`` itself, which are written again."""
    last_seq: int
    """The last good record, those included."""
    index: tuple[Span, ...] | None
    """The session index of the good segments, if it must be rebuilt."""


@dataclass(slots=True)
class Tail:
    """The end of one tree, where facts are appended.

    ``last_seq`` belongs to the thread of the event loop, all other fields to the writer's thread.
    """

    tree_id: str
    genesis: bytes
    last_seq: int
    n: int
    head: bytes
    repair: Repair | None = None


@dataclass(slots=True)
class Commit:
    """Gathers trees and facts, then writes them in one transaction.

    Args:
        blobs: Stores the texts that are too long for a segment.
    """

    blobs: BlobStore
    _trees: list[tuple[_Value, ...]] = field(default_factory=list)
    _facts: dict[str, tuple[Tail, list[Numbered]]] = field(default_factory=dict)
    _long: dict[str, str] = field(default_factory=dict)
    advances: list[Advance] = field(default_factory=list)
    """What is durable after :meth:`write` has returned."""
    written_bytes: int = 0
    """Roughly how many bytes the log grew by."""

    def add_tree(self, tail: Tail, created_ms: int, row0: str) -> None:
        """Add a new tree."""
        at = (None, None, None, None)
        self._trees.append(("tree", tail.tree_id, *at, tail.genesis, row0, created_ms, None, None))
        self.advances.append(Advance(tail.tree_id, tail.genesis, 0, tail.genesis, 0))

    def add_facts(self, tail: Tail, facts: Sequence[Numbered]) -> None:
        """Add facts to a tree; call in seq order."""
        if facts:
            self._facts.setdefault(tail.tree_id, (tail, []))[1].extend(facts)

    @property
    def blob_digests(self) -> Set[str]:
        """Names of the blobs that its facts use."""
        return self._long.keys()

    def write(self, connection: sqlite3.Connection) -> None:
        """Write everything; when this returns, it is on the disk.

        Raises:
            sqlite3.Error, OSError: nothing was committed.
        """
        repairs = [tail for tail, _ in self._facts.values() if tail.repair is not None]
        now_ms = time.time_ns() // 1_000_000
        rows = list(self._trees)
        for tail, facts in self._facts.values():
            for segment in self._make_segments(tail, facts):
                rows.append(_make_segment_row(tail.tree_id, segment, now_ms))
                self.written_bytes += len(segment.body)
            last_seq = facts[-1][1] + len(facts[-1][2]) - 1
            self.advances.append(Advance(tail.tree_id, tail.genesis, tail.n, tail.head, last_seq))
        # A row changes about four pages of tables and indexes, and the log holds whole pages.
        self.written_bytes += len(rows) * 16_384
        # Blobs come first: a durable row must never refer to a file that is not durable.
        self.blobs.write(self._long)
        if not repairs and len(rows) <= _MAX_ROWS:
            # Without a BEGIN the statement commits by itself, so the thread waits for the interpreter only
            # once.
            _insert(connection, rows)
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for tail in repairs:
                _cut_off(connection, tail, now_ms)
            for start in range(0, len(rows), _MAX_ROWS):
                _insert(connection, rows[start : start + _MAX_ROWS])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for tail in repairs:
            tail.repair = None

    def _make_segments(self, tail: Tail, facts: list[Numbered]) -> Iterator[Segment]:
        """Yield the tree's new segments and move its tail past them."""
        if tail.repair is not None and tail.repair.shares:
            count = sum(len(share.lines) for share in tail.repair.shares)
            yield _extend(tail, tail.repair.last_seq - count + 1, tail.repair.shares)
        shares: dict[str, Share] = {}
        size, first_seq = 0, facts[0][1]
        for session, first, packed in facts:
            share = shares.get(session)
            for seq, fact in enumerate(packed, first):
                if size >= MAX_BODY_BYTES:
                    yield _extend(tail, first_seq, tuple(shares.values()))
                    shares, share, size, first_seq = {}, None, 0, seq
                if share is None:
                    share = shares[session] = Share(session)
                is_short = len(fact.text) <= MAX_INLINE_CHARS
                line = write_line(seq, fact, None if is_short else self._store_blob(fact.text, share))
                share.lines.append(line)
                size += len(line)
        yield _extend(tail, first_seq, tuple(shares.values()))

    def _store_blob(self, text: str, share: Share) -> str:
        digest = self.blobs.digest(text)
        self._long[digest] = text
        share.blobs.append(digest)
        return digest


def import_tree(
    connection: sqlite3.Connection, blobs: BlobStore, manifest: Manifest, records: Sequence[JournalRecord]
) -> None:
    """Write a whole tree in one transaction, under its own id, creation time and seqs.

    Raises:
        sqlite3.Error, OSError: nothing of it was committed.
    """
    row0 = dump_json(manifest.row0)
    genesis = compute_genesis_hash(manifest.tree_id, manifest.created_ms, row0)
    tail = Tail(manifest.tree_id, genesis, len(records), 0, genesis)
    commit = Commit(blobs)
    commit.add_tree(tail, manifest.created_ms, row0)
    for record in records:
        fact = Packed(record.cause, record.at_ms, record.text)
        commit.add_facts(tail, [(record.session, record.seq, (fact,))])
    try:
        commit.write(connection)
    except BaseException:
        with suppress(sqlite3.Error, OSError):
            # The blobs were written before the rows, and no row refers to them now.
            remove_unused(connection, blobs, commit.blob_digests)
        raise


def _extend(tail: Tail, first_seq: int, shares: tuple[Share, ...]) -> Segment:
    segment = build_segment(tail.tree_id, tail.n + 1, tail.head, first_seq, shares)
    tail.n, tail.head = segment.n, segment.hash
    return segment


def _make_segment_row(tree_id: str, segment: Segment, now_ms: int) -> tuple[_Value, ...]:
    touched = dump_json([[chunk.session, chunk.offset, chunk.length] for chunk in segment.chunks])
    blobs = dump_json([digest for chunk in segment.chunks for digest in chunk.blobs])
    numbers = (segment.n, segment.first_seq, segment.count)
    hashes = (segment.prev_hash, segment.hash)
    return ("segment", tree_id, *numbers, *hashes, segment.body, now_ms, touched, blobs)


def _insert(connection: sqlite3.Connection, rows: Sequence[tuple[_Value, ...]]) -> None:
    if rows:
        places = ", ".join([_PLACES] * len(rows))
        values = [value for row in rows for value in row]
        connection.execute(f"INSERT INTO intake VALUES {places}", values)  # noqa: S608 - question marks only


def _cut_off(connection: sqlite3.Connection, tail: Tail, now_ms: int) -> None:
    """Move a tree's damaged end into quarantine, and remove its rows in the session index."""
    repair = tail.repair
    if repair is None:
        return
    tree_id, from_n = tail.tree_id, repair.from_n
    connection.execute(
        "INSERT INTO quarantine SELECT tree_id, n, first_seq, count, prev_hash, hash, body, ?, ?"
        " FROM segments WHERE tree_id = ? AND n >= ?",
        (now_ms, repair.reason, tree_id, from_n),
    )
    connection.execute("DELETE FROM segments WHERE tree_id = ? AND n >= ?", (tree_id, from_n))
    connection.execute("DELETE FROM touched WHERE tree_id = ? AND n >= ?", (tree_id, from_n))
    if repair.index is not None:
        _index_anew(connection, tree_id, repair.index)


def _index_anew(connection: sqlite3.Connection, tree_id: str, index: Sequence[Span]) -> None:
    """Replace a tree's session index. The whole table is rewritten, because its order may be damaged too."""
    # The plus keeps SQLite from searching by the key, whose order may be damaged: it reads every row.
    connection.execute("CREATE TEMP TABLE kept AS SELECT * FROM touched WHERE +tree_id <> ?", (tree_id,))
    connection.execute("DELETE FROM touched")
    connection.execute("INSERT OR IGNORE INTO touched SELECT * FROM kept")
    connection.execute("DROP TABLE kept")
    connection.execute(
        "INSERT OR REPLACE INTO touched SELECT ?, json_extract(value, '$[0]'), json_extract(value, '$[1]'),"
        " json_extract(value, '$[2]'), json_extract(value, '$[3]') FROM json_each(?)",
        (tree_id, dump_json(index)),
    )


def mend_numbering(connection: sqlite3.Connection) -> None:
    """Rebuild the index over segment numbers, so that a segment is missing only if its row is."""
    try:
        connection.execute("REINDEX segments")
    except sqlite3.DatabaseError as error:
        # Two rows may claim one number, or the order of the rows may be damaged; the chain shows it.
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_CORRUPT):
            raise
