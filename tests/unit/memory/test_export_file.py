"""Exports of a memory: whole ones come back as they were, all others are refused, and nothing is stored."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import RECORD_TYPES, TRUSTS, MemoryRecord, MemoryScope, Source
from sessiontree.memory.import_export import (
    MAX_LINE_BYTES,
    STEPS,
    Exported,
    Imported,
    Line,
    Step,
    check_export,
    flatten_record,
    import_export,
    write_export,
)
from sessiontree.memory.tables import FinishedTree
from tests.system.house.error_fixtures import has_cause

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
SOURCES = st.builds(
    lambda path, first, more: str(Source(path.replace("#", ""), first, first + more)),
    NAMES.filter(lambda path: path.replace("#", "")),
    st.integers(1, 99),
    st.integers(0, 9),
)
RECORDS = st.builds(
    MemoryRecord,
    id=st.text("0123456789abcdef", min_size=32, max_size=32),
    type=st.sampled_from(RECORD_TYPES),
    text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30),
    source=st.none() | SOURCES,
    trust=st.sampled_from(TRUSTS),
    scope=st.builds(MemoryScope, NAMES, NAMES, NAMES, NAMES),
    created_at_ms=st.integers(0, 2**50),
)
TREES = st.builds(FinishedTree, NAMES, NAMES, NAMES, st.integers(0, 2**50))

RECORD = MemoryRecord(
    "0f" * 16,
    "fact",
    "it retries 3 times",
    "a.py#L3-L9",
    "session",
    MemoryScope("t1", "main", "default", "/w"),
    7,
)
TREE = FinishedTree("t1", "default", "/w", 9)


@dataclass(slots=True)
class Kept:
    """A store that keeps what it is given in a list."""

    records: list[MemoryRecord] = field(default_factory=list)
    trees: list[FinishedTree] = field(default_factory=list)

    async def add(self, records: Sequence[MemoryRecord]) -> list[str]:
        known = {record.id for record in self.records}
        fresh = {record.id: record for record in records if record.id not in known}
        self.records += fresh.values()
        return list(fresh)

    async def add_finished(self, trees: Sequence[FinishedTree]) -> None:
        self.trees += [tree for tree in trees if tree not in self.trees]


async def exported(records: list[MemoryRecord], trees: list[FinishedTree]) -> tuple[bytes, Exported]:
    """Return an export, written in parts of two records."""

    async def parts() -> AsyncIterator[list[MemoryRecord]]:
        for first in range(0, len(records), 2):
            yield records[first : first + 2]

    out = io.BytesIO()
    told = await write_export(parts(), trees, out, embedder="hashing-384-v1", at_ms=11)
    return out.getvalue(), told


SAMPLE = anyio.run(exported, [RECORD], [TREE])[0]
"""An export of one record and one tree."""


async def imported(data: bytes, steps: Sequence[Step] = STEPS) -> tuple[Kept, Imported]:
    """Import into an empty store."""
    store = Kept()
    return store, await import_export(store, io.BytesIO(data), "memory.ndjson", steps)


def test_format_of_version_1() -> None:
    """The golden export: what this release writes, every later one reads."""
    assert SAMPLE.decode().splitlines() == [
        '{"sessiontree_memory_export":1,"exported_at_ms":11,"embedder":"hashing-384-v1"}',
        (
            '{"record":{"id":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","type":"fact","text":"it retries 3 times",'
            '"source":"a.py#L3-L9","trust":"session","created_at_ms":7,"tree_id":"t1","session":"main",'
            '"agent_id":"default","workspace":"/w"}}'
        ),
        '{"finished":{"tree_id":"t1","agent_id":"default","workspace":"/w","ended_at_ms":9}}',
        '{"end":true,"records":1,"finished":1,"by_type":{"fact":1},"sha256":"6a1aa7ecdd33ad024b8d5fc3a6d00d902eb5e1bf89aaec626447c984227fe204"}',
    ]


@pytest.mark.slow
@given(
    st.lists(RECORDS, max_size=7, unique_by=lambda record: record.id),
    st.lists(TREES, max_size=3, unique=True),
)
def test_what_was_exported_is_imported(records: list[MemoryRecord], trees: list[FinishedTree]) -> None:
    """Every record and tree comes back as it was and in order; a second import adds nothing."""

    async def there_and_back() -> None:
        data, told = await exported(records, trees)
        assert (told.records, told.finished) == (len(records), len(trees))
        assert check_export(io.BytesIO(data), "memory.ndjson") == told
        store, done = await imported(data)
        assert (store.records, store.trees) == (records, trees)
        assert done == Imported(len(records), len(records), len(trees))
        again = await import_export(store, io.BytesIO(data), "memory.ndjson")
        assert again == Imported(len(records), 0, len(trees))
        assert (store.records, store.trees) == (records, trees)

    anyio.run(there_and_back)


async def refused(data: bytes) -> MemoryFailed:
    """Return why an export is refused, and see that nothing of it was stored."""
    store = Kept()
    with pytest.raises(MemoryFailed, check=has_cause("export")) as caught:
        await import_export(store, io.BytesIO(data), "memory.ndjson")
    assert not store.records
    assert not store.trees
    assert caught.value.place == "memory.ndjson"
    return caught.value


async def test_export_cut_anywhere_is_refused() -> None:
    """Whatever is missing behind: nothing is imported."""
    for end in range(len(SAMPLE)):
        await refused(SAMPLE[:end])


@given(place=st.integers(0, len(SAMPLE) - 1), byte=st.integers(0, 255))
def test_altered_export_is_refused(place: int, byte: int) -> None:
    """One byte that is another, anywhere: nothing is imported."""
    if SAMPLE[place] != byte:
        anyio.run(refused, SAMPLE[:place] + bytes([byte]) + SAMPLE[place + 1 :])


@given(st.lists(RECORDS, min_size=2, max_size=5, unique_by=lambda record: record.id), st.data())
def test_line_left_out_doubled_or_moved_is_refused(
    records: list[MemoryRecord], chance: st.DataObject
) -> None:
    """The lines are those that were written, in their order."""

    async def damaged() -> None:
        lines = (await exported(records, [TREE]))[0].splitlines(keepends=True)
        one, other = (chance.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        how = chance.draw(st.sampled_from(["left out", "doubled", "swapped"]))
        if how == "left out":
            del lines[one]
        elif how == "doubled":
            lines.insert(other, lines[one])
        elif one != other:
            lines[one], lines[other] = lines[other], lines[one]
        else:
            return
        await refused(b"".join(lines))

    anyio.run(damaged)


def sealed(*lines: object, manifest: object = None, **end: object) -> bytes:
    """Return an export whose digest fits whatever its lines hold."""
    first = {"sessiontree_memory_export": 1} if manifest is None else manifest
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (first, *lines))
    found = {"records": len(lines), "finished": 0, "by_type": {"fact": len(lines)}} if lines else {}
    told = {"records": 0, "finished": 0, "by_type": {}, **found, "sha256": hashlib.sha256(text).hexdigest()}
    return text + json.dumps({"end": True, **told, **end}).encode() + b"\n"


def record_line(**changed: object) -> dict[str, object]:
    """Return the line of a record, with some of its members changed."""
    return {"record": {**flatten_record(RECORD), **changed}}


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\x00\xff\n", b"[]\n", b"{}\n", b'{"format":"sessiontree-journal"}\n',
     b"[" * 9_000 + b"\n", b'{"sessiontree_memory_export":true}\n', b'{"sessiontree_memory_export":0}\n',
     b" " * (2 * MAX_LINE_BYTES)],
)  # fmt: skip
async def test_what_is_no_export_is_refused(data: bytes) -> None:
    """Another file, a line without end, nesting without end: refused at its first line."""
    assert "line 1" in str(await refused(data))


@pytest.mark.parametrize(
    "line",
    [
        5,
        {},
        {"record": 5},
        {"record": flatten_record(RECORD), "more": 1},
        {"record": {"id": RECORD.id}},
        {"decision": flatten_record(RECORD)},
        {"finished": {"tree_id": "t1"}},
        record_line(extra=1),
        record_line(id="../../etc"),
        record_line(id="0F" * 16),
        record_line(id=5),
        record_line(type="rumour"),
        record_line(type=["fact"]),
        record_line(text=""),
        record_line(text="x" * 20_001),
        record_line(text=None),
        record_line(text="\ud800"),
        record_line(source=5),
        record_line(source="a.py#L9-L3"),
        record_line(source=""),
        record_line(trust="blind"),
        record_line(tree_id=""),
        record_line(session="\ud800"),
        record_line(workspace="/" * 4_097),
        record_line(created_at_ms=1.5),
        record_line(created_at_ms=True),
        record_line(created_at_ms=-1),
        record_line(created_at_ms=2**70),
    ],
)
async def test_line_that_is_no_record_is_refused_though_its_digest_fits(line: object) -> None:
    """Whoever writes an export by hand gets nothing in that a session could not have stored."""
    assert "line 3" in str(await refused(sealed(record_line(), line)))
    await imported(sealed(record_line()))


@pytest.mark.parametrize(
    "end",
    [{"records": 2}, {"finished": 1}, {"by_type": {"free": 1}}, {"sha256": "0" * 64}, {"records": None}],
)
async def test_end_that_tells_something_else_is_refused(end: dict[str, object]) -> None:
    """Counts and digest are those of the lines before."""
    assert "line 3" in str(await refused(sealed(record_line(), **end)))


async def test_nothing_may_stand_behind_the_end() -> None:
    """Two exports in one file are not valid."""
    assert "after the end line" in str(await refused(SAMPLE + SAMPLE))


async def test_export_of_a_later_release_asks_for_it() -> None:
    """It is not guessed at."""
    data = sealed(record_line(), manifest={"sessiontree_memory_export": 2})
    assert "later release" in str(await refused(data))


def lower(line: Line) -> Line:
    """Version 2 writes texts in small letters."""
    return {"record": {**line["record"], "text": line["record"]["text"].lower()}}


def name_trust(line: Line) -> Line:
    """Version 3 says who vouches for a record."""
    return {"record": {**line["record"], "trust": "foreign"}}


async def test_earlier_versions_are_upgraded_one_step_at_a_time() -> None:
    """An export of any version becomes one of the current version; a current one takes no step."""
    found = {}
    for version in (1, 2, 3):
        data = sealed(record_line(text="ABC"), manifest={"sessiontree_memory_export": version})
        store, _ = await imported(data, (lower, name_trust))
        found[version] = [(record.text, record.trust) for record in store.records]
    assert found == {1: [("abc", "foreign")], 2: [("ABC", "foreign")], 3: [("ABC", "session")]}
