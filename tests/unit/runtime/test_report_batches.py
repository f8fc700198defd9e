"""Reports of children that reach a session together are followed by one turn; other messages are not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree import FunctionModel, Hook, HookContext, HookText, SessionTree
from sessiontree.contracts.facts.session_facts import TurnStarted
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.values.messages import Origin, UserMessage
from tests.behaviour.fact_fixtures import facts_of, until
from tests.unit.runtime.runtime_fakes import FaultyRuntime

COUNT = 5


class Pondering(Hook):
    """Takes its time over each message."""

    async def message_received(self, words: HookText, ctx: HookContext) -> HookText:
        await asyncio.sleep(0.02)
        return words


@pytest.mark.parametrize("hooks", [[], [Pondering()]], ids=["plain", "hook"])
@pytest.mark.parametrize(("origin", "turns"), [("child", 1), ("user", COUNT)])
async def test_reports_that_are_there_together_make_one_turn(
    tmp_path: Path, origin: Origin, turns: int, hooks: list[Hook]
) -> None:
    """The model is asked once for all of them, in their order; a person's messages have a turn each.

    Reports that a hook has yet to see are there, too.
    """
    async with FaultyRuntime(tmp_path / "state") as runtime:
        model = FunctionModel(lambda request: "heard")
        tree = SessionTree(tmp_path, model=model, runtime=runtime, hooks=hooks)
        async with tree:
            await tree.main.send("first")
            controller = runtime.local.core.trees[tree.tree_id]
            for number in range(COUNT):
                arrived = Incoming(controller.now_ms(), f"m{number}", f"{number}", "follow_up", origin)
                controller.deliver("main", arrived, f"message:m{number}")
            await until(tree, TurnStarted, count=1 + turns)
            await tree.main.send("last")
            started = await facts_of(tree, TurnStarted, "main")
            said = [message.text for message in tree.main.history() if isinstance(message, UserMessage)]
    assert [fact.took for fact in started] == [1, *[COUNT // turns] * turns, 1]
    assert said == ["first", *map(str, range(COUNT)), "last"]
