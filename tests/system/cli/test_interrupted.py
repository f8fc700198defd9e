"""Surveys that are interrupted or killed: nothing is left behind, the journal is read, they are finished."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system.cli.command_fixtures import MAX_S, Program, read_until
from tests.system.cli.ground_fixtures import count, counted, make_ground
from tests.system.cli.memory_fixtures import remembered

pytestmark = pytest.mark.slow

FOLDERS = 48
INTERRUPTED = 130
IN_PROCESS = ("--backend", "local")
"""For what is the same on Ray, without its start and end."""
BACKENDS = pytest.mark.parametrize(
    "options", [IN_PROCESS, pytest.param((), marks=pytest.mark.long)], ids=["local", "ray"]
)


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A directory whose survey says far more than a small pipe holds: it can't end before it is read."""
    return make_ground(tmp_path / "wide", FOLDERS, 2)


def tree_of(program: Program, state: Path) -> Any:
    """Return the newest tree as a program reads it."""
    done = program.call("tree", "--json", "--state-dir", state)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def stop_in_the_middle(
    program: Program, root: Path, state: Path, number: signal.Signals, *options: str
) -> tuple[int, str]:
    """Start a survey, send it a signal when its first Worker has ended; return exit code and last line."""
    with program.start("survey", root, "--state-dir", state, *options) as process:
        read_until(process.stdout, ("ended", ": completed, "))
        process.send_signal(number)
        assert process.stdout is not None
        rest = process.stdout.read().decode()
        return process.wait(MAX_S), rest.splitlines()[-1] if rest else ""


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What a survey of an equal directory leaves that runs through."""

    report: str
    records: Counter[tuple[str | None, str]]
    """In its memory."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Made once: neither depends on where the directory is."""
    place = tmp_path_factory.mktemp("undisturbed")
    home, root, state = place / "home", make_ground(place / "wide", FOLDERS, 2), place / "journal"
    home.mkdir()
    assert Program(home).call("survey", root, "--state-dir", state, *IN_PROCESS).code == 0
    return Undisturbed((root / "SURVEY.md").read_text(), asyncio.run(remembered(state)))


@BACKENDS
def test_ctrl_c_leaves_a_survey_that_resume_finishes(
    program: Program, wide: Path, tmp_path: Path, undisturbed: Undisturbed, options: tuple[str, ...]
) -> None:
    """Ctrl-C ends with 130 and says how to go on; the tree can be read; the finished report is the same."""
    state = tmp_path / "journal"
    code, last = stop_in_the_middle(program, wide, state, signal.SIGINT, *options)
    assert code == INTERRUPTED
    tree = tree_of(program, state)
    assert not tree["finished"]
    assert tree["damage"] is None
    assert last.endswith(f"go on with: sessiontree resume {tree['tree']} --state-dir {state}")
    assert not (wide / "SURVEY.md").exists()
    done = program.call("resume", "--state-dir", state, *IN_PROCESS)
    assert (done.code, done.err) == (0, "")
    resumed = (wide / "SURVEY.md").read_text()
    assert counted(resumed) == count(wide)
    after = tree_of(program, state)
    assert after["tree"] == tree["tree"]
    assert after["finished"]
    assert {session["status"] for session in after["sessions"]} == {"completed"}
    assert len(after["sessions"]) == 1 + 2 * (FOLDERS + 1)
    assert resumed == undisturbed.report


@BACKENDS
def test_killed_survey_is_finished_by_resume(
    program: Program, wide: Path, tmp_path: Path, undisturbed: Undisturbed, options: tuple[str, ...]
) -> None:
    """After SIGKILL the journal is read, and resume, by the tree's id, finishes with the same report."""
    state = tmp_path / "journal"
    code, _ = stop_in_the_middle(program, wide, state, signal.SIGKILL, *options)
    assert code == -signal.SIGKILL
    tree = tree_of(program, state)
    assert not tree["finished"]
    done = program.call("resume", tree["tree"], "--state-dir", state, *options)
    assert (done.code, done.err) == (0, "")
    assert any(line.startswith("so far ") for line in done.lines)
    assert (wide / "SURVEY.md").read_text() == undisturbed.report
    assert len(tree_of(program, state)["sessions"]) == 1 + 2 * (FOLDERS + 1)
    # what was stored before the kill is stored once
    assert asyncio.run(remembered(state)) == undisturbed.records


@pytest.mark.long
def test_survey_with_a_damaged_end_is_finished_by_resume(
    program: Program, wide: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """Facts lost at the journal's end are reported and redone; the report is as if undisturbed."""
    state = tmp_path / "journal"
    stop_in_the_middle(program, wide, state, signal.SIGINT, *IN_PROCESS)
    with sqlite3.connect(state / "journal.db") as database:
        database.execute(
            "UPDATE segments SET body = zeroblob(9) WHERE n > (SELECT max(n) * 2 / 3 FROM segments)"
        )
    database.close()
    tree = tree_of(program, state)
    assert tree["damage"]["last_good_seq"] == tree["last_seq"] > 0
    shown = program.call("tree", "--state-dir", state)
    assert any(line.startswith(f"damaged: readable up to fact {tree['last_seq']:,}") for line in shown.lines)
    assert program.call("resume", "--state-dir", state, *IN_PROCESS).code == 0
    assert (wide / "SURVEY.md").read_text() == undisturbed.report
    assert tree_of(program, state)["damage"] is None


def test_ctrl_c_at_the_question_leaves_it_open(program: Program, ground: Path, tmp_path: Path) -> None:
    """A survey interrupted while a person is asked asks again when it is resumed."""
    (ground / "SURVEY.md").write_text("<!-- sessiontree survey report, format 1 -->\nold\n")
    state = tmp_path / "journal"
    with program.at_terminal("survey", ground, "--state-dir", state, *IN_PROCESS) as terminal:
        terminal.wait_for("allow?")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("go on with: sessiontree resume")
        assert terminal.end() == INTERRUPTED
    (approval,) = tree_of(program, state)["approvals"]
    assert approval["decision"] == "open"
    assert (ground / "SURVEY.md").read_text().endswith("old\n")
    with program.at_terminal("resume", "--state-dir", state, *IN_PROCESS) as terminal:
        terminal.wait_for("allow?")
        terminal.type("y\n")
        assert terminal.end() == 0
    (approval,) = tree_of(program, state)["approvals"]
    assert (approval["decision"], approval["by"]) == ("approved", "person")
    assert counted((ground / "SURVEY.md").read_text()) == count(ground)


def test_resume_finds_the_survey_of_a_workspace(program: Program, ground: Path) -> None:
    """Without a state directory the surveyed directory names the survey, alone or after the tree's id."""
    (ground / "SURVEY.md").write_text("<!-- sessiontree survey report, format 1 -->\nold\n")
    with program.at_terminal("survey", ground, *IN_PROCESS) as terminal:
        terminal.wait_for("allow?")
        terminal.process.send_signal(signal.SIGKILL)
        terminal.end()
    tree_id = json.loads(program.call("tree", ground, "--json").out)["tree"]
    assert program.call("resume", ground, *IN_PROCESS, given="n\n").code == 3
    done = program.call("resume", tree_id, ground)
    assert done.code == 2
    assert done.err == (
        f"sessiontree: ConfigError: survey {tree_id} ended completed; nothing is left to resume\n"
    )
    done = program.call("resume", ground)
    assert done.code == 2
    assert done.err.startswith("sessiontree: ConfigError: no tree here can be resumed: each has ended;")
