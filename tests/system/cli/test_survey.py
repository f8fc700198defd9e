"""``sessiontree survey``: the report, who allowed what, and what is never touched."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from sessiontree.journal.journal import Journal
from tests.system.cli.command_fixtures import Program
from tests.system.cli.ground_fixtures import count, counted

DENIED = 3
LOCAL = ("--backend", "local")
"""What is said and written is the same whatever runs the sessions; this runs them soonest."""


def last_tree(program: Program, state: Path) -> Any:
    """Return the newest tree as a program reads it."""
    return json.loads(program.call("tree", "--json", "--state-dir", state).out)


@pytest.mark.covers("C1")
@pytest.mark.slow
def test_first_survey_counts_what_is_there(program: Program, ground: Path) -> None:
    """The report's numbers are those of an independent count; no approval is asked for."""
    done = program.run("survey", ground, *LOCAL)
    assert (done.code, done.err) == (0, "")
    assert counted((ground / "SURVEY.md").read_text()) == count(ground)
    assert "approvals: auto (the input is not a terminal)" in done.lines
    assert any(line.startswith("ended main/b2/w1: completed, ") for line in done.lines)
    assert any("files/s" in line for line in done.lines)
    state = next(line for line in done.lines if line.startswith("journal: "))
    assert state.startswith(f"journal: {program.state_home / 'sessiontree' / 'ground-'}")
    (path,) = (program.state_home / "sessiontree").iterdir()
    tree = last_tree(program, path)
    assert tree["finished"]
    assert tree["approvals"] == []
    assert {session["status"] for session in tree["sessions"]} == {"completed"}


@pytest.mark.slow
def test_second_survey_removes_the_first_in_one_approval(program: Program, ground: Path) -> None:
    """Mode ``auto`` allows one removal and records it; the same directory gives the same report."""
    state = ground.parent / "journal"
    assert program.call("survey", ground, *LOCAL, "--state-dir", state).code == 0
    first = (ground / "SURVEY.md").read_text()
    done = program.call("survey", ground, *LOCAL, "--approve", "auto", "--state-dir", state)
    assert done.code == 0
    assert "approvals: auto (--approve auto)" in done.lines
    assert (ground / "SURVEY.md").read_text() == first
    (approval,) = last_tree(program, state)["approvals"]
    assert (approval["tool"], approval["session"]) == ("remove_survey", "main")
    arguments = approval["arguments"]
    assert (arguments["path"], len(arguments["trees"])) == ("SURVEY.md", 1)
    # one for each function and each constant, and the survey's mark
    constants = sum(path.read_text().count("\nvalue_") for path in ground.rglob("*.py"))
    assert arguments["records"] == count(ground).functions + constants + 1
    assert (approval["decision"], approval["by"]) == ("approved", "mode")


def kept(program: Program, ground: Path, state: Path) -> None:
    """The earlier report is untouched, and the new one is in the state directory."""
    assert (ground / "SURVEY.md").read_text().startswith("<!-- sessiontree survey report, format 1 -->\nold")
    (saved,) = state.glob("SURVEY-*.md")
    assert counted(saved.read_text()) == count(ground)
    assert saved.stat().st_mode & 0o777 == 0o600
    tree = last_tree(program, state)
    assert tree["finished"]
    assert saved.name == f"SURVEY-{tree['tree']}.md"


@pytest.fixture
def surveyed(ground: Path) -> Path:
    """A directory with an earlier report in it."""
    (ground / "SURVEY.md").write_text("<!-- sessiontree survey report, format 1 -->\nold\n")
    return ground


@pytest.mark.slow
def test_mode_never_keeps_the_earlier_report(program: Program, surveyed: Path, tmp_path: Path) -> None:
    """Denied: the old file stays, the new one goes to the state directory, the exit code says so."""
    done = program.call("survey", surveyed, *LOCAL, "--approve", "never", "--state-dir", tmp_path / "journal")
    assert done.code == DENIED
    assert any(
        line.startswith("SURVEY.md was left as it is: remove_survey was denied") for line in done.lines
    )
    kept(program, surveyed, tmp_path / "journal")


@pytest.mark.slow
def test_no_at_the_terminal_keeps_the_earlier_report(
    program: Program, surveyed: Path, tmp_path: Path
) -> None:
    """At a terminal every approval is asked by default, with the full arguments, and no is no."""
    with program.at_terminal("survey", surveyed, *LOCAL, "--state-dir", tmp_path / "journal") as terminal:
        terminal.wait_for("approvals: asks each time (the input is a terminal)")
        terminal.wait_for('arguments: {"path":"SURVEY.md"}')
        terminal.wait_for("allow?")
        assert last_tree(program, tmp_path / "journal")["approvals"][0]["decision"] == "open"
        terminal.type("perhaps\n")
        terminal.wait_for("allow?")
        terminal.type("n\n")
        assert terminal.end() == DENIED
    kept(program, surveyed, tmp_path / "journal")


@pytest.mark.slow
def test_yes_at_the_terminal_replaces_the_earlier_report(
    program: Program, surveyed: Path, tmp_path: Path
) -> None:
    """A person's yes removes the old report, and the person is recorded."""
    with program.at_terminal("survey", surveyed, *LOCAL, "--state-dir", tmp_path / "journal") as terminal:
        terminal.wait_for("allow?")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert counted((surveyed / "SURVEY.md").read_text()) == count(surveyed)
    (approval,) = last_tree(program, tmp_path / "journal")["approvals"]
    assert (approval["decision"], approval["by"]) == ("approved", "person")


