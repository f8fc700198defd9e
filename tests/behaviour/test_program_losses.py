"""Programs and lost processes: what was answered stays answered, and what is missing is named."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AsyncFunctionModel, FunctionModel, ModelRequest, PolicyConfig, ToolPolicy, script_call
from sessiontree.contracts.facts.session_facts import RunFinished
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.programs import interpreter_process
from sessiontree.programs.found import FoundInterpreter, find_interpreter
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.runtime.runner.calls import program_runs
from sessiontree.sandbox.process_tree import find_descendants
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of, results, until
from tests.behaviour.forty_fakes import CHILDREN, FREE, SAID, FortyReply
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))
WAITING = """
first = await append(text="before")
asked = await launch(text="rocket")
last = await append(text="after")
[first, asked, last]
"""
ALL_SAID = ["appended before", "appended rocket", "appended after"]


def running(code: str) -> FunctionModel:
    """Return a model that runs a program for each message, and repeats what came back."""

    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.text if isinstance(last, ToolResultMessage) else script_call("program", code=code)

    return FunctionModel(reply)


def interpreters() -> list[int]:
    """Return the processes of interpreters below this one."""
    return [pid for pid in find_descendants(os.getpid()) if _name_of(pid) == "monty"]


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize("variant", ["local"], indirect=True)
async def test_killed_interpreter_costs_a_program_nothing(open_tree: Opener) -> None:
    """The program runs again with its answers; no call of it does."""
    async with open_tree(running(WAITING), policy=EVERYTHING, tools=TOOLS) as tree:
        reply = tree.main.send("go")
        (pending,) = await asked(tree)
        assert interpreters()
        for pid in interpreters():
            os.kill(pid, signal.SIGKILL)
        await pending.approve()
        assert json.loads(await reply) == ALL_SAID
        assert [text for _, text in effects(open_tree.workspace)] == ["before", "rocket", "after"]


@pytest.mark.parametrize("variant", ["local"], indirect=True)
async def test_interpreter_of_another_version_runs_the_text_again(
    open_tree: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no snapshot of the other one, and gives the same result."""
    monkeypatch.setattr(program_runs, "IDLE_S", 0.0)
    found = find_interpreter()
    tree = await open_tree(running(WAITING), policy=EVERYTHING, tools=TOOLS).start()
    tree.main.send("go")
    await asked(tree)
    await tree.close()
    monkeypatch.setattr(program_runs, "find_interpreter", lambda: FoundInterpreter(found.binary, "0.0.1", ""))
    async with await open_tree.resume(tree.tree_id, running(WAITING), tools=TOOLS) as tree:
        (pending,) = await asked(tree)
        await pending.approve()
        (ended,) = await until(tree, RunFinished, session="main")
        assert json.loads(ended.text) == ALL_SAID
        assert len(effects(open_tree.workspace)) == 3


BAD_INTERPRETERS = {
    "missing": (FoundInterpreter("", "", "the library is missing; install it"), "install it"),
    "crashes": (FoundInterpreter("/bin/false", "1", ""), "interpreter was lost"),
    "no program": (FoundInterpreter("/nonexistent/monty", "1", ""), "interpreter"),
}


@pytest.mark.parametrize("variant", ["local"], indirect=True)
@pytest.mark.parametrize("bad", BAD_INTERPRETERS)
async def test_interpreter_that_does_not_start_is_named(
    open_tree: Opener, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    """The call fails with what is wrong; resumed with the interpreter back, the session runs the next one."""
    found, wanted = BAD_INTERPRETERS[bad]
    model = running("1 + 1")
    async with open_tree(model, policy=EVERYTHING) as tree:
        with monkeypatch.context() as patch:
            patch.setattr(interpreter_process, "find_interpreter", lambda: found)
            said = json.loads(await tree.main.send("go"))
    assert said["status"] == "error"
    assert wanted in said["error"], said
    async with await open_tree.resume(tree.tree_id, model) as tree:
        assert await tree.main.send("again") == "2"


NONSENSE: list[dict[str, Any]] = [
    {},
    {"failed": 7},
    {"failed": "raised"},
    {"first": 0},
    {"first": "x", "calls": [], "noted": 0, "notes": [], "withdrawn": []},
    {"first": 0, "calls": [["exec", {}]], "noted": 0, "notes": [], "withdrawn": []},
    {"first": 0, "calls": [["nothing", {}, 1]], "noted": 0, "notes": [], "withdrawn": []},
    {"first": 0, "calls": [["look", [], 1]], "noted": 0, "notes": [], "withdrawn": []},
    {"first": 0, "calls": 7, "noted": 0, "notes": [], "withdrawn": []},
    {"first": 0, "calls": [], "noted": 0, "notes": [["shout", "x"]], "withdrawn": []},
    {"first": 0, "calls": [], "noted": None, "notes": [], "withdrawn": []},
    {"first": 0, "calls": [], "noted": 0, "notes": [], "withdrawn": ["x"]},
    {"value": 1},
]


@pytest.mark.parametrize("variant", ["local"], indirect=True)
async def test_interpreter_that_makes_no_sense_ends_its_program_alone(
    open_tree: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it answers: the error is typed, and nothing of it is done."""
    async with open_tree(running("1 + 1"), policy=EVERYTHING, tools=TOOLS) as tree:
        for answer in NONSENSE:

            async def ask(self: object, program: str, order: object, answer: Any = answer) -> Any:
                return answer

            with monkeypatch.context() as patch:
                patch.setattr(InterpreterProcess, "ask", ask)
                await tree.main.send("go")
        said = results(tree, "main")
        assert all(each.is_error and "status" in json.loads(each.text) for each in said), said
        assert len(said) == len(NONSENSE)
        assert await tree.main.send("again") == "2"
    assert effects(open_tree.workspace) == []


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_fan_out_killed_after_thirty_of_forty_runs_ten_more(
    open_tree: Opener, board: Switchboard
) -> None:
    """SIGKILL of the whole program; the thirty that were done are not asked again, nor started again."""
    reply = FortyReply(board)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.behaviour.forty_program"),
        *(open_tree.backend, open_tree.workspace, open_tree.state_dir),
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(pickle.dumps(reply))
            program.stdin.close()
            tree_id = (await program.stdout.readline()).decode().strip()
    finally:
        program.kill()
    assert await program.wait() == -signal.SIGKILL
    reply.gate.set()
    model = AsyncFunctionModel(reply)
    async with await open_tree.resume(tree_id, model) as tree, asyncio.timeout(PATIENCE_S):
        (ended,) = await until(tree, RunFinished, session="main")
        assert json.loads(ended.text) == SAID
        assert len(await facts_of(tree, SessionSpawned)) == 1 + CHILDREN
        answered = reply.answered.items()
        assert sorted(answered[:FREE]) == sorted(f"main/w{at}" for at in range(1, FREE + 1))
        assert sorted(answered[FREE:]) == sorted(f"main/w{at}" for at in range(FREE + 1, CHILDREN + 1))
