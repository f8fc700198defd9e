"""One app opens a tree, resumes it and forks it, on every backend."""

from __future__ import annotations

import pytest

from sessiontree import (
    AgentSpec,
    App,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    SessionTree,
    UserMessage,
    script_call,
    tool,
)
from sessiontree.models.answers import Answer
from tests.behaviour.tree_fixtures import Opener


@tool(tier=PermissionTier.READ_ONLY)
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def reply(request: ModelRequest) -> Answer:
    """Use the tool once, then say what it returned."""
    last = request.messages[-1]
    return (
        script_call("double", number=21) if isinstance(last, UserMessage) else f"{request.agent} {last.text}"
    )


@pytest.mark.own_runtime
async def test_one_app_serves_a_tree_through_its_life(open_tree: Opener) -> None:
    """Opened, forked, closed and resumed it has the same model, tools and agents each time."""
    app = App(model=FunctionModel(reply), tools=[double], agents={"other": AgentSpec()}, builtin_tools=False)
    async with open_tree.runtime() as runtime:
        async with SessionTree(open_tree.workspace, app, runtime=runtime, agent="other") as tree:
            assert await tree.main.send("go") == "other 42"
            async with await tree.fork() as fork:
                assert await fork.main.send("go") == "other 42"
        async with await SessionTree.resume(tree.tree_id, app, runtime=runtime) as again:
            assert await again.main.send("go") == "other 42"
