"""``sessiontree cancel``: a live tree ended from another process, with its receipt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.cli.command_fixtures import Program
from tests.system.cli.errand_program import errands

pytestmark = pytest.mark.slow


def receipt(program: Program, state_dir: Path, *more: str) -> Any:
    """Cancel, and return what programs read."""
    done = program.run("cancel", "--state-dir", state_dir, "--json", *more)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_cancel_gives_the_receipt_and_the_program_sees_it(program: Program, tmp_path: Path) -> None:
    """The second process learns how every session ended; the first one's result is that end."""
    with errands(tmp_path, "delegate sweep attic") as running:
        running.waiting()
        shown = receipt(program, running.state_dir, "--reason", "supper is ready")
        assert (shown["tree"], shown["state_dir"]) == (running.tree_id, str(running.state_dir))
        assert [(line["session"], line["status"]) for line in shown["receipt"]] == [
            ("main", "cancelled"),
            ("main/b1", "cancelled"),
        ]
        assert set(shown["receipt"][0]) == {
            *("session", "kind", "status", "forced", "leftovers", "usage", "summary"),
        }
        assert "ended cancelled" in running.end()
        done = program.call("cancel", "--state-dir", running.state_dir)
        assert (done.code, done.out) == (2, "")
        assert "SessionClosed" in done.err
        assert f"tree {running.tree_id} ended as cancelled" in done.err


def test_branch_ends_alone(program: Program, tmp_path: Path) -> None:
    """A session and what is below it are cancelled; its parent hears of it and goes on."""
    with errands(tmp_path, "delegate sweep attic") as running:
        running.waiting()
        done = program.call("cancel", "--state-dir", running.state_dir, "--session", "main/b1")
        assert (done.code, done.err) == (0, "")
        assert "main/b1" in done.out
        assert done.lines[-1] == f"tree {running.tree_id}: 1 sessions, 1 of them cancelled"
        assert running.waiting(0) == []
        again = program.call("cancel", "--state-dir", running.state_dir, "--session", "main/b1")
        assert (again.code, again.out) == (0, done.out)
        missing = program.call("cancel", "--state-dir", running.state_dir, "--session", "main/b9")
        assert (missing.code, missing.out) == (2, "")
        assert "SessionNotFound: session 'main/b9'" in missing.err


def test_interrupt_drops_what_waits_and_the_session_lives_on(program: Program, tmp_path: Path) -> None:
    """What waited is withdrawn; the next message is answered."""
    with errands(tmp_path, "sweep hall") as running:
        running.waiting()
        done = program.run("interrupt", "--state-dir", running.state_dir, "--json", "--reason", "not now")
        assert (done.code, done.err) == (0, "")
        assert [(line["session"], line["status"]) for line in json.loads(done.out)["receipt"]] == [
            ("main", "suspended")
        ]
        assert running.waiting(0) == []
        assert "not now" in running.hear("no reply: ")
        again = program.call("chat", "--state-dir", running.state_dir, given="still there\n")
        assert again.lines[-1] == "heard: still there"


def test_tree_nobody_has_open_is_not_cancelled(program: Program, tmp_path: Path) -> None:
    """It says what to do; the journal is as it was."""
    with errands(tmp_path, "sweep hall") as running:
        running.waiting()
        running.kill()
        before = program.call("tree", "--json", "--state-dir", running.state_dir).out
        done = program.call("cancel", "--state-dir", running.state_dir)
        assert (done.code, done.out) == (2, "")
        assert f"TreeNotFound: journal '{running.tree_id}': no runtime has it open; continue it" in done.err
        done = program.call("cancel", "--state-dir", running.state_dir, "--tree", "t0")
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert "TreeNotFound" in done.err
        assert program.call("tree", "--json", "--state-dir", running.state_dir).out == before


def test_place_without_a_journal_is_one_typed_line(program: Program, tmp_path: Path) -> None:
    """Nothing is cancelled, and nothing is made on the way."""
    done = program.call("cancel", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("sessiontree: nothing ran here yet: no journal is here")
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
