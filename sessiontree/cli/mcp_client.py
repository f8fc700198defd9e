"""The bodies of ``sessiontree mcp`` about the servers that trees use: listed, checked, accepted, allowed."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from sessiontree.api.configuration.configuration import Configuration
from sessiontree.api.configuration.configuration_file import open_configuration
from sessiontree.api.configuration.mcp_servers import get_server_state, get_token_folder, read_pin, write_pin
from sessiontree.channels.safe_text import make_visible
from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import find_state_dir
from sessiontree.contracts.errors import ConfigError, ToolError
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.mcp.pins import PinnedServer, PinnedTool, compute_identity, find_changes, pin_listed_tools
from sessiontree.mcp.server_process import ServerProcess, ServerUnavailable, start_server
from sessiontree.mcp.settings import TIERS, McpServer, TierName, reach
from sessiontree.mcp.tool_names import make_tool_name

LOGIN_S: Final = 900.0
"""How long a login may take, with its server's start."""


@dataclass(frozen=True, slots=True)
class CheckedServer:
    """What a connection to one server showed."""

    name: str
    state: str
    """``accepted``, ``changed``, ``not accepted``, ``needs login`` or ``unreachable``."""
    reason: str
    """Why it can't be used; empty = it can."""
    protocol: str
    tools: Mapping[str, PinnedTool]
    changes: Mapping[str, str]
    """What differs from the pin, by tool."""
    refused: Mapping[str, str]
    """Why a tool that it lists can't be used, by tool."""


def show_list(screen: RichScreen, *, config: Path | None, state_dir: Path | None, as_json: bool) -> int:
    """List the configured servers without connecting to them, and return the exit code.

    With ``as_json`` one object with ``servers``: each ``name``, ``reached``, ``state``, ``tools``,
    ``confine``.

    Raises:
        ConfigError: the configuration or a pin can't be used.
    """
    place, rows = find_state_dir(None, state_dir), []
    for name, settings in Configuration.load(config).mcp_servers().items():
        pinned = read_pin(place, name)
        rows.append(
            {
                "name": name,
                "reached": _describe_server(settings),
                "state": get_server_state(settings, pinned),
                "tools": 0 if pinned is None else len(pinned.tools),
                "confine": settings.confine,
            }
        )
    if as_json:
        screen.raw(dump_json({"servers": rows}))
    elif not rows:
        screen.line("no MCP server is configured: add [mcp.NAME] to the configuration")
    else:
        names = ("name", "reached", "state", "tools", "confine")
        screen.table(names, [tuple(make_visible(str(row[name])) for name in names) for row in rows])
    return 0


def check(
    screen: RichScreen, *, server: str | None, config: Path | None, state_dir: Path | None, as_json: bool
) -> int:
    """Connect to the servers and show their tools, tiers and pins; return 1 if one can't be used.

    With ``as_json`` one object with ``servers``: each ``name``, ``state``, ``reason``, ``protocol``,
    ``tools`` (``name``, ``called``, ``tier``, ``pin``) and ``refused``.

    Raises:
        ConfigError: the configuration can't be used, or the server is unknown.
    """
    servers, place = _select_servers(Configuration.load(config), server), find_state_dir(None, state_dir)
    found = asyncio.run(_check_all(servers, place))
    rows = [_build_row(each, servers[each.name]) for each in found]
    if as_json:
        screen.raw(dump_json({"servers": rows}))
    else:
        for each, row in zip(found, rows, strict=True):
            _show(screen, each, row)
    return 0 if all(each.state == "accepted" for each in found) else 1


def accept(screen: RichScreen, *, server: str, yes: bool, config: Path | None, state_dir: Path | None) -> int:
    """Show what differs from the pin of a server, and accept it; return 1 if it is not accepted.

    Raises:
        ConfigError: the configuration can't be used, or the server is unknown or can't be reached.
    """
    servers, place = _select_servers(Configuration.load(config), server), find_state_dir(None, state_dir)
    settings = servers[server]
    found = asyncio.run(_check(server, settings, place))
    if found.state in {"unreachable", "needs login"}:
        raise ConfigError(found.reason)
    if not found.changes:
        screen.line(f"{server} is accepted as it is: {len(found.tools)} tools")
        return 0
    _show_changes(screen, found, settings)
    if not yes and not _confirm():
        screen.line("nothing was accepted; accept it with --yes")
        return 1
    write_pin(
        place, server, PinnedServer(identity=compute_identity(settings), tools=tuple(found.tools.values()))
    )
    screen.line(f"accepted {server}: {len(found.tools)} tools")
    return 0


