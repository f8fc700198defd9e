"""Rows of the tables as values: one connection's statements, and the walk that checks segments in order."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.chain import ChainState, Flaw, Stored, blob_flaw, index_mark
from sessiontree.journal.record import TreeRow
from sessiontree.journal.segment import Chunk, DamageError, genesis_hash
from sessiontree.journal.sqlite_errors import typed_reads

_TREES = (
    "SELECT t.tree_id, t.created_ms, t.row0, t.hash, h.seq, h.written_ms"
    " FROM trees t LEFT JOIN heads h USING (tree_id)"
)


class Rows:
    """What can be asked of a reading connection. Not for two threads at once.

    Args:
        connection: Reads only.
        blobs: Where long texts are.
        path: The database, for errors.

    Every method raises JournalCorrupt where the file itself is damaged.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: BlobStore, path: Path) -> None:
        self._connection = connection
        self.blobs = blobs
        self.path = path

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a statement. Their types are what the file says, damaged or not."""
        with typed_reads(self.path):
            try:
                return self._connection.execute(statement, values).fetchall()
            except UnicodeEncodeError:
                return []  # an id with lone surrogates names nothing that could be stored

    def trees(self) -> list[TreeRow]:
        """Return all trees, oldest first; see :class:`TreeRow`."""
        return [_tree_row(*row) for row in self.all(f"{_TREES} ORDER BY t.created_ms, t.tree_id")]

    def tree(self, tree_id: str) -> TreeRow | None:
        """Return one tree, or None where there is none."""
        rows = self.all(f"{_TREES} WHERE t.tree_id = ?", tree_id)
        return _tree_row(*rows[0]) if rows else None

    def stored(self, tree_id: str, first_n: int) -> Generator[Stored, None, None]:
        """Yield segments from a number on, in order; close the iterator when done.

        Raises:
            DamageError: a row holds values of a wrong type.
        """
        with typed_reads(self.path):
            cursor = self._connection.execute(
                "SELECT n, first_seq, count, prev_hash, hash, body FROM segments"
                " WHERE tree_id = ? AND n >= ? ORDER BY n",
                (tree_id, first_n),
            )
            with closing(cursor):
                for row in cursor:
                    yield Stored.of(row)

    def head_n(self, tree_id: str) -> int:
        """Return the number of the last segment that was ever committed, 0 where unknown."""
        rows = self.all("SELECT n FROM heads WHERE tree_id = ?", tree_id)
        return rows[0][0] if rows and isinstance(rows[0][0], int) else 0

    def segment_of(self, tree_id: str, seq: int, last_n: int) -> int:
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
        """Tell whether the session index is what the good segments call for; remembered in ``progress``."""
        if progress.index_good is None:
            rows = self.all(
                "SELECT session, n, offset, length FROM touched WHERE tree_id = ? AND n <= ?",
                progress.tree_id,
                progress.n,
            )
            progress.index_good = sum(index_mark(row) for row in rows) % (1 << 64) == progress.index_sum
        return progress.index_good


class RowScan:
    """Checks what follows a tree's good segments. Iterating yields each new good one, once.

    Args:
        rows: Where from.
        progress: Moves along.
    """

    def __init__(self, rows: Rows, progress: ChainState) -> None:
        self._rows = rows
        self._progress = progress
        self.flaw: Flaw | None = None
        """What ended the walk, once it has ended; None where the tree ended."""

    def __iter__(self) -> Iterator[tuple[Stored, list[Chunk]]]:
        """Yield good segments and their chunks."""
        progress = self._progress
        # Read before the segments, so that a commit in between can't look like a missing segment.
        head_n = self._rows.head_n(progress.tree_id)
        with closing(self._rows.stored(progress.tree_id, progress.n + 1)) as rows:
            try:
                for row in rows:
                    chunks = progress.check(row)
                    self.flaw = blob_flaw(row, chunks, self._rows.blobs)
                    if self.flaw is not None:
                        return
                    progress.accept(row, chunks)
                    yield row, chunks
            except DamageError as error:
                self.flaw = progress.flaw(str(error))
                return
        if head_n > progress.n:
            self.flaw = progress.flaw(f"segment {progress.n + 1} is missing")

    def run(self) -> Flaw | None:
        """Walk to the end and return what ended it."""
        for _ in self:
            pass
        return self.flaw


def _tree_row(tree_id: str, created_ms: Any, row0: Any, own: Any, seq: Any, written_ms: Any) -> TreeRow:
    whole = _row0(tree_id, created_ms, row0, own)
    return TreeRow(tree_id, _number(created_ms), whole, _number(seq), _number(written_ms))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _row0(tree_id: str, created_ms: Any, row0: Any, own: Any) -> dict[str, JsonValue] | None:
    """Return the row 0 whose hash is ``own``, or None where it is another."""
    if not isinstance(row0, str) or genesis_hash(tree_id, created_ms, row0) != own:
        return None
    value: dict[str, JsonValue] = json.loads(row0)
    return value
