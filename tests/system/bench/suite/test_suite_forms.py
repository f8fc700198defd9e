"""A suite works from a script, in a notebook's cell and by the command; killed programs lose nothing."""

from __future__ import annotations

import json
import select
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.bench import suite_program
from tests.system.bench.suite_fixtures import rows
from tests.system.cli.command_fixtures import COMMAND
from tests.system.forked_fixtures import Kind, run_forked
from tests.system.notebooks.kernel_fixtures import CellError, Kernel

PROGRAM = Path(suite_program.__file__)
SAMPLES = 60
MAX_S = 240.0
pytestmark = pytest.mark.slow


def run(place: Path, *arguments: str, program: Path | None = None) -> str:
    """Run the command, or a file, to its end; return what it printed."""
    kind: Kind = "command" if program is None else "file"
    done = run_forked(program or COMMAND, *arguments, kind=kind, folder=place, max_s=MAX_S)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.decode()


def start(place: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start the command on the suite."""
    command = [str(COMMAND), "bench", "run", f"{PROGRAM}:suite", "--dir", str(place / "run"), *options]
    with (place / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=place, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def check_scored_once(place: Path) -> None:
    """Every sample has one score, of one attempt; what was lost was never scored; calls ran once."""
    assert rows(place / "run", "SELECT count(*), sum(passed) FROM scores") == [(SAMPLES, SAMPLES)]
    assert rows(place / "run", "SELECT DISTINCT state FROM samples") == [("scored",)]
    scored = rows(place / "run", "SELECT sample_id FROM attempts WHERE outcome = 'scored'")
    assert len(scored) == len(set(scored)) == SAMPLES
    assert rows(place / "run", "SELECT 1 FROM attempts WHERE ended_at_ms IS NULL") == []
    effects = Counter((place / "effects").read_text().splitlines())
    assert set(effects.values()) == {1}
    assert len({line.rpartition(" ")[0] for line in effects}) == SAMPLES


def test_script_runs_its_suite(tmp_path: Path) -> None:
    """With ``run_sync``, under ``if __name__``."""
    assert run(tmp_path, str(tmp_path / "run"), "local", program=PROGRAM) == f"{SAMPLES}\n"
    check_scored_once(tmp_path)


def test_command_runs_a_suite(tmp_path: Path) -> None:
    """Named by its file, then by a ``suite.toml``; lines for people, objects for programs."""
    said = run(
        tmp_path,
        *("bench", "run", f"{PROGRAM}:suite", "--backend", "local", "--dir", "run", "--limit", "5"),
    )
    assert "5 of 5 scored (coverage 100.0%), 5 passed (100.0%" in said
    (tmp_path / "suite.toml").write_text(f'suite = "{PROGRAM}:suite"\n')
    lines = run(
        tmp_path,
        *("bench", "run", "suite.toml", "--backend", "local", "--dir", "run", "--json"),
    ).splitlines()
    changes = [json.loads(line) for line in lines]
    assert sum(each["change"] == "scored" for each in changes) == SAMPLES - 5
    assert changes[-1]["change"] == "result"
    assert (changes[-1]["scored"], changes[-1]["passed"], changes[-1]["failed"]) == (SAMPLES, SAMPLES, 0)
    check_scored_once(tmp_path)
    listed = json.loads(run(tmp_path, "bench", "list", "--dir", ".", "--json"))
    assert [(each["suite"], each["scored"]) for each in listed["runs"]] == [("notes", SAMPLES)]
    assert "bfcl" in [each["name"] for each in listed["suites"]]


CELL = """
from sessiontree import FunctionModel, ModelRequest
from sessiontree.bench import Attempt, Sample, Score, Suite

async def solve(attempt):
    return await attempt.tree.main.send(attempt.sample.input)

def exact(attempt):
    return Score(attempt.output == attempt.sample.target, answer=attempt.output)

suite = Suite(
    "cell",
    [Sample(f"s{n}", f"say {n}", f"say {n}") for n in range(8)],
    solve,
    exact,
    model=FunctionModel(lambda request: request.messages[-1].text),
)
"""


STOPPING = """
import os, signal

calls = []

async def stopping(attempt):
    calls.append(attempt)
    if len(calls) == 20:
        os.kill(os.getpid(), signal.SIGINT)  # as the stop button does
    return await solve(attempt)

suite.solver = stopping
"""


@pytest.mark.parametrize("call", ["await suite.run", "suite.run_sync"])
def test_cell_runs_its_suite(tmp_path: Path, call: str) -> None:
    """On the kernel's running loop, with ``await`` or without; what is defined in cells works."""
    with Kernel(is_forked=True) as kernel:
        kernel.run(CELL)
        kernel.run(f"results = {call}({str(tmp_path / 'run')!r}, backend='local')")
        assert kernel.value("results.counts.scored") == 8
        assert kernel.value("results.is_finished") is True
        assert "cell" in kernel.value("results._repr_html_()")


def test_interrupted_cell_ends_its_suite(tmp_path: Path) -> None:
    """What it did stays, and nothing goes on; the same cell continues the run."""
    with Kernel(is_forked=True) as kernel:
        kernel.run(CELL)
        kernel.run(STOPPING)
        with pytest.raises(CellError, match="KeyboardInterrupt"):
            kernel.run(f"suite.run_sync({str(tmp_path / 'run')!r}, backend='local', epochs=500)")
        assert rows(tmp_path / "run", "SELECT 1 FROM attempts WHERE ended_at_ms IS NULL") == []
        kernel.run(f"results = await suite.run({str(tmp_path / 'run')!r}, backend='local', epochs=1)")
        assert kernel.value("results.counts.scored") >= 8
        assert kernel.value("results.counts.leased") == 0


@pytest.mark.covers("C14", "SUI2")
@pytest.mark.long
def test_killed_program_loses_nothing(tmp_path: Path) -> None:
    """The same command again goes on at once; no attempt of the killed ones is scored twice or not at all."""
    for number in range(1, 5):
        program = start(tmp_path, "--backend", "local", "--concurrency", "4", "--retries", "50")
        wait_for(tmp_path, "SELECT 1 FROM scores LIMIT 1 OFFSET ?", number * 10)
        program.kill()
        program.wait(MAX_S)
    assert start(tmp_path, "--backend", "local", "--retries", "50").wait(MAX_S) == 0
    check_scored_once(tmp_path)
    assert rows(tmp_path / "run", "SELECT 1 FROM attempts WHERE outcome = 'lost'")
    assert [each.name for each in (tmp_path / "run" / "workspaces").iterdir()] == []


@pytest.mark.long
def test_two_commands_share_a_run_and_one_is_killed(tmp_path: Path) -> None:
    """The other one does what it had begun."""
    options = ("--backend", "local", "--concurrency", "3", "--retries", "50")
    first, second = start(tmp_path, *options), start(tmp_path, *options)
    wait_for(tmp_path, "SELECT 1 FROM scores LIMIT 1 OFFSET 10")
    first.kill()
    first.wait(MAX_S)
    assert second.wait(MAX_S) == 0, (tmp_path / "log").read_text()
    check_scored_once(tmp_path)


def wait_for(place: Path, query: str, *values: int) -> None:
    """Wait until a query finds something in the run's ledger."""
    deadline = time.monotonic() + MAX_S
    while time.monotonic() < deadline:
        with suppress(sqlite3.Error):  # the file or its tables are being made
            if rows(place / "run", query, *values):
                return
        select.select([], [], [], 0.02)
    raise AssertionError((place / "log").read_text())


def test_ctrl_c_ends_a_command_and_gives_its_samples_back(tmp_path: Path) -> None:
    """At once, with the exit code of an interrupt; nothing counts as lost."""
    program = start(tmp_path, "--backend", "local", "--concurrency", "2")
    wait_for(tmp_path, "SELECT 1 FROM attempts")
    program.send_signal(signal.SIGINT)
    assert program.wait(MAX_S) in {0, 130}
    assert (
        rows(tmp_path / "run", "SELECT 1 FROM attempts WHERE ended_at_ms IS NULL OR outcome = 'lost'") == []
    )
    assert start(tmp_path, "--backend", "local").wait(MAX_S) == 0
    check_scored_once(tmp_path)


@pytest.mark.covers("C14")
@pytest.mark.long
def test_suite_runs_on_ray(tmp_path: Path) -> None:
    """A program on Ray is killed by SIGKILL and goes on."""
    program = start(tmp_path, "--concurrency", "4", "--retries", "50")
    wait_for(tmp_path, "SELECT 1 FROM scores")
    program.kill()
    program.wait(MAX_S)
    assert start(tmp_path, "--retries", "50").wait(MAX_S) == 0, (tmp_path / "log").read_text()
    check_scored_once(tmp_path)
