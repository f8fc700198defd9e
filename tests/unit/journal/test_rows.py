"""Damaged rows: each tree ends before its first bad segment, and goes on from there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from sessiontree.journal.segment import read_chunks

if TYPE_CHECKING:
    from tests.unit.journal.conftest import Written

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]

DAMAGES = {
    "body": "UPDATE segments SET body = CAST(replace(body, 'said', 'sold') AS BLOB) WHERE n = 4",
    "missing": "DELETE FROM segments WHERE n = 4",
    "hash": "UPDATE segments SET hash = zeroblob(32) WHERE n = 4",
    "prev_hash": "UPDATE segments SET prev_hash = zeroblob(32) WHERE n = 4",
    "first_seq": "UPDATE segments SET first_seq = first_seq + 1 WHERE n = 4",
    "count": "UPDATE segments SET count = count - 1 WHERE n = 4",
    "type": "UPDATE segments SET body = 'text' WHERE n = 4",
    "number": "UPDATE segments SET n = 40 WHERE n = 4",
    "exchanged": "UPDATE segments SET body = (SELECT body FROM segments WHERE n = 5) WHERE n = 4",
    "tree": "UPDATE segments SET tree_id = 'other' WHERE n = 4",
    "rest": "DELETE FROM segments WHERE n >= 4",
}
"""Ways a row can be wrong; each leaves exactly three good segments of four records."""


def damaged(written: Written, directory: Path, statement: str) -> Path:
    """Lay the files down and run a statement on them behind the journal's back."""
    state = written.copy_to(directory)
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute(statement)
        connection.commit()
    return state


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES.keys())
async def test_tree_with_a_damaged_segment_ends_before_it_and_goes_on_there(
    written: Written, opened: OpenJournal, fact: MakeFact, tmp_path: Path, statement: str
) -> None:
    """REL-S39: reads stop at the first bad segment, verify names it, appends go on from the last good seq."""
    state = damaged(written, tmp_path, statement)
    good = list(written.records[:12])
    with Journal.open(state, read_only=True) as journal:
        verdict = journal.verify("tree")
        assert (verdict.last_good_seq, verdict.bad_segment) == (12, 4)
        assert "segment 4" in (verdict.reason or "")
        assert journal.read("tree") == good
        assert journal.read("tree", after_seq=5, max_n=3) == good[5:8]
        assert journal.read("tree", after_seq=30) == []
        assert journal.read_session("tree", "main") == [record for record in good if record.session == "main"]
        assert journal.sessions("tree") == ["main", "main/b0", "main/b1", "main/b2"]
    async with opened(state) as journal:
        last_seq, durable = journal.append("tree", [("main/new", [fact(1)])])
        await durable
        assert last_seq == 13
        assert journal.read("tree")[:12] == good
        assert journal.read("tree")[12].session == "main/new"
        assert journal.verify("tree").ok
        assert journal.read_session("tree", "main/new")[0].seq == 13
    with Journal.open(state, read_only=True) as journal:
        assert journal.verify("tree").ok
        assert journal.last_seq("tree") == 13


