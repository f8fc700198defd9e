"""A session sees the machines of its runtime on every backend, once a person allows the call."""

from __future__ import annotations

import json

import pytest

from sessiontree import AgentSpec, ScriptedModel, script_call
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener


@pytest.mark.covers("S15")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_nodes_of_a_runtime_are_listed(open_tree: Opener) -> None:
    """One is alive and is where the session is; a Worker's call is refused."""
    script: list[Answer] = [script_call("nodes", action="status"), "done"]
    agents = {"default": AgentSpec(tools=["nodes"])}
    async with open_tree(ScriptedModel(script), agents=agents, approvals="auto") as tree:
        await tree.main.send("look")
        worker = await tree.main.spawn("worker", "look")
        await worker.result()
        (listed,) = results(tree, "main")
        (refused,) = results(tree, worker.session_id)
    assert refused.is_error
    assert not listed.is_error, listed.text
    rows = json.loads(listed.text)["nodes"]
    assert [row["alive"] for row in rows if row["here"]] == [True]
