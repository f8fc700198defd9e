"""One run of a shipped suite in the suite's own environment, for ``benchmarks.tool_suites``.

Run as ``python -m benchmarks.tool_suites_program NAME MODEL PLACE EVERY``. The model ``direct`` makes the
calls of BFCL's ground truth without a tree. EVERY n takes each n-th sample. It prints one JSON object: the
scores, and the time for all samples.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sessiontree.bench.run.runner import run_suite
from sessiontree.bench.suite.samples import load_samples
from sessiontree.bench.suite.suite_loader import load_suite
from sessiontree.bench.suites.catalog import SHIPPED

CONCURRENCY = 8


async def through_trees(name: str, model: str, place: Path, every: int) -> list[dict[str, Any]]:
    """Run the suite on the local backend, and return the committed scores."""
    suite = load_suite(SHIPPED[name].target)
    suite.samples = load_samples(suite)[::every]
    await run_suite(suite, place, {"model": model, "backend": "local", "concurrency": CONCURRENCY})
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


async def directly(every: int) -> list[dict[str, Any]]:
    """Make BFCL's ground-truth calls on the same tools without a tree, and return the verdicts."""
    suite = load_suite(SHIPPED["bfcl"].target)
    module: Any = sys.modules[SHIPPED["bfcl"].target.partition(":")[0]]
    found = []
    for sample in load_samples(suite)[::every]:
        entry = module.load_entries()[sample.id]
        episode = module.Episode(entry)
        tools = {each.name: each for each in episode.tools}
        for planned in module.planned_turns(entry):
            episode.calls.append([])
            for each in planned.calls:
                tools[each.name].run(each.arguments)
        score = asdict(module.verdict_on(episode))
        found.append({"id": sample.id, "status": "completed", "error": None, **score})
    return found


def answer(arguments: list[str]) -> None:
    """Run what the command line names, and print it."""
    name, model, place, every = arguments
    began, used = time.perf_counter(), time.process_time()
    is_direct = model == "direct"
    work = directly(int(every)) if is_direct else through_trees(name, model, Path(place), int(every))
    scores = asyncio.run(work)
    cpu_s, wall_s = time.process_time() - used, time.perf_counter() - began
    print(json.dumps({"scores": scores, "wall_s": wall_s, "cpu_s": cpu_s}))


if __name__ == "__main__":
    answer(sys.argv[1:])
