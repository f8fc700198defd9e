"""The same tasks by inspect_ai alone and by this package's runner: samples per second, and their CPU time.

Run: ``python -m benchmarks.inspect_suites [--quick] [--json]``; about three minutes. It runs in the suite's
environment, which ``make setup-suites`` prepares, without a network or a real model.

AgentDojo's tasks of users are solved three times by each, in turn, with the same tools, judges and replies: a
scripted model makes the calls of the ground truth. inspect asks it through its mock provider and its own
agent loop; here it answers within a tree for each sample, on the local backend. Both work on eight samples at
a time in one process, after one round of a few samples that is not counted. Both write what they write by
default: inspect its log with every event; here the ledger, each tree's journal, the tables of results, and
inspect's log with tool events. What is timed is the whole call.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Figure, Options, show
from benchmarks.suite_scores import CONCURRENCY, options_in_environment, scores_of, solved_in

ROUNDS = 3
QUICK = {"workspace": "slack", "user_task_ids": [0, 1, 2, 3]}
MOCK = "mockllm/model"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both in the suite's environment and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options = options_in_environment(parser, "benchmarks.inspect_suites", arguments)
    figures = asyncio.run(measure(QUICK if options.quick else {}, 1 if options.quick else ROUNDS))
    show(figures, Options(options.quick, options.as_json, ""))


async def measure(selection: dict[str, Any], rounds: int) -> dict[str, Figure]:
    """Return the medians of both, in turn, and their ratios."""
    from inspect_ai import eval_async  # noqa: PLC0415 - only in the suite's environment
    from inspect_ai.util._display import init_display_type  # noqa: PLC0415 - as above
    from inspect_evals.agentdojo import agentdojo as task_of  # noqa: PLC0415 - as above

    from sessiontree.bench.suites import agentdojo  # noqa: PLC0415 - as above

    init_display_type("none")
    model = _scripted_model()
    chosen = {"with_sandbox_tasks": "no", "with_injections": False, **selection}

    async def alone(place: Path) -> int:
        task = task_of(**chosen)
        (log,) = await eval_async(
            task, model=model, log_dir=str(place), max_samples=CONCURRENCY, log_level="critical"
        )
        return sum(_is_solved(each) for each in log.samples or ())

    async def ours(place: Path) -> int:
        return solved_in(await scores_of(agentdojo.user_tasks(**selection), place))

    samples = len(task_of(**chosen).dataset)
    timed: dict[str, list[tuple[float, float, int]]] = {"inspect": [], "ours": []}
    with tempfile.TemporaryDirectory(prefix="inspect-suites-") as folder:
        await _timed(alone, Path(folder, "warm-inspect"))  # imports, and caches of the tasks' data
        await scores_of(agentdojo.user_tasks(**selection), Path(folder, "warm-ours"), limit=4)
        for number in range(rounds):
            timed["inspect"].append(await _timed(alone, Path(folder, f"inspect-{number}")))
            timed["ours"].append(await _timed(ours, Path(folder, f"ours-{number}")))
    found: dict[str, Figure] = {"samples": samples, "rounds": rounds}
    for name, runs in timed.items():
        wall, cpu = median(each[0] for each in runs), median(each[1] for each in runs)
        found[name] = {
            "samples_per_s": samples / wall,
            "cpu_ms_per_sample": 1000 * cpu / samples,
            "solved": runs[-1][2],
        }
    cpus = {name: median(each[1] for each in runs) for name, runs in timed.items()}
    found["cpu_ratio"] = cpus["ours"] / cpus["inspect"]
    return found


async def _timed(work: Callable[[Path], Awaitable[int]], place: Path) -> tuple[float, float, int]:
    """Return seconds, seconds of the processor, and solved samples."""
    wall, cpu = time.perf_counter(), time.process_time()
    solved = await work(place)
    return time.perf_counter() - wall, time.process_time() - cpu, solved


def _is_solved(sample: Any) -> bool:
    (score,) = sample.scores.values()
    return bool(score.value["utility"] == "C")


def _scripted_model() -> Any:
    """Return inspect's mock, which makes the calls of the ground truth of the task that it is given."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: PLC0415 - as above
    from inspect_evals.agentdojo.dataset import TASK_SUITES  # noqa: PLC0415 - as above

    plans: dict[str, Any] = {}
    for name, suite in TASK_SUITES.items():
        if name != "workspace":  # workspace_plus holds the same tasks
            environment = suite.load_and_inject_default_environment({})
            for task in suite.user_tasks.values():
                plans[task.PROMPT] = (task.ground_truth(environment), task.GROUND_TRUTH_OUTPUT)

    def reply(messages: list[Any], *_: Any) -> Any:
        prompt = next(each.text for each in messages if each.role == "user")
        calls, output = plans[prompt]
        made = sum(len(each.tool_calls or ()) for each in messages if each.role == "assistant")
        if made < len(calls):
            called = calls[made]
            answer = ModelOutput.for_tool_call(
                MOCK, called.function, called.arguments, content=f"I call {called.function}."
            )
        else:
            answer = ModelOutput.from_content(MOCK, output)
        answer.usage = ModelUsage()
        return answer

    return get_model(MOCK, custom_outputs=reply)


if __name__ == "__main__":
    main()
