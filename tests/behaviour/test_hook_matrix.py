"""Whatever a hook does wherever it may: one typed failure, an end as it was declared, and all goes on."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import pytest

from sessiontree import ScriptedModel, SessionStatus, SessionTree, SpawnRefused, script_call
from sessiontree.contracts.facts.session_facts import CallResolved, HookFailed, MessageReceived
from sessiontree.contracts.facts.tree_facts import OutsideHookFailed
from sessiontree.contracts.tools.hooks import CALL_POINTS, POINTS, TOLD_POINTS, HookPoint
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, until
from tests.behaviour.rogue_hook_fakes import MISDEEDS, AsyncRogue, Rogue
from tests.behaviour.tree_fixtures import Opener

GO: list[object] = [script_call("append", text="kept words"), "went on"]
HUGE = 1 << 30
HANG_S = 0.05
only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)


def model(times: int) -> ScriptedModel:
    """Main appends and answers, as often as it is asked; children look around."""
    workers = {f"main/w{number + 1}": ["all quiet"] for number in range(times)}
    return ScriptedModel({"main": GO * times, **workers})  # type: ignore[dict-item]


async def step(tree: SessionTree) -> tuple[str, str]:
    """Say something to Main and send a child out; returns the answer, and how the child fared."""
    reply = await tree.main.send("go")
    try:
        child = await tree.main.spawn("worker", "look around")
    except SpawnRefused as refusal:
        return reply, refusal.reason
    result = await child.result()
    assert result.status is SessionStatus.COMPLETED
    return reply, result.summary


async def check(tree: SessionTree, rogue: Rogue, *, nth: int, name: str) -> None:
    """Let the hook misbehave once, and check that nothing but what was declared is different."""
    rogue.misdeed, rogue.timeout_s = name, HANG_S if name == "hangs" else PATIENCE_S
    reply, fared = await step(tree)
    outside = rogue.point.startswith(("subagent_", "session_"))
    kind: type[Any] = OutsideHookFailed if outside else HookFailed
    failed = await until(tree, kind, count=nth)
    rogue.misdeed = None
    assert [(each.hook, each.point) for each in failed] == [(type(rogue).__name__, rogue.point)] * nth, name
    assert len(failed[-1].reason) < 3_000
    heard = (await facts_of(tree, MessageReceived, "main"))[-1].message.text
    resolved = (await facts_of(tree, CallResolved))[-1]
    kept = resolved.message.text == "appended kept words"
    stands = {
        "message_received": heard == "go",
        "message_sending": reply == "went on",
        "subagent_spawning": fared == "all quiet",
        "before_tool_call": resolved.outcome != "blocked",
        "tool_result_persist": kept or resolved.outcome == "blocked",
    }
    wanted = dict.fromkeys(stands, True)
    if rogue.on_error == "block" and rogue.point in wanted:
        wanted[rogue.point] = False
    assert stands == wanted, name


@pytest.mark.short(7)
@pytest.mark.covers("Z7", "REL-L58")
@pytest.mark.slow
@only_local
@pytest.mark.parametrize("guards", [False, True], ids=["plain", "guard"])
@pytest.mark.parametrize("point", POINTS)
async def test_every_misdeed_at_every_point_is_one_typed_failure(
    open_tree: Opener, point: HookPoint, guards: bool
) -> None:
    """Plain ones as functions in threads, guards as coroutines on the loop."""
    rogue = (AsyncRogue if guards else Rogue)(point, guards=guards)
    async with open_tree(model(len(MISDEEDS) + 1), tools=TOOLS, hooks=[rogue]) as tree:
        async with asyncio.timeout(PATIENCE_S * 2):
            for nth, name in enumerate(MISDEEDS, 1):
                await check(tree, rogue, nth=nth, name=name)
            assert await step(tree) == ("went on", "all quiet")
        rogue.let_go.set()


@pytest.mark.short(1)
@only_local
@pytest.mark.slow
@pytest.mark.parametrize("point", [each for each in POINTS if each not in (*CALL_POINTS, *TOLD_POINTS)])
async def test_gigabyte_of_words_is_let_go_at_once(open_tree: Opener, point: HookPoint) -> None:
    """Nothing copies it: the process never holds it twice."""
    rogue = Rogue(point, guards=True)
    rogue.bomb, rogue.timeout_s = HUGE, 60.0
    async with open_tree(model(1), tools=TOOLS, hooks=[rogue]) as tree:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.timeout(PATIENCE_S * 3):
            await check(tree, rogue, nth=1, name="returns a bomb")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 3 << 29
