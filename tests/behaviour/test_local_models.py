"""A pydantic model that is defined inside a function serves as a parameter on every backend."""

from __future__ import annotations

import threading

import pytest
from pydantic import BaseModel

from sessiontree import ClientTool, PermissionTier, ScriptedModel, script_call, tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.models.answers import Answer
from tests.behaviour.tree_fixtures import Opener


@pytest.mark.covers("A33")
async def test_model_beside_an_open_tree_travels(open_tree: Opener) -> None:
    """Pydantic keeps the variables around a model; one of them may be a tree, a lock, or a connection."""
    lock = threading.RLock()
    async with open_tree(ScriptedModel(["x"])) as tree:

        class Point(BaseModel):
            x: int

        class Line(BaseModel):
            points: list[Point]
            next: Line | None = None

        @tool(tier=PermissionTier.READ_ONLY)
        async def measure(line: Line) -> int:
            """Measure a line."""
            return sum(point.x for point in line.points) + (0 if line.next is None else 100)

        class Question(BaseModel):
            point: Point

        asked = ClientTool("ask_owner", "Ask a person.", Question, tier=PermissionTier.READ_ONLY)
        given: JsonValue = {"points": [{"x": 1}, {"x": 2}], "next": {"points": [{"x": 5}]}}
        script: list[Answer] = [script_call("measure", line=given), "done"]
        async with open_tree(ScriptedModel(script), tools=[measure, asked]) as other:
            assert await other.main.send("go") == "done"
            reply = await other.main.call("measure", {"line": given})
            assert reply.output == 103
        assert tree.tree_id != other.tree_id
        assert lock.acquire(blocking=False)
        lock.release()
