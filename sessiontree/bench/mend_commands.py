"""Commands: what ``sessiontree bench retry``, ``rescore``, ``pause``, ``resume`` and ``set`` do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from sessiontree import ConfigError
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.run_log import put_controls
from sessiontree.bench.mending.rescore import RescoreOptions, Rescoring
from sessiontree.bench.result_commands import find_run
from sessiontree.bench.results.recorded_run import LEDGER, RecordedRun
from sessiontree.bench.results.run_history import read_last_circumstances
from sessiontree.bench.run.place.progress import build_bench_command
from sessiontree.bench.run.place.run_place import is_on_shared_disk, name_of_model
from sessiontree.bench.run.place.run_settings import parse_controls
from sessiontree.bench.run.process_names import own_name
from sessiontree.bench.run_commands import (
    INCOMPLETE,
    BenchScreen,
    enter_environment,
    make_bench_progress,
    run_suite,
)
from sessiontree.bench.suite.retry_choice import RetryChoice

KEPT_SHOWN: Final = 5
"""Most samples that are named whose score stayed as it was; JSON names all."""
_AGAIN: Final = ("epochs", "limit", "concurrency", "backend", "shards", "retries", "keep", "samples")
"""Options that a retry takes over from the run's last command, unless it has them itself."""


def retry(
    screen: BenchScreen,
    *,
    run: str,
    suite: str | None,
    statuses: Sequence[str],
    samples: Sequence[str],
    as_json: bool,
    **options: Any,
) -> int:
    """Let samples wait again, then work on the run; return the exit code of ``bench run``.

    Args:
        screen: Shows what happens.
        run: Names the run.
        suite: Names the suite; None = as the run's last command did.
        statuses: How the samples ended.
        samples: Their ids or patterns.
        as_json: Whether a program reads it.
        options: Options of :class:`sessiontree.bench.run.place.run_place.RunOptions`; None = as before.

    Raises:
        SessionTreeError: nothing is chosen, or the run can't go on.
    """
    found = find_run(run)
    name = _find_suite(found, suite)
    progress = make_bench_progress(screen, as_json)
    loaded = enter_environment(name, progress.say)
    before = read_last_circumstances(found).get("options", {})
    given = {each: before[each] for each in _AGAIN if each in before}
    given |= {each: value for each, value in options.items() if value is not None}
    if name_of_model(loaded.model) != found.model:
        given.setdefault("model", found.model or None)
    given["retry"] = RetryChoice(statuses, samples)
    return run_suite(screen, progress, loaded, found.run_dir, as_json=as_json, suite_name=name, **given)


def rescore(
    screen: BenchScreen,
    *,
    run: str,
    suite: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Let scorers judge again what a run has kept; return the exit code: 1 if a score stayed as it was.

    Args:
        screen: Shows what happens.
        run: Names the run.
        suite: Names the suite; None = as the run's last command did.
        as_json: Whether a program reads it: one object with the members of
            :class:`sessiontree.bench.mending.rescore.Rescored`.
        options: Members of :class:`sessiontree.bench.mending.rescore.RescoreOptions`.

    Raises:
        SessionTreeError: the run or the suite does not exist, or its other code has changed.
    """
    found = find_run(run)
    name = _find_suite(found, suite)
    loaded = enter_environment(name, _make_reporter(screen, as_json=as_json))
    chosen = RescoreOptions(**options, suite_name=name)
    outcome = asyncio.run(Rescoring(loaded, found.run_dir, chosen).run())
    if as_json:
        screen.raw(json.dumps({"run_dir": str(found.run_dir), **asdict(outcome)}))
    else:
        screen.line(
            f"{outcome.rescored:,} rescored, {outcome.changed:,} with other scores, of which "
            f"{outcome.decided:,} were undecided before; see: "
            f"{build_bench_command('report', str(found.run_dir))}"
        )
        if outcome.unsolved:
            again = f"{build_bench_command('retry', str(found.run_dir))} --status error"
            screen.line(f"{outcome.unsolved:,} have nothing to judge; to solve them again: {again}")
        for sample, why in list(outcome.kept.items())[:KEPT_SHOWN]:
            screen.line(f"sample {sample} keeps its score: {why}")
        if len(outcome.kept) > KEPT_SHOWN:
            screen.line(f"and {len(outcome.kept) - KEPT_SHOWN:,} more keep theirs")
    return INCOMPLETE if outcome.kept else 0


def pause(screen: BenchScreen, *, run: str) -> int:
    """Let no more attempts of a run begin; those that run go on to their end."""
    return _set_controls(screen, run, {"paused": True}, "paused: attempts that run go on to their end")


def resume(screen: BenchScreen, *, run: str) -> int:
    """Let attempts of a paused run begin again."""
    return _set_controls(screen, run, {"paused": False}, "its programs go on within seconds")


def set_settings(screen: BenchScreen, *, run: str, values: Sequence[str]) -> int:
    """Change settings of a run while it goes on: ``concurrency=8``, ``sample_timeout=900``.

    Raises:
        ConfigError: a word is not ``name=value``, or a value is not valid.
    """
    words = {}
    for each in values:
        name, mark, value = each.partition("=")
        if not mark:
            raise ConfigError(f"{each!r}; write name=value, such as concurrency=8")
        words[name] = value
    return _set_controls(screen, run, parse_controls(words), f"set: {', '.join(values)}")


def _set_controls(screen: BenchScreen, run: str, values: Mapping[str, Any], said: str) -> int:
    found = find_run(run)
    path = found.run_dir / LEDGER

    async def put() -> None:
        async with Ledger(path, own_name(), shared=is_on_shared_disk(path.parent)) as ledger:
            await ledger.do(lambda db: put_controls(db, values))

    asyncio.run(put())
    screen.line(f"{found.run_dir}: {said}")
    return 0


def _find_suite(run: RecordedRun, given: str | None) -> str:
    name = given or str(read_last_circumstances(run).get("suite", ""))
    if not name:
        raise ConfigError(
            f"run {str(run.run_dir)!r} does not say where its suite is: a program began it; name the suite "
            "with --suite module:suite or --suite file.py:suite"
        )
    place = name.rpartition(":")[0] or name
    if place.endswith((".py", ".toml")) and not Path(place).is_file():
        raise ConfigError(f"the suite's file {place!r} does not exist; name the suite with --suite")
    return name


def _make_reporter(screen: BenchScreen, *, as_json: bool) -> Callable[[str], None]:
    """Return what shows how an environment is made; a program that reads JSON gets nothing of it."""
    return (lambda _: None) if as_json else screen.line
