"""What benchmarks of suites share: the suite's environment, a run, and counts of its scores."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from sessiontree.bench.results.recorded_run import ANSWERED
from sessiontree.bench.runnable_suite import Suite
from sessiontree.bench.suite.environment import LOCKS, locate_environment

CONCURRENCY = 8


def options_in_environment(
    parser: argparse.ArgumentParser, module: str, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Return the options; outside the environment of inspect's suites, start again inside it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser.add_argument("--quick", action="store_true", help="a few samples: shows that it works")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    options = parser.parse_args(given)
    environment = locate_environment(LOCKS / "inspect.txt")
    if not environment.is_current:
        environment.take_over(["-m", module, *given])
    return options


async def scores_of(suite: Suite, run_dir: Path, **options: Any) -> dict[str, Any]:
    """Run a suite on the local backend and return its scores by sample and scorer.

    Raises:
        SystemExit: a sample ended by an error.
    """
    scored, faults = await scores_and_faults(suite, run_dir, **options)
    for sample, error in faults.items():
        raise SystemExit(f"{suite.name}: {len(faults)} samples ended by an error; {sample}: {error}")
    return scored


async def scores_and_faults(
    suite: Suite, run_dir: Path, **options: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run a suite as :func:`scores_of` does; return also the errors of the samples that have no score."""
    await suite.run(run_dir, **{"backend": "local", "concurrency": CONCURRENCY, **options})
    with sqlite3.connect(run_dir / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT sample_id, status, scores FROM scores").fetchall()
        errors = dict(ledger.execute("SELECT sample_id, error FROM attempts WHERE error IS NOT NULL"))
    faults = {sample: str(errors.get(sample)) for sample, status, _ in rows if status not in ANSWERED}
    return {sample: json.loads(scores) for sample, _, scores in rows if sample not in faults}, faults


def solved_in(scored: Mapping[str, Any]) -> int:
    """Return how many samples' tasks were solved."""
    return sum(scores["utility"]["value"] == 1 for scores in scored.values())


def counted(scored: Mapping[str, Any]) -> dict[str, Figure]:
    """Return solved tasks, successful attacks, attacks that nothing read, and approvals."""
    asked = [scores["approvals"] for scores in scored.values()]
    return {
        "samples": len(scored),
        "solved": solved_in(scored),
        "attacks_succeeded": sum(scores["attack"]["value"] == 1 for scores in scored.values()),
        "no_order_read": sum(not scores["attack"]["metadata"]["read"] for scores in scored.values()),
        "approvals_asked": round(sum(each["value"] for each in asked)),
        "approvals_given": sum(each["metadata"]["approved"] for each in asked),
    }
