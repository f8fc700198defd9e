"""The server that the conformance suite of MCP asks: ``python -m … PLACE``; it prints its address.

It is the server of the product, with trees behind it. The suite brings no token, so that one is added to each
request here, and it names the tools that a server must have for it; each of them begins a tree.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server.context import HandlerResult
from starlette.types import Receive, Scope, Send

from sessiontree.doors.conversations import Conversations
from sessiontree.doors.mcp.calls import ToolAsked, answer_work, make_tasks_error
from sessiontree.doors.mcp.server import McpDoor
from sessiontree.doors.mcp.tools import ConversationTools
from sessiontree.doors.mcp.work import make_work
from sessiontree.doors.principals import DEFAULT_AGENT, DoorPrincipal
from sessiontree.doors.tokens import TokenFile
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.routes.door_guard import DoorGuard
from sessiontree.serve.routes.mcp_routes import McpRoutes, find_principal
from tests.system.doors.mcp_fakes import make_trees, say
from tests.system.doors.mcp_fixtures import make_token

Words = Callable[[Mapping[str, Any]], str]
MIXED = "test_tool_with_task"
"""The tool that asks before its task begins."""
NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclasses.dataclass(frozen=True, slots=True)
class TreeTool:
    """A tool that the suite names: it begins a tree with words made of the arguments of a call."""

    trees: Conversations
    name: str
    words: Words
    takes: Mapping[str, str]
    agent: str = DEFAULT_AGENT
    is_task: bool = True
    needs_tasks: bool = False

    def describe(self, principal: DoorPrincipal) -> types.Tool:
        """Return what clients see of it."""
        properties = {name: {"type": kind} for name, kind in self.takes.items()}
        schema = {"type": "object", "properties": properties}
        return types.Tool(name=self.name, description="A tool of the suite.", input_schema=schema)

    async def call(self, asked: ToolAsked) -> HandlerResult:
        """Begin a tree, and return what the door returns for it."""
        if self.needs_tasks and not asked.takes_tasks:
            raise make_tasks_error()
        if not self.is_task:
            asked = dataclasses.replace(asked, takes_tasks=False)
        conversation = await self.trees.begin(asked.principal, self.agent)
        with conversation:
            work = make_work(conversation, conversation.send(self.words(asked.arguments)))
            return await answer_work(asked, work, 30.0)


def list_tools(trees: Conversations) -> list[TreeTool]:
    """Return the tools that the suite names."""
    return [
        TreeTool(trees, "greet", lambda a: f"say Hello, {a['name']}!", {"name": "string"}, is_task=False),
        TreeTool(
            trees, "slow_compute", lambda a: f"pause {a['seconds']}", {"seconds": "number", "label": "string"}
        ),
        TreeTool(trees, "failing_job", lambda _: "fail 1", {}, needs_tasks=True),
        TreeTool(trees, "protocol_error_job", lambda _: "look x", {}, agent="spent"),
        TreeTool(trees, "confirm_delete", lambda a: f"launch {a['filename']}", {"filename": "string"}),
        TreeTool(trees, "multi_input", lambda _: "twice", {}),
        TreeTool(trees, "test_simple_text", lambda _: "say This is a text.", {}, is_task=False),
        TreeTool(trees, "test_error_handling", lambda _: "fail 0", {}, is_task=False),
        TreeTool(trees, MIXED, lambda a: f"say Hello, {a['name']}!", {"name": "string"}),
    ]


def ask_before(door: McpDoor) -> None:
    """Let one tool ask for a name before it begins a tree, in a round of its own."""
    entry = door.server.get_request_handler("tools/call")
    assert entry is not None

    async def call(ctx: Any, params: types.CallToolRequestParams) -> HandlerResult:
        if params.name == MIXED:
            if not params.input_responses:
                form = types.ElicitRequestFormParams(message="Who?", requested_schema=NAME_FORM)
                asked = types.ElicitRequest(params=form)
                return types.InputRequiredResult(input_requests={"name": asked})
            given = params.input_responses["name"]
            params = params.model_copy(update={"arguments": getattr(given, "content", None)})
        return await entry.handler(ctx, params)

    door.server.add_request_handler("tools/call", types.CallToolRequestParams, call)


class SuiteRoutes(McpRoutes):
    """The route of the product, for one token."""

    def __init__(self, guard: DoorGuard, door: McpDoor, token: str) -> None:
        super().__init__(guard, door)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as one of the token."""
        headers = [*scope["headers"], (b"authorization", f"Bearer {self._token}".encode())]
        await super().__call__({**scope, "headers": headers}, receive, send)


async def main(place: Path) -> None:
    """Serve until killed."""
    trees, guard = make_trees(place), DoorGuard(TokenFile(place / "state"))
    own = ConversationTools(trees)
    door = McpDoor(trees, lambda who: [*own.list_tools(who), *list_tools(trees)], find_principal)
    ask_before(door)
    token = make_token(place, tier="Elevated", approves=True, max_open=10_000)
    server = PageServer(place / "state", Address(), SuiteRoutes(guard, door, token))
    await server.run(lambda: say(server.origin))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
