"""Damage: cuts, flipped bytes and missing rows shorten a tree; they never alter it (REL-S39)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import example, find, given
from hypothesis import strategies as st

from sessiontree.contracts.errors import JournalCorrupt, JournalError, TreeNotFound
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, Packed
from sessiontree.journal.segment import DamageError, read_chunks, read_line, read_lines

if TYPE_CHECKING:
    from tests.unit.journal.conftest import Written

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]
Load: TypeAlias = Callable[[Path], list[JournalRecord]]


def load(state: Path) -> list[JournalRecord]:
    """The function under test: every record of the tree in a state directory."""
    with Journal.open(state) as journal:
        try:
            return journal.read("tree")
        except TreeNotFound:
            return []


def load_unchecked(state: Path) -> list[JournalRecord]:
    """A broken loader: it believes every row it finds."""
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        bodies = [row[0] for row in connection.execute("SELECT body FROM segments ORDER BY n")]
    lines = [
        (chunk.session, read_line(text[:-1]))
        for body in bodies
        for chunk in read_chunks(body)
        for text in read_lines(body, chunk)
    ]
    return [JournalRecord(line.seq, session, line.cause, line.at_ms, line.text) for session, line in lines]


def flipped(data: bytes, place: int, mask: int) -> bytes:
    """Return the bytes with one of them changed."""
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


def expected_after(written: Written, good_bytes: int) -> int:
    """Return how many records the commits hold that lie within the first bytes of the log."""
    return max(
        (count for size, count in zip(written.log_sizes, written.counts, strict=True) if size <= good_bytes),
        default=0,
    )


def cut_log_loads_prefix(written: Written, directory: Path, cut: int, load: Load) -> None:
    """Property: of a log cut at a byte, every commit that is before the cut loads, and nothing else."""
    found = load(written.copy_to(directory, log=written.log[:cut]))
    assert found == list(written.records[: expected_after(written, cut)])


def flipped_log_loads_prefix(written: Written, directory: Path, place: int, load: Load) -> None:
    """Property: of a log with a flipped byte, every commit before that byte loads, and nothing else."""
    found = load(written.copy_to(directory, log=flipped(written.log, place, 0x41)))
    assert found == list(written.records[: expected_after(written, place)])


@pytest.mark.covers("REL-S39")
@pytest.mark.slow
@given(share=st.floats(0, 1))
@example(share=0.0)
@example(share=1.0)
def test_log_cut_at_any_byte_loads_every_commit_before_it(
    written: Written, tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    """REL-S39: the longest valid prefix of a log cut anywhere loads."""
    cut = int(share * len(written.log))
    cut_log_loads_prefix(written, tmp_path_factory.mktemp("cut"), cut, load)


@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.0)
def test_log_flipped_at_any_byte_loads_every_commit_before_it(
    written: Written, tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    """REL-S39: a flipped byte of the log is detected, and what came before it loads."""
    place = int(share * len(written.log))
    flipped_log_loads_prefix(written, tmp_path_factory.mktemp("flip"), place, load)


@pytest.mark.covers("REL-S39")
@pytest.mark.parametrize("check", [cut_log_loads_prefix, flipped_log_loads_prefix])
def test_log_properties_notice_a_loader_that_loses_or_invents(
    written: Written, tmp_path_factory: pytest.TempPathFactory, check: Callable[..., None]
) -> None:
    """Both properties fail on a loader that gives up where it could go on, and on one that repeats."""
    place = len(written.log) // 2
    for broken in (
        lambda state: load(state)[:-1],
        lambda state: load(state) + load(state)[-1:],
        lambda _: [],
    ):
        with pytest.raises(AssertionError):
            check(written, tmp_path_factory.mktemp("broken"), place, broken)


@pytest.fixture(scope="module")
def settled(written: Written, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The database file with the whole log moved into it."""
    state = written.copy_to(tmp_path_factory.mktemp("settled"))
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (state / "journal.db").read_bytes()


