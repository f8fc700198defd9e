"""What a call may do without asking is said by its tier, and a tool can only raise it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    AgentSpec,
    PermissionTier,
    ScriptedModel,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import ApprovalRequested
from tests.behaviour.bad_tool_fakes import junk
from tests.behaviour.effect_fakes import Append, Launch, Look, Words, effects
from tests.behaviour.fact_fixtures import asked, facts_of, results
from tests.behaviour.tree_fixtures import Opener


class Telling(Append):
    """Tells its tier by its arguments."""

    name = "telling"

    def tier_for(self, params: Words) -> PermissionTier:
        tier: PermissionTier = TOLD[params.text]()
        return tier


def fail() -> PermissionTier:
    """Tell nothing."""
    raise LookupError("no idea")


TOLD: dict[str, Callable[[], Any]] = {
    "lower": lambda: PermissionTier.READ_ONLY,
    "the same": lambda: PermissionTier.WORKSPACE,
    "elevated": lambda: PermissionTier.ELEVATED,
    "the number 3": lambda: junk(3),
    "a number beyond": lambda: junk(7),
    "a word": lambda: junk("low"),
    "nothing": lambda: junk(None),
    "a failure": fail,
}


@pytest.mark.short(4)
@pytest.mark.covers("REL-L17")
@pytest.mark.slow
@pytest.mark.parametrize("told", TOLD)
async def test_tool_can_raise_its_tier_and_never_lower_it(open_tree: Opener, told: str) -> None:
    """Whatever is no tier counts as the highest: nothing runs unasked by a wrong report."""
    model = ScriptedModel([script_call("telling", text=told), "done"])
    async with open_tree(model, tools=[Telling()]) as tree:
        branch = await tree.main.spawn("branch", "go")
        if told in {"lower", "the same"}:
            await branch.result()
            assert not await facts_of(tree, ApprovalRequested)
        else:
            (pending,) = await asked(tree)
            assert (pending.request.tier, pending.request.arguments) == ("Elevated", {"text": told})
            assert effects(open_tree.workspace) == []
            await pending.approve()
            await branch.result()
        assert [text for _, text in effects(open_tree.workspace)] == [told]


class Outside(Append):
    """Reaches beyond the workspace."""

    name = "outside"
    tier = PermissionTier.SYSTEM


class Undeclared(Tool[Words]):
    """Says nothing about what it may change."""

    name = "undeclared"
    description = "Do something."
    Params: ClassVar[type[BaseModel]] = Words

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        return await Append().execute(params, ctx)


@pytest.mark.short(4)
@pytest.mark.covers("APP1")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "setting", "how"),
    [
        (Look(), "deny", "runs"),
        (Append(), "deny", "runs"),
        (Outside(), "allow", "runs"),
        (Outside(), "ask", "asks"),
        (Outside(), "deny", "denied"),
        (Launch(), "allow", "asks"),
        (Launch(), "deny", "asks"),
        (Undeclared(), "allow", "asks"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.on_ray
async def test_each_tier_runs_asks_or_is_denied(open_tree: Opener, tool: Any, setting: Any, how: str) -> None:
    """ReadOnly and Workspace run, System as the agent is set, Elevated and what says nothing asks."""
    agents = {"default": AgentSpec(config=AgentConfig(system_tier=setting))}
    model = ScriptedModel([script_call(tool.name), "done"])
    async with open_tree(model, tools=[tool], agents=agents) as tree:
        branch = await tree.main.spawn("branch", "go")
        if how == "asks":
            (pending,) = await asked(tree)
            await pending.approve()
        await branch.result()
        (message,) = results(tree, "main/b1")
        assert message.is_error is (how == "denied")
        assert ("no System calls" in message.text) is (how == "denied")
        assert len(await facts_of(tree, ApprovalRequested)) == (1 if how == "asks" else 0)
        assert len(effects(open_tree.workspace)) == (0 if tool.name == "look" or how == "denied" else 1)