@pytest.mark.slow
@pytest.mark.parametrize(("given", "code"), [("y\n", 0), ("n\n", DENIED), ("", DENIED)])
def test_mode_always_without_a_terminal_asks_the_input(
    program: Program, surveyed: Path, given: str, code: int
) -> None:
    """Asked for by name, ``always`` takes answers from a pipe, and the end of the pipe is a no."""
    assert program.call("survey", surveyed, *LOCAL, "--approve", "always", given=given).code == code


@pytest.mark.slow
def test_mode_smart_allows_the_usual_place_alone(program: Program, surveyed: Path) -> None:
    """The survey's own report at its usual place is known to be safe; anywhere else somebody is asked."""
    assert program.call("survey", surveyed, *LOCAL, "--approve", "smart").code == 0
    (surveyed / "OTHER.md").write_text("<!-- sessiontree survey report, format 1 -->\nold\n")
    assert program.call("survey", surveyed, *LOCAL, "--approve", "smart", "--out", "OTHER.md").code == DENIED
    assert (surveyed / "OTHER.md").read_text().endswith("old\n")


@pytest.mark.slow
def test_file_that_is_no_report_is_never_removed(program: Program, ground: Path, tmp_path: Path) -> None:
    """What somebody else put in the report's place stays, and nobody is even asked."""
    (ground / "SURVEY.md").write_text("# my own notes\n")
    state = tmp_path / "journal"
    done = program.call("survey", ground, *LOCAL, "--approve", "auto", "--state-dir", state)
    assert done.code == DENIED
    assert any("not the report of a survey" in line for line in done.lines)
    assert (ground / "SURVEY.md").read_text() == "# my own notes\n"
    assert last_tree(program, state)["approvals"] == []


@pytest.mark.slow
def test_report_and_state_directory_inside_are_not_surveyed(program: Program, ground: Path) -> None:
    """A state directory inside the workspace is hidden, and no report counts itself."""
    place = ("--state-dir", ground / "state", "--out", "docs/report.md")
    assert program.call("survey", ground, *LOCAL, *place).code == 0
    first = (ground / "docs" / "report.md").read_text()
    assert program.call("survey", ground, *LOCAL, *place).code == 0
    assert (ground / "docs" / "report.md").read_text() == first
    assert counted(first) == count(ground)
    assert "journal" not in first


@pytest.mark.slow
def test_odd_entries_become_problems(program: Program, ground: Path) -> None:
    """Pipes, sockets, unreadable places and names that are no UTF-8 cost themselves alone."""
    os.mkfifo(ground / "part000" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(ground / "socket"))
    (ground / "part001" / os.fsdecode(b"odd\xff.py")).write_text("x = 1\n")
    (ground / "part002" / "closed").mkdir(mode=0)
    (ground / "part002" / "private.txt").touch(mode=0)
    (ground / "part001" / "text.py").write_bytes(b"\xff\xfe\x00\x00")
    done = program.run("survey", ground, *LOCAL, restricted=True)
    assert (done.code, done.err) == (0, "")
    report = (ground / "SURVEY.md").read_text()
    problems = report.partition("## Problems\n")[2]
    for name in ("part000/pipe", "socket", "part001/odd", "part002/closed", "part002/private.txt"):
        assert name in problems


@pytest.mark.slow
def test_report_that_cannot_be_written_is_not_lost(program: Program, ground: Path, tmp_path: Path) -> None:
    """Where the workspace takes no file the survey fails, and the report is in the state directory."""
    ground.chmod(0o555)
    state = tmp_path / "journal"
    done = program.run("survey", ground, *LOCAL, "--state-dir", state, restricted=True)
    ground.chmod(0o755)
    assert done.code == 1
    assert any(line.startswith("SURVEY.md can't be written: ") for line in done.lines)
    (saved,) = state.glob("SURVEY-*.md")
    assert counted(saved.read_text()) == count(ground)


def test_empty_directory_has_a_report_too(program: Program, tmp_path: Path) -> None:
    """Nothing to survey is no failure."""
    (tmp_path / "empty").mkdir()
    assert program.call("survey", tmp_path / "empty", *LOCAL).code == 0
    assert "- Files: 0 " in (tmp_path / "empty" / "SURVEY.md").read_text()


def test_path_that_is_no_utf8_can_be_surveyed(program: Program, tmp_path: Path) -> None:
    """The directory's own name may be any bytes; what is printed escapes them."""
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    (root / "a.py").write_text("def f(): pass\n")
    done = program.call("survey", root, *LOCAL)
    assert done.code == 0
    assert counted((root / "SURVEY.md").read_text()).functions == 1
    assert "caf\\u{dce9}" in done.out


@pytest.mark.slow
def test_another_program_at_work_does_not_stand_in_the_way(
    program: Program, ground: Path, tmp_path: Path
) -> None:
    """Each writes a journal of its own; commands read both, and the survey is found in its own."""
    state = tmp_path / "journal"
    journal = Journal.open(state)
    try:
        done = program.call("survey", ground, *LOCAL, "--state-dir", state)
    finally:
        journal.release()
    assert done.code == 0, done.err
    assert (state / "journals" / "2" / "journal.db").exists()
    (line,) = json.loads(program.call("tree", "--list", "--state-dir", state, "--json").out)["trees"]
    for place in (state, state / "journals" / "2"):
        told = program.call("tree", "--tree", line["tree"], "--state-dir", place, "--json")
        assert json.loads(told.out)["tree"] == line["tree"]
