"""A program that runs the household and is killed by the system at a chosen point.

Usage: ``python -m tests.behaviours.killed BACKEND WORKSPACE STATE_DIR POINT NUMBER``; prints the tree's id.
Points: ``model`` (while a model is asked), ``before`` and ``after`` (an effect), each counted from 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

from sessiontree import FunctionModel, ModelRequest, SessionTree, ToolContext, ToolResult
from sessiontree.models.answers import Answer
from sessiontree.runtime import BackendName
from tests.behaviours import household
from tests.behaviours.effects import Append, Launch, Look, Words


class Countdown:
    """Kills the process when its point comes up for the n-th time."""

    def __init__(self, point: str, number: int) -> None:
        self._point = point
        self._left = number

    def reach(self, point: str) -> None:
        """Note a point."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class DeadlyAppend(Append):
    """Reaches its points."""

    def __init__(self, countdown: Countdown) -> None:
        self._countdown = countdown

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        self._countdown.reach("before")
        result = await super().execute(params, ctx)
        self._countdown.reach("after")
        return result


class DeadlyLaunch(DeadlyAppend, Launch):
    """The same, for the Elevated tool."""

    name = Launch.name
    description = Launch.description
    tier = Launch.tier


async def main(backend: BackendName, workspace: str, state_dir: str, countdown: Countdown) -> None:
    """Run until killed."""

    def reply(request: ModelRequest) -> Answer:
        countdown.reach("model")
        return household.reply(request)

    tree = SessionTree(
        workspace,
        model=FunctionModel(reply),
        tools=[DeadlyAppend(countdown), DeadlyLaunch(countdown), Look()],
        approvals="auto",
        state_dir=Path(state_dir),
        backend=backend,
    )
    async with tree:
        sys.stdout.write(tree.tree_id + "\n")
        sys.stdout.flush()
        tree.main.send("go")
        await household.finished(tree)


if __name__ == "__main__":
    _, name, place, state, wanted, times = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state, Countdown(wanted, int(times))))
