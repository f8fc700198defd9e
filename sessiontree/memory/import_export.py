"""Exports: files that hold a store's records, written, checked, read, and upgraded to the current version."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from sessiontree.contracts.errors import MemoryFailed, ValidationError
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, parse_json
from sessiontree.contracts.values.memory import MemoryRecord, MemoryScope, NewRecord
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.tables import FinishedTree
from sessiontree.memory.writer import to_records

Line: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Line], Line]
"""Converts a line of version v to version v + 1; pure, never changes its argument."""

STEPS: Final[tuple[Step, ...]] = ()
"""The conversions from version 1 to 2, from 2 to 3, and so on. Version 1 + the number of steps is current."""
FORMAT: Final = "sessiontree_memory_export"


@dataclass(frozen=True, slots=True)
class Exported:
    """The contents of an export."""

    records: int
    finished: int
    """Trees whose Main has finished."""
    by_type: Mapping[str, int]
    """How many records are of each type."""


async def write_export(
    batches: AsyncIterable[Sequence[MemoryRecord]],
    finished: Iterable[FinishedTree],
    out: BinaryIO,
    *,
    embedder: str,
    at_ms: int,
) -> Exported:
    """Write an export.

    Args:
        batches: All records, oldest first.
        finished: The trees whose Main has finished.
        out: The file to write; the caller closes it.
        embedder: Identity of the store's embedder.
        at_ms: The current time.
    """
    digest = hashlib.sha256()
    by_type: Counter[str] = Counter()
    trees = 0

    def write(line: Mapping[str, JsonValue]) -> None:
        text = f"{dump_json(line)}\n".encode("ascii")
        digest.update(text)
        out.write(text)

    write({FORMAT: 1 + len(STEPS), "exported_at_ms": at_ms, "embedder": embedder})
    async for batch in batches:
        for record in batch:
            write({"record": flatten_record(record)})
            by_type[record.type] += 1
    for tree in finished:
        write({"finished": asdict(tree)})
        trees += 1
    exported = Exported(by_type.total(), trees, dict(sorted(by_type.items())))
    write({"end": True, **asdict(exported), "sha256": digest.hexdigest()})
    out.flush()
    return exported


def flatten_record(record: MemoryRecord) -> dict[str, JsonValue]:
    """Return a record as one flat object, without ``is_own``, which depends on who asks."""
    members = asdict(record)
    del members["is_own"]
    scope = members.pop("scope")
    return {**members, **scope}


Entry: TypeAlias = MemoryRecord | FinishedTree

MAX_LINE_BYTES: Final = 1 << 20
"""The limit of a line. A record's text and names are shorter, even with every character escaped."""
_AT_ONCE = 500
_MAX_NAME_CHARS = 4_096
_MAX_MS = 2**53
_ID = re.compile(r"[0-9a-f]{32}")
_OWN = ("id", "type", "text", "source", "trust", "created_at_ms")
_SCOPE = ("tree_id", "session", "agent_id", "workspace")
_FINISHED = ("tree_id", "agent_id", "workspace", "ended_at_ms")


