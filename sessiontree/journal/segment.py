"""The form of a segment: the facts that one commit adds to a tree, as bytes, and the hash that chains them.

A body holds one chunk per session, in order of the session's first fact. A chunk is a header line
``{"session","count","bytes","crc32","blobs"}`` and ``count`` lines, one per fact, seq rising::

    {"seq":7,"at_ms":1760000000000,"cause":"c1","fact":{...}}
    {"seq":8,"at_ms":1760000000000,"cause":"c1","blob":"<sha256 of the fact's text>"}

All is ASCII. The hash of a segment covers the hash before it, the tree, its number and its body; the hash
before the first covers the tree's id, creation time and row 0.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import field
from typing import TypeAlias

from sessiontree.contracts.values.jsonable import dump_json, parse_json, quote
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import Packed

Span: TypeAlias = tuple[str, int, int, int]
"""One row of the session index: session, segment, offset, length."""


MAX_BODY_BYTES = 4 * 1024 * 1024
"""A segment is closed once its lines reach this."""
MAX_INLINE_CHARS = 64 * 1024
"""A longer fact is kept as a blob."""

_LINE = re.compile(
    r'\{"seq":(\d{1,19}),"at_ms":(-?\d{1,19}),"cause":("(?:[^"\\]|\\.)*"),"(fact|blob)":(.*)\}', re.DOTALL
)
_DIGEST = re.compile(r'"[0-9a-f]{64}"')


class DamageError(Exception):
    """Bytes are not what was written. It never leaves this room."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the facts of one session are in a body."""

    session: str
    offset: int
    """Bytes from the start of the body to the header line."""
    length: int
    """Bytes, header line included."""
    lines_at: int
    """Bytes from the start of the body to the first fact."""
    count: int
    blobs: tuple[str, ...]

    def span(self, n: int) -> tuple[str, int, int, int]:
        """Return the row of the session index: session, segment, offset, length."""
        return self.session, n, self.offset, self.length


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """One fact as a chunk holds it; if ``is_blob``, ``text`` is the digest of its blob."""

    seq: int
    at_ms: int
    cause: str
    is_blob: bool
    text: str


@dataclass(slots=True)
class Share:
    """The lines of one session while a segment is filled."""

    session: str
    lines: list[str] = field(default_factory=list)
    """Newline included, seq rising."""
    blobs: list[str] = field(default_factory=list)
    """Digests of the blobs that its lines refer to."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment ready to be written."""

    n: int
    first_seq: int
    count: int
    prev_hash: bytes
    hash: bytes
    body: bytes
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """What this process's writer just made durable in one tree."""

    tree_id: str
    genesis: bytes
    n: int
    head: bytes
    seq: int


def compute_genesis_hash(tree_id: str, created_ms: int, row0: str) -> bytes:
    """Return the hash (32 bytes) that comes before the first segment of a tree."""
    # An id holds no line break, so no other id, time and row 0 give the same bytes.
    return hashlib.sha256(f"{tree_id}\n{created_ms}\n{row0}".encode()).digest()


def compute_chain_hash(prev_hash: bytes, tree_id: str, n: int, body: bytes) -> bytes:
    """Return the hash (32 bytes) of segment ``n``."""
    chained = hashlib.sha256(prev_hash)
    chained.update(f"{tree_id}\n{n}\n".encode())
    chained.update(body)
    return chained.digest()


def write_line(seq: int, fact: Packed, digest: str | None) -> str:
    """Return the line of a fact, newline included; ``digest`` is that of its blob, if it has one."""
    cause, at_ms, text = fact
    what = f'"fact":{text}' if digest is None else f'"blob":"{digest}"'
    return f'{{"seq":{seq},"at_ms":{at_ms},"cause":{quote(cause)},{what}}}\n'


