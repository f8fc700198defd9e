"""Exports of trees: NDJSON text in which each line carries the hash of everything up to it.

The manifest comes first, then one line per record in seq order, then the end::

    {"format":"sessiontree-journal","version":1,"tree":...,"created_ms":...,"row0":{...},"hash":...}
    {"seq":1,"session":"main","at_ms":...,"cause":...,"fact":{...},"hash":...}
    {"end":true,"records":1,"damage":null,"hash":...}
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, TypeAlias

from sessiontree.contracts.errors import JournalTooNew
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.blobs import sync_directory
from sessiontree.journal.record import JournalRecord, TreeRow, Verification
from sessiontree.journal.segment import DamageError

Read: TypeAlias = Callable[[str, int, int], list[JournalRecord]]
FORMAT = "sessiontree-journal"
VERSION = 1
_PAGE = 1000
_TAIL = re.compile(r',"hash":"([0-9a-f]{64})"\}')
_TAIL_CHARS = len(',"hash":""}') + 64
_MAX_TIME: Final = 2**63 - 1
"""Longest time; a column of SQLite holds no more."""
# A pattern and not a JSON parser: the fact's text must come back byte by byte, as it was hashed.
_RECORD = re.compile(
    r'\{"seq":(\d{1,19}),"session":("(?:[^"\\]|\\.)*"),"at_ms":(-?\d{1,19}),"cause":("(?:[^"\\]|\\.)*"),"fact":(.*)',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first line of an export."""

    tree_id: str
    created_ms: int
    row0: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export holds."""

    tree_id: str
    records: int
    damage: str | None
    """What was damaged in the journal when the tree was exported; None = the export holds the whole tree."""


@dataclass(frozen=True, slots=True)
class Export:
    """The longest valid beginning of an export."""

    manifest: Manifest | None
    """None if even the first line is damaged."""
    records: tuple[JournalRecord, ...]
    """In seq order from 1, without gaps."""
    stopped_at_line: int | None = None
    """Number of the first line that is missing or altered, from 1; None = all lines are whole."""
    reason: str | None = None
    """What is wrong with that line."""
    damage: str | None = None
    """What was damaged in the journal when the tree was exported; None = nothing."""

    @property
    def complete(self) -> bool:
        """Whether it holds every record of the tree."""
        return self.stopped_at_line is None and self.damage is None


def write_export(tree: TreeRow, read: Read, verdict: Verification, out: TextIO) -> ExportSummary:
    """Write a tree.

    Args:
        tree: Its row; row 0 must be good.
        read: (tree id, after_seq, max_n) → the next records.
        verdict: The result of its check; records after the last good one are left out.
        out: Text file; the caller closes it.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "tree": tree.tree_id}
    head |= {"created_ms": tree.created_ms, "row0": tree.row0}
    seal = _Seal()
    out.write(seal.close(dump_json(head)[:-1]))
    count = 0
    for record in _read_pages(read, verdict):
        session, cause = dump_json(record.session), dump_json(record.cause)
        out.write(
            seal.close(
                f'{{"seq":{record.seq},"session":{session},"at_ms":{record.at_ms},"cause":{cause},"fact":{record.text}'
            )
        )
        count += 1
    out.write(seal.close(dump_json({"end": True, "records": count, "damage": verdict.reason})[:-1]))
    return ExportSummary(tree.tree_id, count, verdict.reason)


def load_export(lines: Iterable[str]) -> Export:
    """Return the longest valid beginning of an export.

    Args:
        lines: Its lines, newline included, as a text file yields them. Read an untrusted file with
            ``errors="replace"``: the hash then finds what is not text.

    Raises:
        JournalTooNew: a later release wrote it.
    """
    seal = _Seal()
    manifest: Manifest | None = None
    records: list[JournalRecord] = []
    number = 0
    rest = iter(lines)
    try:
        for line in rest:
            number += 1
            text = seal.open(line)
            if manifest is None:
                manifest = _parse_manifest(text)
            elif text.startswith('{"end":'):
                damage = _end(text, len(records))
                if next(rest, None) is None:
                    return Export(manifest, tuple(records), damage=damage)
                number += 1
                raise DamageError("more follows the end of the export; a file holds one tree")
            else:
                records.append(_record(text, len(records) + 1))
        number += 1
        raise DamageError("the export is cut off here")
    except DamageError as error:
        return Export(manifest, tuple(records), number, str(error))


