"""Opening: who may write, what is found damaged or too new, and reading alongside a writer or without one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from sessiontree.contracts.errors import (
    JournalCorrupt,
    JournalError,
    JournalLocked,
    JournalTooNew,
    JournalUnwritable,
)
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

if TYPE_CHECKING:
    from tests.unit.journal.conftest import Written

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]

WRITER = """
import sys
from pathlib import Path
from sessiontree.journal.journal import Journal
journal = Journal.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""
READER = """
import os, sys
from pathlib import Path
from sessiontree.journal.journal import Journal
if len(sys.argv) > 2 and os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with Journal.open(Path(sys.argv[1]), read_only=True) as journal:
    print(len(journal.read("tree")), len(journal.read_session("tree", "main")), journal.verify("tree").ok)
"""


def test_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    """A journal has one writing process; the error names it, and its end, however hard, frees the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(JournalLocked, match=f"process {child.pid} writes it"):
            Journal.open(tmp_path)
        Journal.open(tmp_path, read_only=True).release()
        child.kill()
    Journal.open(tmp_path).release()


def test_second_writer_in_one_process_is_refused(tmp_path: Path) -> None:
    """The lock holds within a process as well, and goes with its holder; a failed opening frees it."""
    first = Journal.open(tmp_path)
    with pytest.raises(JournalLocked, match=f"process {os.getpid()} writes it"):
        Journal.open(tmp_path)
    first.release()
    database = (tmp_path / "journal.db").read_bytes()
    (tmp_path / "journal.db").write_bytes(b"no database at all" * 500)
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            Journal.open(tmp_path)
    (tmp_path / "journal.db").write_bytes(database)
    Journal.open(tmp_path).release()


async def test_another_process_reads_while_this_one_writes(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """A reader needs no lock and sees what is committed."""
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        await journal.append("tree", [("main", [fact(1), fact(2)]), ("", [fact(3)])])[1]
        journal.append("tree", [])
        command = [sys.executable, "-c", READER, str(tmp_path)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: ASYNC221 - nothing else runs
        assert found.stdout == "3 2 True\n"


async def test_open_reader_follows_the_writer(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """One that reads again and again sees each commit, and a log emptied under it does no harm."""
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        with Journal.open(tmp_path, read_only=True) as reader:
            for n in range(60):
                await journal.append("tree", [("main", [fact(n, 60_000)] * 3)])[1]
                assert [record.seq for record in reader.read("tree", after_seq=3 * n)] == [
                    3 * n + 1,
                    3 * n + 2,
                    3 * n + 3,
                ]
                assert reader.last_seq("tree") == 3 * n + 3
            assert len(reader.read_session("tree", "main")) == 180
            assert reader.verify("tree").ok
        assert (tmp_path / "journal.db-wal").stat().st_size < 9_000_000


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_directory_that_may_not_be_written_can_be_read(written: Written, state: str) -> None:
    """Another user's journal is readable where its files are; a log left behind is used or refused."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # which others may look into
        place = Path(directory)
        place.chmod(0o755)
        path = written.copy_to(place)
        if state == "closed":
            Journal.open(path).release()
        for file in path.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o444)
        path.chmod(0o555)
        command = [sys.executable, "-c", READER, str(path), "as nobody"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            path.chmod(0o755)
        if state == "closed":
            assert found.stdout == "48 24 True\n", found.stderr
        else:
            assert found.stdout == "48 24 True\n" or "can't" in found.stderr.splitlines()[-1]


def test_journal_that_is_not_there_can_not_be_read(tmp_path: Path) -> None:
    """Reading makes nothing: the path is wrong, and the error says so."""
    with pytest.raises(JournalError, match="no journal is here"):
        Journal.open(tmp_path / "wrong", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_directory_that_can_not_be_made_is_unwritable(tmp_path: Path) -> None:
    """A file in the way is reported as such."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalUnwritable, match="open it again"):
        Journal.open(tmp_path / "file" / "state")
    with pytest.raises(JournalUnwritable, match="open it again"):
        Journal.open(tmp_path / "file")


def emptied(state: Path) -> None:
    """Cut the database to nothing."""
    (state / "journal.db").write_bytes(b"")


def overwritten(state: Path) -> None:
    """Put another kind of file in its place."""
    (state / "journal.db").write_bytes(b"\x89PNG\r\n" * 2000)


def removed(state: Path) -> None:
    """Delete the database and leave its log."""
    (state / "journal.db").unlink()


def foreign(state: Path) -> None:
    """Put another program's database in its place."""
    removed(state)
    (state / "journal.db-wal").unlink()
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute("CREATE TABLE trees(a)")


def reshaped(state: Path) -> None:
    """Alter a table."""
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute("ALTER TABLE segments ADD COLUMN more")


def rolled_back(state: Path) -> None:
    """Make SQLite overlook the log."""
    data = bytearray((state / "journal.db").read_bytes())
    data[18:20] = b"\x01\x01"
    (state / "journal.db").write_bytes(data)


@pytest.mark.short(3)
@pytest.mark.parametrize("damage", [emptied, overwritten, removed, foreign, reshaped, rolled_back])
def test_damaged_database_file_is_corrupt_and_left_alone(
    written: Written, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A file that is no journal any more is a JournalCorrupt and stays as it is, its log too.

    To read, what the log alone still holds will do: it is whole, or it is not taken.
    """
    state = written.copy_to(tmp_path)
    damage(state)
    kept = {
        path.name: path.read_bytes()
        for path in state.iterdir()
        if path.name in ("journal.db", "journal.db-wal")
    }
    with pytest.raises(JournalCorrupt, match="restore"):
        Journal.open(state)
    if damage is not reshaped:
        assert {name: (state / name).read_bytes() for name in kept} == kept
    try:
        with Journal.open(state, read_only=True) as journal:
            assert journal.read("tree") == list(written.records)
            assert damage in (overwritten, rolled_back)
    except JournalError as error:
        assert isinstance(error, JournalCorrupt) or damage is removed


def test_journal_of_a_later_release_is_too_new(tmp_path: Path) -> None:
    """A schema this release does not know is neither read nor written."""
    Journal.open(tmp_path).release()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        connection.execute("PRAGMA user_version=2")
    for read_only in (False, True):
        with pytest.raises(JournalTooNew, match="later release"):
            Journal.open(tmp_path, read_only=read_only)


def test_opening_that_was_killed_half_way_is_done_again(written: Written, tmp_path: Path) -> None:
    """What a killed first opening left behind is no journal and in nobody's way."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal.db.part").write_bytes(written.database[:5000])
    (state / "journal.db.part-wal").write_bytes(written.log[:5000])
    with Journal.open(state) as journal:
        assert journal.trees() == []
    assert sorted(path.name for path in state.iterdir()) == ["journal.db", "journal.lock"]


async def test_journal_may_be_moved_while_closed(
    written: Written, opened: OpenJournal, tmp_path: Path
) -> None:
    """Nothing in a state directory depends on where it is; odd characters in its path do no harm."""
    there = tmp_path / "a ? # % state é"
    shutil.move(written.copy_to(tmp_path), there)
    async with opened(there) as journal:
        assert journal.verify("tree").ok
        assert journal.read("tree") == list(written.records)


@pytest.mark.covers("DUR6")
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
async def test_journal_taken_away_while_open_acknowledges_nothing_more(
    fact: MakeFact, tmp_path: Path, how: str
) -> None:
    """What would go into a file that nobody finds again is an error, and no acknowledgement."""
    state = tmp_path / "state"
    journal = Journal.open(state)
    journal.start(asyncio.get_running_loop())
    await journal.create_tree("tree", {})
    await journal.append("tree", [("main", [fact(1)])])[1]
    if how == "deleted":
        shutil.rmtree(state)
    elif how == "moved":
        state.rename(tmp_path / "elsewhere")
    else:
        shutil.copy2(state / "journal.db", tmp_path / "copy")
        (tmp_path / "copy").rename(state / "journal.db")
    with pytest.raises(JournalUnwritable, match=r"deleted, moved or replaced .* bring it back"):
        await journal.append("tree", [("main", [fact(2)])])[1]
    with pytest.raises(JournalUnwritable, match="deleted, moved or replaced"):
        journal.append("tree", [("main", [fact(3)])])
    await journal.close()
