"""A disk that fails: refusals say so, nothing acknowledged is lost, and a disk that works mends it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM_S = 120.0
REFUSED = ("send", "send again", "spawn", "call", "other tree")


def ran(place: Path, calls: str) -> dict[str, Any]:
    """Run the program; return what it printed.

    Args:
        place: A directory for the program's tree.
        calls: Which system calls fail, or ``none``.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.runtime.failing_disk_program", str(place), calls],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("calls", ["sync", "write"])
def test_failing_disk_stops_trees_and_loses_nothing(calls: str, tmp_path: Path) -> None:
    """DUR6: typed errors for all who ask; with a disk that works the tree goes on where it was."""
    told = ran(tmp_path, calls)
    assert told["short"][0] == told["long"][0] == "returned"
    for name in REFUSED:
        how, words = told[name]
        assert how == "JournalUnwritable", (name, words)
        assert "open it again" in words
    assert told["effects"] == ["short", "longx"]
    told = ran(tmp_path, "none")
    assert told["known"] == ["short", "longx"]
    assert told["after"] == ["returned", "done after"]
    assert told["effects"][:2] == ["short", "longx"]
    assert told["effects"].count("after") == 1
    assert told["effects"].count("late") <= 1
