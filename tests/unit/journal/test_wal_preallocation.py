"""Room at the end of the log: there when it is needed, harmless when it is not, and missed by nobody."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.journal.journal import Journal
from sessiontree.journal.writer import FROM_BYTES, STEP_BYTES, LogSpace
from tests.unit.journal.conftest import MakeFact, OpenJournal, Written, frames_end
from tests.unit.journal.test_damage import expected_after, load

FRAMES = b"f" * FROM_BYTES
"""Stand in a log that is long enough."""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Writes a database, with nobody else about."""
    with closing(sqlite3.connect(tmp_path / "any.db", isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that is long enough."""
    log = tmp_path / "log"
    log.write_bytes(FRAMES)
    return log


def test_room_is_made_once_and_again_where_it_is_used_up(connection: sqlite3.Connection, log: Path) -> None:
    """What is in the log stays; zeros follow, a step at a time, and none while there is room."""
    space = LogSpace(log, connection)
    for _ in range(3):
        space.keep()
        assert log.read_bytes() == FRAMES + bytes(STEP_BYTES)
    with log.open("ab") as more:
        more.write(b"beyond")
    space.keep()
    assert log.read_bytes() == FRAMES + bytes(STEP_BYTES) + b"beyond" + bytes(STEP_BYTES)
    log.write_bytes(FRAMES)
    space.keep()
    assert log.read_bytes() == FRAMES + bytes(STEP_BYTES)
    space.close()
    space.close()


@pytest.mark.parametrize("length", [0, FROM_BYTES - 1])
def test_short_log_is_left_as_it_is(connection: sqlite3.Connection, tmp_path: Path, length: int) -> None:
    """A few commits are not worth the room, and an emptied log stays empty."""
    log = tmp_path / "log"
    log.write_bytes(FRAMES[:length])
    space = LogSpace(log, connection)
    space.keep()
    assert log.read_bytes() == FRAMES[:length]
    space.close()


def test_last_of_a_disk_is_left_to_others(connection: sqlite3.Connection, log: Path) -> None:
    """Where less is free than must stay free, a blob and the database find what they need."""
    space = LogSpace(log, connection, spare_bytes=2**62)
    space.keep()
    assert log.read_bytes() == FRAMES
    space.close()


def test_log_that_another_program_may_write_is_left_as_it_is(
    connection: sqlite3.Connection, log: Path, tmp_path: Path
) -> None:
    """While another connection holds the write lock nothing is made, and nothing waits; after it, room is."""
    space = LogSpace(log, connection)
    with closing(sqlite3.connect(tmp_path / "any.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        space.keep()
    assert log.read_bytes() == FRAMES
    with log.open("ab") as more:
        more.write(b"its frames")
    space.keep()
    assert log.read_bytes() == FRAMES + b"its frames" + bytes(STEP_BYTES)
    assert not connection.in_transaction
    space.close()


@pytest.mark.parametrize("kind", ["missing", "directory", "link"])
def test_log_that_can_be_no_log_is_left_as_it_is(
    connection: sqlite3.Connection, tmp_path: Path, kind: str
) -> None:
    """Nothing is raised, nothing is made, and nobody else's file grows."""
    log, other = tmp_path / "log", tmp_path / "other"
    other.write_bytes(b"other")
    if kind == "directory":
        log.mkdir()
    if kind == "link":
        log.symlink_to(other)
    LogSpace(log, connection).keep()
    assert other.read_bytes() == b"other"
    assert log.exists() == (kind != "missing")


@pytest.mark.parametrize("left", [0, STEP_BYTES - 1])
def test_no_room_is_no_fault(connection: sqlite3.Connection, log: Path, left: int) -> None:
    """Where a limit leaves less than a step, the log stays as long as it was."""
    space = LogSpace(log, connection)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FROM_BYTES + left, hard))
        space.keep()
        assert log.read_bytes() == FRAMES
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        space.close()


@pytest.mark.slow
@given(step=st.integers(0, 12), zeros=st.integers(0, 30_000))
def test_zeros_after_any_commit_are_no_commits(
    written: Written, tmp_path_factory: pytest.TempPathFactory, step: int, zeros: int
) -> None:
    """A killed writer's log loads every commit in it, however many zeros follow."""
    end = written.log_sizes[step]
    state = written.copy_to(tmp_path_factory.mktemp("zeros"), log=written.log[:end] + bytes(zeros))
    assert load(state) == list(written.records[: expected_after(written, end)])


def room_in(log: Path) -> int:
    """Return how many bytes follow what commits wrote."""
    data = log.read_bytes()
    return len(data) - frames_end(data)


async def room_made(journal: Journal, log: Path) -> None:
    """Let the writer come round until it finds nothing waiting."""
    async with asyncio.timeout(60):
        while room_in(log) != STEP_BYTES:
            await journal.append("tree", [])[1]


async def test_commits_write_into_the_room(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """Commits that follow leave the log as long as it was until the room is used up."""
    log = tmp_path / "journal.db-wal"
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        await journal.append("tree", [("main", [fact(0, 60_000)] * 2)])[1]
        await room_made(journal, log)
        size = log.stat().st_size
        for n in range(20):
            await journal.append("tree", [("main", [fact(n)])])[1]
        assert frames_end(log.read_bytes()) > size - STEP_BYTES + 20 * 4096
        assert log.stat().st_size == size
        while log.stat().st_size == size:
            await journal.append("tree", [("main", [fact(0, 60_000)])])[1]
        await room_made(journal, log)
        assert log.stat().st_size > size + STEP_BYTES
    assert not log.exists()


async def test_log_that_killed_writers_left_is_emptied_in_its_time(
    opened: OpenJournal, fact: MakeFact, written: Written, tmp_path: Path
) -> None:
    """However long it is, and however often that happens: the log does not grow by a step with each."""
    zeros = bytes(5 * STEP_BYTES)
    state = written.copy_to(tmp_path, log=written.log + zeros)
    log = state / "journal.db-wal"
    async with opened(state) as journal:
        facts = journal.read("tree")
        await journal.append("tree", [("main", [fact(1)])])[1]
        async with asyncio.timeout(60):
            while log.stat().st_size:
                await journal.append("tree", [])[1]
        assert journal.read("tree")[:-1] == facts


async def test_long_commits_make_their_own_room(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """Where each commit is long nothing is written twice: no zeros follow."""
    log = tmp_path / "journal.db-wal"
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        for _ in range(8):
            await journal.append("tree", [("main", [fact(0, 60_000)] * 4)])[1]
            assert room_in(log) == 0
