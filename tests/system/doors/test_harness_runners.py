"""Harnesses of others' making run a tree by ACP: Harbor's and verifiers' own runners, which they copy, too.

``make setup-formats`` installs both; a runner itself needs only the packages of the protocol and of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessiontree.api.trajectories.semantic_edges import edges_of
from sessiontree.contracts.values.request_names import EDGES_KEY
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_config
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.cli.provider_fixtures import replies
from tests.system.notebooks.chat_program import ANSWER, CONFIG, READY, script

pytestmark = pytest.mark.long
FORMATS = Path(__file__).parents[3] / ".venv-formats"
ASKED = "Publish the release notes."


@dataclass(frozen=True, slots=True)
class Task:
    """The environment of one task."""

    place: Path

    @property
    def work(self) -> Path:
        """Where the agent works."""
        return self.place / "work"

    @property
    def launcher(self) -> Path:
        """The command of the agent."""
        return self.place / "launch"

    @property
    def state(self) -> Path:
        """Where the journal of the agent is."""
        return self.place / "state"

    def copy(self, runner: str) -> Path:
        """Return a copy of a runner."""
        (found,) = FORMATS.glob(f"lib/python3*/site-packages/{runner}")
        return Path(shutil.copy(found, self.place))


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task whose agent is a tree."""
    made = Task(tmp_path)
    made.work.mkdir()
    (made.work / "notes.md").write_text("- faster\n")
    config = tmp_path / "owner.toml"
    config.write_text(CONFIG)
    config.chmod(0o600)
    words = (sys.executable, "-m", "sessiontree.cli", "acp", "--backend", "local", "--tier", "elevated")
    where = ("--config", str(config), "--state-dir", str(made.state))
    made.launcher.write_text(f"#!/bin/sh\nexec {shlex.join((*words, *where))}\n")
    made.launcher.chmod(0o700)
    return made


def variables(provider: FakeProvider, **more: str) -> dict[str, str]:
    """Return the environment of a runner."""
    return {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": provider.url("openai"), **more}


async def test_harbor_runs_a_tree(task: Task) -> None:
    """It answers the tree's request by its permission mode, and keeps what the tree said."""
    logs = task.place / "logs"
    async with script() as provider:
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, task.copy("harbor/agents/installed/acp_runner.py")),
            *("--instruction", ASKED, "--logs-dir", logs, "--launcher", task.launcher),
            cwd=task.work,
            env=variables(provider, HARBOR_ACP_PERMISSION_MODE="allow"),
        )
        assert await ran.wait() == 0
    summary = json.loads((logs / "acp-summary.json").read_text())
    assert summary["prompt_response"]["stopReason"] == "end_turn", summary
    assert summary["permissions_requested"] == 1, summary
    events = [json.loads(line) for line in (logs / "acp-events.jsonl").read_text().splitlines()]
    updates = [event["payload"]["update"] for event in events if event["event_type"] == "session_update"]
    pieces = [each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(pieces) == READY + ANSWER
    assert (task.work / "ran.txt").read_text() == "once\n"


async def test_verifiers_runs_a_tree(task: Task) -> None:
    """Its session goes on, its replies are those of the tree, and it gets the edges between the requests."""
    spawn = {"name": "sessions_spawn", "arguments": json.dumps({"kind": "worker", "task": "look"})}
    answers = replies({"text": "first", "calls": [spawn]}, {"text": "seen"}, {"text": "all is seen"})
    config = {
        "command": [str(task.launcher)],
        "client_capabilities": {},
        "session_meta": {},
        "mcp_urls": {},
        "system_prompt": "Be brief.",
        "user_contents": ["Have somebody look."],
    }
    async with FakeProvider(answers) as provider:
        runner = await asyncio.create_subprocess_exec(
            *(sys.executable, task.copy("verifiers/v1/acp/runner.py")),
            cwd=task.work,
            env=variables(provider),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        turn = await ask(runner, {"id": 1, "operation": "prompt", "config": config})
        ended = await ask(runner, {"id": 2, "operation": "shutdown"})
        assert await runner.wait() == 0
    assert (turn["ok"], ended["ok"]) == (True, True), (turn, ended)
    assert turn["result"]["stop_reason"] == "end_turn"
    assert turn["result"]["reply"] == "all is seen"
    found = turn["result"]["response_metadata"][EDGES_KEY]["edges"]
    assert found == edges_in(task.state)
    assert "subagent_call" in {each["type"] for each in found}


async def ask(runner: asyncio.subprocess.Process, request: dict[str, Any]) -> dict[str, Any]:
    """Send a packet to the runner, and return the one that it sends back."""
    assert runner.stdin is not None
    assert runner.stdout is not None
    data = json.dumps(request).encode()
    runner.stdin.write(len(data).to_bytes(8, "big") + data)
    size = int.from_bytes(await runner.stdout.readexactly(8), "big")
    answer: dict[str, Any] = json.loads(await runner.stdout.readexactly(size))
    return answer


def edges_in(state: Path) -> list[dict[str, Any]]:
    """Return the edges of the only tree of a state directory."""
    (path,) = state.rglob("*.db")
    with Journal.open(path.parent, read_only=True) as journal:
        (row,) = journal.trees()
        config = read_config(journal.row0(row.tree_id))
        return [each._asdict() for each in edges_of(config, journal.read(row.tree_id))]
