"""The interpreters' process ends while it runs programs: whoever is not to blame goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, ModelRequest, PolicyConfig, SessionTree, ToolPolicy, script_call
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.programs.interpreter_process import Hearer, InterpreterProcess
from sessiontree.sandbox.process_tree import list_children
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import until

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))
ROUNDS = 3_000_000
COMPUTING = f"""
first = await append(text="first")
again = await look(text="y")
total = 0
for number in range({ROUNDS}):
    total = total + number % 7
await append(text="last")
[first, total]
"""


def opened(place: Path, code: str) -> SessionTree:
    """Return a local tree whose Main runs a program and says what came back."""

    def reply(request: ModelRequest) -> Any:
        said = request.messages[-1].text
        return script_call("program", code=code) if len(request.messages) == 1 else said

    workspace = place / "workspace"
    workspace.mkdir()
    return SessionTree(
        workspace,
        model=FunctionModel(reply),
        policy=EVERYTHING,
        tools=TOOLS,
        state_dir=place / "state",
        backend="local",
    )


def is_interpreter(pid: int) -> bool:
    """Whether a process is one of interpreters."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return any("from program import main" in word for word in words)


async def test_program_survives_the_end_of_its_interpreters(tmp_path: Path) -> None:
    """Another program may have caused it: it runs again from its facts, and repeats no call."""
    async with opened(tmp_path, COMPUTING) as tree:
        said = tree.main.send("go")
        await until(tree, CallResolved, count=2)
        (pid,) = [pid for pid in list_children(os.getpid()) if is_interpreter(pid)]
        os.kill(pid, signal.SIGKILL)
        first, total = json.loads(await said)
        assert (first, total) == ("appended first", sum(number % 7 for number in range(ROUNDS)))
        assert [text for _, text in effects(tmp_path / "workspace")] == ["first", "last"]


async def test_program_that_ends_its_interpreters_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the second end in the same place, with an error that says so."""
    send = InterpreterProcess.send
    ends: list[str] = []

    def send_deadly(self: InterpreterProcess, program: str, order: dict[str, Any], hear: Hearer) -> None:
        send(self, program, order, hear)
        if "deadly" in order.get("code", ""):
            ends.append(program)
            self.end()

    monkeypatch.setattr(InterpreterProcess, "send", send_deadly)
    async with opened(tmp_path, "'deadly'") as tree:
        assert "the program was ended: the session has left" in await tree.main.send("go")
        assert len(ends) == 2
        assert (await tree.main.call("program", {"code": "1 + 1"})).output == 2
