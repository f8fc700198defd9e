"""Reading trees: every record handed out stands in an unbroken chain from its tree's row 0.

A tree is checked once, as it is first read, and from then on only what is new; a later read of one
session touches that session's bytes alone.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import closing
from pathlib import PurePath

from sessiontree.contracts.errors import JournalCorrupt, TreeNotFound
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.journal.chain import Advance, ChainState, Flaw, chunk_lines, read_records, to_record
from sessiontree.journal.record import Record, TreeRow, Verification
from sessiontree.journal.rows import Rows, RowScan
from sessiontree.journal.segment import Chunk, DamageError, read_chunks, snapshot_hash


def no_tree(path: str, tree_id: str) -> TreeNotFound:
    """Return the error for a tree that a journal does not hold."""
    listing = f"sessiontree tree --list --state-dir {shlex.quote(str(PurePath(path).parent))}"
    return TreeNotFound(path, f"it holds no tree {tree_id!r}; list those it holds: {listing}")


class JournalReader:
    """All reads of one journal. Methods may be called from any thread; they wait for each other.

    Args:
        rows: The connection to read from.
        advances: Where this process's writer leaves what it committed, which need not be checked again;
            entries are taken out.
        mend: Makes the index over segment numbers anew; None where this process does not write. Called
            once for each tree that seems damaged, so that what this process reads and where it appends
            agree.
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

    def tree(self, tree_id: str) -> TreeRow:
        """Return one tree."""
        with self._lock:
            found = self._rows.tree(tree_id)
        if found is None:
            raise no_tree(self.path, tree_id)
        return found

    def has_tree(self, tree_id: str) -> bool:
        """Tell whether anything is stored under the id, damaged or not."""
        with self._lock:
            return bool(
                self._rows.all(
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

    def records(self, tree_id: str, after_seq: int, max_n: int | None) -> list[Record]:
        """Return records in seq order, from the one after ``after_seq`` on."""
        with self._lock:
            progress = self._progress(tree_id)
            found: list[Record] = []
            try:
                for part in self._parts(progress, after_seq):
                    found += [record for record in part if record.seq > after_seq]
                    if max_n is not None and len(found) >= max_n:
                        return found[:max_n]
            except DamageError as error:
                raise JournalCorrupt(self.path, f"tree {tree_id!r}: {error}") from error
            return found

    def session_records(
        self, tree_id: str, session: str, after_seq: int, max_n: int | None = None
    ) -> list[Record]:
        """Return one session's records in seq order, from the first after ``after_seq`` on."""
        with self._lock:
            progress = self._progress(tree_id)
            if self._check_all(progress) is None and self._rows.index_agrees(progress):
                try:
                    return self._indexed(progress, session, after_seq, max_n)
                except DamageError:
                    # It was good and no longer is: check again from the start, and stop where it breaks.
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

    def snapshot(self, tree_id: str, session: str) -> tuple[int, str] | None:
        """Return a session's snapshot where it is whole and no newer than the good records."""
        with self._lock:
            last_seq = self.last_seq(tree_id)
            rows = self._rows.all(
                "SELECT seq, body, hash FROM snapshots WHERE tree_id = ? AND session = ?", tree_id, session
            )
        for seq, body, own in rows:
            whole = isinstance(seq, int) and isinstance(body, bytes)
            if whole and seq <= last_seq and snapshot_hash(tree_id, session, seq, body) == own:
                return seq, body.decode("utf-8", "surrogatepass")
        return None

    def last_seq(self, tree_id: str) -> int:
        """Return the last good record's seq, 0 for none."""
        with self._lock:
            progress = self._progress(tree_id)
            flaw = self._check_all(progress)
            return progress.seq if flaw is None else flaw.last_seq

    def end(self, tree_id: str) -> tuple[ChainState, Flaw | None]:
        """Check a whole tree, its index included; return how far it is good and what stands in the way."""
        with self._lock:
            progress = self._progress(tree_id)
            flaw = self._check_all(progress)
            self._rows.index_agrees(progress)
            return progress, flaw

    def chunks(self, tree_id: str, last_n: int) -> list[tuple[int, Chunk]]:
        """Return the chunks of segments 1 to ``last_n``, which must be good, each with its segment."""
        with self._lock, closing(self._rows.stored(tree_id, 1)) as rows:
            return [(row.n, chunk) for row in rows if row.n <= last_n for chunk in read_chunks(row.body)]

    def verify(self, tree_id: str) -> Verification:
        """Check a whole tree anew, whatever was checked before."""
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
            known.index_good = True

    def _parts(self, progress: ChainState, after_seq: int) -> Iterator[list[Record]]:
        """Yield the records of each good segment, from the one that holds ``after_seq + 1``."""
        if after_seq < progress.seq:
            try:
                yield from self._parts_again(progress, after_seq)
            except DamageError:
                # It was good and no longer is: stop here, and let the next read check from the start.
                self._known.pop(progress.tree_id, None)
                return
        walk = RowScan(self._rows, progress)
        for row, chunks in walk:
            if row.first_seq + row.count - 1 > after_seq:
                yield read_records(row, chunks, self._rows.blobs)[0]
        if walk.flaw is not None and self._mends(progress):
            yield from self._parts(progress, max(after_seq, progress.seq))
        elif walk.flaw is not None:
            yield list(walk.flaw.records)

    def _check_all(self, progress: ChainState) -> Flaw | None:
        """Check what is new in a tree; return the flaw that ended it, if one did."""
        flaw = RowScan(self._rows, progress).run()
        if flaw is not None and self._mends(progress):
            flaw = RowScan(self._rows, progress).run()
        return flaw

    def _mends(self, progress: ChainState) -> bool:
        """Mend the index over segment numbers, once a tree; tell whether that was done."""
        if self._mend is None or progress.tree_id in self._mended:
            return False
        self._mended.add(progress.tree_id)
        self._mend()
        return True

    def _parts_again(self, progress: ChainState, after_seq: int) -> Iterator[list[Record]]:
        """Yield records of segments known to be good, each checked by itself once more."""
        tree_id, last_n, last_head = progress.tree_id, progress.n, progress.head
        again: ChainState | None = None
        with closing(
            self._rows.stored(tree_id, self._rows.segment_of(tree_id, after_seq + 1, last_n))
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

    def _indexed(self, progress: ChainState, session: str, after_seq: int, max_n: int | None) -> list[Record]:
        """Return a session's records by the index; each chunk is held against its own checksum."""
        rows = self._rows.all(
            "SELECT substr(s.body, t.offset + 1, t.length)"
            " FROM touched t LEFT JOIN segments s USING (tree_id, n)"
            " WHERE t.tree_id = ? AND t.session = ? AND t.n BETWEEN ? AND ? ORDER BY t.n LIMIT ?",
            progress.tree_id,
            session,
            self._rows.segment_of(progress.tree_id, after_seq + 1, progress.n),
            progress.n,
            -1 if max_n is None else max_n + 1,  # every chunk has a record; the first may be known whole
        )
        found: list[Record] = []
        for (body,) in rows:
            chunks = read_chunks(body) if isinstance(body, bytes) else []
            if [chunk.session for chunk in chunks] != [session]:
                raise DamageError("the session index points elsewhere")
            lines = [line for line in chunk_lines(body, chunks[0]) if line.seq > after_seq]
            found += [to_record(line, session, self._rows.blobs) for line in lines]
            if max_n is not None and len(found) >= max_n:
                break
        return found[:max_n]