def read_everything(state: Path) -> tuple[list[JournalRecord], list[str], list[JournalRecord]]:
    """Return what each way of reading finds, without a writer."""
    with Journal.open(state, read_only=True) as journal:
        records = journal.read("tree")
        last_seq = journal.last_seq("tree")
        verdict = journal.verify("tree")
        assert last_seq == verdict.last_good_seq == len(records)
        assert journal.row0("tree") == {"model": "scripted"}
        return records, journal.sessions("tree"), journal.read_session("tree", "main")


def flipped_database_never_differs(
    written: Written, directory: Path, database: bytes, read: Callable[[Path], tuple[object, ...]]
) -> None:
    """Property: a damaged database yields a true prefix by every way of reading, or a JournalError."""
    state = written.copy_to(directory, database=database, log=b"")
    try:
        records, sessions, own = read(state)
    except JournalError:
        return
    whole = list(written.records)
    assert isinstance(records, list)
    prefix = whole[: len(records)]
    assert records == prefix
    assert sessions == list(dict.fromkeys(record.session for record in prefix if record.session))
    assert own == [record for record in prefix if record.session == "main"]


@pytest.mark.covers("REL-S39", "DAM2")
@given(place=st.integers(0), mask=st.integers(1, 255))
@example(place=18, mask=3)
@example(place=60, mask=1)
def test_database_flipped_at_any_byte_never_yields_another_state(
    written: Written, settled: bytes, tmp_path_factory: pytest.TempPathFactory, place: int, mask: int
) -> None:
    """REL-S39: header, tree structure, index or content, a flipped byte never changes what is read."""
    database = flipped(settled, place % len(settled), mask)
    flipped_database_never_differs(written, tmp_path_factory.mktemp("page"), database, read_everything)


@given(share=st.floats(0, 1, exclude_max=True))
def test_database_cut_at_any_byte_never_yields_another_state(
    written: Written, settled: bytes, tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    """REL-S39: a database file cut short is a prefix or a typed error."""
    database = settled[: int(share * len(settled))]
    flipped_database_never_differs(written, tmp_path_factory.mktemp("short"), database, read_everything)


@pytest.mark.slow
def test_database_property_notices_a_reader_that_believes_rows(
    written: Written, settled: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The property fails on a reader that skips the chain: some flipped byte reaches its caller."""

    def believe(state: Path) -> tuple[object, ...]:
        try:
            records = load_unchecked(state)
        except sqlite3.Error as error:
            raise JournalCorrupt(str(state), "damaged") from error
        records.sort(key=lambda record: record.seq)
        own = [record for record in records if record.session == "main"]
        return records, list(dict.fromkeys(r.session for r in records if r.session)), own, None

    def differs(place: int) -> bool:
        database = flipped(settled, place, 0x02)
        try:
            flipped_database_never_differs(written, tmp_path_factory.mktemp("b"), database, believe)
        except Exception:  # noqa: BLE001 - whatever a broken reader does, it is noticed
            return True
        return False

    body = settled.index(b'{"session":')
    find(st.integers(body, body + 400), differs)


@pytest.mark.parametrize(
    "header",
    [
        *(
            '{"session":"main","count":1e999,"bytes":0,"crc32":0,"blobs":[]}',
            "[" * 100_000,
            "[]",
            "null",
            "x",
        ),
        *('{"session":"main","count":0,"bytes":-1e999,"crc32":0,"blobs":[]}', "{}", '{"count":NaN}', ""),
        '{"session":"main","count":0,"bytes":0,"crc32":0,"blobs":' + "[" * 100_000,
    ],
)
def test_header_of_an_unknown_form_is_damage(header: str) -> None:
    """Whatever its bytes hold, such as a number or brackets that Python can't read."""
    with pytest.raises(DamageError, match="a chunk's header has an unknown form"):
        read_chunks(header.encode() + b"\n")
