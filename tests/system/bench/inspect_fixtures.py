"""Runs a program of this folder in the environment of inspect's suites, once for all tests of a file."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from sessiontree.bench.suite.environment import LOCKS, locate_environment

PROGRAM_S = 240


def facts_of(program: str) -> dict[str, Any]:
    """Return the JSON object that a program prints.

    Raises:
        ConfigError: the environment is not prepared; ``make setup-suites`` does that.
    """
    with tempfile.TemporaryDirectory() as home:  # inspect keeps files of its own there
        done = subprocess.run(
            locate_environment(LOCKS / "inspect.txt").command(["-m", f"tests.system.bench.{program}"]),
            cwd=Path(__file__).parents[3],
            env={**os.environ, "XDG_DATA_HOME": home, "XDG_CACHE_HOME": home},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found
