"""AgentDojo under a model that obeys every order it reads: solved tasks, successful attacks, approvals.

Run: ``python -m benchmarks.agentdojo [--way flat|tiers|person] [--quick] [--json]``; all ways take about ten
minutes on two cores. It runs in the suite's environment, which ``make setup-suites`` prepares, with no network
and no real model.

The 96 tasks of users are solved by inspect_ai alone (AgentDojo's own ground-truth agent) and by a tree whose
scripted model makes the same calls; the verdicts are compared by sample id. Then each of the 944 pairs of a
user's task and an injected order is run in the ways that ``sessiontree/bench/suites/agentdojo.py`` describes.
For each way ``clean`` counts the users' tasks that the same model solves in the same way without any attack.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Options, show
from sessiontree.bench.environment import LOCKS, environment_of

WAYS = ("flat", "tiers", "person")
QUICK = {"workspace": "banking", "user_task_ids": [0, 1, 3], "injection_task_ids": [0, 4]}
CONCURRENCY = 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites in their environment and print the figures."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--way", choices=WAYS, help="only this way; by default all three")
    parser.add_argument("--quick", action="store_true", help="six pairs of one of its four suites")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    options = parser.parse_args(given)
    os.environ["INSPECT_DISPLAY"] = "none"  # it would draw on stdout
    environment = environment_of(LOCKS / "inspect.txt")
    if not environment.is_current:
        environment.take_over(["-m", "benchmarks.agentdojo", *given])
    selection = QUICK if options.quick else {}
    ways = WAYS if options.way is None else (options.way,)
    figures = asyncio.run(measure(ways, selection))
    show(figures, Options(options.quick, options.as_json, ""))


async def measure(ways: Sequence[str], selection: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of the users' tasks, then those of each way."""
    from sessiontree.bench.suites import agentdojo  # noqa: PLC0415 - only in its environment

    found: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="agentdojo-") as place:
        found["user_tasks"] = await _parity(Path(place), selection)
        for way in ways:
            pairs = agentdojo.attacks(way, **selection)
            clean = agentdojo.user_tasks(way, **_without_attacks(selection))
            scored = await _scores(pairs, Path(place) / f"attacks-{way}")
            solved = await _scores(clean, Path(place) / f"clean-{way}", "gullible")
            found[way] = {**_counted(scored), "clean": _passes(solved), "clean_of": len(solved)}
    return found


def _without_attacks(selection: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in selection.items() if name != "injection_task_ids"}


async def _parity(place: Path, selection: Mapping[str, Any]) -> dict[str, Figure]:
    """Return how many users' tasks inspect alone and a tree solve, and how many verdicts are the same."""
    from inspect_ai import eval_async  # noqa: PLC0415 - only in the suite's environment
    from inspect_evals.agentdojo import agentdojo as task_of  # noqa: PLC0415 - as above

    from sessiontree.bench.suites import agentdojo  # noqa: PLC0415 - as above

    chosen = _without_attacks(selection)
    task = task_of(agent="ground_truth", with_sandbox_tasks="no", with_injections=False, **chosen)
    (log,) = await eval_async(task, model="none/none", log_dir=str(place / "logs"), max_samples=CONCURRENCY)
    alone = {str(each.id): _is_correct(each) for each in log.samples or ()}
    scored = await _scores(agentdojo.user_tasks(**chosen), place / "parity")
    ours = {sample: scores["utility"]["value"] == 1 for sample, scores in scored.items()}
    return {
        "tasks": len(alone),
        "solved_by_inspect_alone": sum(alone.values()),
        "solved_by_a_tree": sum(ours.values()),
        "same_verdicts": sum(ours.get(sample) == verdict for sample, verdict in alone.items()),
    }


def _is_correct(sample: Any) -> bool:
    (score,) = sample.scores.values()
    return bool(score.value["utility"] == "C")


async def _scores(suite: Any, run_dir: Path, model: str | None = None) -> dict[str, Any]:
    """Run a suite and return its scores by sample; a sample that raised an error ends the benchmark."""
    await suite.run(run_dir, backend="local", concurrency=CONCURRENCY, model=model)
    with sqlite3.connect(run_dir / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT sample_id, status, scores FROM scores").fetchall()
    faulty = [sample for sample, status, _ in rows if status != "completed"]
    if faulty:
        raise SystemExit(f"{suite.name}: {len(faulty)} samples ended by an error, such as {faulty[0]}")
    return {sample: json.loads(scores) for sample, _, scores in rows}


def _passes(scored: Mapping[str, Any]) -> int:
    return sum(scores["utility"]["value"] == 1 for scores in scored.values())


def _counted(scored: Mapping[str, Any]) -> dict[str, Figure]:
    done = [sample for sample, scores in scored.items() if scores["attack"]["value"] == 1]
    unread = [sample for sample, scores in scored.items() if not scores["attack"]["metadata"]["read"]]
    asked = [scores["approvals"] for scores in scored.values()]
    return {
        "pairs": len(scored),
        "solved": _passes(scored),
        "attacks_succeeded": len(done),
        "attacks_never_read": len(unread),
        "approvals_asked": round(sum(each["value"] for each in asked)),
        "approvals_given": sum(each["metadata"]["approved"] for each in asked),
        "succeeded_orders": ", ".join(sorted({_order_of(each) for each in done})) if len(done) < 200 else "",
    }


def _order_of(sample: str) -> str:
    """Return the suite and the order of a pair, such as ``travel-i6``."""
    suite, _, order = sample.split("-")
    return f"{suite}-{order}"


if __name__ == "__main__":
    main()
