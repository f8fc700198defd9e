"""Reading an export back: all of it is checked before anything of it is stored; vectors are made anew."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from sessiontree.contracts.errors import ExportRefused, ValidationError
from sessiontree.contracts.memory import MemoryRecord, MemoryScope, NewRecord
from sessiontree.memory.export_file import FORMAT, Exported
from sessiontree.memory.finished import FinishedTree
from sessiontree.memory.migrations import LADDER, Ladder, Line
from sessiontree.memory.new_records import recorded

Entry: TypeAlias = MemoryRecord | FinishedTree

MAX_LINE_BYTES: Final = 1 << 20
"""No line is longer: a record's text and names, every character escaped, take less."""
_AT_ONCE = 500
_MAX_NAME_CHARS = 4_096
_MAX_MS = 2**53
_ID = re.compile(r"[0-9a-f]{32}")
_OWN = ("id", "type", "text", "source", "trust", "created_at_ms")
_SCOPE = ("tree_id", "session", "agent_id", "workspace")
_FINISHED = ("tree_id", "agent_id", "workspace", "ended_at_ms")


class Importable(Protocol):
    """The store, as an import needs it."""

    async def add(self, records: Sequence[MemoryRecord]) -> list[str]:
        """Store records as they are and return the ids that were not there yet."""
        ...

    async def add_finished(self, trees: Sequence[FinishedTree]) -> None:
        """Take in trees whose Main has finished."""
        ...


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    records: int
    """In the export."""
    added: int
    """Not there before."""
    finished: int
    """Trees whose Main has finished, in the export."""


async def import_export(store: Importable, file: BinaryIO, name: str, ladder: Ladder = LADDER) -> Imported:
    """Store all that an export holds; ids are kept, so importing it again adds nothing.

    Args:
        store: Where to.
        file: The export, from its beginning; read twice.
        name: Of the file, for errors.
        ladder: Leads from its version to the current one.

    Raises:
        ExportRefused: it is cut, altered, none, or of a later release; nothing was stored.
        MemoryFailed: the store can't be written; what was stored before is kept, import it again.
    """
    start = file.tell()
    checked = check_export(file, name, ladder)
    file.seek(start)
    added = 0
    batch: list[MemoryRecord] = []
    trees: list[FinishedTree] = []
    for entry in read_export(file, name, ladder):
        if isinstance(entry, FinishedTree):
            trees.append(entry)
            continue
        batch.append(entry)
        if len(batch) == _AT_ONCE:
            added += len(await store.add(batch))
            batch = []
    if batch:
        added += len(await store.add(batch))
    if trees:
        await store.add_finished(trees)
    return Imported(checked.records, added, checked.finished)


def check_export(file: BinaryIO, name: str, ladder: Ladder = LADDER) -> Exported:
    """Read an export to its end and return what it holds.

    Raises:
        ExportRefused: as :func:`read_export`.
    """
    by_type: Counter[str] = Counter()
    finished = 0
    for entry in read_export(file, name, ladder):
        if isinstance(entry, FinishedTree):
            finished += 1
        else:
            by_type[entry.type] += 1
    return Exported(by_type.total(), finished, dict(sorted(by_type.items())))


def read_export(file: BinaryIO, name: str, ladder: Ladder = LADDER) -> Iterator[Entry]:
    """Yield records and finished trees in the order of the export.

    Raises:
        ExportRefused: raised where the first fault stands, at the latest behind the last entry; only who has
            read to the end knows that the export is whole.
    """
    reader = _Lines(file, name)
    version = _version(reader.next("the manifest"), reader, ladder)
    counts: Counter[str] = Counter()
    finished = 0
    while True:
        digest = reader.digest()
        line = reader.next("its end")
        if "end" in line:
            break
        try:
            entry = _entry(ladder.climb(line, version))
        except (ValidationError, ValueError, TypeError, KeyError) as error:
            raise reader.refused(str(error)) from error
        if isinstance(entry, FinishedTree):
            finished += 1
        else:
            counts[entry.type] += 1
        yield entry
    told = {"records": counts.total(), "finished": finished, "by_type": counts, "sha256": digest}
    for key, found in told.items():
        if line.get(key) != found:
            raise reader.refused(f"its end tells another {key} than its lines have")
    if reader.more():
        raise reader.refused("something stands behind its end")


class _Lines:
    """The lines of an export as JSON objects, hashed and counted."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._number = 0
        self._hash = hashlib.sha256()

    def next(self, wanted: str) -> Line:
        """Return the next line."""
        self._number += 1
        data = self._file.readline(MAX_LINE_BYTES)
        if not data.endswith(b"\n"):
            if len(data) == MAX_LINE_BYTES:
                raise self.refused(f"the line is longer than {MAX_LINE_BYTES} bytes")
            raise self.refused(f"it is cut off before {wanted}")
        self._hash.update(data)
        try:
            line = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.refused("the line is no JSON") from error
        if not isinstance(line, dict):
            raise self.refused("the line is no JSON object")
        return line

    def more(self) -> bool:
        """Whether anything follows."""
        return bool(self._file.read(1))

    def digest(self) -> str:
        """Return the SHA-256 of all lines so far, in hex."""
        return self._hash.hexdigest()

    def refused(self, reason: str, do: str = "export it anew") -> ExportRefused:
        """Return the error to raise about the line read last."""
        return ExportRefused(self._name, f"line {self._number}: {reason}; nothing was imported: {do}")


def _version(manifest: Line, reader: _Lines, ladder: Ladder) -> int:
    version = manifest.get(FORMAT)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise reader.refused("this is no export of a memory")
    if version > ladder.current:
        raise reader.refused(
            f"it has version {version}, this release reads up to {ladder.current}", "use a later release"
        )
    return version


def _entry(line: Line) -> Entry:
    """Return what a line of the current version holds.

    Raises:
        ValueError, ValidationError: it holds none of it.
    """
    if list(line) == ["record"]:
        return _record(_members(line["record"], (*_OWN, *_SCOPE)))
    if list(line) == ["finished"]:
        members = _members(line["finished"], _FINISHED)
        tree_id, agent_id, workspace = (_name(members[key]) for key in _FINISHED[:3])
        return FinishedTree(tree_id, agent_id, workspace, _ms(members["ended_at_ms"]))
    raise ValueError("the line is neither a record nor a finished tree")


def _record(members: Line) -> MemoryRecord:
    if not isinstance(members["id"], str) or not _ID.fullmatch(members["id"]):
        raise ValueError("a record's id has 32 hex digits")
    if members["source"] is not None:
        _name(members["source"])
    new = NewRecord(_text(members["text"]), members["type"], members["source"], members["trust"])
    scope = MemoryScope(*(_name(members[key]) for key in _SCOPE))
    (record,) = recorded([new], scope, "", _ms(members["created_at_ms"]))
    return replace(record, id=members["id"])


def _members(given: Any, wanted: tuple[str, ...]) -> Line:
    if not isinstance(given, dict) or set(given) != set(wanted):
        raise ValueError(f"it should have the members {', '.join(wanted)}")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("a text is none")
    return given


def _name(given: Any) -> str:
    text = _text(given)
    if not 1 <= len(text) <= _MAX_NAME_CHARS:
        raise ValueError(f"a name has 1 to {_MAX_NAME_CHARS} characters, one has {len(text)}")
    text.encode("utf-8")
    return text


def _ms(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < _MAX_MS:
        raise ValueError("a time is no number of milliseconds")
    return given
