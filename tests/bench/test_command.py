"""The commands run and list: what they print, their exit codes, and the names and places that they refuse."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from typer.testing import CliRunner

from sessiontree.cli.app import app

SUITE = """
from tests.bench.suite_fixtures import suite as of

def first_two(attempt):
    return attempt.sample.id in {"s0", "s1"}

suite = of(4, scorers=first_two)
"""


def said(*words: str | Path, code: int = 0) -> str:
    """Run a command of ``sessiontree bench``, and return what it printed or complained about."""
    done = CliRunner().invoke(app, ["bench", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_a_command_speaks_of_its_own_samples(tmp_path: Path) -> None:
    """Pass rate and exit code are those of its limit, whatever became of the run's other samples."""
    file = tmp_path / "two_of_four.py"
    file.write_text(SUITE)
    command = ("run", f"{file}:suite", "--backend", "local", "--dir", tmp_path / "run")
    assert "4 of 4 scored, 2 passed (50.0%)" in said(*command)
    assert "2 of 2 scored, 2 passed (100.0%)" in said(*command, "--limit", "2")
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as ledger:
        ledger.execute("UPDATE samples SET state = 'waiting', lease_id = NULL WHERE sample_id = 's3'")
        ledger.commit()
    result = json.loads(said(*command, "--limit", "2", "--json").splitlines()[-1])
    assert (result["scored"], result["passed"], result["waiting"]) == (2, 2, 0)
