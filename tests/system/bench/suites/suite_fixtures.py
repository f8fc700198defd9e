"""Programs that run in the environment of a suite; a missing environment fails the test, and says the fix."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sessiontree.bench.suite.environment import locate_environment
from sessiontree.bench.suites.catalog import SHIPPED

CHECKOUT = Path(__file__).parents[4]
MAX_S = 240


def printed_by(suite: str, module: str, *words: str) -> Any:
    """Run a module in the environment of a shipped suite, and return the JSON that it prints.

    Raises:
        ConfigError: the environment is not prepared; says how to prepare it.
        AssertionError: the program failed.
    """
    command = locate_environment(SHIPPED[suite].lock).command(["-m", module, *words])
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=MAX_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
