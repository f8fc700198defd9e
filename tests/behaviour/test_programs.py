"""Programs that a model writes: what they may do, what comes back, and that nothing of one runs twice."""

from __future__ import annotations

import json

import pytest

from sessiontree import FunctionModel, PolicyConfig, ToolPolicy, script_call
from tests.behaviour.fact_fixtures import results
from tests.behaviour.job_fakes import steps
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))


def program(code: str, **inputs: object):
    return script_call("program", code=code, **({"inputs": inputs} if inputs else {}))


@pytest.mark.on_ray
async def test_a_program_calls_tools_and_children(open_tree: Opener) -> None:
    """Its calls are the session's calls; only its last expression reaches the model."""
    (open_tree.workspace / "a.txt").write_text("one\n")
    code = """
import asyncio
a, b = await asyncio.gather(read(path="a.txt"), exec(command="echo two"))
phase("children")
found = await map("worker", ["say x", "say y"], concurrency=2, on_error="return")
try:
    await read(path="missing.txt")
except RuntimeError as error:
    problem = str(error)
[a, b, found, problem, start + 1]
"""

    def reply(request):
        if request.session_id != "main":
            return f"done {request.messages[0].text}"
        if len(request.messages) == 1:
            return program(code, start=1)
        return "over: " + request.messages[-1].text

    async with open_tree(FunctionModel(reply), policy=EVERYTHING) as tree:
        said = await tree.main.send("go")
        print(said)
        for each in tree.main.history():
            print(repr(each)[:1500])
        assert False