def read_line(text: str) -> SegmentLine:
    """Return the fact of a line without its newline.

    Raises:
        DamageError: the line has another form.
    """
    match = _LINE.fullmatch(text)
    if match is None:
        raise DamageError("a fact's line has an unknown form")
    seq, at_ms, cause, what, rest = match.groups()
    try:
        # Causes rarely have an escape, and this runs for each fact.
        plain = parse_json(cause) if "\\" in cause else cause[1:-1]
    except ValueError as error:
        raise DamageError("the cause of a fact is not a JSON text") from error
    if what == "fact":
        return SegmentLine(int(seq), int(at_ms), plain, False, rest)
    if _DIGEST.fullmatch(rest) is None:
        raise DamageError("the name of a blob is not a digest")
    return SegmentLine(int(seq), int(at_ms), plain, True, rest[1:-1])


def build_segment(tree_id: str, n: int, prev_hash: bytes, first_seq: int, shares: Iterable[Share]) -> Segment:
    """Return segment ``n`` of a tree.

    Args:
        tree_id: The tree.
        n: Its number, from 1.
        prev_hash: Hash of segment ``n - 1``, or the genesis hash.
        first_seq: The lowest seq among the lines.
        shares: What each session adds; together they hold consecutive seqs.
    """
    parts: list[bytes] = []
    chunks: list[Chunk] = []
    offset = count = 0
    for share in shares:
        body = "".join(share.lines).encode("ascii")
        said = {
            "session": share.session,
            "count": len(share.lines),
            "bytes": len(body),
            "crc32": zlib.crc32(body),
            "blobs": share.blobs,
        }
        header = dump_json(said).encode("ascii")
        length = len(header) + 1 + len(body)
        lines_at = offset + len(header) + 1
        chunks.append(Chunk(share.session, offset, length, lines_at, len(share.lines), tuple(share.blobs)))
        parts += (header, b"\n", body)
        offset += length
        count += len(share.lines)
    whole = b"".join(parts)
    hashed = compute_chain_hash(prev_hash, tree_id, n, whole)
    return Segment(n, first_seq, count, prev_hash, hashed, whole, tuple(chunks))


def read_chunks(body: bytes) -> list[Chunk]:
    """Return the chunks of a body, in their order.

    Raises:
        DamageError: the body is not a sequence of chunks.
    """
    chunks: list[Chunk] = []
    offset = 0
    while offset < len(body):
        chunk = _read_header(body, offset)
        chunks.append(chunk)
        offset += chunk.length
    return chunks


def read_lines(body: bytes, chunk: Chunk) -> list[str]:
    """Return a chunk's lines, newline included.

    Raises:
        DamageError: they are not as many as the header says.
    """
    text = body[chunk.lines_at : chunk.offset + chunk.length].decode("ascii", "replace")
    lines = [f"{line}\n" for line in text.split("\n")[:-1]]
    if len(lines) != chunk.count:
        raise DamageError("a chunk holds more or fewer facts than it says")
    return lines


def collect_shares(body: bytes, chunks: Iterable[Chunk], last_seq: int) -> list[Share]:
    """Return the lines of a body up to a seq, by session; sessions without lines are left out."""
    shares: list[Share] = []
    for chunk in chunks:
        share = Share(chunk.session)
        for text in read_lines(body, chunk):
            line = read_line(text[:-1])
            if line.seq <= last_seq:
                share.lines.append(text)
                share.blobs += [line.text] if line.is_blob else []
        if share.lines:
            shares.append(share)
    return shares


def _read_header(body: bytes, offset: int) -> Chunk:
    end = body.find(b"\n", offset)
    try:
        header = json.loads(body[offset:end])
        session, count, size = str(header["session"]), int(header["count"]), int(header["bytes"])
        crc32, blobs = header["crc32"], tuple(header["blobs"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DamageError("a chunk's header has an unknown form") from error
    lines = body[end + 1 : end + 1 + size] if end >= 0 and size >= 0 else b""
    if len(lines) != size or zlib.crc32(lines) != crc32:
        raise DamageError("a chunk's checksum does not fit its bytes")
    return Chunk(session, offset, end + 1 - offset + size, end + 1, count, blobs)
