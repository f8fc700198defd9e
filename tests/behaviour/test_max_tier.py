"""The highest tier of a policy: what is above it is not held, not run, and not asked about."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    PolicyConfig,
    SessionKind,
    ToolPolicy,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import ApprovalRequested
from sessiontree.contracts.kinds import TierLabel
from sessiontree.policy.catalog import CATALOG
from sessiontree.policy.compiled import CompiledPolicy
from sessiontree.policy.steps import Standing
from tests.behaviour.effect_fakes import TOOLS, Look, Words, effects
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

TIERS: tuple[TierLabel, ...] = get_args(TierLabel)


@pytest.mark.parametrize("most", TIERS)
@pytest.mark.parametrize("kind", list(SessionKind))
def test_session_holds_nothing_above_it(most: TierLabel, kind: SessionKind) -> None:
    """Every tool, whatever lists and profiles allow; below it nothing is removed."""
    everything = ToolPolicy(allow=("*",))
    wide = CompiledPolicy(CATALOG, PolicyConfig(tools=everything)).decide(Standing(kind, is_owner=True))
    narrow = CompiledPolicy(CATALOG, PolicyConfig(tools=everything, max_tier=most))
    tier_of = {row.name: row.tier for row in CATALOG}
    kept = narrow.decide(Standing(kind, is_owner=True)).kept
    assert kept == {name for name in wide.kept if tier_of[name].label in TIERS[: TIERS.index(most) + 1]}
    for removed in narrow.removed(Standing(kind, is_owner=True)):
        if tier_of[removed.tool] > PermissionTier.from_label(most) and removed.tool in wide.kept:
            assert removed.removal is not None
            assert f"the policy allows {most} at most" in str(removed.removal)


class Rising(Look):
    """Says by its arguments that a call changes something."""

    name = "rising"

    def tier_for(self, params: Words) -> PermissionTier:
        return PermissionTier.ELEVATED if params.text == "rise" else PermissionTier.READ_ONLY


@pytest.mark.on_ray
async def test_call_above_it_is_refused_and_nobody_is_asked(open_tree: Opener) -> None:
    """Also if the tool says so only when it sees the arguments, in a child, and in a program."""

    def reply(request: ModelRequest) -> Any:
        said = request.messages[-1].text
        return script_call("program", code=RISING) if len(request.messages) == 1 else said

    policy = PolicyConfig(tools=ToolPolicy(allow=("*",)), max_tier="Workspace")
    async with open_tree(FunctionModel(reply), policy=policy, tools=[*TOOLS, Rising()]) as tree:
        refusal = "session 'main' may make no Elevated calls: the policy allows Workspace at most"
        assert refusal in await tree.main.send("go")
        branch = await tree.main.spawn("branch", "go")
        assert "session 'main/b1' may make no Elevated calls" in (await branch.result()).summary
        with pytest.raises(PermissionDenied, match="the policy allows Workspace at most"):
            await tree.main.call("launch", {"text": "x"})
        assert (await tree.main.call("rising", {"text": "stay"})).text == "looked at stay"
        assert await facts_of(tree, ApprovalRequested) == []
        assert [text for _, text in effects(open_tree.workspace)] == ["x"] * 2


RISING = """
await append(text="x")
try:
    await rising(text="rise")
except PermissionError as error:
    found = str(error)
found
"""
