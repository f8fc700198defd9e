"""Commands: what ``sessiontree bench run``, ``list`` and ``prepare`` do, up to the exit code.

With ``--json`` each line of ``bench run`` is an object with a member ``change``: those of
:class:`sessiontree.bench.run.place.progress.JsonProgress`, last ``result``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console

from sessiontree import ConfigError, make_visible
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.api.runtime.ray_door import call_on_nodes
from sessiontree.bench.ledger.leases import Tally
from sessiontree.bench.results.recorded_run import LEDGER, RunCounts
from sessiontree.bench.run.node_drivers import run_on_nodes
from sessiontree.bench.run.place.progress import (
    JsonProgress,
    LineProgress,
    RunProgress,
    TerminalProgress,
    build_bench_command,
)
from sessiontree.bench.run.place.run_place import RunOptions
from sessiontree.bench.run.runner import run_blocking
from sessiontree.bench.run.runtime_file import read_runtime
from sessiontree.bench.run_results import RunResults
from sessiontree.bench.suite.environment import SuiteEnvironment, locate_environment, lock_text, prepare_here
from sessiontree.bench.suite.suite import SuiteDefinition
from sessiontree.bench.suite.suite_loader import (
    find_environment_file,
    find_module_name,
    list_installed_suites,
    load_suite,
)
from sessiontree.bench.suite.workspaces import LETTERS
from sessiontree.bench.suites.catalog import SHIPPED

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


def run(  # noqa: PLR0913 - what must be known before an environment is made
    screen: BenchScreen,
    *,
    suite: str,
    directory: str | None,
    sample_timeout: float | None,
    max_cost: float | None,
    shards: str | None,
    placement: str | None,
    runtime: Path | None,
    drivers: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a suite and return the exit code: 1 if samples are not scored, also if they are undecided.

    Args:
        screen: Shows what happens.
        suite: Names the suite.
        directory: Directory of the run; None = below ``runs/``, named after the suite.
        sample_timeout: Seconds of work for one sample; None = the suite's.
        max_cost: Most US dollars that the run may spend.
        shards: A number of shards, or ``per-node``; None = as the file says, or 1.
        placement: Where Workers and Branches run, as JSON.
        runtime: A file with options of the runtime.
        drivers: ``one`` = this program; ``per-node`` = one on each node of the cluster.
        as_json: Whether a program reads it.
        options: Further options of :class:`~sessiontree.bench.run.place.run_place.RunOptions`;
            ``wall_timeout`` and ``provider_wait`` in seconds.

    Raises:
        SessionTreeError: it can't begin.
    """
    if directory is not None:
        make_absolute(directory, "--dir")  # refused before an environment is made
    options["runtime"] = read_runtime(runtime, placement)
    given = {
        "backend": options.pop("backend"),
        "address": options.pop("address"),
        "shards": _parse_shards(shards),
    }
    options |= {name: value for name, value in given.items() if value is not None}
    progress = make_bench_progress(screen, as_json)
    found = enter_environment(suite, progress.say)
    place = get_default_place(found.name) if directory is None else make_absolute(directory, "--dir")
    options |= {"sample_timeout_s": sample_timeout, "max_cost_usd": max_cost}
    options |= {f"{name}_s": options.pop(name) for name in ("wall_timeout", "provider_wait")}
    options |= {"metadata": _parse_metadata(options["metadata"]), "suite_name": complete_name(suite)}
    return run_suite(screen, progress, found, place, as_json=as_json, drivers=drivers, **options)


def run_suite(
    screen: BenchScreen,
    progress: RunProgress,
    suite: SuiteDefinition,
    place: Path,
    *,
    as_json: bool,
    drivers: str = "one",
    **options: Any,
) -> int:
    """Run a suite that was loaded; otherwise as :func:`run`."""
    chosen = RunOptions.of({**options, "progress": progress})
    if chosen.address is not None and "per-node" in {chosen.shards, drivers}:
        _prepare_nodes(chosen.suite_name, chosen.address)
    if drivers == "per-node":
        shipped = SHIPPED.get(chosen.suite_name)
        name = chosen.suite_name if shipped is None else shipped.target
        results = asyncio.run(run_on_nodes(suite, name, place.absolute(), chosen))
    else:
        results = run_blocking(suite, place, {"progress": progress, **options})
    tally = progress.tally  # of this command: a larger limit may have had more samples
    if as_json:
        counted = {**asdict(tally), "coverage": tally.coverage}
        screen.raw(json.dumps({"change": "result", "run_dir": str(results.run_dir), **counted}))
    else:
        screen.line(f"{describe_tally(tally)}; see: {build_bench_command('report', str(results.run_dir))}")
    return 0 if tally.scored == tally.total else INCOMPLETE


