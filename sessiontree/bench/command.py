"""Commands: what ``sessiontree bench run``, ``list`` and ``prepare`` do, up to the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from sessiontree.bench.suite_loader import load_suite
from sessiontree.bench.workspaces import LETTERS


class BenchScreen(Protocol):
    """Takes lines."""

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
    place = directory or Path("runs", "".join(letter if letter in LETTERS else "_" for letter in found.name))
    summary = found.run_sync(
        place,
        sample_timeout_s=sample_timeout,
        max_cost_usd=max_cost,
        shards=int(shards) if shards.isdecimal() else shards,
        **options,
    )
    if as_json:
        screen.raw(json.dumps({"change": "result", "run": str(summary.run_dir), "scored": summary.scored}))
    else:
        screen.line(f"{summary.scored} of {summary.total} scored, {summary.passed} passed")
    return 0 if summary.scored == summary.total else 1
