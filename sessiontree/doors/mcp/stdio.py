"""The MCP server over stdin and stdout, for one program that started this process."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from sessiontree.doors.conversations import Conversations
from sessiontree.doors.mcp.server import McpDoor
from sessiontree.doors.mcp.tools import ConversationTools
from sessiontree.doors.principals import DoorPrincipal


async def serve_stdio(conversations: Conversations, principal: DoorPrincipal) -> None:
    """Serve one program until it closes stdin; its trees can be continued later.

    Meanwhile stdout belongs to the protocol: what anything else prints there goes to stderr.

    Args:
        conversations: The trees; closed at the end.
        principal: Who the program is.
    """
    door = McpDoor(conversations, ConversationTools(conversations).list_tools, lambda _: principal)
    try:
        async with stdio_server() as (incoming, outgoing):
            await door.server.run(incoming, outgoing, door.server.create_initialization_options())
    finally:
        await conversations.close()
