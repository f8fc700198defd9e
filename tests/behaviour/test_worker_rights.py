"""A Worker observes: what it cannot reach does not exist for it, whatever tool it is made to hold."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ConfigError,
    PermissionDenied,
    PermissionTier,
    ScriptedModel,
    SessionKind,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallHeld, CallResolved
from sessiontree.contracts.facts.tree_facts import ChannelSaid
from sessiontree.contracts.kinds import SystemAnswer
from sessiontree.contracts.recorded.capabilities import CAPABILITIES
from sessiontree.models.answers import Answer
from sessiontree.testing.force import force_register
from tests.behaviour.fact_fixtures import facts_of, results, until
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Late

CHANGING = ("writer", "shell", "channel", "memory_writer", "sessions", "subtree")
FORCED: dict[str, dict[str, Any]] = {
    "write": {"path": "a.txt", "content": "gone"},
    "edit": {"path": "a.txt", "old_text": "one", "new_text": "gone"},
    "message": {"text": "hello"},
    "sessions_spawn": {"kind": "worker", "task": "more"},
    "sessions_list": {},
    "sessions_history": {"target": "main"},
    "sessions_send": {"target": "parent", "message": "hello"},
    "agents_list": {},
    "subagents": {"action": "kill", "target": "main/w1"},
    "memory_store": {"text": "remember this"},
}


LOOKS = {"sessions_list", "sessions_history", "agents_list"}


class Nothing(BaseModel):
    """No parameters."""


class Handles(Tool[Nothing]):
    """Declares every handle there is, and tells which of them its context holds."""

    name = "handles"
    description = "Tell which handles there are."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.ELEVATED
    capabilities = frozenset(CAPABILITIES)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        return ToolResult([name for name in CHANGING if getattr(ctx, name) is not None])


@pytest.mark.short(3)
@pytest.mark.covers("A20", "RGT1")
@pytest.mark.slow
@pytest.mark.parametrize("system_tier", ["allow", "ask", "deny"])
@pytest.mark.parametrize("tools", [None, ("handles", "write", "sessions_spawn")])
async def test_worker_of_any_agent_holds_no_handle_that_changes_anything(
    open_tree: Opener, system_tier: SystemAnswer, tools: tuple[str, ...] | None
) -> None:
    """REL-P11: no configuration gives a Worker a writer, shell, channel, memory writer or children."""
    config = AgentConfig(system_tier=system_tier, image_model="scripted")
    agent = AgentSpec(config=config, tools=tools)
    script: list[Answer] = [script_call("handles"), "done"]
    agents = {"default": agent, "other": agent}
    tree = open_tree(ScriptedModel(script), tools=[Handles()], agents=agents, approvals="auto")
    force_register(tree, "handles", SessionKind.WORKER)
    async with tree:
        worker = await tree.main.spawn("worker", "look", agent="other")
        await worker.result()
        branch = await tree.main.spawn("branch", "look")
        await branch.result()
        assert results(tree, worker.session_id)[0].text == "[]"
        assert json.loads(results(tree, branch.session_id)[0].text) == list(CHANGING)


@pytest.mark.short(4)
@pytest.mark.covers("A37", "REL-L57")
@pytest.mark.slow
@pytest.mark.parametrize("tool", FORCED)
@pytest.mark.on_ray
async def test_tool_forced_on_a_worker_is_denied_and_changes_nothing(open_tree: Opener, tool: str) -> None:
    """A forced tool finds no handle: PermissionDenied, no file, no message, no session."""
    target = open_tree.workspace / "a.txt"
    target.write_text("one")
    tree = open_tree(ScriptedModel([script_call(tool, **FORCED[tool]), "done"]))
    force_register(tree, tool, SessionKind.WORKER)
    async with tree:
        worker = await tree.main.spawn("worker", "change it")
        result = await worker.result()
        assert result.status == "completed"
        (message,) = results(tree, worker.session_id)
        label = "System" if tool == "message" else "ReadOnly" if tool in LOOKS else "Workspace"
        assert message.is_error
        assert "is a worker and holds no" in message.text, "the tool did not run, so nothing was shown"
        assert message.details == {"code": "permission_denied", "status": 403, "tier": label}
        assert [fact.outcome for fact in await facts_of(tree, CallResolved, worker.session_id)] == ["denied"]
        assert not await facts_of(tree, ChannelSaid)
        assert [line.session_id for line in tree.receipt()] == ["main", "main/w1"]
    assert target.read_text() == "one"
    assert [path.name for path in open_tree.workspace.iterdir()] == ["a.txt"]


async def test_forced_tool_called_by_the_program_is_denied_too(open_tree: Opener, board: Switchboard) -> None:
    """The program's own calls in a Worker meet the same rights, and learn it by a typed error."""
    model = Late(board, lambda request: "done")
    tree = open_tree(model)
    force_register(tree, "write", SessionKind.WORKER)
    async with tree:
        worker = await tree.main.spawn("worker", "look")
        calling = asyncio.create_task(worker.call("write", {"path": "b.txt", "content": "x"}))
        await until(tree, CallHeld, where=lambda fact: fact.held)
        model.let_go.set()
        with pytest.raises(PermissionDenied, match="holds no writer") as caught:
            await calling
        assert caught.value.tier is PermissionTier.WORKSPACE
    assert list(open_tree.workspace.iterdir()) == []


async def test_worker_does_not_hold_what_was_not_forced(open_tree: Opener) -> None:
    """Without forcing, the call ends before the tool: the session does not hold it."""
    async with open_tree(ScriptedModel([script_call("write", path="a.txt", content="x"), "done"])) as tree:
        worker = await tree.main.spawn("worker", "change it")
        await worker.result()
        assert "does not hold write" in results(tree, worker.session_id)[0].text
    assert list(open_tree.workspace.iterdir()) == []


async def test_forcing_is_refused_where_it_would_do_nothing(open_tree: Opener) -> None:
    """An unknown tool, or a tree that is open already, is a mistake of the test that forces."""
    tree = open_tree(ScriptedModel(["done"]))
    with pytest.raises(ConfigError, match="'wriet'"):
        force_register(tree, "wriet", SessionKind.WORKER)
    async with tree:
        with pytest.raises(ConfigError, match="open"):
            force_register(tree, "write", SessionKind.WORKER)
