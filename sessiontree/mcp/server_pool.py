"""The connections of one supervisor: one for each server, restarted after a loss, with pauses that grow."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, ExecutionError, PermissionDenied, ToolError
from sessiontree.contracts.handles.mcp import ServerCall, ServerInput, ServerReply
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.mcp.pins import PinnedTool, pin_listed_tools
from sessiontree.mcp.server_process import ServerProcess, ServerUnavailable, start_server
from sessiontree.mcp.server_tools import GivenServer
from sessiontree.mcp.settings import ReachedServer

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 60.0
MAX_CALLS: Final = 256
"""Most calls of one server at a time."""
_LOG: Final = logging.getLogger("sessiontree")


class ServerConnection:
    """The connection to one server, whichever process it has now.

    Args:
        reached: How the server is reached.
        now_s: A clock that only goes forward, in seconds.
    """

    def __init__(self, reached: ReachedServer, now_s: Callable[[], float] = time.monotonic) -> None:
        self.reached = reached
        self._now_s = now_s
        self._process: ServerProcess | None = None
        self._starting: asyncio.Task[ServerProcess] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._why = ""
        self._calls = 0
        self.tools: Mapping[str, PinnedTool] = {}
        """The tools that the server lists now."""

    @property
    def server_pid(self) -> int | None:
        """The id of the server's own process; None = none runs on this machine."""
        return None if self._process is None else self._process.server_pid

    @property
    def pid(self) -> int | None:
        """The id of its process; None = none runs."""
        return None if self._process is None else self._process.pid

    async def call(self, tool: PinnedTool, call: ServerCall) -> ServerReply:
        """Call a tool that the owner accepted.

        Raises:
            ExecutionError: the server can't be reached, lists another tool by that name, or was lost.
            Timeout: no reply came in time.
        """
        # Counted before the connection is awaited, so that calls that wait for a start are bounded, too.
        if self._calls >= MAX_CALLS:
            raise ExecutionError(f"{MAX_CALLS} calls of the MCP server {self.reached.name} run; try later")
        self._calls += 1
        try:
            process = await self._connect()
            # After connecting, which may have brought a new listing: what is called must be what the owner
            # accepted.
            self._check_unchanged(tool)
            order: dict[str, JsonValue] = {"tool": tool.name, "arguments": dict(call.arguments)}
            if call.given is not None:
                order |= {"state": call.given.state, "responses": dict(call.given.responses)}
            answer = await process.call(order, call.limit_s)
        finally:
            self._calls -= 1
        # Only a reply counts as success: a server that starts and then fails each call would be restarted
        # without a pause.
        self._failures = 0
        return self._reply_in(answer)

    def _check_unchanged(self, tool: PinnedTool) -> None:
        name, now = self.reached.name, self.tools.get(tool.name)
        if now is None:
            raise ExecutionError(f"the MCP server {name} offers no usable tool {tool.name!r} any more")
        if now.digest != tool.digest:
            raise ExecutionError(
                f"the tool {tool.name!r} of the MCP server {name} has changed since its owner accepted it; "
                f"`sessiontree mcp accept {name}` shows and accepts the change"
            )

    async def _connect(self) -> ServerProcess:
        if self._process is not None and not self._process.is_over:
            return self._process
        if self._starting is None or self._starting.done():
            wait_s = self._not_before_s - self._now_s()
            if wait_s > 0:
                raise ExecutionError(f"{self._why}; it is started again in {wait_s:.0f} s at the earliest")
            self._starting = asyncio.create_task(self._start_process())
        # A caller whose time is over leaves the start to those that follow.
        return await asyncio.shield(self._starting)

    async def _start_process(self) -> ServerProcess:
        process = ServerProcess(self.reached.name, self._note_end, self._on_tools)
        try:
            found = await start_server(self.reached, process)
            self._take_tools(found.tools)
        except ServerUnavailable as error:
            self._note_failure(error.message)
            if error.said:
                _LOG.warning("MCP server %s said before it failed: %s", self.reached.name, error.said)
            raise ExecutionError(error.message) from error
        except (ConfigError, ToolError) as error:
            process.kill()
            self._note_failure(f"the MCP server {self.reached.name} can't be used: {error}")
            raise ExecutionError(self._why) from error
        # The pool is closed while the server starts; nobody else knows this process.
        except asyncio.CancelledError:
            process.kill()
            raise
        # Kept by the start and not by its caller, who may have left meanwhile: the next call would start
        # another process, and nobody would end this one.
        self._process = process
        return process

    def _take_tools(self, rows: tuple[Mapping[str, Any], ...]) -> None:
        self.tools, refused = pin_listed_tools(rows)
        for tool, why in refused.items():
            _LOG.warning("MCP server %s: tool %r is refused: %s", self.reached.name, tool[:100], why)

    def _on_tools(self, rows: tuple[Mapping[str, Any], ...]) -> None:
        try:
            self._take_tools(rows)
        except ConfigError as error:
            # Raised, it would end the reader of the connection, and no call would be answered any more.
            self.tools = {}
            _LOG.warning("MCP server %s: its new tools are refused: %s", self.reached.name, error)

    def _note_end(self, reason: str) -> None:
        self._note_failure(f"the MCP server {self.reached.name} was lost ({reason})")

    def _note_failure(self, why: str) -> None:
        self._failures += 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10))
        # A server that was lost once, after it had served, may start again at once.
        self._not_before_s = 0.0 if self._failures == 1 else self._now_s() + pause_s
        self._why = why

    def _reply_in(self, answer: Mapping[str, Any]) -> ServerReply:
        name = self.reached.name
        error = answer.get("error")
        if isinstance(error, dict):
            raise ExecutionError(f"the MCP server {name} refused the call: {error.get('reason', '')}")
        reply = answer.get("reply")
        if not isinstance(reply, dict):
            raise ExecutionError(f"the call of the MCP server {name} was dropped")
        wanted = reply.get("input")
        if isinstance(wanted, dict):
            return ServerReply(input=ServerInput(wanted.get("requests") or {}, wanted.get("state")))
        images = tuple(ImageContent(data, mime_type) for data, mime_type in reply.get("images", ()))
        return ServerReply(
            str(reply.get("text", "")), reply.get("structured"), images, reply.get("is_error") is True
        )

    async def close(self) -> None:
        """End its process."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._process is not None:
            await self._process.close()


class ServerPool:
    """The servers of the open trees of one supervisor."""

    def __init__(self) -> None:
        self._trees: dict[str, dict[str, GivenServer]] = {}
        self._connections: dict[str, ServerConnection] = {}
        self._calls: dict[tuple[str, str], asyncio.Task[ServerReply]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def on_tree_opened(self, tree_id: str, servers: tuple[GivenServer, ...]) -> None:
        """Let a tree's sessions call these servers."""
        if servers:
            self._trees[tree_id] = {each.reached.name: each for each in servers}

    def on_tree_closed(self, tree_id: str) -> None:
        """Take a tree's servers away; a connection that no other tree uses ends."""
        if self._trees.pop(tree_id, None) is None:
            return
        used = {_compute_key(each.reached) for tree in self._trees.values() for each in tree.values()}
        for key in [key for key in self._connections if key not in used]:
            closing = asyncio.ensure_future(self._connections.pop(key).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def call(self, tree_id: str, kind: SessionKind, call: ServerCall) -> ServerReply:
        """Call a tool for a session; errors as :class:`~sessiontree.contracts.handles.mcp.ServerTools`.

        Args:
            tree_id: The session's tree.
            kind: The session's kind.
            call: The call.
        """
        pinned, key = self._find_allowed(tree_id, kind, call), call.key
        connection = self._ensure_connection(self._trees[tree_id][call.server].reached)
        calling = asyncio.ensure_future(connection.call(pinned, call))
        self._calls[tree_id, key] = calling
        try:
            # Waited for and not awaited: the end of a call that its session drops must look different from
            # the end of the task that waits for it, whose cancellation would reach the call at once.
            await asyncio.wait({calling})
        except asyncio.CancelledError:
            calling.cancel()
            raise
        finally:
            # The same key may have been called again meanwhile; that newer call must stay.
            if self._calls.get((tree_id, key)) is calling:
                del self._calls[tree_id, key]
        if calling.cancelled():
            raise ExecutionError(f"the call of the MCP server {call.server} was dropped")
        return calling.result()

    def drop(self, tree_id: str, key: str) -> None:
        """Drop a call: nobody waits for its reply."""
        calling = self._calls.get((tree_id, key))
        if calling is not None:
            calling.cancel()

    def _find_allowed(self, tree_id: str, kind: SessionKind, call: ServerCall) -> PinnedTool:
        server, tool = call.server, call.tool
        given = self._trees.get(tree_id, {}).get(server)
        found = None if given is None else given.tools.get(tool)
        if found is None:
            reason = f"the tree has no tool {tool!r} of an MCP server {server!r}"
            raise PermissionDenied(PermissionTier.ELEVATED, reason)
        pinned, tier = found
        if kind is SessionKind.WORKER and tier is not PermissionTier.READ_ONLY:
            raise PermissionDenied(tier, f"a Worker may not call {tool!r} of the MCP server {server}")
        return pinned

    def _ensure_connection(self, reached: ReachedServer) -> ServerConnection:
        key = _compute_key(reached)
        if key not in self._connections:
            self._connections[key] = ServerConnection(reached)
        return self._connections[key]

    def pids(self) -> list[int]:
        """Return the ids of all its processes."""
        return [pid for each in self._connections.values() if (pid := each.pid) is not None]

    def list_server_pids(self) -> list[int]:
        """Return the ids of the processes of its servers."""
        return [pid for each in self._connections.values() if (pid := each.server_pid) is not None]

    async def close(self) -> None:
        """End all connections."""
        for calling in tuple(self._calls.values()):
            calling.cancel()
        self._trees.clear()
        # Taken out first: a call that comes during the closing must not get a connection that ends.
        connections, self._connections = list(self._connections.values()), {}
        async with asyncio.TaskGroup() as group:
            for each in connections:
                group.create_task(each.close())
        for closing in tuple(self._closing):
            with suppress(Exception):
                await closing


def _compute_key(reached: ReachedServer) -> str:
    """Return what two trees must agree on to share a connection: all of it, secrets included."""
    same = replace(reached, connect_s=0.0)
    return hashlib.sha256(dump_json({**same.to_order(), "confine": same.confine}).encode()).hexdigest()
