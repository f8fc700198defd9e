"""A child begins while its spawn becomes durable, and nothing leaves it before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PermissionTier,
    SessionKind,
    SessionTree,
    script_call,
    tool,
)
from sessiontree.models.answers import Answer
from tests.unit.runtime.runtime_fakes import FaultyRuntime, held

PATIENCE_S = 60.0


async def test_child_begins_before_its_spawn_is_durable_and_keeps_to_itself(tmp_path: Path) -> None:
    """DUR4: its first turn is asked and its ReadOnly call runs; an effect, and who spawned it, wait."""
    looked, wrote = asyncio.Event(), asyncio.Event()

    @tool(tier=PermissionTier.READ_ONLY)
    async def look() -> str:
        """Leave no trace."""
        looked.set()
        return "seen"

    @tool(tier=PermissionTier.WORKSPACE)
    async def write() -> str:
        """Leave one."""
        wrote.set()
        return "written"

    def model(request: ModelRequest) -> Answer:
        if request.kind is SessionKind.MAIN:
            return "fine"
        return {1: script_call("look"), 2: script_call("write")}.get(request.turn, "done")

    async with FaultyRuntime(tmp_path / "state") as runtime:
        journal = held(runtime)
        tree = SessionTree(
            tmp_path, model=FunctionModel(model), tools=(look, write), builtin_tools=False, runtime=runtime
        )
        async with tree, asyncio.timeout(PATIENCE_S):
            await tree.main.send("hello")
            journal.hold()
            spawning = asyncio.create_task(tree.main.spawn("branch", "go"))
            await looked.wait()
            await journal.reached(2)  # the spawn, and the child's facts behind it
            for _ in range(100):
                await asyncio.sleep(0)
            assert not wrote.is_set()
            assert not spawning.done()
            journal.let_go()
            child = await spawning
            assert (await child.result()).summary == "done"
            assert wrote.is_set()
