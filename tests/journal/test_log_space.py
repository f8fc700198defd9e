"""Room at the end of the log: there when it is needed, harmless when it is not, and missed by nobody."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.journal.journal import Journal
from sessiontree.journal.log_space import STEP_BYTES, LogSpace
from tests.journal.conftest import MakeFact, OpenJournal, Written, frames_end
from tests.journal.test_damage import expected_after, load


def test_room_is_made_once_and_again_where_it_is_used_up(tmp_path: Path) -> None:
    """What stands in the log stays; zeros follow, a step at a time, and none while there is room."""
    log = tmp_path / "log"
    log.write_bytes(b"frames")
    space = LogSpace(log)
    for _ in range(3):
        space.keep()
        assert log.read_bytes() == b"frames" + bytes(STEP_BYTES)
    with log.open("ab") as more:
        more.write(b"beyond")
    space.keep()
    assert log.read_bytes() == b"frames" + bytes(STEP_BYTES) + b"beyond" + bytes(STEP_BYTES)
    log.write_bytes(b"")
    space.keep()
    assert log.read_bytes() == bytes(STEP_BYTES)
    space.close()
    space.close()


@pytest.mark.parametrize("kind", ["missing", "directory", "link"])
def test_log_that_can_be_no_log_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    """Nothing is raised, nothing is made, and nobody else's file grows."""
    log, other = tmp_path / "log", tmp_path / "other"
    other.write_bytes(b"other")
    if kind == "directory":
        log.mkdir()
    if kind == "link":
        log.symlink_to(other)
    LogSpace(log).keep()
    assert other.read_bytes() == b"other"
    assert log.exists() == (kind != "missing")


def test_no_room_is_no_fault(tmp_path: Path) -> None:
    """Where a limit leaves less than a step, the log stays as long as it was, or grows as far as it may."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * 5000)
    space = LogSpace(log)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        space.keep()
        assert log.read_bytes() == b"x" * 5000
        log.write_bytes(b"x" * 4000)
        space.keep()
        assert log.read_bytes() == b"x" * 4000 + bytes(1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        space.close()


@given(step=st.integers(0, 12), zeros=st.integers(0, 30_000))
def test_zeros_after_any_commit_are_no_commits(
    written: Written, tmp_path_factory: pytest.TempPathFactory, step: int, zeros: int
) -> None:
    """A killed writer's log loads every commit in it, however many zeros follow."""
    end = written.log_sizes[step]
    state = written.copy_to(tmp_path_factory.mktemp("zeros"), log=written.log[:end] + bytes(zeros))
    assert load(state) == list(written.records[: expected_after(written, end)])


async def test_commits_write_into_the_room(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """Commits that follow the first leave the log as long as it was until the room is used up."""
    log = tmp_path / "journal.db-wal"

    async def room_made(journal: Journal) -> int:
        """Let the writer come round until it finds nothing waiting; return how long the log is then."""
        async with asyncio.timeout(60):
            while log.stat().st_size - frames_end(log.read_bytes()) != STEP_BYTES:
                await journal.append("tree", [])[1]
        return log.stat().st_size

    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        size = await room_made(journal)
        for n in range(20):
            await journal.append("tree", [("main", [fact(n)])])[1]
        assert frames_end(log.read_bytes()) > size - STEP_BYTES + 20 * 4096
        assert log.stat().st_size == size
        while log.stat().st_size == size:
            await journal.append("tree", [("main", [fact(0, 60_000)])])[1]
        assert await room_made(journal) > size + STEP_BYTES
    assert not log.exists()
