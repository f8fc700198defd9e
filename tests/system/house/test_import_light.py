"""Importing the package is cheap and does nothing: no heavy module, no room before it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sessiontree

HEAVY = {"ray", "lancedb", "pyarrow", "PIL", "httpx", "pydantic_ai", "rich", "typer"}
RUNS = 8
FAMILIAR = "import asyncio, pydantic.main"
"""What nearly every program of ours loads: the unit of the bounds. On a busy machine it is dearer as well."""

PROBE = """
import json, sys, threading, time
sys.path[:0] = json.loads(sys.argv[2])
before = set(sys.modules)
began = time.process_time()
exec(sys.argv[1])
spent_ms = (time.process_time() - began) * 1000
print(json.dumps([spent_ms, sorted(set(sys.modules) - before), threading.active_count()]))
"""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import cost."""

    spent_ms: float
    """CPU time, the least of the runs."""
    ratio: float
    """The same as a multiple of what is familiar."""
    modules: frozenset[str]
    threads: int

    def top(self) -> set[str]:
        """Return the distributions' own names of all that was loaded."""
        return {name.partition(".")[0] for name in self.modules}


def measure(line: str, *places: Path, runs: int = RUNS) -> Imported:
    """Run one import in fresh interpreters, ``places`` first on the path, in turn with what is familiar."""
    given = json.dumps([str(place) for place in places])
    pairs = [(probed(line, given), probed(FAMILIAR, "[]")) for _ in range(runs)]
    found, familiar = zip(*pairs, strict=True)
    spent, usual = min(run[0] for run in found), min(run[0] for run in familiar)
    return Imported(spent, spent / usual, frozenset(found[0][1]), max(run[2] for run in found))


def probed(line: str, places: str) -> Any:
    """Return the time, the modules and the threads of one import in an interpreter of its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV_")}
    command = [sys.executable, "-c", PROBE, line, places]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def assert_light(imported: Imported, forbidden: set[str], at_most: float) -> None:
    """Nothing forbidden was loaded, no thread was started, and it took so many times what is familiar."""
    assert not imported.top() & forbidden, f"loads {sorted(imported.top() & forbidden)}"
    assert imported.threads == 1
    assert imported.ratio <= at_most


@pytest.mark.slow
def test_importing_the_package_is_light() -> None:
    """``import sessiontree`` takes next to no time and loads nothing heavy, nor a database."""
    assert_light(measure("import sessiontree"), HEAVY | {"sqlite3"}, 0.5)


@pytest.mark.slow
def test_importing_the_public_names_is_light() -> None:
    """Every public name together takes nine times as long at most, and loads nothing heavy."""
    names = ", ".join(getattr(sessiontree, "__all__", ()))
    assert_light(measure(f"from sessiontree import {names}" if names else "import sessiontree"), HEAVY, 9)


@pytest.mark.slow
def test_class_of_trees_loads_nothing_of_hosts() -> None:
    """A tree that is not open needs no journal, no dispatcher and no sandbox."""
    imported = measure("import sessiontree; sessiontree.SessionTree", runs=1)
    late = {
        f"sessiontree.{name}" for name in ("dispatch.dispatcher", "journal.journal", "sandbox", "notebook")
    }
    assert not imported.modules & {*late, "pickle", "sqlite3"}


@pytest.mark.slow
def test_importing_the_built_in_tools_is_light() -> None:
    """The tools take four times as long at most, and load nothing heavy: each program pays for them."""
    assert_light(measure("import sessiontree_tools"), HEAVY, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("import pyarrow", "pyarrow"),
        ("import sqlite3", "sqlite3"),
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "threads"),
        ("import time\nwhile time.process_time() < 0.25: pass", "spent_ms"),
    ],
)
def test_planted_weight_is_found(tmp_path: Path, body: str, complaint: str) -> None:
    """A package that loads, starts or computes too much at import fails the property."""
    (tmp_path / "planted.py").write_text(body)
    imported = measure("import planted", tmp_path, runs=1)
    with pytest.raises(AssertionError, match=complaint):
        assert_light(imported, HEAVY | {"sqlite3"}, 0.5)