class _Seal:
    """Adds to each line the hash of all lines so far, and checks it again."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def close(self, text: str) -> str:
        """Return a line: an object's text without its closing brace, its hash, the brace, a newline."""
        self._hash.update(text.encode("ascii"))
        return f'{text},"hash":"{self._hash.hexdigest()}"}}\n'

    def open(self, line: str) -> str:
        """Return the text that :meth:`close` was given; raise DamageError if the line was changed."""
        if not line.endswith("\n"):
            raise DamageError("the line is cut off")
        text, tail = line[: -_TAIL_CHARS - 1], _TAIL.fullmatch(line[-_TAIL_CHARS - 1 : -1])
        if tail is None or not text.isascii():
            raise DamageError("the line has no hash")
        self._hash.update(text.encode("ascii"))
        if tail.group(1) != self._hash.hexdigest():
            raise DamageError("the line is altered, or lines before it are missing")
        return text


def _read_pages(read: Read, verdict: Verification) -> Iterator[JournalRecord]:
    seq = 0
    while seq < verdict.last_good_seq:
        page = read(verdict.tree_id, seq, min(_PAGE, verdict.last_good_seq - seq))
        if not page:
            return
        yield from page
        seq = page[-1].seq


def _parse_manifest(text: str) -> Manifest:
    value = _parse_object(text)
    if value.get("format") != FORMAT or not isinstance(value.get("version"), int):
        raise DamageError("it is not an export of a journal")
    if value["version"] > VERSION:
        raise JournalTooNew("export", f"it has version {value['version']}, this release knows {VERSION}")
    for name, kind in (("tree", str), ("created_ms", int), ("row0", dict)):
        if not isinstance(value.get(name), kind):
            raise DamageError(f"the manifest has no {name!r} of type {kind.__name__}")
    return Manifest(value["tree"], _check_time(value["created_ms"]), value["row0"])


def _record(text: str, seq: int) -> JournalRecord:
    match = _RECORD.fullmatch(text)
    if match is None or int(match.group(1)) != seq:
        raise DamageError(f"record {seq} was expected here")
    session, cause = _parse_text(match.group(2)), _parse_text(match.group(4))
    return JournalRecord(seq, session, cause, _check_time(int(match.group(3))), match.group(5))


def _check_time(at_ms: int) -> int:
    if not -_MAX_TIME <= at_ms <= _MAX_TIME:
        raise DamageError("no time in a journal can be so early or so late")
    return at_ms


def _end(text: str, count: int) -> str | None:
    value = _parse_object(text)
    if value.get("records") != count:
        raise DamageError(f"{value.get('records')} records were expected before the end, not {count}")
    return None if value.get("damage") is None else str(value["damage"])


def _parse_text(quoted: str) -> str:
    try:
        return str(parse_json(quoted))
    except ValueError as error:
        raise DamageError("a text is not JSON") from error


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(f"{text}}}")
    except ValueError as error:
        raise DamageError("the line is not JSON") from error
    if not isinstance(value, dict):
        raise DamageError("the line is not a JSON object")
    return value


@contextmanager
def open_private_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that only its owner may read; it replaces ``path`` once it is whole and on the disk.

    A link is followed. A device, a pipe or a directory is not replaced.

    Raises:
        OSError: the file can't be written; the earlier file is unchanged.
    """
    if path.exists() and not path.is_file():
        reason = "it is not a regular file, and would be replaced by one; name another, or - for the output"
        raise FileExistsError(errno.EEXIST, reason, str(path))
    path = Path(os.path.realpath(path))
    # A link that `realpath` leaves in place is part of a loop of links.
    if path.is_symlink():
        reason = f"{os.strerror(errno.ELOOP)}; name another file"
        raise OSError(errno.ELOOP, reason, str(path))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(draft, flags, 0o600)
    except OSError as error:  # it names the draft, which nobody asked for
        reason = f"{error.strerror}; name a file in a directory that exists and can be written"
        raise OSError(error.errno, reason, str(path)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_directory(path.parent)
