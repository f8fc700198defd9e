"""One run of a shipped suite in the suite's own environment, for ``benchmarks.tool_suites``.

Run as ``python -m benchmarks.tool_suites_program NAME MODEL PLACE EVERY``. The model ``direct`` makes the
calls of the ground truth without a tree. EVERY n takes each n-th sample. It prints one JSON object: the
scores, and the time for all samples.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sqlite3
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sessiontree.bench.samples import samples_of
from sessiontree.bench.suite import Sample, Score
from sessiontree.bench.suite_loader import load_suite
from sessiontree.bench.suites.catalog import SHIPPED
from sessiontree.bench.suites.hosted_tools import Arguments, HostedTool, HostedToolFailed

CONCURRENCY = 8


async def through_trees(name: str, model: str, place: Path, every: int) -> list[dict[str, Any]]:
    """Run the suite on the local backend, and return the committed scores."""
    suite = load_suite(SHIPPED[name].target)
    suite.samples = samples_of(suite)[::every]
    await suite.run(place, model=model, backend="local", concurrency=CONCURRENCY)
    with closing(sqlite3.connect(place / "ledger.sqlite")) as ledger:
        rows = ledger.execute(
            "SELECT sample_id, status, scores FROM scores ORDER BY committed_at_ms"
        ).fetchall()
        errors = dict(ledger.execute("SELECT sample_id, error FROM attempts WHERE error IS NOT NULL"))
    found = []
    for sample_id, status, scores in rows:
        (score,) = json.loads(scores).values()
        found.append({"id": sample_id, "status": status, "error": errors.get(sample_id), **score})
    return found


async def directly(name: str, every: int) -> list[dict[str, Any]]:
    """Make the calls of the ground truth on the same tools, without a tree, and return the verdicts."""
    suite = load_suite(SHIPPED[name].target)
    module: Any = importlib.import_module(SHIPPED[name].target.partition(":")[0])
    judge = _bfcl if name == "bfcl" else _tau2
    found = []
    for sample in samples_of(suite)[::every]:
        score = await judge(module, name, sample)
        found.append({"id": sample.id, "status": "completed", "error": None, **asdict(score)})
    return found


async def _bfcl(module: Any, name: str, sample: Sample) -> Score:
    entry = module.entries()[sample.id]
    episode = module.Episode(entry)
    for planned in module.planned_turns(entry):
        episode.calls.append([])
        await _make(episode.tools, ((each.name, each.arguments) for each in planned.calls))
    score: Score = module.verdict_on(episode)
    return score


async def _tau2(module: Any, name: str, sample: Sample) -> Score:
    domain = name.partition("-")[2]
    desk = module.ServiceDesk(domain, module.tasks(domain)[sample.id])
    planned = module.planned_turn(desk.task)
    await _make(desk.tools, ((each.name, each.arguments) for each in planned.calls))
    score: Score = await module.verdict_on(desk)
    return score


async def _make(tools: Iterable[HostedTool], calls: Iterable[tuple[str, Arguments]]) -> None:
    by_name = {each.name: each for each in tools}
    for name, arguments in calls:
        try:
            found = by_name[name].run(arguments)
            if inspect.isawaitable(found):
                await found
        except HostedToolFailed:
            continue


def main(arguments: list[str]) -> None:
    """Run what the command line names, and print it."""
    name, model, place, every = arguments
    began, used = time.perf_counter(), time.process_time()
    is_direct = model == "direct"
    work = directly(name, int(every)) if is_direct else through_trees(name, model, Path(place), int(every))
    scores = asyncio.run(work)
    cpu_s, wall_s = time.process_time() - used, time.perf_counter() - began
    print(json.dumps({"scores": scores, "wall_s": wall_s, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main(sys.argv[1:])
