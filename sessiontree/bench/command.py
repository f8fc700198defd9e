"""Commands: what ``sessiontree bench run``, ``list`` and ``prepare`` do, up to the exit code.

With ``--json`` each line of ``bench run`` is an object with a member ``change``: those of
:class:`sessiontree.bench.progress.JsonProgress`, last ``result``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console

from sessiontree import ConfigError, make_visible
from sessiontree.api.paths import absolute_path
from sessiontree.api.runtime import late
from sessiontree.bench.environment import SuiteEnvironment, environment_of, lock_text, prepare_here
from sessiontree.bench.progress import (
    JsonProgress,
    LineProgress,
    RunProgress,
    TerminalProgress,
    bench_command,
)
from sessiontree.bench.recorded_run import LEDGER, RunCounts
from sessiontree.bench.results import RunResults
from sessiontree.bench.suite import Suite
from sessiontree.bench.suite_loader import environment_file, installed_suites, load_suite, module_of
from sessiontree.bench.suites.catalog import SHIPPED
from sessiontree.bench.workspaces import LETTERS

RUNS: Final = "runs"
"""Where runs are by default, in the working directory."""
INCOMPLETE: Final = 1
"""Exit code of a run in which not every sample is scored."""
COMMAND: Final = ("-m", "sessiontree.cli")
"""How this command is started in the environment of a suite."""


class BenchScreen(Protocol):
    """Takes lines and tables; on a terminal, also a picture that changes."""

    is_live: bool
    """Whether it is a terminal on which a line can be drawn again."""

    def line(self, text: str) -> None:
        """Show one line at once."""

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""

    def table(self, header: Any, rows: Any) -> None:
        """Show a table: columns of numbers to the right, any other to the left."""


def run(
    screen: BenchScreen,
    *,
    suite: str,
    directory: str | None,
    sample_timeout: float | None,
    max_cost: float | None,
    shards: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a suite and return the exit code: 1 if samples are not scored, or if all ended in an error.

    Args:
        screen: Shows what happens.
        suite: Names the suite.
        directory: Directory of the run; None = below ``runs/``, named after the suite.
        sample_timeout: Seconds for one sample; None = the suite's.
        max_cost: Most US dollars that the run may spend.
        shards: A number of shards, or ``per-node``.
        as_json: Whether a program reads it.
        options: Further options of :class:`sessiontree.bench.run_place.RunOptions`.

    Raises:
        SessionTreeError: it can't begin.
    """
    if directory is not None:
        absolute_path(directory, "--dir")  # refused before an environment is made
    progress = _progress(screen, as_json)
    found = in_environment(suite, progress.say)
    results = found.run_sync(
        default_place(found.name) if directory is None else absolute_path(directory, "--dir"),
        sample_timeout_s=sample_timeout,
        max_cost_usd=max_cost,
        shards=_shards(shards),
        progress=progress,
        **options,
    )
    tally = progress.tally  # of this command: a larger limit may have had more samples
    if as_json:
        screen.raw(json.dumps({"change": "result", "run_dir": str(results.run_dir), **asdict(tally)}))
    else:
        rate = tally.passed / tally.scored if tally.scored else 0.0
        errors = f", {tally.errors:,} ended in an error" if tally.errors else ""
        screen.line(
            f"{tally.scored:,} of {tally.total:,} scored, {tally.passed:,} passed ({rate:.1%}){errors}, "
            f"${tally.cost_usd:.4g}; see: {bench_command('report', str(results.run_dir))}"
        )
    is_broken = 0 < tally.scored == tally.errors
    return 0 if tally.scored == tally.total and not is_broken else INCOMPLETE


