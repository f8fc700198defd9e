"""Tools of a benchmark that run where the suite runs, against the state of one attempt.

Sessions may be in any process; the state of a sample (files, tickets, a database) is in this one. So the
tools are client tools, and the suite answers their calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sessiontree import ClientTool, PermissionTier, SessionTree
from sessiontree.api.tree.client_calls import WaitingCall
from sessiontree.contracts.values.quick_dataclass import dataclass

Arguments = Mapping[str, Any]


class HostedToolFailed(Exception):
    """A tool of a benchmark failed in a way that its benchmark defines; the model reads the message."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """One tool of a sample."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""
    run: Callable[[Arguments], object]
    """Returns the result, or something to await for it: a text or any value with a JSON form.
    HostedToolFailed fails the call. Any other error is one of the suite and ends the attempt."""

    def to_client_tool(self) -> ClientTool:
        """Return what a tree is given for it. Its calls need no approval: all that it changes is a sample."""
        return ClientTool(self.name, self.description, self.parameters, tier=PermissionTier.WORKSPACE)


@asynccontextmanager
async def serve_tools(tree: SessionTree, tools: Sequence[HostedTool]) -> AsyncIterator[None]:
    """Answer the tree's calls of these tools, one after another in the order of their arrival.

    Raises:
        Exception: a tool raised something else than HostedToolFailed; the body is cancelled.
    """
    by_name = {each.name: each for each in tools}
    try:
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(_answer_all(tree, by_name))
            yield
            answering.cancel()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def _answer_all(tree: SessionTree, tools: Mapping[str, HostedTool]) -> None:
    async for waiting in tree.client_calls:
        await _answer(waiting, tools[waiting.tool])


async def _answer(waiting: WaitingCall, tool: HostedTool) -> None:
    try:
        result = tool.run(waiting.arguments)
        if inspect.isawaitable(result):
            result = await result
    except HostedToolFailed as failed:
        await waiting.fail(str(failed) or "the tool failed")
    else:
        await waiting.answer(result)
