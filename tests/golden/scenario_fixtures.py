"""A run that leaves facts of as many kinds as possible, and how a golden journal is made of it.

A new release records its own: ``python -m tests.golden.scenario_fixtures <name>`` writes ``<name>.ndjson``
and ``<name>.json`` alongside this file. Recorded ones are never changed: later releases must read them.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from sessiontree import (
    Budget,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    Rule,
    SessionKind,
    SessionTree,
    call,
    tool,
)
from sessiontree.journal.journal import Journal
from sessiontree.models.answers import Answer
from sessiontree.version import VERSION
from tests.golden.replay_fixtures import summary_of

HERE = Path(__file__).parent


@tool(tier=PermissionTier.ELEVATED)
def launch(target: str) -> str:
    """Do something that cannot be undone.

    Args:
        target: What.
    """
    return f"launched {target}"


def answer(request: ModelRequest) -> Answer:
    """Return what a session of the scenario says next, by its task and turn."""
    task, turn = request.messages[0].text, request.turn
    script: dict[str, list[Answer]] = {
        "begin": [
            [
                call("sessions_spawn", kind="branch", task="climb", label="climber"),
                call("sessions_spawn", kind="worker", task="stumble"),
                call("read", path="a.txt"),
            ],
            "spawned",
            "noted",
            "noted again",
        ],
        "climb": [call("launch", target="north"), call("launch", target="south"), "done climbing"],
        "stumble": [
            call("read", path="a.txt", offset="x"),
            call("read", path="a.txt", offset="y"),
            call("read", path="a.txt", offset="z"),
            "stumbled",
        ],
        "type": ["not json", '{"lines": 2}'],
        "spend": [call("read", path="a.txt"), call("read", path="a.txt"), "never said"],
    }
    return script[task][min(turn, len(script[task])) - 1]


async def play(place: Path) -> str:
    """Play the scenario in a state directory and return the tree's id."""
    workspace = place / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")
    tree = SessionTree(
        workspace,
        model=FunctionModel(answer, "golden"),
        tools=(launch,),
        limits=Limits(max_children=4),
        approver=(
            Rule(tool="launch", where={"/target": "north"}, answer="approve"),
            Rule(tool="launch", answer="deny"),
        ),
        state_dir=place / "state",
        backend="local",
        purpose="golden",
    )
    async with tree:
        await tree.main.send("begin")
        typed = await tree.main.spawn(
            SessionKind.WORKER,
            "type",
            result_type={
                "type": "object",
                "properties": {"lines": {"type": "integer"}},
                "required": ["lines"],
            },
        )
        await typed.result()
        spender = await tree.main.spawn(SessionKind.WORKER, "spend", budget=Budget(tool_calls=1))
        await spender.result()
        await tree.main.call("write", {"path": "b.txt", "content": "b"})
        await tree.main.call("message", {"text": "hello"})
        for session_id in ("main/b1", "main/w1"):
            await tree.session(session_id).result()
        await tree.main.send("begin")
        await tree.cancel("the scenario is over")
    return tree.tree_id


async def record(name: str) -> None:
    """Write this release's golden journal and what it must replay to."""
    with tempfile.TemporaryDirectory() as directory:
        write(name, Path(directory), await play(Path(directory)))


def write(name: str, place: Path, tree_id: str) -> None:
    """Write the journal of a tree that was played in a place, and what it must replay to."""
    with Journal.open(place / "state", read_only=True) as journal:
        out = io.StringIO()
        journal.export(tree_id, out)
    summary: dict[str, Any] = summary_of(out.getvalue().splitlines(keepends=True))
    HERE.joinpath(f"{name}.ndjson").write_text(out.getvalue())
    HERE.joinpath(f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1] if len(sys.argv) > 1 else VERSION))
