"""A survey at a terminal: a tree that is drawn, a person who is asked, a terminal restored."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.system.cli.command_fixtures import Program, Terminal
from tests.system.cli.ground_fixtures import count, counted, make_ground
from tests.system.cli.screen_fakes import Glass

pytestmark = pytest.mark.slow

LOCAL = ("--backend", "local")
UNWANTED = {"NO_COLOR", "CI"}
TREE_ID = re.compile(r"t[0-9a-f]{16}")


def at_terminal(program: Program, *arguments: str | Path, **environment: str) -> Terminal:
    """Start a command at a terminal that may be drawn on, unless the environment says otherwise."""
    inherited = {name: value for name, value in program.environment.items() if name not in UNWANTED}
    return Terminal(arguments, {**inherited, "TERM": "xterm", **environment})


def test_survey_is_drawn_as_a_tree(program: Program, tmp_path: Path) -> None:
    """No line per session: one picture that ends with all done, and below it what every survey says."""
    ground = make_ground(tmp_path / "ground", 20, 5)
    with at_terminal(program, "survey", ground, *LOCAL) as terminal:
        assert terminal.end() == 0
        glass = Glass(terminal.said)
    assert counted((ground / "SURVEY.md").read_text()) == count(ground)
    assert glass.is_cursor_shown
    assert not [line for line in glass.seen if line.startswith(("started ", "ended "))]
    header = next(index for index, line in enumerate(glass.seen) if line.startswith("session "))
    _, main, rest, totals, table = glass.seen[header : header + 5]
    assert main.startswith("main ")
    assert rest == "… 42 finished"
    assert totals.startswith("0 live, 43 ended · 101 of 101 files")
    assert table.startswith("language ")
    assert glass.seen[-1].startswith("show it: sessiontree tree ")


def plain(said: str) -> list[str]:
    """Return what was said, in an order of its own, without what differs from one survey to the next."""
    said = re.sub(r"\x1b\[[\d;]*m", "", said)
    lines = [TREE_ID.sub("TREE", line).rstrip() for line in said.splitlines()]
    kept = [
        line for line in lines if not line.startswith(("total ", "approvals: ")) and "files/s" not in line
    ]
    return sorted(re.sub(r", \d+ of \d+ files|^ +\d.*$", "", line) for line in kept)


@pytest.mark.short(1)
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"CI": "1"}, {"TERM": "dumb"}])
def test_terminal_that_wants_lines_gets_those_of_a_pipe(
    program: Program, ground: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Asked not to, a terminal is not drawn on: the lines are those anybody else reads."""
    piped = program.call("survey", ground, *LOCAL, "--state-dir", tmp_path / "state")
    (ground / "SURVEY.md").unlink()
    shutil.rmtree(tmp_path / "state")
    arguments = ("survey", ground, *LOCAL, "--state-dir", tmp_path / "state")
    with at_terminal(program, *arguments, **environment) as terminal:
        assert terminal.end() == 0
        assert "\x1b[?25" not in terminal.said
        assert "\x1b[2K" not in terminal.said
        assert plain(terminal.said) == plain(piped.out)


def test_question_stands_alone_at_the_end(program: Program, ground: Path, tmp_path: Path) -> None:
    """While a person is asked the picture is away and the cursor is there; the answer brings it back."""
    (ground / "SURVEY.md").write_text("<!-- sessiontree survey report, format 1 -->\nold\n")
    with at_terminal(program, "survey", ground, *LOCAL, "--state-dir", tmp_path / "journal") as terminal:
        terminal.wait_for("allow? [y]es once, [a]lways this tool, [n]o, for good, [l]ater: ")
        asked = Glass(terminal.said)
        assert asked.is_cursor_shown
        assert asked.seen[-1] == "allow? [y]es once, [a]lways this tool, [n]o, for good, [l]ater:"
        assert not [line for line in asked.seen if " ended · " in line]
        terminal.type("y\n")
        assert terminal.end() == 0
        glass = Glass(terminal.said)
    assert [line for line in glass.seen if " ended · " in line]
    assert "approved by person: remove_survey for main" in glass.seen
    assert counted((ground / "SURVEY.md").read_text()) == count(ground)


def test_ctrl_c_restores_the_terminal(program: Program, tmp_path: Path) -> None:
    """Ctrl-C while the tree is drawn: the cursor is back, and the last line says how to go on."""
    ground = make_ground(tmp_path / "ground", 60, 2)
    state = tmp_path / "journal"
    with at_terminal(program, "survey", ground, *LOCAL, "--state-dir", state) as terminal:
        terminal.wait_for(" live, ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        glass = Glass(terminal.said)
    assert glass.is_cursor_shown
    assert "go on with: sessiontree resume" in glass.seen[-1]
    assert not (ground / "SURVEY.md").exists()
    with at_terminal(program, "resume", *LOCAL, "--state-dir", state) as terminal:
        assert terminal.end() == 0
        assert any(line.startswith("so far ") for line in Glass(terminal.said).seen)
    assert counted((ground / "SURVEY.md").read_text()) == count(ground)