async def test_bytes_that_were_cut_off_are_kept(
    written: Written, opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """Segments after a bad one leave the tree but not the disk."""
    state = damaged(written, tmp_path, "UPDATE segments SET hash = zeroblob(32) WHERE n = 2")
    async with opened(state) as journal:
        await journal.append("tree", [("main", [fact(n) for n in range(9)])])[1]
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        rows = connection.execute("SELECT n, first_seq, body, reason FROM quarantine ORDER BY n").fetchall()
    assert [row[:2] for row in rows] == [(n, 4 * n - 3) for n in range(2, 13)]
    assert all(read_chunks(row[2]) and "hash does not fit" in row[3] for row in rows)


@pytest.mark.parametrize("harm", ["missing", "altered"])
async def test_damaged_blob_ends_the_tree_at_its_record(
    written: Written, opened: OpenJournal, fact: MakeFact, tmp_path: Path, harm: str
) -> None:
    """A fact whose long text is gone or altered is damage at that record, even inside a segment."""
    state = written.copy_to(tmp_path)
    (blob,) = (state / "blobs").iterdir()
    if harm == "missing":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes()[:-3] + b"?" + blob.read_bytes()[-2:])
    bad = next(record.seq for record in written.records if len(record.text) > 65_536)
    good = list(written.records[: bad - 1])
    with Journal.open(state, read_only=True) as journal:
        verdict = journal.verify("tree")
        assert (verdict.last_good_seq, verdict.bad_segment) == (bad - 1, 6)
        assert f"record {bad}" in (verdict.reason or "")
        assert journal.read("tree") == good
        assert journal.read_session("tree", "main") == [record for record in good if record.session == "main"]
        assert journal.last_seq("tree") == bad - 1
    async with opened(state) as journal:
        last_seq, durable = journal.append("tree", [("main", [fact(1, 80_000)])])
        await durable
        assert last_seq == bad
        assert journal.read("tree")[:-1] == good
        assert journal.read("tree")[-1].text == fact(1, 80_000).text
        assert journal.verify("tree").ok
        assert len(journal.read_session("tree", "main")) == 13


async def test_damage_while_open_stops_the_next_read(
    written: Written, opened: OpenJournal, tmp_path: Path
) -> None:
    """What was checked once is checked again as it is read: a later flip is noticed, too."""
    async with opened(written.copy_to(tmp_path)) as journal:
        assert len(journal.read("tree")) == 48
        with closing(sqlite3.connect(tmp_path / "state" / "journal.db")) as connection:
            connection.execute(DAMAGES["body"])
            connection.commit()
        assert journal.read("tree") == list(written.records[:12])
        own = [record for record in written.records[:12] if record.session == "main"]
        assert journal.read_session("tree", "main") == own


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM touched WHERE session = 'main' AND n = 12",
        "UPDATE touched SET session = 'main/b9' WHERE session = 'main/b0'",
        "UPDATE touched SET offset = offset + 1",
        "DELETE FROM touched",
    ],
    ids=["last-row", "name", "offset", "all"],
)
async def test_damaged_index_loses_nothing_and_is_made_anew(
    written: Written, opened: OpenJournal, fact: MakeFact, tmp_path: Path, statement: str
) -> None:
    """The session index is a cache: reads go around a bad one, the next append mends it."""
    state = damaged(written, tmp_path, statement)
    own = [record for record in written.records if record.session == "main"]
    async with opened(state) as journal:
        verdict = journal.verify("tree")
        assert (verdict.ok, verdict.index_good, verdict.bad_segment) == (False, False, None)
        assert journal.read("tree") == list(written.records)
        assert journal.read_session("tree", "main") == own
        assert journal.sessions("tree") == ["main", "main/b0", "main/b1", "main/b2"]
        await journal.append("tree", [("main", [fact(1)])])[1]
        assert journal.verify("tree").ok
        assert journal.read_session("tree", "main")[:-1] == own


@pytest.mark.covers("REL-L70")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trees SET row0 = replace(row0, 'scripted', 'other')",
        "UPDATE trees SET created_ms = created_ms + 1",
        "UPDATE trees SET hash = zeroblob(32)",
    ],
)
async def test_altered_row_0_makes_its_tree_unusable_and_no_other(
    written: Written, opened: OpenJournal, fact: MakeFact, tmp_path: Path, statement: str
) -> None:
    """Without its configuration nothing of a tree can be trusted; the rest of the journal works on."""
    async with opened(damaged(written, tmp_path, statement)) as journal:
        assert journal.verify("tree").bad_segment == 0
        for ask in (
            lambda: journal.read("tree"),
            lambda: journal.row0("tree"),
            lambda: journal.last_seq("tree"),
            lambda: journal.append("tree", [("main", [fact(1)])]),
        ):
            with pytest.raises(JournalCorrupt, match="row 0"):
                ask()
        assert [tree.row0 for tree in journal.trees()] == [None]
        await journal.create_tree("next", {})
        assert journal.verify("next").ok
