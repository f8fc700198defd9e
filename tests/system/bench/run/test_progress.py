"""Progress of a run: what lines, objects and a terminal show, and the rate and time left."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click import Command, Context
from rich.console import Console
from typer.main import get_command

from sessiontree import make_visible
from sessiontree.bench import Score
from sessiontree.bench.ledger.leases import SampleLease, Tally
from sessiontree.bench.ledger.ledger_tables import AttemptResult
from sessiontree.bench.run.place.progress import (
    JsonProgress,
    LineProgress,
    LoggedProgress,
    RunPace,
    TerminalProgress,
)
from sessiontree.bench.run.place.run_place import RunOptions, RunPlace
from sessiontree.bench.run.process_names import has_ended, own_name
from sessiontree.cli.bench_commands import commands
from sessiontree.journal.file_systems import LOCAL
from tests.system.bench.suite_fixtures import samples, suite

LEASE = SampleLease("p 1", "s\x1b[2J1", 1, 2, "s1")
GOOD = AttemptResult({"exact": Score(1.0)}, "completed", 5, tree_id="t1")
BAD = AttemptResult({"exact": Score(0.0)}, "error", 5, tree_id="t2", error_kind="KeyError", error="'x'")


class Lines:
    """A screen that keeps what it is given."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def line(self, text: str) -> None:
        """Keep it."""
        self.shown.append(text)

    raw = line


class Clock:
    """A clock that is set."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_lines_show_failures_at_once_and_the_pace_from_time_to_time() -> None:
    """The rate counts what was done since the command began; the time left follows from it."""
    screen, clock = Lines(), Clock()
    progress = LineProgress(screen, clock)
    progress.begin("runs/x", Tally(waiting=90, scored=10, passed=9))
    progress.scored(LEASE, BAD)
    progress.retried(LEASE, ValueError("gone"), "t3")
    (error, retried) = screen.shown
    assert "KeyError: 'x'; tree t2; look at it: sessiontree bench show runs/x" in error
    assert "attempt 2 is not scored: ValueError: gone; tree t3" in retried
    clock.now_s += 5
    progress.count(Tally(waiting=70, leased=10, scored=19, failed=1, passed=17, cost_usd=1.25))
    assert len(screen.shown) == 2
    clock.now_s += 5
    progress.count(Tally(waiting=60, leased=10, scored=28, undecided=1, failed=1, passed=17, cost_usd=1.25))
    assert screen.shown[2:] == [
        "30 of 100 done, 17 passed, 1 undecided, 1 failed, 1 retried, 2.0/s, $1.25, 0:00:35 left"
    ]


def test_objects_tell_a_program_everything() -> None:
    """One on each line."""
    screen = Lines()
    progress = JsonProgress(screen)
    progress.begin("runs/x", Tally(waiting=2))
    progress.scored(LEASE, GOOD)
    progress.scored(LEASE, BAD)
    progress.retried(LEASE, ValueError("gone"), None)
    progress.count(Tally(waiting=1, undecided=1))
    progress.end("over", is_complete=True)
    found = [json.loads(line) for line in screen.shown]
    assert [each["change"] for each in found] == ["scored", "scored", "retried", "pace", "said"]
    assert (found[0]["passed"], found[0]["scores"], found[0]["error"]) == (True, {"exact": 1.0}, None)
    assert (found[1]["status"], found[1]["error"]) == ("error", "KeyError: 'x'")
    assert (found[3]["done"], found[3]["total"], found[3]["errors"]) == (1, 2, 1)


def test_terminal_shows_a_bar_and_nothing_that_can_deceive() -> None:
    """Failures scroll above it; escapes in ids and errors are shown as text."""
    writes = io.StringIO()
    console = Console(file=writes, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    progress = TerminalProgress(console, make_visible)
    progress.begin("runs/x", Tally(waiting=2))
    with progress:
        progress.scored(LEASE, BAD)
        progress.count(Tally(waiting=1, scored=1, undecided=1, passed=1))
    shown = writes.getvalue()
    assert "2 of 3 done, 1 passed, 1 undecided" in shown
    assert "KeyError" in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("sample_id", ["a b", "x; touch planted", "-rf", "--epoch", "it's", "$(id)", "дім"])
def test_command_to_copy_is_read_as_it_was_meant(sample_id: str) -> None:
    """By a shell, whatever the run and the sample are called; and no id is taken for an option."""
    screen = Lines()
    progress = LineProgress(screen)
    progress.begin("/runs/my run", Tally(waiting=1))
    progress.scored(replace(LEASE, sample_id=sample_id), BAD)
    words = shlex.split(screen.shown[0].partition("look at it: ")[2])
    assert words[:3] == ["sessiontree", "bench", "show"]
    parser = get_command(commands).commands["show"].make_parser(Context(Command("show")))  # type: ignore[attr-defined]
    assert parser.parse_args(words[3:])[0] == {"run": "/runs/my run", "sample": sample_id}


def test_logged_errors_deceive_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """Escapes and further lines are shown as text."""
    progress = LoggedProgress()
    progress.begin("runs/x", Tally(waiting=1))
    progress.scored(LEASE, replace(BAD, error="\x1b[2J\nall 1 samples are scored"))
    progress.end("over\x1b[31m", is_complete=False)
    first, last = (each.getMessage() for each in caplog.records)
    assert r"KeyError: \u{1b}[2J\u{a}all 1" in first
    assert last == r"over\u{1b}[31m"


def test_pace_says_no_time_left_at_the_end() -> None:
    """Nor before anything is known."""
    assert "left" not in RunPace(5, 5, 5, 0, 0, 0, 0.0, 1.0, 0.0).line()
    assert "left" not in RunPace(0, 5, 0, 0, 0, 0, 0.0, 0.0, None).line()


def test_owners_are_known_to_have_ended_on_the_same_machine_only() -> None:
    """A process that runs has not ended; one that ended has; another boot or namespace is not judged."""
    own = own_name()
    assert own != own_name()
    assert not has_ended(own)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        name = own_name(child.pid)
        assert not has_ended(name)
        child.kill()
    assert has_ended(name)
    host, boot, space, pid, start, mark = own.split(" ")
    assert has_ended(f"{host} {boot} {space} {pid} {int(start) - 1} {mark}"), "another process of that id"
    assert not has_ended(f"{host} another {space} {pid} {int(start) - 1} {mark}")
    assert not has_ended("nonsense")


def test_file_system_of_a_run_is_looked_up(tmp_path: Path) -> None:
    """That of a temporary directory belongs to this machine; one that is unknown may be shared."""
    place = RunPlace.of(tmp_path / "run", suite(), samples(1), RunOptions())
    assert place.is_shared() is False
    assert "nfs4" not in LOCAL


@pytest.mark.parametrize("name", ["fuse.sshfs", "nfs", "cifs", "lustre", "ceph", "9p"])
def test_shared_file_systems_are_not_local(name: str) -> None:
    """So the ledger uses no memory shared between programs there."""
    assert name not in LOCAL
