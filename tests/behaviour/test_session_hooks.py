"""Hooks around spawns refuse them or find other words; those around sessions see each begin and end, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sessiontree import (
    BlockCall,
    Hook,
    LimitExceeded,
    Limits,
    Rewrite,
    ScriptedModel,
    SpawnRefused,
    script_call,
)
from sessiontree.contracts.facts.session_facts import HookFailed
from sessiontree.contracts.facts.tree_facts import OutsideHookFailed, SessionSpawned, SpawnDenied
from sessiontree.contracts.tools.hooks import SpawnAnswer
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results
from tests.behaviour.session_hook_fakes import REWORDED, Matching, Registering
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)
WISH = script_call("sessions_spawn", kind="worker", task="look around", label="scout")


def children(found: Sequence[SessionSpawned]) -> list[tuple[str, str | None]]:
    """Return task and label of each child."""
    return [(fact.spec.task, fact.spec.label) for fact in found if fact.spec.parent is not None]


async def test_childs_words_are_those_the_hooks_found(open_tree: Opener, board: Switchboard) -> None:
    """For a tool and for the program; guards see what the others made of it, and it is journaled so."""
    log = Log(board)
    guard = Matching(None, log, priority=9, guards=True)
    hooks = [guard, Matching(REWORDED, log), Matching(Rewrite(task="count"), log, priority=1)]
    script = ScriptedModel({"main": [WISH, "over", "over"], "main/w1": ["3"], "main/w2": ["3"]})
    async with open_tree(script, hooks=hooks) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "over"
            await tree.session("main/w1").result()
            await (await tree.main.spawn("worker", "look there")).result()
        spawned = await facts_of(tree, SessionSpawned)
    assert children(spawned) == [("count the lines", "counter")] * 2
    assert log.items() == [
        "plain-1: main model worker 'look around' 'scout'",
        "plain-0: main model worker 'look around' 'scout'",
        "guard-9: main model worker 'count the lines' 'counter'",
        "plain-1: main handle worker 'look there' None",
        "plain-0: main handle worker 'look there' None",
        "guard-9: main handle worker 'count the lines' 'counter'",
    ]


async def test_spawn_that_is_refused_starts_nothing(open_tree: Opener) -> None:
    """The model reads why, the program is informed, and the journal says so of both."""
    hooks = [Matching(BlockCall("not today"), priority=1), Matching(REWORDED)]
    async with open_tree(ScriptedModel([WISH, "over"]), hooks=hooks) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "over"
            with pytest.raises(SpawnRefused, match="not today"):
                await tree.main.spawn("worker", "look around")
        (message,) = results(tree, "main")
        assert message.is_error
        assert "not today" in message.text
        assert ["not today" in fact.reason for fact in await facts_of(tree, SpawnDenied)] == [True] * 2
        assert children(await facts_of(tree, SessionSpawned)) == []


@pytest.mark.covers("HOK2")
@only_local
@pytest.mark.parametrize("answer", [None, REWORDED], ids=["as it is", "reworded"])
async def test_hook_widens_no_limit(open_tree: Opener, answer: SpawnAnswer) -> None:
    """What hooks let pass is judged like anything else."""
    limits = Limits(max_total=1)
    async with open_tree(ScriptedModel(["over"]), limits=limits, hooks=[Matching(answer)]) as tree:
        with pytest.raises(LimitExceeded, match="max_total"):
            await tree.main.spawn("worker", "look around")


@pytest.mark.on_ray
async def test_every_session_is_seen_to_begin_and_to_end(open_tree: Opener, board: Switchboard) -> None:
    """By the program, in the journal's order; the last ones before the tree is closed."""
    log = Log(board)
    script = ScriptedModel({"main": [WISH, "over", "noted"], "main/w1": ["all quiet"]})
    async with open_tree(script, hooks=[Registering(log)]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            await tree.main.send("go")
            await tree.session("main/w1").result()
            await tree.finish("that was all")
    assert log.items() == [
        "main starts: ",
        "main/w1 starts: look around",
        "main has worker main/w1",
        "main/w1 ends completed: all quiet",
        "main had main/w1",
        "main ends completed: that was all",
    ]


async def test_what_was_seen_before_is_not_seen_again(open_tree: Opener, board: Switchboard) -> None:
    """A tree that is taken up tells its hooks of what begins and ends from then on."""
    log = Log(board)
    script = ScriptedModel({"main/w1": ["all quiet"]})
    async with open_tree(script, hooks=[Registering(log)]) as tree:
        tree_id = tree.tree_id
    async with await open_tree.resume(tree_id, script, hooks=[Registering(log)]) as again:
        async with asyncio.timeout(PATIENCE_S):
            await (await again.main.spawn("worker", "look around")).result()
    assert log.items() == [
        "main starts: ",
        "main/w1 starts: look around",
        "main has worker main/w1",
        "main/w1 ends completed: all quiet",
        "main had main/w1",
    ]


class Clumsy(Hook):
    """Fails wherever it is asked about sessions."""

    def subagent_spawning(self, spawning: object, ctx: object) -> None:
        raise ValueError("a secret word")

    async def session_start(self, started: object, ctx: object) -> None:
        raise SystemExit(3)


async def test_failures_are_facts_of_the_tree_or_of_the_session(open_tree: Opener) -> None:
    """Where a host asked, the session's; where the program did, the tree's; what was raised is not quoted."""
    script = ScriptedModel({"main": [WISH, "over", "noted"], "main/w1": ["1"], "main/w2": ["2"]})
    async with open_tree(script, hooks=[Clumsy()]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "over"
            await tree.main.spawn("worker", "look there")
            await tree.finish("that was all")
        (failed,) = await facts_of(tree, HookFailed)
        outside = await facts_of(tree, OutsideHookFailed)
    assert (failed.hook, failed.point, failed.reason) == (
        "Clumsy",
        "subagent_spawning",
        "it raised ValueError",
    )
    told = [(fact.session, fact.point, fact.reason) for fact in outside]
    assert ("main", "subagent_spawning", "it raised ValueError") in told
    assert ("main", "session_start", "it raised SystemExit") in told
