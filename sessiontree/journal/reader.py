"""Reading trees: every record that is returned is in an unbroken chain from its tree's row 0.

A tree is checked completely when it is first read; afterwards only new segments are checked. A later read
of one session touches only that session's bytes.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator, MutableMapping, Sequence
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

from sessiontree.contracts.errors import JournalCorrupt, JournalError, TreeNotFound
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.record import JournalRecord, TreeRow, Verification
from sessiontree.journal.segment import (
    Advance,
    Chunk,
    DamageError,
    SegmentLine,
    Share,
    Span,
    collect_shares,
    compute_chain_hash,
    compute_genesis_hash,
    read_chunks,
    read_line,
    read_lines,
)
from sessiontree.journal.tables import convert_read_errors

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of the table ``segments``, its types checked, its content not."""

    n: int
    first_seq: int
    count: int
    prev_hash: bytes
    hash: bytes
    body: bytes

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Stored:
        """Return the row as a value.

        Raises:
            DamageError: a column holds another type than was written.
        """
        n, first_seq, count, prev_hash, own_hash, body = row
        if tuple(map(type, row)) != (int, int, int, bytes, bytes, bytes):
            raise DamageError(f"segment {n!r} holds values of a wrong type")
        return cls(n, first_seq, count, prev_hash, own_hash, body)


@dataclass(frozen=True, slots=True)
class Flaw:
    """The first damage of a tree."""

    n: int
    """The segment that is missing or altered."""
    last_seq: int
    """The last good record; it may be in the segment itself, if only a blob is damaged."""
    reason: str
    records: tuple[JournalRecord, ...] = ()
    """The good records of that segment."""
    shares: tuple[Share, ...] = ()
    """The same as lines, to write them again."""


def index_mark(span: Span) -> int:
    """Return a number for one index row; the sum over all rows, modulo 2**64, identifies the set of rows."""
    return hash(span) & _MASK


@dataclass(slots=True)
class ChainState:
    """How far a tree is known to be good; moves forward only.

    Args:
        tree_id: The tree.
        genesis: The hash its first segment follows.
        head: Hash of the last good segment.
    """

    tree_id: str
    genesis: bytes
    head: bytes
    n: int = 0
    """The last good segment."""
    seq: int = 0
    """The last record in it."""
    index_sum: int = 0
    """Sum of the index marks that its chunks require."""
    index_good: bool | None = None
    """Whether the session index agrees; None = not checked yet."""

    def check(self, row: Stored) -> list[Chunk]:
        """Return the chunks of the row that follows.

        Raises:
            DamageError: another row should follow, or its bytes are not what was written.
        """
        if row.n != self.n + 1:
            raise DamageError(f"segment {self.n + 1} is missing")
        if row.prev_hash != self.head:
            raise DamageError(f"segment {row.n} does not follow the one before it")
        if compute_chain_hash(self.head, self.tree_id, row.n, row.body) != row.hash:
            raise DamageError(f"segment {row.n} is altered: its hash does not fit its bytes")
        chunks = read_chunks(row.body)
        if row.first_seq != self.seq + 1 or row.count != sum(chunk.count for chunk in chunks):
            raise DamageError(f"segment {row.n} is altered: it counts its records wrongly")
        return chunks

    def accept(self, row: Stored, chunks: list[Chunk]) -> None:
        """Move past a row that was checked."""
        self.n, self.head, self.seq = row.n, row.hash, row.first_seq + row.count - 1
        for chunk in chunks:
            self.index_sum = (self.index_sum + index_mark(chunk.span(row.n))) & _MASK

    def make_flaw(self, reason: str) -> Flaw:
        """Return the flaw that begins right after the last good segment."""
        return Flaw(self.n + 1, self.seq, reason)


def read_records(
    row: Stored, chunks: list[Chunk], blobs: BlobStore
) -> tuple[list[JournalRecord], str | None]:
    """Return the records of a checked row in seq order, up to the first whose blob is damaged.

    Returns:
        The records, and why they stop early (None if they do not).

    Raises:
        DamageError: the lines do not carry the seqs they should.
    """
    lines = [(line, chunk.session) for chunk in chunks for line in read_chunk_lines(row.body, chunk)]
    lines.sort(key=lambda pair: pair[0].seq)
    if [line.seq for line, _ in lines] != list(range(row.first_seq, row.first_seq + row.count)):
        raise DamageError(f"segment {row.n} has gaps in its numbering")
    records: list[JournalRecord] = []
    for line, session in lines:
        try:
            records.append(to_record(line, session, blobs))
        except DamageError as error:
            return records, str(error)
    return records, None