class Importable(Protocol):
    """What an import needs of the store."""

    async def add(self, records: Sequence[MemoryRecord]) -> list[str]:
        """Store complete records and return the ids that were added."""
        ...

    async def add_finished(self, trees: Sequence[FinishedTree]) -> None:
        """Add trees whose Main has finished."""
        ...


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of an import."""

    records: int
    """Records in the export."""
    added: int
    """Records that the store did not have."""
    finished: int
    """Trees in the export whose Main has finished."""


async def import_export(
    store: Importable, file: BinaryIO, name: str, steps: Sequence[Step] = STEPS
) -> Imported:
    """Store everything in an export. Ids are kept, so importing it again adds nothing.

    Args:
        store: The store to write.
        file: The export, at its beginning; it is read twice.
        name: Name of the file, for errors.
        steps: The conversions from version 1 to the current one.

    Raises:
        MemoryFailed: the file is truncated, altered, not an export, or of a later release; nothing was
            stored.
        MemoryFailed: the store cannot be written. What was stored stays; import the file again.
    """
    start = file.tell()
    # Only the end line shows that a file is whole, and by then its records would be stored.
    checked = check_export(file, name, steps)
    file.seek(start)
    added = 0
    batch: list[MemoryRecord] = []
    trees: list[FinishedTree] = []
    for entry in read_export(file, name, steps):
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


def check_export(file: BinaryIO, name: str, steps: Sequence[Step] = STEPS) -> Exported:
    """Read an export to its end and return its contents.

    Raises:
        MemoryFailed: as :func:`read_export`.
    """
    by_type: Counter[str] = Counter()
    finished = 0
    for entry in read_export(file, name, steps):
        if isinstance(entry, FinishedTree):
            finished += 1
        else:
            by_type[entry.type] += 1
    return Exported(by_type.total(), finished, dict(sorted(by_type.items())))


def read_export(file: BinaryIO, name: str, steps: Sequence[Step] = STEPS) -> Iterator[Entry]:
    """Yield records and finished trees in the order of the export.

    Raises:
        MemoryFailed: at the first fault, at the latest after the last entry. Only a reader that reaches the
            end knows that the export is complete.
    """
    reader = _Lines(file, name)
    version = _check_version(reader.next("a manifest line"), reader, 1 + len(steps))
    counts: Counter[str] = Counter()
    finished = 0
    while True:
        # Taken before the line is read: the end line can't hold a hash of itself.
        digest = reader.digest()
        line = reader.next("an end line")
        if "end" in line:
            break
        try:
            for step in steps[version - 1 :]:
                line = step(line)
            entry = _parse_entry(line)
        except (ValidationError, ValueError, TypeError, KeyError) as error:
            raise reader.refused(str(error)) from error
        if isinstance(entry, FinishedTree):
            finished += 1
        else:
            counts[entry.type] += 1
        yield entry
    totals = {"records": counts.total(), "finished": finished, "by_type": counts, "sha256": digest}
    for key, found in totals.items():
        if line.get(key) != found:
            raise reader.refused(f"the {key} of the end line does not fit the other lines")
    if reader.more():
        raise reader.refused("there is text after the end line")


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
            raise self.refused(f"the file ends without {wanted}")
        self._hash.update(data)
        try:
            line = parse_json(data)
        except ValueError as error:
            raise self.refused("the line is not JSON") from error
        if not isinstance(line, dict):
            raise self.refused("the line is not a JSON object")
        return line

    def more(self) -> bool:
        """Whether anything follows."""
        return bool(self._file.read(1))

    def digest(self) -> str:
        """Return the SHA-256 of all lines so far, in hex."""
        return self._hash.hexdigest()

    def refused(self, reason: str, do: str = "export it again") -> MemoryFailed:
        """Return the error to raise about the line that was read last."""
        return MemoryFailed(
            self._name, f"line {self._number}: {reason}; nothing was imported; {do}", "export"
        )


def _check_version(manifest: Line, reader: _Lines, current: int) -> int:
    version = manifest.get(FORMAT)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise reader.refused("this is not an export of a memory")
    if version > current:
        raise reader.refused(
            f"it has version {version}, this release reads up to {current}", "use a later release"
        )
    return version


def _parse_entry(line: Line) -> Entry:
    """Return the entry in a line of the current version.

    Raises:
        ValueError, ValidationError: the line does not hold a valid entry.
    """
    if list(line) == ["record"]:
        return _record(_check_members(line["record"], (*_OWN, *_SCOPE)))
    if list(line) == ["finished"]:
        members = _check_members(line["finished"], _FINISHED)
        tree_id, agent_id, workspace = (_name(members[key]) for key in _FINISHED[:3])
        return FinishedTree(tree_id, agent_id, workspace, _check_ms(members["ended_at_ms"]))
    raise ValueError("the line is neither a record nor a finished tree")


def _record(members: Line) -> MemoryRecord:
    if not isinstance(members["id"], str) or not _ID.fullmatch(members["id"]):
        raise ValueError("a record's id has 32 hex digits")
    if members["source"] is not None:
        _name(members["source"])
    new = NewRecord(_check_text(members["text"]), members["type"], members["source"], members["trust"])
    scope = MemoryScope(*(_name(members[key]) for key in _SCOPE))
    (record,) = to_records([new], scope, "", _check_ms(members["created_at_ms"]))
    return replace(record, id=members["id"])


def _check_members(given: Any, wanted: tuple[str, ...]) -> Line:
    if not isinstance(given, dict) or set(given) != set(wanted):
        raise ValueError(f"it should have the members {', '.join(wanted)}")
    return given


def _check_text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("a text is not a string")
    return given


def _name(given: Any) -> str:
    text = _check_text(given)
    if not 1 <= len(text) <= _MAX_NAME_CHARS:
        raise ValueError(f"a name has 1 to {_MAX_NAME_CHARS} characters, and one has {len(text)}")
    text.encode("utf-8")
    return text


def _check_ms(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < _MAX_MS:
        raise ValueError("a time is not a number of milliseconds")
    return given
