"""The command ``sessiontree bench inspect-worker``."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from sessiontree import ConfigError
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.bench.run_commands import COMMAND, INCOMPLETE, BenchScreen
from sessiontree.bench.suite.environment import LOCKS, locate_environment


def inspect_worker(  # noqa: PLR0913 - each option is a parameter
    screen: BenchScreen,
    *,
    definition: str,
    log_dir: str,
    env: str | None,
    workers: int,
    attempts: int,
    address: str | None,
    as_json: bool,
) -> int:
    """Run an eval set of inspect_ai, task by task; return the exit code.

    With ``as_json`` one object: ``log_dir`` and ``tasks``, in the definition's order.

    Raises:
        ConfigError: the eval set can't begin; says why.
    """
    file = make_absolute(definition, "DEFINITION")
    if not file.is_file():
        raise ConfigError(
            f"the definition {str(file)!r} is not a file; name a Python file that calls eval_set()"
        )
    if workers < 1 or attempts < 1:
        raise ConfigError(f"--workers is {workers} and --attempts {attempts}; give numbers from 1 on")
    environment = locate_environment(LOCKS / "inspect.txt" if env is None else Path(env))
    if not environment.is_current:
        environment.prepare(_say)
        environment.take_over([*COMMAND, *sys.argv[1:]])
    # only the environment above has inspect_ai
    from sessiontree.bench.inspect_sets.set_runner import SetOrder, run_set

    place = make_absolute(log_dir, "--log-dir")
    order = SetOrder(file, place, workers, attempts, address)
    tasks = asyncio.run(run_set(order, _say))
    if as_json:
        screen.raw(json.dumps({"log_dir": str(place), "tasks": [asdict(each) for each in tasks]}))
    else:
        for each in tasks:
            state = "complete" if each.is_complete else "incomplete"
            errors = f", {each.errors} ended in an error" if each.errors else ""
            screen.line(
                f"{each.task} ({each.model}): {state}, {each.scored} of {each.planned} scored{errors}"
            )
    return 0 if all(each.is_complete for each in tasks) else INCOMPLETE


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