def allow(screen: RichScreen, *, server: str, tool: str, tier: str, config: Path | None) -> int:
    """Give a tool of a server a tier, in the configuration; return the exit code.

    Raises:
        ConfigError: an option is wrong, or the configuration can't be changed.
    """
    if tier not in TIERS:
        raise ConfigError(f"--tier {tier!r} is not one of {', '.join(TIERS)}{suggest_nearest(tier, TIERS)}")
    configured = Configuration.load(config)
    _select_servers(configured, server)
    origin = configured.file
    if origin is None:
        raise ConfigError("no configuration was found to change: write one, or name it with --config")
    patch: Any = {"mcp": {server: {"tiers": {tool: cast("TierName", tier)}}}}
    file = open_configuration(origin, Path.cwd() / ".none")

    async def change() -> None:
        stored = await file.read()
        await file.patch(stored.sha256, patch)

    try:
        asyncio.run(change())
    except ToolError as error:
        raise ConfigError(str(error)) from error
    screen.line(f"{tool} of {server} is {tier} for trees that are opened from now on")
    return 0


def login(screen: RichScreen, *, server: str, config: Path | None) -> int:
    """Have a person log in at a server, and store the tokens; return the exit code.

    Raises:
        ConfigError: the server is unknown or has no address, or the login failed.
    """
    settings = _select_servers(Configuration.load(config), server)[server]
    if settings.url is None:
        raise ConfigError(f"mcp.{server}: a server with a command needs no login")
    url = settings.url

    async def run() -> None:
        process = ServerProcess(server)
        process.shown = partial(_show_address, screen)
        order = {"do": "login", "url": url, "tokens": str(get_token_folder())}
        try:
            await process.start(order, LOGIN_S)
        finally:
            await process.close()

    try:
        asyncio.run(run())
    except ServerUnavailable as error:
        raise ConfigError(error.message) from error
    screen.line(f"logged in at {server}")
    return 0


def _show_address(screen: RichScreen, address: str) -> None:
    screen.line("open this address to log in; nothing opens it for you:")
    screen.line(address)


def _select_servers(configured: Configuration, server: str | None) -> dict[str, McpServer]:
    servers = configured.mcp_servers()
    if server is None:
        return servers
    if server not in servers:
        raise ConfigError(f"no MCP server is called {server!r}{suggest_nearest(server, servers)}")
    return {server: servers[server]}


async def _check_all(servers: Mapping[str, McpServer], state_dir: Path) -> list[CheckedServer]:
    return [await _check(name, settings, state_dir) for name, settings in servers.items()]


async def _check(name: str, settings: McpServer, state_dir: Path) -> CheckedServer:
    process = ServerProcess(name)
    try:
        said = await start_server(reach(name, settings, str(get_token_folder())), process)
        tools, refused = pin_listed_tools(said.tools)
    except ServerUnavailable as error:
        state = "needs login" if error.needs_login else "unreachable"
        complaint = f"; it said: {error.said}" if error.said else ""
        return CheckedServer(name, state, f"{error.message}{complaint}", "", {}, {}, {})
    except (ConfigError, ToolError) as error:
        return CheckedServer(name, "unreachable", str(error), "", {}, {}, {})
    finally:
        # In any case: a server that could not be checked may still have a process.
        with suppress(ToolError):
            await process.close()
    wanted = {key: each for key, each in tools.items() if settings.tools is None or key in settings.tools}
    pinned = read_pin(state_dir, name)
    changes = find_changes(pinned, compute_identity(settings), wanted)
    state = "accepted" if not changes else "not accepted" if pinned is None else "changed"
    return CheckedServer(name, state, "", said.protocol, wanted, changes, refused)


def _build_row(found: CheckedServer, settings: McpServer) -> dict[str, Any]:
    return {
        "name": found.name,
        "state": found.state,
        "reason": found.reason,
        "protocol": found.protocol,
        "tools": [
            {
                "name": name,
                "called": make_tool_name(found.name, name),
                "tier": tool.resolve_tier(settings.tier_of(name)).label,
                "pin": found.changes.get(name, "accepted"),
            }
            for name, tool in found.tools.items()
        ],
        "refused": dict(found.refused),
    }


def _show(screen: RichScreen, found: CheckedServer, row: Mapping[str, Any]) -> None:
    head = f"{found.name}: {found.state}"
    screen.line(f"{head}, {found.protocol}" if found.protocol else f"{head}: {make_visible(found.reason)}")
    if row["tools"]:
        names = ("called", "tier", "pin")
        screen.table(names, [tuple(make_visible(str(tool[name])) for name in names) for tool in row["tools"]])
    for name, why in found.refused.items():
        screen.line(f"refused: {make_visible(name)}: {make_visible(why)}")
    for name in (name for name, how in found.changes.items() if how == "gone"):
        screen.line(f"gone: {make_visible(name)}")


def _show_changes(screen: RichScreen, found: CheckedServer, settings: McpServer) -> None:
    screen.line(f"{found.name} is reached by {make_visible(_describe_server(settings))}")
    for name, how in found.changes.items():
        if name:
            tool = found.tools.get(name)
            said = "" if tool is None else make_visible(" ".join(tool.description.split()))[:200]
            screen.line(f"{how}: {make_visible(name)}{': ' if said else ''}{said}")


def _describe_server(settings: McpServer) -> str:
    if settings.url is not None:
        return settings.url
    return shlex.join([settings.command or "", *settings.args])


def _confirm() -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write("accept this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
