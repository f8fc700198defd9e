"""MCP servers of a tree: their configuration, what the owner accepted of them, and the tools made of it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from sessiontree.api.agents.owned_files import explain_error, find_fault, open_text, replace_owned
from sessiontree.api.runtime.paths import get_config_folder
from sessiontree.contracts.errors import ConfigError
from sessiontree.mcp.pins import MAX_FILE_BYTES, PinFile, PinnedServer, compute_identity
from sessiontree.mcp.server_tools import GivenServer, ServerTool, make_tools
from sessiontree.mcp.settings import McpServer, reach
from sessiontree.policy.compiled import PolicyWarning

NOT_ACCEPTED: Final = "not accepted"
CHANGED: Final = "changed"
ACCEPTED: Final = "accepted"


def get_token_folder() -> Path:
    """Return the folder of stored tokens, which may not exist."""
    return get_config_folder() / "mcp" / "tokens"


def read_pin(state_dir: Path, name: str) -> PinnedServer | None:
    """Return what the owner accepted of a server; None = nothing.

    Raises:
        ConfigError: the file can't be read, is damaged, or belongs to or is open to others.
    """
    file = PinFile(state_dir, name)
    try:
        text, status = open_text(file.path, follow=False, max_bytes=MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the pin {str(file.path)!r} can't be read: {explain_error(error)}") from None
    if fault := find_fault(file.path, status):
        raise ConfigError(f"the pin {str(file.path)!r} {fault}")
    return file.parse(text)


def write_pin(state_dir: Path, name: str, pinned: PinnedServer) -> None:
    """Store what the owner accepts of a server.

    Raises:
        ConfigError: it can't be written.
    """
    file = PinFile(state_dir, name)
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_owned(file.path, pinned.model_dump_json().encode())
    except OSError as error:
        raise ConfigError(f"the pin {str(file.path)!r} can't be written: {explain_error(error)}") from None


def get_server_state(settings: McpServer, pinned: PinnedServer | None) -> str:
    """Return whether the owner accepted a server as it is configured now."""
    if pinned is None:
        return NOT_ACCEPTED
    return ACCEPTED if pinned.identity == compute_identity(settings) else CHANGED


def collect_server_tools(
    servers: Mapping[str, McpServer], state_dir: Path, taken: Collection[str]
) -> tuple[tuple[ServerTool, ...], tuple[GivenServer, ...]]:
    """Return the tools of a tree's servers, and how the supervisor reaches these; connects to none.

    A server that was not accepted, or that has changed since, gives no tools: a warning says so.

    Args:
        servers: The servers by name.
        state_dir: Where the pins are.
        taken: Names of the tree's other tools.

    Raises:
        ConfigError: a pin can't be read, or a variable of a server is not set.
    """
    tools: dict[str, ServerTool] = {}
    given: list[GivenServer] = []
    for name, settings in sorted(servers.items()):
        pinned = read_pin(state_dir, name)
        state = get_server_state(settings, pinned)
        if pinned is None or state != ACCEPTED:
            why = "was never accepted" if pinned is None else "is configured otherwise than it was accepted"
            _warn(f"mcp.{name}: it {why}; its tools are left out: run `sessiontree mcp accept {name}`")
            continue
        of_server = {}
        for made in make_tools(name, settings, pinned, {*taken, *tools}):
            if isinstance(made, str):
                _warn(made)
                continue
            tool, pin = made
            tools[tool.name] = tool
            of_server[pin.name] = (pin, tool.tier)
        given.append(GivenServer(reach(name, settings, str(get_token_folder())), of_server))
    return tuple(tools.values()), tuple(given)


def _warn(text: str) -> None:
    warnings.warn(PolicyWarning(text), stacklevel=6)  # the line that makes the tree
