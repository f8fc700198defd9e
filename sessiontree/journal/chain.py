"""Checking a tree segment by segment: what follows from what, and where it first stops to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.record import Record
from sessiontree.journal.segment import (
    Chunk,
    DamageError,
    SegmentLine,
    Share,
    chain_hash,
    read_chunks,
    read_line,
    read_lines,
    shares_until,
)

Span: TypeAlias = tuple[str, int, int, int]
"""One row of the session index: session, segment, offset, length."""
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
        numbers = all(isinstance(value, int) for value in (n, first_seq, count))
        if not numbers or not all(isinstance(value, bytes) for value in (prev_hash, own_hash, body)):
            raise DamageError(f"segment {n!r} holds values of a wrong type")
        return cls(n, first_seq, count, prev_hash, own_hash, body)


@dataclass(frozen=True, slots=True)
class Advance:
    """What this process's writer just made durable in one tree."""

    tree_id: str
    genesis: bytes
    n: int
    head: bytes
    seq: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """The first damage of a tree."""

    n: int
    """The segment that is missing or altered."""
    last_seq: int
    """The last good record; it may stand in the segment itself, where only a blob is damaged."""
    reason: str
    records: tuple[Record, ...] = ()
    """The good records of that segment."""
    shares: tuple[Share, ...] = ()
    """The same as lines, to write them anew."""


def index_mark(span: Span) -> int:
    """Return a number for one index row; the sum over rows, modulo 2**64, stands for the set of them."""
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
    """Sum of the index marks its chunks call for."""
    index_good: bool | None = None
    """Whether the session index agrees; None = not looked at."""

    def check(self, row: Stored) -> list[Chunk]:
        """Return the chunks of the row that follows.

        Raises:
            DamageError: another row should follow, or its bytes are not what was written.
        """
        if row.n != self.n + 1:
            raise DamageError(f"segment {self.n + 1} is missing")
        if row.prev_hash != self.head:
            raise DamageError(f"segment {row.n} does not follow the one before it")
        if chain_hash(self.head, self.tree_id, row.n, row.body) != row.hash:
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

    def flaw(self, reason: str) -> Flaw:
        """Return the flaw that begins right after the last good segment."""
        return Flaw(self.n + 1, self.seq, reason)


def read_records(row: Stored, chunks: list[Chunk], blobs: BlobStore) -> tuple[list[Record], str | None]:
    """Return the records of a checked row in seq order, up to the first whose blob is damaged.

    Returns:
        The records, and why they stop early (None where they do not).

    Raises:
        DamageError: the lines do not carry the seqs they should.
    """
    lines = [(line, chunk.session) for chunk in chunks for line in chunk_lines(row.body, chunk)]
    lines.sort(key=lambda pair: pair[0].seq)
    if [line.seq for line, _ in lines] != list(range(row.first_seq, row.first_seq + row.count)):
        raise DamageError(f"segment {row.n} has gaps in its numbering")
    records: list[Record] = []
    for line, session in lines:
        try:
            records.append(to_record(line, session, blobs))
        except DamageError as error:
            return records, str(error)
    return records, None


def chunk_lines(body: bytes, chunk: Chunk) -> list[SegmentLine]:
    """Return the facts of a chunk as they stand in it."""
    return [read_line(text[:-1]) for text in read_lines(body, chunk)]


def to_record(line: SegmentLine, session: str, blobs: BlobStore) -> Record:
    """Return the record of a line, its blob's text in place.

    Raises:
        DamageError: the blob is missing or altered.
    """
    text = blobs.read(line.text) if line.is_blob else line.text
    return Record(line.seq, session, line.cause, line.at_ms, text)


def blob_flaw(row: Stored, chunks: list[Chunk], blobs: BlobStore) -> Flaw | None:
    """Return the flaw of a checked row one of whose blobs is damaged, or None."""
    if not any(chunk.blobs for chunk in chunks):
        return None
    records, reason = read_records(row, chunks, blobs)
    if reason is None:
        return None
    last_seq = row.first_seq + len(records) - 1
    shares = shares_until(row.body, chunks, last_seq)
    return Flaw(row.n, last_seq, f"record {last_seq + 1} is damaged: {reason}", tuple(records), tuple(shares))