def read_chunk_lines(body: bytes, chunk: Chunk) -> list[SegmentLine]:
    """Return the facts of a chunk in their order."""
    return [read_line(text[:-1]) for text in read_lines(body, chunk)]


def to_record(line: SegmentLine, session: str, blobs: BlobStore) -> JournalRecord:
    """Return the record of a line; a blob's text replaces its digest.

    Raises:
        DamageError: the blob is missing or altered.
    """
    text = blobs.read(line.text) if line.is_blob else line.text
    return JournalRecord(line.seq, session, line.cause, line.at_ms, text)


def find_blob_flaw(row: Stored, chunks: list[Chunk], blobs: BlobStore) -> Flaw | None:
    """Return the flaw of a checked row that uses a damaged blob; None if all its blobs are good."""
    if not any(chunk.blobs for chunk in chunks):
        return None
    records, reason = read_records(row, chunks, blobs)
    if reason is None:
        return None
    last_seq = row.first_seq + len(records) - 1
    shares = collect_shares(row.body, chunks, last_seq)
    return Flaw(row.n, last_seq, f"record {last_seq + 1} is damaged: {reason}", tuple(records), tuple(shares))


_TREES = (
    "SELECT t.tree_id, t.created_ms, t.row0, t.hash, h.seq, h.written_ms"
    " FROM trees t LEFT JOIN heads h USING (tree_id)"
)


class Rows:
    """The statements of one reading connection. Not for two threads at once.

    Args:
        connection: Reads only.
        blobs: Where long texts are.
        path: The database, for errors.

    Every method raises JournalCorrupt if the file itself is damaged, and JournalError once it is closed.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: BlobStore, path: Path) -> None:
        self._connection = connection
        self.blobs = blobs
        self.path = path
        self._closed = False

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._connection.close()

    @property
    def _opened(self) -> sqlite3.Connection:
        if self._closed:
            raise JournalError(str(self.path), "it is closed; open it again")
        return self._connection

    def all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a statement. In a damaged file the values may have any type."""
        with convert_read_errors(self.path):
            try:
                return self._opened.execute(statement, values).fetchall()
            except UnicodeEncodeError:
                return []  # no stored id holds lone surrogates

    def trees(self) -> list[TreeRow]:
        """Return all trees, oldest first; see :class:`TreeRow`."""
        return [_make_tree_row(*row) for row in self.all(f"{_TREES} ORDER BY t.created_ms, t.tree_id")]

    def tree(self, tree_id: str) -> TreeRow | None:
        """Return one tree; None if it is not there."""
        rows = self.all(f"{_TREES} WHERE t.tree_id = ?", tree_id)
        return _make_tree_row(*rows[0]) if rows else None

    def read_stored(self, tree_id: str, first_n: int) -> Generator[Stored, None, None]:
        """Yield segments from a number on, in order; close the iterator when done.

        Raises:
            DamageError: a row holds values of a wrong type.
        """
        with convert_read_errors(self.path):
            cursor = self._opened.execute(
                "SELECT n, first_seq, count, prev_hash, hash, body FROM segments"
                " WHERE tree_id = ? AND n >= ? ORDER BY n",
                (tree_id, first_n),
            )
            with closing(cursor):
                for row in cursor:
                    yield Stored.of(row)

    def read_head_n(self, tree_id: str) -> int:
        """Return the number of the last segment that was ever committed; 0 = unknown."""
        rows = self.all("SELECT n FROM heads WHERE tree_id = ?", tree_id)
        return rows[0][0] if rows and isinstance(rows[0][0], int) else 0

    def find_segment(self, tree_id: str, seq: int, last_n: int) -> int:
        """Return the number of the segment, among the good ones up to ``last_n``, that holds a seq."""
        low, high = 1, last_n
        while low < high:
            middle = (low + high + 1) // 2
            rows = self.all("SELECT first_seq FROM segments WHERE tree_id = ? AND n = ?", tree_id, middle)
            if not rows or not isinstance(rows[0][0], int):
                return 1
            low, high = (middle, high) if rows[0][0] <= seq else (low, middle - 1)
        return low

    def index_agrees(self, progress: ChainState) -> bool:
        """Return whether the session index agrees with the good segments; remembered in ``progress``."""
        if progress.index_good is None:
            rows = self.all(
                "SELECT session, n, offset, length FROM touched WHERE tree_id = ? AND n <= ?",
                progress.tree_id,
                progress.n,
            )
            progress.index_good = sum(index_mark(row) for row in rows) % (1 << 64) == progress.index_sum
        return progress.index_good


