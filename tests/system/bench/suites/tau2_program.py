"""What the tests of tau2's suites look at, as one JSON object; runs in the suites' environment.

Run as ``python -m tests.system.bench.suites.tau2_program PLACE``.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspect_ai.util import store

from sessiontree import FunctionModel, ModelError, ModelRequest, script_call
from sessiontree.bench.runnable_suite import Suite
from sessiontree.bench.suite.samples import load_samples
from sessiontree.bench.suites.ground_truth import GroundTruth
from sessiontree.bench.suites.tau2 import SERVICE, ServiceDesk, airline, load_tasks, plan_turn, retail

CHANGING = ("cancel", "modify", "exchange", "return", "book", "update", "send")
"""Beginnings of the names of tools that change a database."""


async def scores_of(place: Path, suite: Suite, model: Any, ids: list[str]) -> dict[str, Any]:
    """Run chosen tasks and return their scores by id, with the solver's output."""
    suite.models |= {"idle": idle}
    suite.samples = [each for each in load_samples(suite) if each.id in ids]
    await suite.run(place, model=model, backend="local", concurrency=2)
    with closing(sqlite3.connect(place / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT sample_id, status, scores, output FROM scores").fetchall()
    return {
        sample_id: json.loads(scores).get("database_match", {})
        | {"status": status, "output": json.loads(output)}
        for sample_id, status, scores, output in rows
    }


def idle(attempt: Any) -> FunctionModel:
    """Play the ground truth without its calls that change the database, and a user who asks once."""
    turn = plan_turn(attempt.state[SERVICE].task)
    reading = tuple(each for each in turn.calls if not each.name.startswith(CHANGING))
    script = GroundTruth([replace(turn, calls=reading)])

    def reply(request: ModelRequest) -> Any:
        if request.session_id == "main":
            return script(request)
        return "###STOP###" if "Agent: " in request.messages[-1].text else "Please help me."

    return FunctionModel(reply, name="idle")


SEEN: list[dict[str, Any]] = []
"""What the model of the conversation was asked, by session."""


def conversation(request: ModelRequest) -> Any:
    """Play Main and the user at once: two messages of the user, a calculation of Main after the first."""
    last = request.messages[-1]
    SEEN.append(
        {
            "session": request.session_id,
            "tools": len(request.tools),
            "prompt": request.system_prompt,
            "last": getattr(last, "text", ""),
        }
    )
    if request.session_id != "main":
        said = last.text.count("You: ")
        return ["I need help.", "Thank you.", "###STOP###"][said]
    if last.text == "I need help.":
        return script_call("calculate", expression="2 + 3 * 4")
    return f"The result was {last.text}"


def silent(request: ModelRequest) -> str:
    """Fail as the model of the user."""
    raise ModelError("no user is at home")


def some_ids(domain: Any, count: int) -> list[str]:
    """Return the first tasks whose ground truth changes the database."""
    found = [
        task_id
        for task_id, task in load_tasks(domain).items()
        if any(each.name.startswith(CHANGING) for each in plan_turn(task).calls)
    ]
    return found[:count]


async def main(place: Path) -> dict[str, Any]:
    """Run everything and return it."""
    kept = set(store().keys())
    ids = {"retail": some_ids("retail", 2), "airline": some_ids("airline", 1)}
    suites = {"retail": retail, "airline": airline}
    found: dict[str, Any] = {
        "tasks": {domain: len(load_tasks(domain)) for domain in ("retail", "airline")},
        "schemas": {
            tool.name: tool.parameters
            for tool in ServiceDesk("airline", next(iter(load_tasks("airline").values()))).tools
        },
    }
    for domain, suite in suites.items():
        for model in ("ground-truth", "idle"):
            place_of_run = place / f"{domain}-{model}"
            found[f"{domain} {model}"] = await scores_of(place_of_run, suite(), model, ids[domain])
    talk = FunctionModel(conversation, name="conversation")
    found["talk"] = await scores_of(place / "talk", airline(), talk, ids["airline"])
    found["seen"] = SEEN
    found["silent"] = await scores_of(place / "silent", airline(), FunctionModel(silent), ids["airline"])
    found["scenario"] = str(load_tasks("airline")[ids["airline"][0]].user_scenario)
    found["kept"] = sorted(set(store().keys()) - kept)
    return found


def run(place: Path) -> dict[str, Any]:
    """Run everything with an empty directory for temporary files, and return also what is left there."""
    temporary = place / "temporary"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    found = asyncio.run(main(place))
    return found | {"left": [each.name for each in temporary.iterdir()]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]))))