def list_suites(screen: BenchScreen, *, directory: str, as_json: bool) -> int:
    """Show the suites that are installed, and the runs in a directory; return the exit code.

    Raises:
        ConfigError: no path can have the name of the directory.
    """
    suites = [(each.name, each.about) for each in SHIPPED.values()]
    suites += [(name, entry.value) for name, entry in installed_suites().items()]
    runs, damaged = _runs_in(absolute_path(directory, "--dir"))
    if as_json:
        found: list[dict[str, Any]] = [
            {"run_dir": str(each.run_dir), "suite": each.suite, "model": each.model, **asdict(counts)}
            for each, counts in runs
        ]
        found += [{"run_dir": place, "error": said} for place, said in damaged.items()]
        known = [{"name": name, "about": about} for name, about in suites]
        screen.raw(json.dumps({"suites": known, "runs": found}))
        return 0
    screen.table(("suite", "about"), suites)
    if runs or damaged:
        rows: list[tuple[str | int, ...]] = [
            (str(each.run_dir), each.suite, each.model, counts.scored, counts.failed, counts.total)
            for each, counts in runs
        ]
        rows += [(place, "(can't be read)", "", "", "", "") for place in damaged]
        screen.table(("run", "suite", "model", "scored", "failed", "total"), rows)
        for said in damaged.values():
            screen.line(said)
    else:
        screen.line(f"no runs in {directory}")
    return 0


def prepare(screen: BenchScreen, *, suite: str, address: str | None) -> int:
    """Make the environment of a suite, here and on the nodes of a cluster; return the exit code."""
    environment = _environment(suite)
    if environment is None:
        screen.line(f"{suite} needs no environment of its own")
        return 0
    environment.prepare(screen.line)
    screen.line(f"ready: {environment.place}")
    if address is None:
        return 0
    lock = environment.lock
    call = late("call_on_nodes")(address, prepare_here, lock.name, lock_text(lock))
    found: dict[str, tuple[str, str]] = asyncio.run(call)
    for node, (place, failure) in found.items():
        screen.line(f"{node}: {f'not prepared: {failure}' if failure else f'ready: {place}'}")
    return INCOMPLETE if any(failure for _, failure in found.values()) else 0


def in_environment(name: str, say: Callable[[str], None]) -> Suite:
    """Return a suite by name; if it has an environment, this process first becomes its interpreter.

    Raises:
        ConfigError: the suite is unknown, or its environment can't be made.
    """
    environment = _environment(name)
    if environment is not None and not environment.is_current:
        environment.prepare(say)
        environment.take_over([*COMMAND, *sys.argv[1:]])
    return load_suite(SHIPPED[name].target if name in SHIPPED else name)


def _environment(name: str) -> SuiteEnvironment | None:
    """Return the environment of a suite; a suite of this package is not loaded for that."""
    module = module_of(SHIPPED[name].target if name in SHIPPED else name)
    locks = {module_of(each.target): each.lock for each in SHIPPED.values()}
    lock = locks[module] if module in locks else environment_file(name) or load_suite(name).env
    return None if lock is None else environment_of(lock)


def default_place(suite: str) -> Path:
    """Return the directory of a run of the suite of this name, if none is given."""
    return Path(RUNS, "".join(letter if letter in LETTERS else "_" for letter in suite))


def _runs_in(directory: Path) -> tuple[list[tuple[RunResults, RunCounts]], dict[str, str]]:
    """Return the runs in a directory and how far they are, and those that can't be read, with the reason."""
    places = [directory, *sorted(directory.iterdir())] if directory.is_dir() else []
    runs, damaged = [], {}
    for place in places:
        try:
            if (place / LEDGER).is_file():
                found = RunResults(place)
                runs.append((found, found.counts))
        except (ConfigError, OSError) as error:  # others can still be listed
            damaged[str(place)] = str(error)
    return runs, damaged


def _shards(text: str) -> int | str:
    if text == "per-node":
        return text
    if not text.isdecimal():
        raise ConfigError(f"--shards {text!r}; give a number, or per-node")
    return int(text)


def _progress(screen: BenchScreen, as_json: bool) -> RunProgress:
    if as_json:
        return JsonProgress(screen)
    if screen.is_live:
        return TerminalProgress(Console(file=sys.stdout, highlight=False), make_visible)
    return LineProgress(screen)
