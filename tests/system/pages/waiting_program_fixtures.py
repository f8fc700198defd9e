"""A tree whose Main runs a program: a fan-out is under way, and one of ten calls waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from sessiontree import (
    AsyncFunctionModel,
    ModelError,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    SessionTree,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import ApprovalWanted, CallResolved, ChildAwaited
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, Usage

CODE: Final = """phase("read")
names = (await find(pattern="*.md")).splitlines()
shape = {"type": "object", "properties": {"rating": {"type": "integer"}}, "required": ["rating"]}

async def rate():
    tasks = [f"Rate chapter {number}" for number in range(1, 21)]
    return await map("worker", tasks, schema=shape, concurrency=6, on_error="return")

async def look(number):
    name = names[number]
    if number == 4:
        return await publish(page=name, audience="everybody who has subscribed to the letter")
    return await read(path=name)

phase("rate and publish")
ratings, pages = await asyncio.gather(rate(), asyncio.gather(*[look(number) for number in range(10)]))
log(f"{len(pages)} pages are published")
[each["value"] for each in ratings]
"""
ENDED: Final = 11
"""Children that end: one of them fails."""
ANSWERED: Final = 1 + 9 + ENDED
"""Calls of the program that have a result when it waits."""
WAITING: Final = 1 + 6
"""Its calls that wait: for a person, and for children."""


@tool(tier=PermissionTier.ELEVATED)
def publish(page: str, audience: str) -> str:
    """Publish a page.

    Args:
        page: The file.
        audience: Who may read it.
    """
    return f"{page} is published to {audience}"


async def _answer(request: ModelRequest) -> Any:
    size = 2_400 + 311 * len(request.messages[-1].text) % 977
    used = Usage(size, size // 9, cost_usd=size * 4e-6, turns=1)
    if request.session_id == "main":
        return script_call("program", code=CODE)
    number = int(request.session_id.removeprefix("main/w"))
    if number == 7:
        raise ModelError("chapter 7 is longer than the model's context")
    if number > ENDED:
        await asyncio.Event().wait()
    return AssistantMessage((TextContent(f'{{"rating": {number % 5 + 1}}}'),), "stop", used)


@asynccontextmanager
async def waiting_program_tree(place: Path) -> AsyncIterator[SessionTree]:
    """Run the tree until the program can only wait."""
    workspace = place / "workspace"
    workspace.mkdir(parents=True)
    for number in range(10):
        (workspace / f"chapter_{number}.md").write_text(f"# Chapter {number}\n", "utf-8")
    allowed = ("program", "find", "read", "publish", "sessions_spawn")
    async with SessionTree(
        workspace,
        model=AsyncFunctionModel(_answer, name="claude"),
        tools=[publish],
        policy=PolicyConfig(tools=ToolPolicy(allow=allowed)),
        backend="local",
        state_dir=place / "state",
        approvals="always",
        purpose="Rate the chapters of a book, and publish the best pages",
    ) as tree:
        tree.main.send("Rate all chapters, and publish the pages that are ready.")
        await _until_it_waits(tree)
        yield tree


async def _until_it_waits(tree: SessionTree) -> None:
    answered: set[str] = set()
    waiting: set[str] = set()
    async for record in tree.events():
        for fact in record.facts if record.session == "main" else ():
            if isinstance(fact, CallResolved):
                answered.add(fact.key)
            elif isinstance(fact, ChildAwaited):
                waiting.add(fact.key)
            elif isinstance(fact, ApprovalWanted):
                waiting.add(fact.call.key)
        if len(answered) == ANSWERED and len(waiting - answered) == WAITING:
            return
