"""A tree as NDJSON text, and back: each line carries the hash of everything up to it.

The first line is the manifest, then one line per record in seq order, then the end line::

    {"format":"sessiontree-journal","version":1,"tree":...,"created_ms":...,"row0":{...},"hash":...}
    {"seq":1,"session":"main","at_ms":...,"cause":...,"fact":{...},"hash":...}
    {"end":true,"records":1,"damage":null,"hash":...}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO, TypeAlias

from sessiontree.contracts.errors import JournalTooNew
from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.journal.record import Record, TreeRow, Verification
from sessiontree.journal.segment import DamageError

Read: TypeAlias = Callable[[str, int, int], list[Record]]
FORMAT = "sessiontree-journal"
VERSION = 1
_PAGE = 1000
_TAIL = re.compile(r',"hash":"([0-9a-f]{64})"\}')
_TAIL_CHARS = len(',"hash":""}') + 64
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
class Export:
    """The longest valid beginning of an export."""

    manifest: Manifest | None
    """None where not even the first line is whole."""
    records: tuple[Record, ...]
    """In seq order from 1, without gaps."""
    stopped_at_line: int | None = None
    """The first line that is missing or altered, from 1; None where all of it is whole."""
    reason: str | None = None
    """Why it stops there."""
    damage: str | None = None
    """What had already been damaged in the journal when it was exported, where it says so."""

    @property
    def complete(self) -> bool:
        """True when nothing is missing from the journal's first record to its last."""
        return self.stopped_at_line is None and self.damage is None


def write_export(tree: TreeRow, read: Read, verdict: Verification, out: TextIO) -> int:
    """Write a tree.

    Args:
        tree: Its row; row 0 must be whole.
        read: (tree id, after_seq, max_n) → the next records.
        verdict: What the check found; records after its last good one are left out.
        out: Text file; the caller closes it.

    Returns:
        How many records were written.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "tree": tree.tree_id}
    head |= {"created_ms": tree.created_ms, "row0": tree.row0}
    seal = _Seal()
    out.write(seal.close(dump_json(head)[:-1]))
    count = 0
    for record in _pages(read, verdict):
        session, cause = dump_json(record.session), dump_json(record.cause)
        out.write(
            seal.close(
                f'{{"seq":{record.seq},"session":{session},"at_ms":{record.at_ms},"cause":{cause},"fact":{record.text}'
            )
        )
        count += 1
    out.write(seal.close(dump_json({"end": True, "records": count, "damage": verdict.reason})[:-1]))
    return count


def load_export(lines: Iterable[str]) -> Export:
    """Return the longest valid beginning of an export.

    Args:
        lines: Its lines, newline included, as a text file yields them. Read an untrusted file with
            ``errors="replace"``: what is no text is then found by the hash.

    Raises:
        JournalTooNew: a later release wrote it.
    """
    seal = _Seal()
    manifest: Manifest | None = None
    records: list[Record] = []
    number = 0
    try:
        for line in lines:
            number += 1
            text = seal.open(line)
            if manifest is None:
                manifest = _manifest(text)
            elif text.startswith('{"end":'):
                return Export(manifest, tuple(records), damage=_end(text, len(records)))
            else:
                records.append(_record(text, len(records) + 1))
        number += 1
        raise DamageError("the export is cut off here")
    except DamageError as error:
        return Export(manifest, tuple(records), number, str(error))


class _Seal:
    """Closes lines with the hash of all lines so far, and opens them again."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def close(self, text: str) -> str:
        """Return a line: an object's text without its closing brace, its hash, the brace, a newline."""
        self._hash.update(text.encode("ascii"))
        return f'{text},"hash":"{self._hash.hexdigest()}"}}\n'

    def open(self, line: str) -> str:
        """Return the text :meth:`close` was given; raise DamageError where the line is another."""
        if not line.endswith("\n"):
            raise DamageError("the line is cut off")
        text, tail = line[: -_TAIL_CHARS - 1], _TAIL.fullmatch(line[-_TAIL_CHARS - 1 : -1])
        if tail is None or not text.isascii():
            raise DamageError("the line has no hash")
        self._hash.update(text.encode("ascii"))
        if tail.group(1) != self._hash.hexdigest():
            raise DamageError("the line is altered, or lines before it are missing")
        return text


def _pages(read: Read, verdict: Verification) -> Iterator[Record]:
    seq = 0
    while seq < verdict.last_good_seq:
        page = read(verdict.tree_id, seq, min(_PAGE, verdict.last_good_seq - seq))
        if not page:
            return
        yield from page
        seq = page[-1].seq


def _manifest(text: str) -> Manifest:
    value = _object(text)
    if value.get("format") != FORMAT or not isinstance(value.get("version"), int):
        raise DamageError("this is no export of a journal")
    if value["version"] > VERSION:
        raise JournalTooNew("export", f"it has version {value['version']}, this release knows {VERSION}")
    try:
        return Manifest(value["tree"], value["created_ms"], value["row0"])
    except KeyError as error:
        raise DamageError(f"the manifest has no {error}") from error


def _record(text: str, seq: int) -> Record:
    match = _RECORD.fullmatch(text)
    if match is None or int(match.group(1)) != seq:
        raise DamageError(f"record {seq} should stand here")
    session, cause = _text(match.group(2)), _text(match.group(4))
    return Record(seq, session, cause, int(match.group(3)), match.group(5))


def _end(text: str, count: int) -> str | None:
    value = _object(text)
    if value.get("records") != count:
        raise DamageError(f"{value.get('records')} records should stand before the end")
    return None if value.get("damage") is None else str(value["damage"])


def _text(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError as error:
        raise DamageError("a text is no JSON") from error


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(f"{text}}}")
    except ValueError as error:
        raise DamageError("the line is no JSON") from error
    if not isinstance(value, dict):
        raise DamageError("the line is no JSON object")
    return value
