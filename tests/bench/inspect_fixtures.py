"""Runs a program of this folder in the environment of inspect's suites, once for all tests of a file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sessiontree.bench.environment import LOCKS, environment_of

PROGRAM_S = 240


def facts_of(program: str) -> dict[str, Any]:
    """Return the JSON object that a program prints.

    Raises:
        ConfigError: the environment is not prepared; ``make setup-suites`` does that.
    """
    path = Path(__file__).with_name(program)
    done = subprocess.run(
        environment_of(LOCKS / "inspect.txt").command([str(path)]),
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found
