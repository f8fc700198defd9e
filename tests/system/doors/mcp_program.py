"""A server of MCP in a process of its own, which a test kills: ``python -m … PLACE stdio|http``.

Over HTTP it prints its address as its first line.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sessiontree.doors.mcp.stdio import serve_stdio
from sessiontree.doors.principals import DoorPrincipal, DoorRights
from sessiontree.doors.tokens import TokenFile
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.routes.door_guard import DoorGuard
from sessiontree.serve.routes.door_routes import DoorRoutes
from sessiontree.serve.routes.door_set import DoorSet
from sessiontree.serve.routes.mcp_routes import McpRoutes, make_door
from tests.system.doors.mcp_fakes import make_trees, say


async def serve_http(place: Path) -> None:
    """Serve the tokens of a state directory until killed."""
    trees, guard = make_trees(place), DoorGuard(TokenFile(place / "state"))
    doors = DoorSet([DoorRoutes(guard, trees, ("default",)), McpRoutes(guard, make_door(trees))])
    server = PageServer(place / "state", Address(), doors)
    await server.run(lambda: say(server.origin))


async def serve_pipe(place: Path) -> None:
    """Serve the program that started this one, which may do everything."""
    rights = DoorRights(workspace=str(place / "workspace"), tier="Elevated", approves=True)
    await serve_stdio(make_trees(place), DoorPrincipal("mcp", "a test", rights))


if __name__ == "__main__":
    asyncio.run({"http": serve_http, "stdio": serve_pipe}[sys.argv[2]](Path(sys.argv[1])))
