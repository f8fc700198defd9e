"""Journals of one state directory: each program has its own, and every one is found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import pytest

from sessiontree.contracts.errors import JournalError, JournalLocked, JournalUnwritable, TreeNotFound
from sessiontree.journal.claim import JournalClaim, list_journal_dirs, locate_journal, state_dir_of_journal
from sessiontree.journal.journal import Journal

CLAIM = """
import sys
from pathlib import Path
from sessiontree.journal.claim import JournalClaim
claim = JournalClaim.take(Path(sys.argv[1]))
print(claim.directory, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_program(state_dir: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a program that claims a journal, and yield it with the journal's directory."""
    command = [sys.executable, "-c", CLAIM, str(state_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        yield program, Path(program.stdout.readline().strip())
        program.kill()


def test_programs_take_one_each_and_leave_it_free(tmp_path: Path) -> None:
    """The state directory itself, then numbers; the first free one is next, also after a kill."""
    state = tmp_path / "state"
    first = JournalClaim.take(state)
    assert first.directory == state
    with another_program(state) as (program, theirs):
        assert theirs == state / "journals" / "2"
        third = JournalClaim.take(state)
        assert third.directory == state / "journals" / "3"
        program.kill()
        program.wait()
        again = JournalClaim.take(state)
        assert again.directory == theirs
    first.release()
    first.release()
    assert JournalClaim.take(state).directory == state
    assert oct(theirs.stat().st_mode & 0o777) == "0o700"


def test_journal_that_is_written_is_not_taken(tmp_path: Path) -> None:
    """Whoever writes it without a claim keeps it."""
    journal = Journal.open(tmp_path)
    claim = JournalClaim.take(tmp_path)
    assert claim.directory == tmp_path / "journals" / "2"
    journal.release()


def test_named_journal_is_taken_or_refused(tmp_path: Path) -> None:
    """Its directory stands for it; who has it is named by process id, and what to do."""
    wanted = tmp_path / "journals" / "5"
    claim = JournalClaim.take(wanted)
    assert claim.directory == wanted
    with pytest.raises(JournalLocked, match=r"this process writes it already; pass runtime="):
        JournalClaim.take(wanted)
    claim.release()
    with another_program(wanted) as (program, theirs):
        assert theirs == wanted
        with pytest.raises(JournalLocked, match=f"process {program.pid} writes it; end it"):
            JournalClaim.take(wanted)


def test_place_that_can_t_be_used_is_named(tmp_path: Path) -> None:
    """A file in the way is an error with its path."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "gone")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "program.lock").symlink_to(tmp_path / "gone" / "gone")
    for name in ("file", "nowhere", "odd"):
        with pytest.raises(JournalUnwritable, match=name):
            JournalClaim.take(tmp_path / name)


def test_state_directory_is_known_by_its_journals(tmp_path: Path) -> None:
    """Only the numbers beneath ``journals`` are journals."""
    assert state_dir_of_journal(tmp_path / "journals" / "2") == tmp_path
    for other in (tmp_path, tmp_path / "journals", tmp_path / "journals" / "x", tmp_path / "2"):
        assert state_dir_of_journal(other) == other


def test_what_was_made_for_no_journal_goes_again(tmp_path: Path) -> None:
    """A claim that came to nothing leaves neither lock nor directory; what was there before it stays."""
    claim = JournalClaim.take(tmp_path / "a" / "b")
    claim.release()
    assert not list(tmp_path.iterdir())
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    for place in (kept, tmp_path / "full"):
        JournalClaim.take(place).release()
    assert {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")} == {"kept", "full", "full/notes"}
    begun = JournalClaim.take(kept)
    Journal.open(kept).release()
    begun.release()
    assert (kept / "journal.db").is_file()


@pytest.mark.covers("DUR9")
def test_two_programs_never_hold_one_journal(tmp_path: Path) -> None:
    """Taking back and taking at once, many times over: the lock that was taken back is held by nobody."""
    state, held, rounds = tmp_path / "state", Lock(), 300

    def take_often() -> None:
        for _ in range(rounds):
            try:
                claim = JournalClaim.take(state, None)
                if claim.directory == state:
                    assert held.acquire(blocking=False)
                    held.release()
                claim.release()
            except JournalLocked:
                continue

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(take_often) for _ in range(4)]:
            each.result()


async def test_trees_are_found_in_any_journal(tmp_path: Path) -> None:
    """In number order; a damaged journal hides no other."""
    assert list_journal_dirs(tmp_path) == ()
    places = [tmp_path, tmp_path / "journals" / "2", tmp_path / "journals" / "10"]
    for number, place in enumerate(places):
        journal = Journal.open(place)
        journal.start(asyncio.get_running_loop())
        await journal.create_tree(f"t{number}", {"purpose": "x"})
        await journal.close()
    (tmp_path / "journals" / "notes").mkdir()
    assert list_journal_dirs(tmp_path) == tuple(places)
    assert list_journal_dirs(places[2]) == (places[2],)
    for number, place in enumerate(places):
        assert locate_journal(tmp_path, f"t{number}") == place
    with pytest.raises(TreeNotFound, match="no tree 'tx'"):
        locate_journal(tmp_path, "tx")
    (places[1] / "journal.db").write_bytes(os.urandom(4096))
    assert locate_journal(tmp_path, "t2") == places[2]
    for place in places:
        (place / "journal.db").write_bytes(b"x" * 4096)
    with pytest.raises(JournalError):
        locate_journal(tmp_path, "t0")
