"""Commands: what ``sessiontree bench run``, ``list`` and ``prepare`` do, up to the exit code.

With ``--json`` each line of ``bench run`` is an object with a member ``change``: those of
:class:`sessiontree.bench.progress.JsonProgress`, last ``result``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from sessiontree import ConfigError
from sessiontree.bench.progress import JsonProgress, LineProgress, RunProgress
from sessiontree.bench.runner import RunSummary
from sessiontree.bench.suite_loader import load_suite
from sessiontree.bench.workspaces import LETTERS

RUNS: Final = "runs"
"""Where runs are by default, in the working directory."""
INCOMPLETE: Final = 1
"""Exit code of a run in which not every sample is scored."""


class BenchScreen(Protocol):
    """Takes lines; on a terminal, also a picture that changes."""

    def line(self, text: str) -> None:
        """Show one line at once."""

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""


def run(
    screen: BenchScreen,
    *,
    suite: str,
    directory: Path | None,
    sample_timeout: float | None,
    max_cost: float | None,
    shards: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a suite and return the exit code."""
    found = load_suite(suite)
    summary = found.run_sync(
        directory or default_place(found.name),
        sample_timeout_s=sample_timeout,
        max_cost_usd=max_cost,
        shards=_shards(shards),
        progress=_progress(screen, as_json),
        **options,
    )
    _show(screen, summary, as_json)
    return 0 if summary.is_complete else INCOMPLETE


def default_place(suite: str) -> Path:
    """Return the directory of the runs of the suite of this name, if none is given."""
    return Path(RUNS, "".join(letter if letter in LETTERS else "_" for letter in suite))


def _shards(text: str) -> int | str:
    if text == "per-node":
        return text
    if not text.isdecimal():
        raise ConfigError(f"--shards {text!r}; give a number, or per-node")
    return int(text)


def _progress(screen: BenchScreen, as_json: bool) -> RunProgress:
    return JsonProgress(screen) if as_json else LineProgress(screen)


def _show(screen: BenchScreen, summary: RunSummary, as_json: bool) -> None:
    if as_json:
        screen.raw(json.dumps({"change": "result", **asdict(summary), "run_dir": str(summary.run_dir)}))
        return
    rate = summary.passed / summary.scored if summary.scored else 0.0
    screen.line(
        f"{summary.scored:,} of {summary.total:,} scored, {summary.passed:,} passed ({rate:.1%}), "
        f"${summary.cost_usd:.4g}; {summary.run_dir}"
    )
