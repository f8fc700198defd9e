"""Errands: a tree that does what it is asked, and a program that keeps one open until its Main ends.

Said to a session: ``sweep PLACE`` (needs a person's yes), ``delegate TASK`` (to a Branch), ``tell WORDS`` (on
its channel); anything else it repeats.

Usage: ``python -m tests.unit.control.tree_program WORKSPACE STATE_DIR [MESSAGE …]``; sends the messages, and
prints ``open TREE``, ``reply TEXT`` for each of its messages and in the end ``ended STATUS``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sessiontree import (
    FunctionModel,
    ModelRequest,
    PermissionTier,
    SessionStatus,
    SessionTree,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.models.answers import Answer


@tool(tier=PermissionTier.ELEVATED)
def sweep(place: str) -> ToolResult:
    """Sweep a place.

    Args:
        place: Where.
    """
    return ToolResult(output=f"swept {place}", display=f"{place} is clean\x1b[2J")


def reply(request: ModelRequest) -> Answer:
    """Do what was said last, then tell what came of it."""
    heard = max(index for index, each in enumerate(request.messages) if isinstance(each, UserMessage))
    results = [each for each in request.messages[heard:] if isinstance(each, ToolResultMessage)]
    if results:
        return f"done: {results[-1].text}"
    said = request.messages[heard]
    assert isinstance(said, UserMessage)
    word, _, rest = said.text.partition(" ")
    if word == "sweep":
        return script_call("sweep", place=rest)
    if word == "delegate":
        return script_call("sessions_spawn", kind="branch", task=rest)
    if word == "tell":
        return script_call("message", text=rest)
    return f"heard: {said.text}"


def errands(workspace: Path, state_dir: Path) -> SessionTree:
    """Return a tree that does errands, not open yet."""
    return SessionTree(
        workspace, model=FunctionModel(reply), tools=[sweep], state_dir=state_dir, backend="local"
    )


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(workspace: str, state_dir: str, *messages: str) -> None:
    """Keep a tree open until Main has ended."""

    async def send(text: str) -> None:
        try:
            say(f"reply {await tree.main.send(text)}")
        except SessionTreeError as error:
            say(f"no reply: {error}")

    async with errands(Path(workspace), Path(state_dir)) as tree, asyncio.TaskGroup() as sending:
        say(f"open {tree.tree_id}")
        for message in messages:
            sending.create_task(send(message))
        async for _ in tree.events():
            pass  # until Main has ended
        result = await tree.main.result()
        say(f"ended {SessionStatus(result.status)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
