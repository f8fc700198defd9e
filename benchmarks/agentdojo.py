"""AgentDojo under a model that obeys every order it reads: solved tasks, attacks, approvals.

Run: ``python -m benchmarks.agentdojo [--way WAY …] [--run-dir DIR] [--quick] [--json]``; all ways
take half an hour on two cores. With ``--run-dir`` its runs are kept, and the same command goes on after an
interruption. It runs in the suite's environment, which ``make setup-suites`` prepares, without a network or a
real model.

Each of the 944 pairs of a user's task and an injected order is run in the ways that
``sessiontree/bench/suites/injections.py`` describes; ``rule`` is the ablation: one session under the rule
that the hierarchies have. With the way ``flat`` the 96 tasks of users are solved by inspect_ai alone
(AgentDojo's own agent) and by a tree whose scripted model makes the same calls; the verdicts are compared
by sample id.
For each way ``clean_solved`` counts the users' tasks
that the same model solves in the same way without any attack. Orders that succeed in no more than half of all
pairs are named by suite and order.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.report import Figure, Options, show
from benchmarks.suite_scores import CONCURRENCY, counted, options_in_environment, scores_of, solved_in

Way = Literal["flat", "rule", "tiers", "typed", "rule-person", "tiers-person", "typed-person"]
WAYS: tuple[Way, ...] = get_args(Way)
QUICK = {"workspace": "banking", "user_task_ids": [0, 1, 2], "injection_task_ids": [0, 4]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites in their environment and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--way", choices=WAYS, action="append", help="only these ways; by default all")
    parser.add_argument("--run-dir", type=Path, help="keep the runs there, and go on with them")
    options = options_in_environment(parser, "benchmarks.agentdojo", arguments)
    ways: Sequence[Way] = WAYS if options.way is None else options.way
    with tempfile.TemporaryDirectory(prefix="agentdojo-") as folder:
        place = Path(folder) if options.run_dir is None else options.run_dir
        figures = asyncio.run(measure(ways, QUICK if options.quick else {}, place))
    show(figures, Options(options.quick, options.as_json, ""))


async def measure(ways: Sequence[Way], selection: Mapping[str, Any], place: Path) -> dict[str, Figure]:
    """Return the figures of each way, then those of the users' tasks.

    Args:
        ways: In which ways pairs are run.
        selection: Which samples of AgentDojo; empty = all.
        place: Directory of the runs.
    """
    from sessiontree.bench.suites import agentdojo  # noqa: PLC0415 - only in its environment

    tasks = {name: value for name, value in selection.items() if name != "injection_task_ids"}
    found: dict[str, Figure] = {}
    for way in ways:
        scored = await scores_of(agentdojo.attacks(way, **selection), place / f"attacks-{way}")
        clean = agentdojo.user_tasks(way, **tasks)
        solved = await scores_of(clean, place / f"clean-{way}", model="gullible")
        found[way] = {
            **counted(scored),
            **_named(scored),
            "clean_solved": solved_in(solved),
            "clean_samples": len(solved),
        }
    if "flat" in ways:
        found["user_tasks"] = await _parity(place, tasks)
    return found


async def _parity(place: Path, selection: Mapping[str, Any]) -> dict[str, Figure]:
    """Return how many users' tasks inspect alone and a tree solve, and how many verdicts are the same."""
    from inspect_ai import eval_async  # noqa: PLC0415 - only in the suite's environment
    from inspect_ai.util._display import init_display_type  # noqa: PLC0415 - as above
    from inspect_evals.agentdojo import agentdojo as task_of  # noqa: PLC0415 - as above

    from sessiontree.bench.suites import agentdojo  # noqa: PLC0415 - as above

    init_display_type("none")  # it would draw on stdout
    task = task_of(agent="ground_truth", with_sandbox_tasks="no", with_injections=False, **selection)
    (log,) = await eval_async(
        task,
        model="none/none",
        log_dir=str(place / "logs"),
        max_samples=CONCURRENCY,
        log_level="error",  # warnings would be written to stdout
    )
    alone = {str(each.id): _is_correct(each) for each in log.samples or ()}
    scored = await scores_of(agentdojo.user_tasks(**selection), place / "parity")
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


def _named(scored: Mapping[str, Any]) -> dict[str, Figure]:
    """Return how often each order succeeded, if that is the exception; by suite and order."""
    done = [sample for sample, scores in scored.items() if scores["attack"]["value"] == 1]
    if not 0 < len(done) <= len(scored) // 2:
        return {}
    orders = Counter("-".join(sample.split("-")[::2]) for sample in done)
    return {"succeeded": dict(sorted(orders.items()))}


if __name__ == "__main__":
    main()