def describe_tally(tally: Tally) -> str:
    """Return how far a command came, its pass rate and coverage, and what it cost."""
    rate = f"{tally.passed / tally.scored:.1%} of the scored" if tally.scored else "no rate"
    words = f"{tally.scored:,} of {tally.total:,} scored (coverage {tally.coverage:.1%}), "
    words += f"{tally.passed:,} passed ({rate})"
    words += f", {tally.undecided:,} undecided: they ended in an error" if tally.undecided else ""
    words += f", {tally.failed:,} failed: they were lost" if tally.failed else ""
    return f"{words}, ${tally.cost_usd:.4g}"


def list_suites(screen: BenchScreen, *, directory: str, as_json: bool) -> int:
    """Show the suites that are installed, and the runs in a directory; return the exit code.

    Raises:
        ConfigError: no path can have the name of the directory.
    """
    suites = [(each.name, each.about) for each in SHIPPED.values()]
    suites += [(name, entry.value) for name, entry in list_installed_suites().items()]
    runs, damaged = _find_runs(make_absolute(directory, "--dir"))
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
    environment = _find_environment(suite)
    if environment is None:
        screen.line(f"{suite} needs no environment of its own")
        return 0
    environment.prepare(screen.line)
    screen.line(f"ready: {environment.place}")
    if address is None:
        return 0
    found = _prepare_on_nodes(environment, address)
    for node, (place, failure) in found.items():
        screen.line(f"{node}: {f'not prepared: {failure}' if failure else f'ready: {place}'}")
    return INCOMPLETE if any(failure for _, failure in found.values()) else 0


def _prepare_on_nodes(environment: SuiteEnvironment, address: str) -> dict[str, tuple[str, str]]:
    """Build an environment that is ready here on the nodes of a cluster, with the same releases.

    Returns:
        By node: its place, and why it could not be built.
    """
    lock = environment.lock
    return asyncio.run(call_on_nodes(address, prepare_here, lock.name, lock_text(lock), environment.locked()))


def _prepare_nodes(suite: str, address: str) -> None:
    """Build the environment of a suite on the nodes where its trees will run.

    Raises:
        ConfigError: a node can't have it.
    """
    environment = _find_environment(suite)
    failures = {} if environment is None else _prepare_on_nodes(environment, address)
    for node, (_, failure) in failures.items():
        if failure:
            raise ConfigError(f"node {node} can't have the suite's environment: {failure}")


def enter_environment(name: str, say: Callable[[str], None]) -> SuiteDefinition:
    """Return a suite by name; if it has an environment, this process first becomes its interpreter.

    Raises:
        ConfigError: the suite is unknown, or its environment can't be made.
    """
    environment = _find_environment(name)
    if environment is not None and not environment.is_current:
        environment.prepare(say)
        environment.take_over([*COMMAND, *sys.argv[1:]])
    return load_suite(SHIPPED[name].target if name in SHIPPED else name)


def _find_environment(name: str) -> SuiteEnvironment | None:
    """Return the environment of a suite; a suite of this package is not loaded for that."""
    module = find_module_name(SHIPPED[name].target if name in SHIPPED else name)
    locks = {find_module_name(each.target): each.lock for each in SHIPPED.values()}
    lock = locks[module] if module in locks else find_environment_file(name) or load_suite(name).env
    return None if lock is None else locate_environment(lock)


def get_default_place(suite: str) -> Path:
    """Return the directory of a run of the suite of this name, if none is given."""
    return Path(RUNS, "".join(letter if letter in LETTERS else "_" for letter in suite))


def _find_runs(directory: Path) -> tuple[list[tuple[RunResults, RunCounts]], dict[str, str]]:
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


def _parse_shards(text: str | None) -> int | str | None:
    if text is None or text == "per-node":
        return text
    if not text.isdecimal():
        raise ConfigError(f"--shards {text!r}; give a number, or per-node")
    return int(text)


def _parse_metadata(words: Sequence[str]) -> dict[str, str]:
    """Return the metadata of ``name=value`` words.

    Raises:
        ConfigError: a word has another form.
    """
    pairs = [word.partition("=") for word in words]
    wrong = next((word for word, (_, mark, _) in zip(words, pairs, strict=True) if not mark), None)
    if wrong is not None:
        raise ConfigError(f"--metadata {wrong!r}; write name=value, such as branch=main")
    return {name: value for name, _, value in pairs}


def complete_name(suite: str) -> str:
    """Return the name of a suite as any directory understands it: the path of a file is absolute."""
    place, mark, name = suite.rpartition(":")
    if suite.endswith(".toml"):
        return str(Path(suite).absolute())
    return f"{Path(place).absolute()}{mark}{name}" if place.endswith(".py") else suite


def make_bench_progress(screen: BenchScreen, as_json: bool) -> RunProgress:
    """Return what shows how a command gets on: on a terminal, in lines, or for a program."""
    if as_json:
        return JsonProgress(screen)
    if screen.is_live:
        return TerminalProgress(Console(file=sys.stdout, highlight=False), make_visible)
    return LineProgress(screen)
