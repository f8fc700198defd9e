"""Programs that a model writes: what they may do, what comes back, and that nothing of one runs twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PolicyConfig,
    ToolPolicy,
    script_call,
)
from sessiontree.contracts.session_facts import CallResolved, ProgramAdvanced, RunFinished
from sessiontree.contracts.tree_facts import SessionSpawned
from tests.behaviour.effect_fakes import LOG, TOOLS, effects
from tests.behaviour.fact_fixtures import facts_of, until
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))


def running(code: str, **inputs: Any) -> FunctionModel:
    """Return a model whose Main runs a program and says what came back; children say their tasks."""

    def reply(request: ModelRequest) -> Any:
        if request.session_id != "main":
            return f"done {request.messages[0].text}"
        if len(request.messages) == 1:
            return script_call("program", code=code, inputs=inputs)
        return request.messages[-1].text

    return FunctionModel(reply)


TOOLS_AND_CHILDREN = """
import asyncio
a, b = await asyncio.gather(read(path="a.txt"), exec(command="echo two"))
phase("children")
found = await map("worker", ["say x", "say y"], concurrency=2, on_error="return")
one = await spawn("worker", "say z")
try:
    await read(path="missing.txt")
except RuntimeError as error:
    problem = str(error)
[a, b, [each["value"] for each in found], one, problem, start + 1]
"""


@pytest.mark.on_ray
async def test_a_program_calls_tools_and_children(open_tree: Opener) -> None:
    """Its calls are the session's calls; only its last expression reaches the model."""
    (open_tree.workspace / "a.txt").write_text("one\n")
    async with open_tree(running(TOOLS_AND_CHILDREN, start=1), policy=EVERYTHING) as tree:
        said = json.loads(await tree.main.send("go"))
        problem = "ExecutionError: can't look at 'missing.txt': no such file or directory"
        assert said == ["one\n", "two\n", ["done say x", "done say y"], "done say z", problem, 2]
        assert len(tree.main.history()) == 4
        advanced = await facts_of(tree, ProgramAdvanced)
        asked = [each.tool for fact in advanced for each in fact.calls]
        assert asked == ["read", "exec", "sessions_spawn", "sessions_spawn", "sessions_spawn", "read"]
        keys = [fact.key for fact in await facts_of(tree, CallResolved)]
        assert sorted(keys) == sorted(["1.0", *(f"1.0/{number}" for number in range(6))])


LONG = """
import asyncio
async def safely(text):
    try:
        return await append(text=text)
    except RuntimeError as error:
        assert str(error).startswith("OutcomeUnknown"), error
        return "appended " + text
total = []
for turn in range(3):
    done = await asyncio.gather(*[safely(f"{turn}.{at}") for at in range(4)])
    total = total + done
found = await map("worker", [f"task {at}" for at in range(6)], concurrency=3)
import random
[total, found, random.random()]
"""


@pytest.mark.on_ray
async def test_nothing_of_a_program_runs_twice_however_often_it_is_closed(open_tree: Opener) -> None:
    """Closed after every few facts and resumed, it has the result and the effects of an undisturbed run."""
    model = running(LONG)
    async with open_tree(model, policy=EVERYTHING, tools=TOOLS) as tree:
        undisturbed = json.loads(await tree.main.send("go"))
    (open_tree.workspace / LOG).unlink()
    tree = await open_tree(model, policy=EVERYTHING, tools=TOOLS).start()
    tree.main.send("go")
    for seen in range(2, 19, 3):
        await until(tree, CallResolved, count=seen)
        await tree.close()
        tree = await open_tree.resume(tree.tree_id, model, tools=TOOLS)
    async with tree:
        (ended,) = await until(tree, RunFinished, session="main")
        assert json.loads(ended.text) == undisturbed
        done = effects(open_tree.workspace)
        assert len({call for call, _ in done}) == len(done), "no call ran twice"
        assert {text for _, text in done} <= {f"{turn}.{at}" for turn in range(3) for at in range(4)}
        spawned = [each.spec.session_id for each in await facts_of(tree, SessionSpawned)]
        assert spawned == ["main", *(f"main/w{number}" for number in range(1, 7))]
