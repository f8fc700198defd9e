"""Calls of MCP servers as a session makes them: its supervisor owns the connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.mcp import ServerCall, ServerReply
from sessiontree.runtime.session_rights import Link


class ServerToolsHandle:
    """Calls tools of the tree's MCP servers.

    Args:
        link: Leads to the supervisor.
    """

    __slots__ = ("_dropping", "_link")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._dropping: set[asyncio.Task[None]] = set()

    async def call(self, call: ServerCall) -> ServerReply:
        """Call a tool at its server; a caller that is cancelled drops the call there, too."""
        try:
            return await self._link.services().call_server(self._link.grant, call)
        except asyncio.CancelledError:
            dropping = asyncio.create_task(self._drop(call.key))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)
            raise

    async def _drop(self, key: str) -> None:
        with suppress(SessionTreeError):  # the session is let go: nobody waits for the reply then
            await self._link.services().drop_server_call(self._link.grant, key)
