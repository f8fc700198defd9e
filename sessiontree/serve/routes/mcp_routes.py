"""The route of the MCP server: streamable HTTP, for whoever has a token."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from sessiontree.contracts.errors import ConfigError
from sessiontree.doors.conversations import Conversations
from sessiontree.doors.mcp.calls import POLL_MS
from sessiontree.doors.mcp.server import McpDoor
from sessiontree.doors.mcp.tools import ConversationTools
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.serve.routes.door_guard import CHALLENGE, MAX_BODY, DoorGuard, LimitError, read_bounded

PATH: Final = "/mcp"
GET_TASK: Final = "tasks/get"
MAX_FOLLOWED: Final = 64
"""Most tasks of a token whose polls are known; polls of others count as requests."""
MAX_TASK_ID: Final = 200
EARLY: Final = 0.9
"""The part of the time between two polls after which the second one is no earlier than it should be."""
PRINCIPAL: Final = "sessiontree.principal"
"""Where a request's scope says who makes it."""


def find_principal(ctx: ServerRequestContext[Any, Any]) -> DoorPrincipal:
    """Return who makes a request, as the guard of the route found."""
    scope: Scope = {} if ctx.request is None else ctx.request.scope
    found: DoorPrincipal = scope[PRINCIPAL]
    return found


def make_door(conversations: Conversations) -> McpDoor:
    """Return the door of a server: its tools begin and steer the trees of whoever asks."""
    return McpDoor(conversations, ConversationTools(conversations).list_tools, find_principal)


class TaskPolls:
    """Which requests only ask for a task again, and not sooner than its answer says.

    The headers alone decide it: in the revisions that have tasks, a request whose body says otherwise is
    refused.

    Args:
        now_s: A clock that only goes forward, in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._asked: dict[str, OrderedDict[str, float]] = {}

    def is_due(self, token_id: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request is such a one; it is remembered.

        Args:
            token_id: Whose request it is.
            headers: Its headers, by lower-case names.
        """
        task_id = headers.get(MCP_NAME_HEADER, "")
        is_modern = headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
        if not is_modern or headers.get(MCP_METHOD_HEADER) != GET_TASK or not 0 < len(task_id) <= MAX_TASK_ID:
            return False
        asked, now_s = self._asked.setdefault(token_id, OrderedDict()), self._now_s()
        before_s = asked.pop(task_id, None)
        asked[task_id] = now_s
        if len(asked) > MAX_FOLLOWED:
            asked.popitem(last=False)
        return before_s is not None and now_s - before_s >= POLL_MS / 1000 * EARLY


class McpRoutes:
    """What clients of MCP ask. No request needs an earlier one, so that a restart of the server ends nothing.

    Args:
        guard: Lets in whoever has a token.
        door: Serves their trees, which whoever made them closes; it finds who asks by :func:`find_principal`.
        polls: Which requests are polls.
    """

    prefixes: tuple[str, ...] = (PATH,)

    def __init__(self, guard: DoorGuard, door: McpDoor, polls: TaskPolls | None = None) -> None:
        self._guard = guard
        self._manager = StreamableHTTPSessionManager(
            door.server, stateless=True, max_request_body_size=MAX_BODY
        )
        self._polls = TaskPolls() if polls is None else polls
        self._running: asyncio.Task[None] | None = None
        self._is_ready, self._is_over = asyncio.Event(), asyncio.Event()

    def routes(self) -> list[Route]:
        """Return the route; streams that a client opens by itself are not served."""
        return [Route(PATH, self, methods=["POST"])]

    async def close(self) -> None:
        """End the requests that are open."""
        self._is_over.set()
        if self._running is not None:
            await self._running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a token, and refuse all others."""
        request = Request(scope, receive)
        try:
            token = self._guard.find_token(request.headers)
        except ConfigError as error:
            await _make_refusal(401, str(error))(scope, receive, send)
            return
        try:
            self._guard.enter(token, is_poll=self._polls.is_due(token.token_id, request.headers))
        except LimitError as error:
            await _make_refusal(error.status, str(error))(scope, receive, send)
            return
        try:
            await self._answer(request, token.principal, send)
        finally:
            self._guard.leave(token)

    async def _answer(self, request: Request, principal: DoorPrincipal, send: Send) -> None:
        try:
            body = await read_bounded(request)
        except LimitError as error:
            await _make_refusal(error.status, str(error))(request.scope, request.receive, send)
            return
        except ConfigError:
            return  # its client has gone
        await self._start()
        known = {**request.scope, PRINCIPAL: principal}
        await self._manager.handle_request(known, _replay(body, request.receive), send)

    async def _start(self) -> None:
        """Start the one task that the requests of older revisions belong to."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._is_ready.wait()

    async def _run(self) -> None:
        # In a task of its own, because a task group is left by the task that entered it.
        async with self._manager.run():
            self._is_ready.set()
            await self._is_over.wait()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read before, and then what its client does."""
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay


def _make_refusal(status: int, message: str) -> Response:
    """Return an error as clients of the protocol know it; no request of a JSON-RPC batch is named."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}
    return JSONResponse(error, status, CHALLENGE if status == 401 else {})