class RowScan:
    """Checks the segments after a tree's good ones. Iterating yields each new good segment once.

    Args:
        rows: Reads the segments.
        progress: Advances with each good segment.
    """

    def __init__(self, rows: Rows, progress: ChainState) -> None:
        self._rows = rows
        self._progress = progress
        self.flaw: Flaw | None = None
        """The damage that ended the scan; None if the tree ended first."""

    def __iter__(self) -> Iterator[tuple[Stored, list[Chunk]]]:
        """Yield good segments and their chunks."""
        progress = self._progress
        # Read before the segments: a commit in between must not look like a missing segment.
        head_n = self._rows.read_head_n(progress.tree_id)
        with closing(self._rows.read_stored(progress.tree_id, progress.n + 1)) as rows:
            try:
                for row in rows:
                    chunks = progress.check(row)
                    self.flaw = find_blob_flaw(row, chunks, self._rows.blobs)
                    if self.flaw is not None:
                        return
                    progress.accept(row, chunks)
                    yield row, chunks
            except DamageError as error:
                self.flaw = progress.make_flaw(str(error))
                return
        if head_n > progress.n:
            self.flaw = progress.make_flaw(f"segment {progress.n + 1} is missing")

    def run(self) -> Flaw | None:
        """Scan to the end and return the damage that ended the scan, if any did."""
        for _ in self:
            pass
        return self.flaw


def _make_tree_row(tree_id: str, created_ms: Any, row0: Any, own: Any, seq: Any, written_ms: Any) -> TreeRow:
    whole = _check_row0(tree_id, created_ms, row0, own)
    return TreeRow(tree_id, _number(created_ms), whole, _number(seq), _number(written_ms))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _check_row0(tree_id: str, created_ms: Any, row0: Any, own: Any) -> dict[str, JsonValue] | None:
    """Return row 0 if its hash is ``own``, else None."""
    if not isinstance(row0, str) or compute_genesis_hash(tree_id, created_ms, row0) != own:
        return None
    value: dict[str, JsonValue] = json.loads(row0)
    return value


def make_no_tree_error(path: str, tree_id: str) -> TreeNotFound:
    """Return the error for a tree that a journal does not hold."""
    listing = f"sessiontree tree --list --state-dir {shlex.quote(str(PurePath(path).parent))}"
    return TreeNotFound(path, f"it holds no tree {tree_id!r}; list those it holds: {listing}")


