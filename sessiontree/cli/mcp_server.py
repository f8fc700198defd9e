"""The body of ``sessiontree mcp serve``: trees for the program that started this one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.door import make_conversations, parse_rights
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.version import explain_installation

LOCAL = "mcp"
"""The id of the program that starts the server: who may start it is the owner, so that it has one name."""


def serve(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    workspace: Path,
    tier: str,
    budget_usd: float | None,
    agents: Sequence[str] | None,
    tools: Sequence[str] | None,
    approve: bool,
    config: Path | None,
    state_dir: Path | None,
    backend: BackendName,
) -> int:
    """Serve one program over stdin and stdout until it closes them; return the exit code.

    Raises:
        ConfigError: an option is wrong, or the extra ``mcp`` is not installed.
    """
    rights = parse_rights(tier, workspace, budget_usd=budget_usd, agents=agents, tools=tools, approve=approve)
    try:
        from sessiontree.doors.mcp.stdio import serve_stdio
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"MCP needs the extra mcp ({error.name} is missing): {explain_installation('mcp')}"
        ) from error
    place = find_state_dir(None, state_dir)
    conversations = make_conversations(place, config, backend)
    asyncio.run(serve_stdio(conversations, DoorPrincipal(LOCAL, "a program on this machine", rights)))
    return 0
