"""A program whose tree is always at work, for ``benchmarks.chaos`` to kill parts of.

Run as ``python -m benchmarks.chaos_program PLACE``. Three loops use one tree: messages to Main, whose model
waits and calls a tool; Workers; and in turn calls of the program, calls that a rule approves, and records of
memory (one loop, since no turn begins while a call of the program runs). What was acknowledged is appended to
``PLACE/acks``, one line each, and every run of a tool with an effect to ``PLACE/effects``, as the id of its
call. The program ends once ``PLACE/stop`` exists and every loop has had one more answer, and then writes
``PLACE/drained``.

A loop whose call fails writes the error to ``PLACE/errors`` and goes on with the next key: what was not
acknowledged is promised to nobody. Where Ray is gone, the first loop to notice resumes the tree.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

from sessiontree import (
    AsyncFunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    Rule,
    SessionKind,
    SessionTree,
    SessionTreeError,
    ToolContext,
    call,
    tool,
)
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.models.answers import Answer

Use: TypeAlias = Callable[[SessionTree, str], Awaitable[str]]
PAUSE_S = 0.02
PATIENCE_S = 240.0
"""How long a loop waits for one answer before it counts as unresolved."""
LIMITS = Limits(max_children=100_000, max_total=1_000_000, max_live=1_000, max_turns=1_000_000)


def append(path: Path, line: str) -> None:
    """Append one line, whole or not at all, whoever else appends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@tool(tier=PermissionTier.WORKSPACE)
async def effect(key: str, ctx: ToolContext) -> str:
    """Have an effect that can be counted."""
    append(ctx.workspace_root.parent / "effects", f"{ctx.session_id} {ctx.call_id}")
    return f"done {key}"


@tool
async def launch(key: str, ctx: ToolContext) -> str:
    """Have an effect that a rule of the owner has to approve."""
    append(ctx.workspace_root.parent / "effects", f"{ctx.session_id} {ctx.call_id}")
    return f"done {key}"


async def reply(request: ModelRequest) -> Answer:
    """Call the effect for each message and each task, then repeat what it returned."""
    heard = request.messages[-1]
    await asyncio.sleep(PAUSE_S)
    if isinstance(heard, ToolResultMessage):
        return heard.text
    if request.kind is SessionKind.WORKER:
        return f"done {heard.text}"
    return call("effect", key=heard.text)


class Load:
    """The tree of a program, opened or resumed, and the loops that use it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._opening = asyncio.Lock()
        self._tree: SessionTree | None = None
        self._last = 0

    async def tree(self) -> SessionTree:
        """Return the open tree; opens it, or resumes the one that an earlier program or Ray left."""
        async with self._opening:
            if self._tree is None:
                self._tree = await self._open()
            return self._tree

    async def _open(self) -> SessionTree:
        named = self._place / "tree"
        given: dict[str, Any] = {"model": AsyncFunctionModel(reply), "tools": [effect, launch]}
        state = self._place / "state"
        rules = [Rule(tool="launch", answer="approve")]
        if named.exists():
            tree_id = named.read_text("utf-8")
            return await SessionTree.resume(tree_id, state_dir=state, approver=rules, **given)
        tree = SessionTree(self._place / "workspace", state_dir=state, approver=rules, limits=LIMITS, **given)
        await tree.start()
        named.write_text(tree.tree_id, "utf-8")
        return tree

    async def lost(self, tree: SessionTree, error: SessionTreeError) -> None:
        """Note an error; close a tree that can't go on, so that the next use resumes it."""
        append(self._place / "errors", f"{type(error).__name__}: {error}".replace("\n", " "))
        async with self._opening:
            if self._tree is tree and not await self._lives(tree):
                self._tree = None
                await self._close(tree)

    @staticmethod
    async def _lives(tree: SessionTree) -> bool:
        try:
            await tree.main.call("session_status", {})
        except SessionTreeError:
            return False
        return True

    async def _close(self, tree: SessionTree) -> None:
        try:
            await tree.close()
        except SessionTreeError as error:
            append(self._place / "errors", f"close: {type(error).__name__}: {error}".replace("\n", " "))

    async def run(self) -> None:
        """Run every loop until ``PLACE/stop`` exists, and close the tree."""
        loops = ([self._message], [self._worker], [self._call, self._approved, self._record])
        async with asyncio.TaskGroup() as group:
            for uses in loops:
                group.create_task(self._loop(uses))
        if self._tree is not None:
            await self._tree.close()
        append(self._place / "drained", "drained")

    async def _loop(self, uses: Sequence[Use]) -> None:
        """Use the tree in turn; the last use is one that begins after the stop and succeeds."""
        for once in cycle(uses):
            is_last = (self._place / "stop").exists()
            self._last += 1
            key = f"{once.__name__.strip('_')}-{os.getpid()}-{self._last}"
            try:
                tree = await self.tree()
            except SessionTreeError as error:
                append(self._place / "errors", f"open: {type(error).__name__}: {error}".replace("\n", " "))
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                answer = await asyncio.wait_for(once(tree, key), PATIENCE_S)
            except SessionTreeError as error:
                await self.lost(tree, error)
                continue
            except TimeoutError:
                append(self._place / "hung", key)
                continue
            if answer == f"done {key}":
                append(self._place / "acks", key)
                if is_last:
                    return
            else:
                append(self._place / "errors", f"{key}: {answer}"[:500].replace("\n", " "))
            await asyncio.sleep(PAUSE_S)

    async def _message(self, tree: SessionTree, key: str) -> str:
        return await tree.main.send(key)

    async def _call(self, tree: SessionTree, key: str) -> str:
        return (await tree.main.call("effect", {"key": key})).text

    async def _approved(self, tree: SessionTree, key: str) -> str:
        return (await tree.main.call("launch", {"key": key})).text

    async def _worker(self, tree: SessionTree, key: str) -> str:
        worker = await tree.main.spawn("worker", key)
        return (await worker.result()).summary

    async def _record(self, tree: SessionTree, key: str) -> str:
        await tree.main.call("memory_store", {"text": f"done {key}"})
        return f"done {key}"


if __name__ == "__main__":
    asyncio.run(Load(Path(sys.argv[1])).run())
