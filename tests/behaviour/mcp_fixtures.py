"""Trees with the tools of a real MCP server, which the owner accepted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sessiontree import AgentSpec, ScriptedModel, script_call
from sessiontree.api.configuration.mcp_servers import write_pin
from sessiontree.mcp.pins import PinnedServer, PinnedTool, compute_identity, pin_listed_tools
from sessiontree.mcp.server_process import ServerProcess, start_server
from sessiontree.mcp.settings import McpServer, TierName, reach
from tests.behaviour.tree_fixtures import Opener

PROGRAM: Final = Path(__file__).with_name("mcp_server_program.py")
READING: Final[Mapping[str, TierName]] = dict.fromkeys(
    ("add", "point", "picture", "link", "environment", "fail", "wait", "fill"), "read-only"
)


_LISTED: Final[dict[str, dict[str, PinnedTool]]] = {}
"""What the server lists, by its mode: asked once in a process."""


def fixture_server(place: Path, mode: str = "modern", **settings: Any) -> McpServer:
    """Return the server of the tests; it leaves its notes in a directory."""
    return McpServer(command=sys.executable, args=(str(PROGRAM), mode, str(place)), **settings)


def asking_options(place: Path, mode: str = "modern") -> dict[str, Any]:
    """Return options of a tree whose Branches book at the server of the tests, which asks for two names."""
    return {
        "model": ScriptedModel({"main": ["hello"], "*": [script_call("mcp__fix__book"), "done"]}),
        "mcp": {"fix": fixture_server(place, mode, tiers={"book": "workspace"})},
        "agents": {"default": AgentSpec(tools=("mcp__fix__book",))},
    }


def pin_place(open_tree: Opener) -> Path:
    """Return the state directory of the trees of a test."""
    return open_tree.state_dir if open_tree.shared is None else open_tree.shared.state_dir


async def accept(state_dir: Path, **servers: McpServer) -> None:
    """Accept servers of the tests as they are now; each mode of them is asked once in a process."""
    for name, server in servers.items():
        mode = server.args[1]
        if mode not in _LISTED:
            _LISTED[mode] = await _list_tools(name, server)
        _write(state_dir, name, server, _LISTED[mode])


async def accept_listed(state_dir: Path, **servers: McpServer) -> None:
    """Accept servers as they are now, as ``sessiontree mcp accept`` does."""
    for name, server in servers.items():
        _write(state_dir, name, server, await _list_tools(name, server))


async def _list_tools(name: str, server: McpServer) -> dict[str, PinnedTool]:
    process = ServerProcess(name)
    found = await start_server(reach(name, server), process)
    await process.close()
    return pin_listed_tools(found.tools)[0]


def _write(state_dir: Path, name: str, server: McpServer, tools: Mapping[str, PinnedTool]) -> None:
    write_pin(state_dir, name, PinnedServer(identity=compute_identity(server), tools=tuple(tools.values())))


def notes(place: Path) -> list[str]:
    """Return what the server noted."""
    file = place / "calls.txt"
    return file.read_text().splitlines() if file.exists() else []