class JournalReader:
    """All reads of one journal. Methods may be called from any thread; they wait for each other.

    Args:
        rows: The connection to read from.
        advances: What this process's writer committed, which need not be checked again; entries are removed
            when they are used.
        mend: Rebuilds the index over segment numbers; None if this process does not write. Called once for
            each tree that seems damaged, so that what this process reads and where it appends agree.
    """

    def __init__(
        self, rows: Rows, advances: MutableMapping[str, Advance], mend: Callable[[], None] | None
    ) -> None:
        self._rows = rows
        self._advances = advances
        self._mend = mend
        self._mended: set[str] = set()
        self._lock = threading.RLock()
        self._known: dict[str, ChainState] = {}

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._rows.close()

    @property
    def path(self) -> str:
        """The database."""
        return str(self._rows.path)

    def forget(self, tree_ids: Sequence[str]) -> None:
        """Forget trees that were erased."""
        with self._lock:
            self._drain()
            for tree_id in tree_ids:
                self._known.pop(tree_id, None)

    def trees(self) -> list[TreeRow]:
        """Return all trees, oldest first."""
        with self._lock:
            return self._rows.trees()

    def count_tree_bytes(self) -> dict[str, int]:
        """Return how many bytes the facts of each tree take, as stored; blobs are not counted."""
        with self._lock:
            rows = self._rows.all("SELECT tree_id, SUM(LENGTH(body)) FROM segments GROUP BY tree_id")
        return {str(tree_id): int(size) for tree_id, size in rows}

    def tree(self, tree_id: str) -> TreeRow:
        """Return one tree."""
        with self._lock:
            found = self._rows.tree(tree_id)
        if found is None:
            raise make_no_tree_error(self.path, tree_id)
        return found

    def has_tree(self, tree_id: str) -> bool:
        """Return whether anything is stored under the id, damaged or not."""
        with self._lock:
            return bool(
                self._rows.all(
                    # Row 0 may be lost while segments remain; a new tree of that id would seem to continue
                    # them.
                    "SELECT 1 FROM trees WHERE tree_id = ?1 UNION ALL"
                    " SELECT 1 FROM segments WHERE tree_id = ?1 LIMIT 1",
                    tree_id,
                )
            )

    def row0(self, tree_id: str) -> dict[str, JsonValue]:
        """Return a tree's row 0."""
        row0 = self.tree(tree_id).row0
        if row0 is None:
            raise JournalCorrupt(self.path, f"row 0 of tree {tree_id!r} is altered; restore it from a backup")
        return row0

    def records(self, tree_id: str, after_seq: int, max_n: int | None) -> list[JournalRecord]:
        """Return records in seq order, from the one after ``after_seq`` on."""
        with self._lock:
            progress = self._progress(tree_id)
            found: list[JournalRecord] = []
            try:
                for part in self._read_segments(progress, after_seq):
                    found += [record for record in part if record.seq > after_seq]
                    if max_n is not None and len(found) >= max_n:
                        return found[:max_n]
            except DamageError as error:
                raise JournalCorrupt(self.path, f"tree {tree_id!r}: {error}") from error
            return found

    def read_session_records(
        self, tree_id: str, session: str, after_seq: int, max_n: int | None = None
    ) -> list[JournalRecord]:
        """Return one session's records in seq order, from the first after ``after_seq`` on."""
        with self._lock:
            progress = self._progress(tree_id)
            if self._check_all(progress) is None and self._rows.index_agrees(progress):
                try:
                    return self._read_indexed(progress, session, after_seq, max_n)
                except DamageError:
                    # It was good and is damaged now: check again from the start, up to the damage.
                    self._known.pop(tree_id, None)
            records = self.records(tree_id, after_seq, None)
            return [record for record in records if record.session == session][:max_n]

    def sessions(self, tree_id: str) -> list[str]:
        """Return the ids of sessions that have facts, in order of their first."""
        with self._lock:
            progress = self._progress(tree_id)
            if self._check_all(progress) is None and self._rows.index_agrees(progress):
                rows = self._rows.all(
                    "SELECT session, min(n), offset FROM touched WHERE tree_id = ? AND n <= ?"
                    " GROUP BY session ORDER BY 2, 3",
                    tree_id,
                    progress.n,
                )
                return [row[0] for row in rows if row[0]]
            found = dict.fromkeys(record.session for record in self.records(tree_id, 0, None))
            return [session for session in found if session]

    def last_seq(self, tree_id: str) -> int:
        """Return the seq of the last good record; 0 = no record is good."""
        with self._lock:
            progress = self._progress(tree_id)
            flaw = self._check_all(progress)
            return progress.seq if flaw is None else flaw.last_seq

    def end(self, tree_id: str) -> tuple[ChainState, Flaw | None]:
        """Check a whole tree and its index; return how far it is good, and the first damage, if any."""
        with self._lock:
            progress = self._progress(tree_id)
            flaw = self._check_all(progress)
            self._rows.index_agrees(progress)
            return progress, flaw

    def chunks(self, tree_id: str, last_n: int) -> list[tuple[int, Chunk]]:
        """Return the chunks of segments 1 to ``last_n``, which must be good, with the segments' numbers."""
        with self._lock, closing(self._rows.read_stored(tree_id, 1)) as rows:
            return [(row.n, chunk) for row in rows if row.n <= last_n for chunk in read_chunks(row.body)]

    def verify(self, tree_id: str) -> Verification:
        """Check a whole tree again, including what was checked before."""
        with self._lock:
            self._drain()
            self._known.pop(tree_id, None)
            if self.tree(tree_id).row0 is None:
                return Verification(tree_id, 0, 0, "row 0 is altered")
            progress, flaw = self.end(tree_id)
            good = progress.index_good is True
            if flaw is None:
                return Verification(tree_id, progress.seq, index_good=good)
            return Verification(tree_id, flaw.last_seq, flaw.n, flaw.reason, good)

    def _progress(self, tree_id: str) -> ChainState:
        self._drain()
        rows = self._rows.all("SELECT hash FROM trees WHERE tree_id = ?", tree_id)
        known = self._known.get(tree_id)
        if known is None or not rows or rows[0][0] != known.genesis:
            self.row0(tree_id)
            known = self._known[tree_id] = ChainState(tree_id, rows[0][0], rows[0][0])
        return known

    def _drain(self) -> None:
        while self._advances:
            new = self._advances.popitem()[1]
            known = self._known.get(new.tree_id)
            if known is None or known.genesis != new.genesis:
                known = self._known[new.tree_id] = ChainState(new.tree_id, new.genesis, new.genesis)
            if known.n < new.n:
                known.n, known.head, known.seq = new.n, new.head, new.seq
            # The same commit filled or rebuilt the index. The sum of marks skips these segments and is not
            # needed.
            known.index_good = True

    def _read_segments(self, progress: ChainState, after_seq: int) -> Iterator[list[JournalRecord]]:
        """Yield the records of each good segment, from the one that holds ``after_seq + 1``."""
        if after_seq < progress.seq:
            try:
                yield from self._reread_parts(progress, after_seq)
            except DamageError:
                # It was good and is damaged now: stop here; the next read checks from the start.
                self._known.pop(progress.tree_id, None)
                return
        walk = RowScan(self._rows, progress)
        for row, chunks in walk:
            if row.first_seq + row.count - 1 > after_seq:
                yield read_records(row, chunks, self._rows.blobs)[0]
        if walk.flaw is not None and self._mend_index(progress):
            yield from self._read_segments(progress, max(after_seq, progress.seq))
        elif walk.flaw is not None:
            yield list(walk.flaw.records)

    def _check_all(self, progress: ChainState) -> Flaw | None:
        """Check what is new in a tree; return the first flaw, if there is one."""
        flaw = RowScan(self._rows, progress).run()
        if flaw is not None and self._mend_index(progress):
            flaw = RowScan(self._rows, progress).run()
        return flaw

    def _mend_index(self, progress: ChainState) -> bool:
        """Rebuild the index over segment numbers, once for each tree; return whether that was done now."""
        if self._mend is None or progress.tree_id in self._mended:
            return False
        self._mended.add(progress.tree_id)
        # This waits for the writer's thread under the reader's lock; that thread never takes this lock.
        self._mend()
        return True

    def _reread_parts(self, progress: ChainState, after_seq: int) -> Iterator[list[JournalRecord]]:
        """Yield records of segments that were good before; each segment is checked once more by itself."""
        tree_id, last_n, last_head = progress.tree_id, progress.n, progress.head
        again: ChainState | None = None
        with closing(
            self._rows.read_stored(tree_id, self._rows.find_segment(tree_id, after_seq + 1, last_n))
        ) as rows:
            for row in rows:
                again = again or ChainState(tree_id, b"", row.prev_hash, row.n - 1, row.first_seq - 1)
                chunks = again.check(row)
                again.accept(row, chunks)
                records, reason = read_records(row, chunks, self._rows.blobs)
                yield records
                if reason is not None:
                    raise DamageError(reason)
                if row.n == last_n:
                    break
        if again is None or again.head != last_head:
            raise DamageError("segments are missing")

    def _read_indexed(
        self, progress: ChainState, session: str, after_seq: int, max_n: int | None
    ) -> list[JournalRecord]:
        """Return a session's records by the index; each chunk is checked against its own checksum."""
        rows = self._rows.all(
            # A LEFT JOIN, so that an index row whose segment is gone shows as damage and is not passed over.
            "SELECT substr(s.body, t.offset + 1, t.length)"
            " FROM touched t LEFT JOIN segments s USING (tree_id, n)"
            " WHERE t.tree_id = ? AND t.session = ? AND t.n BETWEEN ? AND ? ORDER BY t.n LIMIT ?",
            progress.tree_id,
            session,
            self._rows.find_segment(progress.tree_id, after_seq + 1, progress.n),
            progress.n,
            -1 if max_n is None else max_n + 1,  # every chunk has a record; those of the first may be known
        )
        found: list[JournalRecord] = []
        for (body,) in rows:
            chunks = read_chunks(body) if isinstance(body, bytes) else []
            if [chunk.session for chunk in chunks] != [session]:
                raise DamageError("the session index points elsewhere")
            lines = [line for line in read_chunk_lines(body, chunks[0]) if line.seq > after_seq]
            found += [to_record(line, session, self._rows.blobs) for line in lines]
            if max_n is not None and len(found) >= max_n:
                break
        return found[:max_n]
