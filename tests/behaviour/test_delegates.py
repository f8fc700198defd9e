"""Rights that an agent passes on and does not use: its children hold them, no call of its own passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PolicyConfig,
    SessionTree,
    ToolPolicy,
    load_agents,
    script_call,
)
from sessiontree.contracts.errors import ConfigError
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener

HELD = ("program", "sessions_spawn", "session_status")
LEAD = AgentSpec(tools=HELD, delegates=("write",))
BUILDER = AgentSpec(tools=("write", "sessions_spawn"))
OFFERED = PolicyConfig(tools=ToolPolicy(profile="coding"))
CODE = 'spawned = await spawn("branch", "build", agent="builder")\nawait write(path="m.txt", content="mine")'


def coordinating(request: ModelRequest) -> Any:
    """Main tries to write, by a call and in a program, then lets a child write."""
    if request.session_id != "main":
        path = f"{request.session_id.rpartition('/')[2]}.txt"
        return script_call("write", path=path, content="built") if request.turn == 1 else "built"
    steps = [
        script_call("write", path="m.txt", content="mine"),
        script_call("program", code=CODE),
        script_call("session_status"),
        script_call("sessions_spawn", kind="branch", task="build", agent="builder"),
    ]
    return steps[request.turn - 1] if request.turn <= len(steps) else "done"


MODEL = FunctionModel(coordinating)


async def check_own_call(tree: SessionTree) -> None:
    """Main's call from outside is refused, and the reason says who may make it."""
    with pytest.raises(PermissionDenied, match="its children may hold it: its agent delegates it"):
        await tree.main.call("write", {"path": "m.txt", "content": "mine"})


@pytest.mark.covers("RGT13")
@pytest.mark.parametrize("place", ["agent", "policy", "file"])
async def test_children_use_what_an_agent_delegates_and_it_does_not(
    open_tree: Opener, tmp_path: Path, place: str
) -> None:
    """By no call of the model, a program or a handle, nor in a fork or after a resume."""
    lead, policy = LEAD, OFFERED
    if place == "policy":
        lead = AgentSpec(tools=HELD)
        policy = OFFERED.model_copy(update={"delegates_by_agent": {"default": ("write",)}})
    elif place == "file":
        (tmp_path / "agents").mkdir()
        front = f"---\ntools: {', '.join(HELD)}\ndelegates: write\n---\nLead."
        (tmp_path / "agents" / "default.md").write_text(front)
        lead = load_agents(tmp_path / "agents")["default"]
    agents = {"default": lead, "builder": BUILDER}
    workspace = open_tree.workspace
    async with open_tree(MODEL, agents=agents, policy=policy) as tree:
        assert await tree.main.send("go") == "done"
        written, program, status, _ = [each.text for each in results(tree, "main")]
        assert "its children may hold it" in written
        assert "write" in program and "program was not run" in program
        assert '"delegates":["write"]' in status
        await check_own_call(tree)
        async with await tree.fork() as fork:
            await check_own_call(fork)
    tree = await open_tree.resume(tree.tree_id, MODEL, agents=agents)
    async with tree:
        await check_own_call(tree)
        child = await tree.main.spawn("branch", "build", agent="builder")
        assert (await child.result()).summary == "built"
    assert sorted(path.name for path in workspace.glob("*.txt")) == ["b1.txt", "b2.txt"]


@pytest.mark.covers("RGT13")
async def test_what_is_delegated_does_not_pass_a_child_that_does_not_name_it(open_tree: Opener) -> None:
    """A child of another agent spawns one that could write: it holds no writing tool."""
    agents = {"default": LEAD, "between": AgentSpec(tools=("sessions_spawn",)), "builder": BUILDER}
    async with open_tree(MODEL, agents=agents, policy=OFFERED) as tree:
        between = await tree.main.spawn("branch", "wait", agent="between", stays_open=True)
        child = await between.spawn("branch", "build", agent="builder")
        await child.result()
        (refused,) = [each.text for each in results(tree, child.session_id)]
        assert "does not hold write" in refused
    assert not list(open_tree.workspace.glob("*.txt"))


def test_delegate_that_no_tool_has_is_refused(tmp_path: Path) -> None:
    """As a tool of an agent is; the error names the agent and the nearest tool."""
    agents = {"default": AgentSpec(delegates=("wriet",))}
    with pytest.raises(ConfigError, match=r"agent 'default': no tool is named 'wriet'; did you mean 'write'"):
        SessionTree(tmp_path, model=MODEL, agents=agents)
