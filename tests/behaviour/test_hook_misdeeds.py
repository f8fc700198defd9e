"""Whatever a hook does, its call has one typed result and its session goes on."""

from __future__ import annotations

import asyncio
import resource

import pytest

from sessiontree import ScriptedModel, script_call
from sessiontree.contracts.facts.session_facts import CallResolved, HookFailed
from sessiontree.contracts.tools.hooks import CALL_POINTS, CallPoint
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of
from tests.behaviour.hook_misdeed_fakes import (
    BEFORE,
    PERSIST,
    RAISES,
    DeafAsync,
    Hanging,
    Misbehaving,
    MisbehavingAsync,
)
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

MISDEEDS: dict[CallPoint, list[str]] = {
    "before_tool_call": [*RAISES, *BEFORE],
    "after_tool_call": [*RAISES],
    "tool_result_persist": [*RAISES, *PERSIST],
}
GIGABYTES = [(point, name) for point in CALL_POINTS for name in MISDEEDS[point] if "gigabyte" in name]


def expected(point: CallPoint, *, guards: bool) -> tuple[str, bool, bool]:
    """Return the outcome, whether the tool ran, and whether its words are kept."""
    if not guards or point == "after_tool_call":
        return "ok", True, True
    return ("blocked", False, False) if point == "before_tool_call" else ("error", True, False)


async def misdone(
    open_tree: Opener, point: CallPoint, names: list[str], kind: type[Misbehaving], *, guards: bool
) -> None:
    """Let a hook misbehave at every call of a run, and check what becomes of each."""
    model = ScriptedModel([*(script_call("append", text=name) for name in names), "went on"])
    async with open_tree(model, tools=TOOLS, hooks=[kind(point, guards=guards)]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        resolved = await facts_of(tree, CallResolved)
        failed = await facts_of(tree, HookFailed)
    outcome, ran, kept = expected(point, guards=guards)
    assert len(resolved) == len(failed) == len(names)
    for name, result, fault in zip(names, resolved, failed, strict=True):
        assert (name, result.outcome) == (name, outcome)
        assert (name, f"appended {name}" in result.message.text) == (name, kept)
        assert (name, fault.hook, fault.point) == (name, kind.__name__, point)
        assert len(fault.reason) < 3_000
    assert point == "before_tool_call" or "the secret word" not in str(failed)
    assert len(effects(open_tree.workspace)) == (len(names) if ran else 0)


@pytest.mark.short(5)
@pytest.mark.covers("REL-L58")
@pytest.mark.slow
@pytest.mark.parametrize("guards", [False, True], ids=["plain", "guard"])
@pytest.mark.parametrize("kind", [Misbehaving, MisbehavingAsync])
@pytest.mark.parametrize("point", CALL_POINTS)
async def test_misbehaving_hook_is_one_typed_failure(
    open_tree: Opener, point: CallPoint, kind: type[Misbehaving], guards: bool
) -> None:
    """Plain: the tool runs and its result is kept. A guard: not run before, nothing kept after."""
    names = [name for name in MISDEEDS[point] if (point, name) not in GIGABYTES]
    await misdone(open_tree, point, names, kind, guards=guards)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "name"), GIGABYTES)
async def test_gigabyte_is_let_go_at_once(open_tree: Opener, point: CallPoint, name: str) -> None:
    """Nothing copies it: the process never holds it twice."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await misdone(open_tree, point, [name], Misbehaving, guards=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 3 << 29


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize("guards", [False, True], ids=["plain", "guard"])
@pytest.mark.parametrize("point", CALL_POINTS)
async def test_hook_that_hangs_is_left_behind_and_not_begun_without_bound(
    open_tree: Opener, board: Switchboard, point: CallPoint, guards: bool
) -> None:
    """Its time-out is its failure; four runs may hang, after that it fails at once."""
    let_go = Flag(board)
    hook = Hanging(point, let_go, guards=guards)
    script = ScriptedModel(
        [*(script_call("append", text=f"kept words {turn}") for turn in range(6)), "went on"]
    )
    async with open_tree(script, tools=TOOLS, hooks=[hook]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        resolved = await facts_of(tree, CallResolved)
        reasons = [fact.reason for fact in await facts_of(tree, HookFailed)]
        let_go.set()
    outcome, ran, kept = expected(point, guards=guards)
    assert [fact.outcome for fact in resolved] == [outcome] * 6
    assert all(("kept words" in fact.message.text) is kept for fact in resolved)
    assert len(effects(open_tree.workspace)) == (6 if ran else 0)
    assert ["within" in reason for reason in reasons] == [True] * 4 + [False] * 2
    assert "4 earlier runs" in reasons[-1]


async def test_coroutine_that_ignores_its_cancellation_is_left_behind(
    open_tree: Opener, board: Switchboard
) -> None:
    """The call goes on without it."""
    let_go = Flag(board)
    hook = DeafAsync("before_tool_call", let_go, guards=False)
    async with open_tree(
        ScriptedModel([script_call("append"), "went on"]), tools=TOOLS, hooks=[hook]
    ) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        assert len(await facts_of(tree, HookFailed)) == 1
        let_go.set()
    assert len(effects(open_tree.workspace)) == 1
