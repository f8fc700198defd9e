"""However many stops take their time, the program is answered at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    Runtime,
    SessionKind,
    SessionTree,
    Tool,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.facts.session_facts import CallIntended
from sessiontree.models.answers import Answer, script_call
from sessiontree.tree.report import ReceiptLine
from tests.behaviour.fact_fixtures import until
from tests.behaviour.waiting_fakes import Nothing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_runtime")]
"""Runtimes of their own, alongside the run's: they share its Ray, whose start takes seconds."""

CHILDREN = 120
HOSTS = 2
HELD_S = 20.0


class Deaf(Tool[Nothing]):
    """Does not heed that it was cancelled."""

    name = "deaf"
    description = "Go on."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.WORKSPACE

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        end = time.monotonic() + HELD_S
        while time.monotonic() < end:
            try:
                await asyncio.sleep(HELD_S)
            except asyncio.CancelledError:
                continue
        return ToolResult("through")


def reply(request: ModelRequest) -> Answer:
    """A Branch calls what goes on and on; Main answers."""
    return "here" if request.kind is SessionKind.MAIN else script_call("deaf")


async def test_many_slow_stops_keep_no_question_waiting(tmp_path: Path) -> None:
    """More stops under way than hosts could ever end at once: a plain question has its answer at once."""
    (tmp_path / "workspace").mkdir()
    async with (
        asyncio.timeout(300),
        Runtime(tmp_path / "state", slots=HOSTS) as runtime,
        SessionTree(
            tmp_path / "workspace",
            model=FunctionModel(reply),
            tools=[Deaf()],
            runtime=runtime,
            limits=Limits(max_children=CHILDREN, max_live=CHILDREN + 1),
        ) as tree,
    ):
        children = [await tree.main.spawn("branch", "go") for _ in range(CHILDREN)]
        await until(tree, CallIntended, count=HOSTS)
        stops: list[asyncio.Task[tuple[ReceiptLine, ...]]] = [
            asyncio.create_task(child.cancel()) for child in children
        ]
        await asyncio.wait(stops, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        assert sum(not stop.done() for stop in stops) > CHILDREN * 2 // 3
        tree.main.status()
        for _ in range(10):
            await asyncio.sleep(0)  # whatever ended while the question waited is heard
        assert sum(not stop.done() for stop in stops) > CHILDREN * 2 // 3
        for stop in stops:
            stop.cancel()
        await asyncio.wait(stops)
