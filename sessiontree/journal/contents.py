"""What a journal holds, as its readers see it: trees, their records, and whether they are whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TextIO

from sessiontree.contracts.errors import JournalError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.journal.export import ExportSummary, write_export
from sessiontree.journal.reader import JournalReader
from sessiontree.journal.record import JournalRecord, TreeRow, Verification


class JournalContents:
    """Reads the trees of an open journal, from any thread; :class:`Journal` opens it.

    What is read is committed, and an unbroken prefix of what was written: damage shortens a tree and never
    alters one.
    """

    _path: str
    """Of the database."""
    _reader: JournalReader
    _closing: asyncio.Task[None] | None
    _closed: bool

    @property
    def directory(self) -> Path:
        """The state directory that it is in."""
        return Path(self._path).parent

    def read(self, tree_id: str, *, after_seq: int = 0, max_n: int | None = None) -> list[JournalRecord]:
        """Return committed records in seq order; the first read of a tree checks it up to them.

        Args:
            tree_id: The tree.
            after_seq: Only records after this seq.
            max_n: At most this many; None = all.
        """
        return self._require_reader().records(tree_id, after_seq, max_n)

    def read_session(
        self, tree_id: str, session: str, *, after_seq: int = 0, max_n: int | None = None
    ) -> list[JournalRecord]:
        """Return one session's committed records in seq order, at most ``max_n``; reads only its own bytes.

        The first read of a tree checks the whole tree.
        """
        return self._require_reader().read_session_records(tree_id, session, after_seq, max_n)

    def sessions(self, tree_id: str) -> list[str]:
        """Return the sessions that have facts, in the order of their first facts; without the tree itself."""
        return self._require_reader().sessions(tree_id)

    def trees(self) -> list[TreeRow]:
        """Return all trees, oldest first; they are not checked."""
        return self._require_reader().trees()

    def count_tree_bytes(self) -> dict[str, int]:
        """Return how many bytes the facts of each tree take, as stored; blobs are not counted."""
        return self._require_reader().count_tree_bytes()

    def row0(self, tree_id: str) -> dict[str, JsonValue]:
        """Return the configuration that a tree was created with.

        Raises:
            JournalCorrupt: it is altered.
        """
        return self._require_reader().row0(tree_id)

    def last_seq(self, tree_id: str) -> int:
        """Return the seq of the last committed good record; 0 = no record is good."""
        return self._require_reader().last_seq(tree_id)

    def verify(self, tree_id: str) -> Verification:
        """Check every byte of a tree, its index and its blobs; return what is wrong instead of raising it."""
        return self._require_reader().verify(tree_id)

    def export(self, tree_id: str, out: TextIO) -> ExportSummary:
        """Write a tree as NDJSON; each line carries the hash of all lines before.

        The export holds the records that are durable now. Of a damaged tree it holds the good records, and
        its last line says what is wrong.

        Raises:
            JournalCorrupt: row 0 is altered.
        """
        reader = self._require_reader()
        verdict = reader.verify(tree_id)
        reader.row0(tree_id)
        return write_export(reader.tree(tree_id), reader.records, verdict, out)

    def _require_reader(self) -> JournalReader:
        if self._closed or self._closing is not None:
            raise JournalError(self._path, "it is closed; open it again")
        return self._reader
