"""What the tests of BFCL's suite look at, as one JSON object; runs in the suite's environment.

Run as ``python -m tests.system.bench.suites.bfcl_program PLACE BACKEND IDS IDS``: entries that should pass,
one of each category, and entries that should not, separated by commas.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

from sessiontree import ConfigError, FunctionModel, ModelRequest, ToolCall, script_call
from sessiontree.bench.suite.samples import load_samples
from sessiontree.bench.suites.bfcl import EPISODE, bfcl, plan_turns
from sessiontree.bench.suites.bfcl_entries import call_source, load_entries, parse_call
from sessiontree.bench.suites.ground_truth import GroundTruth


async def scores_of(
    place: Path, model: str, ids: Sequence[str], **settings: Any
) -> dict[str, dict[str, Any]]:
    """Run chosen entries through trees and return their scores by id."""
    backend = settings.pop("backend", "local")
    suite = bfcl(**settings)
    suite.models |= {"altered": altered, "endless": endless, "watcher": watcher}
    suite.samples = [each for each in load_samples(suite) if each.id in ids]
    await suite.run(place, model=model, backend=backend, concurrency=4)
    with closing(sqlite3.connect(place / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT sample_id, status, scores FROM scores").fetchall()
    return {
        sample_id: json.loads(scores)["bfcl_checker"] | {"status": status}
        for sample_id, status, scores in rows
    }


def altered(attempt: Any) -> FunctionModel:
    """Play the ground truth with one argument of its first call that has a text changed."""
    turns = plan_turns(attempt.state[EPISODE].entry)
    for at, turn in enumerate(turns):
        for number, each in enumerate(turn.calls):
            name = next((key for key, value in each.arguments.items() if isinstance(value, str)), None)
            if name is not None:
                wrong = script_call(each.name, **{**each.arguments, name: "sabotage"})
                calls = (*turn.calls[:number], wrong, *turn.calls[number + 1 :])
                turns[at] = replace(turn, calls=calls)
                return GroundTruth(turns).to_model()
    raise AssertionError("no call has a text")


def endless(attempt: Any) -> FunctionModel:
    """Call one function of the entry for ever."""
    entry = attempt.state[EPISODE].entry
    first = next(each for turn in entry.plan_calls() for each in turn)
    return FunctionModel(lambda request: first, name="endless")


OFFERED: list[tuple[int, bool]] = []
"""How many messages the user had sent, and whether ``sort`` was offered then."""


def watcher(attempt: Any) -> FunctionModel:
    """Play the ground truth, and note when the function ``sort`` is offered."""
    script = GroundTruth(plan_turns(attempt.state[EPISODE].entry))

    def reply(request: ModelRequest) -> str | ToolCall:
        said = sum(getattr(message, "origin", "") == "user" for message in request.messages)
        OFFERED.append((said, "sort" in {tool.name for tool in request.tools}))
        return script(request)

    return FunctionModel(reply, name="watcher")


def facts() -> dict[str, Any]:
    """Return what is known of the entries without running any."""
    known = load_entries()
    functions = {each.name: each for entry in known.values() for each in entry.functions}
    planned = [calls for entry in known.values() for turn in entry.plan_calls() for calls in turn]
    sources = [call_source(each.name, each.arguments) for each in planned]
    order = {name: each.positions for name, each in functions.items()}
    again = [parse_call(source, order, "again") for source in sources]
    return {
        "categories": Counter(each.category for each in known.values()),
        "calls": len(planned),
        "round_trip": [(each.name, each.arguments) for each in again]
        == [(each.name, each.arguments) for each in planned],
        "refused": [refusal(source) for source in BAD_SOURCES],
    }


BAD_SOURCES = (
    "ls(__import__('os').getcwd())",
    "os.system('id')",
    "ls(a=sorted([1]))",
    "ls(*[True])",
    "ls(**{'a': True})",
    "ls(a=True); ls()",
    "ls(1, 2, 3)",
    "unknown(a=1)",
    "ls(a=1e999)",
    "ls(",
)


def refusal(source: str) -> str:
    """Return the error about a source; empty if it was accepted."""
    try:
        parse_call(source, {"ls": ("a",)}, "entry")
    except ConfigError as error:
        return str(error)
    return ""


async def main(place: Path, backend: str, chosen: Sequence[str], misfits: Sequence[str]) -> dict[str, Any]:
    """Run everything and return it."""
    if backend == "ray":
        return {"scores": await scores_of(place / "ray", "ground-truth", chosen, backend="ray")}
    before = set(vars(multi_turn_utils))
    damaged = [f"multi_turn_base_{number}" for number in range(6)]
    return {
        "facts": facts(),
        "truth": await scores_of(place / "truth", "ground-truth", (*chosen, *misfits)),
        "altered": await scores_of(place / "altered", "altered", chosen),
        "endless": await scores_of(place / "endless", "endless", chosen[:1]),
        "watcher": await scores_of(place / "watcher", "watcher", chosen[1:2]),
        "offered": OFFERED,
        "damaged": await scores_of(place / "damaged", "damaged", damaged, seed=1),
        "again": await scores_of(place / "again", "damaged", damaged, seed=1),
        "other": await scores_of(place / "other", "damaged", damaged, seed=2),
        "left": sorted(set(vars(multi_turn_utils)) - before),
    }


if __name__ == "__main__":
    ids = [words.split(",") for words in sys.argv[3:]]
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1]), sys.argv[2], *ids))))
