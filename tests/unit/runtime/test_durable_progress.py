"""What a session has done becomes durable while it still does something, whoever waits for whatever."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessiontree import ScriptedModel, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import TurnReplied
from sessiontree.contracts.tools.hooks import CalledTool, Hook, HookContext
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, until


class Waiting(Hook):
    """Lets calls run once it is asked to."""

    timeout_s = PATIENCE_S

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.told = asyncio.Event()

    async def before_tool_call(self, call: CalledTool, ctx: HookContext) -> None:
        self.asked.set()
        await self.told.wait()


async def test_reply_is_durable_while_a_hook_thinks_about_its_call(tmp_path: Path) -> None:
    """Facts that nobody waits for wait a moment for others, never for the end of what runs alongside."""
    (tmp_path / "place").mkdir()
    hook = Waiting()
    tree = SessionTree(
        tmp_path / "place",
        model=ScriptedModel([script_call("append", text="words"), "done"]),
        tools=TOOLS,
        builtin_tools=False,
        state_dir=tmp_path / "state",
        backend="local",
        hooks=[hook],
    )
    async with tree, asyncio.timeout(PATIENCE_S):
        sending = tree.main.send("go")
        await hook.asked.wait()
        (replied,) = await until(tree, TurnReplied)
        assert [each.name for each in replied.message.tool_calls] == ["append"]
        hook.told.set()
        assert await sending == "done"
