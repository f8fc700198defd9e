"""A program with a tree at work that comes to different ends.

Run as ``python -m tests.system.backends.ray.tree_program MODE PLACE``. It prints a line of JSON once Main
waits for its model and a Branch and a Worker are within a tool; the Branch's has started processes of its
own. Then it waits (``wait``), or it comes to its end by itself, without closing anything (``exit``).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sessiontree import (
    AsyncFunctionModel,
    ModelRequest,
    SessionKind,
    SessionTree,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.contracts.reports.events import ToolExecutionUpdate
from sessiontree.contracts.values.messages import AssistantMessage, UserMessage
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import Append, Look, Words


def start_children() -> list[subprocess.Popen[bytes]]:
    """Start one as usual, and one that turned away from everything it was given."""
    return [
        subprocess.Popen(["sleep", "1000"]),
        subprocess.Popen(["sleep", "1000"], start_new_session=True, env={}, stdout=-3, stderr=-3),
    ]


class Hold(Append):
    """Has its effect, starts processes that outlive it if they are let, and stays with them."""

    name = "hold"
    description = "Start something and stay with it."

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        result = await super().execute(params, ctx)
        children = start_children()
        ctx.update({"children": [child.pid for child in children]})
        await asyncio.get_running_loop().create_future()
        return result


class Watch(Look):
    """Stays within its call."""

    name = "watch"

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        ctx.update({"watching": True})
        await asyncio.get_running_loop().create_future()
        return ToolResult("never")


class WatchOnce(Watch):
    """The same tool after a resume, which waits no more."""

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        return ToolResult("watched")


async def reply(request: ModelRequest) -> Answer:
    """Main has a Branch and a Worker; the Branch has three effects, and holds on to the second."""
    step = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if request.kind is SessionKind.MAIN:
        heard = sum(isinstance(each, UserMessage) and each.origin == "child" for each in request.messages)
        if step == 0:
            return [script_call("sessions_spawn", kind=kind, task="go") for kind in ("branch", "worker")]
        return f"{heard} are home"
    if request.kind is SessionKind.WORKER:
        return script_call("watch") if step == 0 else "watched enough"
    steps = (
        script_call("append", text="one"),
        script_call("hold", text="two"),
        script_call("append", text="three"),
    )
    return steps[step] if step < len(steps) else "all done"


async def reply_until_home(request: ModelRequest) -> Answer:
    """Reply the same, but let Main think for ever once its children are under way."""
    answer = await reply(request)
    if request.kind is SessionKind.MAIN and isinstance(answer, str):
        await asyncio.get_running_loop().create_future()
    return answer


async def main(mode: str, place: Path) -> None:
    """Open a tree, wait until everybody is at work, and come to the mode's end."""
    tree = SessionTree(
        place / "workspace",
        model=AsyncFunctionModel(reply_until_home),
        tools=[Append(), Hold(), Watch()],
        state_dir=place / "state",
    )
    await tree.start()
    progress = tree.progress()
    tree.main.send("go")
    at_work: dict[str, Any] = {}
    while len(at_work) < 2:
        event = (await progress.next()).event
        if isinstance(event, ToolExecutionUpdate) and isinstance(event.partial, dict):
            at_work |= event.partial
    tell(tree_id=tree.tree_id, **at_work, **_whereabouts(tree))
    if mode == "wait":
        await asyncio.get_running_loop().create_future()


def _whereabouts(tree: SessionTree) -> dict[str, Any]:
    backend = tree._backend
    assert isinstance(backend, RayBackend)
    return {"home": str(backend._engine.home), "scratch": str(backend._launch.scratch)}


def tell(**words: object) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
