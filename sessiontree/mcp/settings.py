"""What an owner says of an MCP server: how it is reached, and how far its tools are trusted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.settings.given_values import take_settings
from sessiontree.contracts.settings.settings import StrictSettings, suggest_names
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

TierName: TypeAlias = Literal["read-only", "workspace", "system", "elevated"]
"""The tier of a tool's calls, as a configuration writes it."""
TIERS: Final[Mapping[TierName, PermissionTier]] = {
    "read-only": PermissionTier.READ_ONLY,
    "workspace": PermissionTier.WORKSPACE,
    "system": PermissionTier.SYSTEM,
    "elevated": PermissionTier.ELEVATED,
}
MAX_SERVERS: Final = 64
INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Variables of the program that a server gets besides its own."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_Text: TypeAlias = Annotated[str, Field(max_length=32_768)]
_OF_OTHERS: Final = frozenset({"type", "command", "args", "env", "cwd", "url", "headers"})
"""Members of ``mcpServers`` files that count; what other programs add to them grants nothing here."""


class McpServer(StrictSettings):
    """One MCP server, ``[mcp.NAME]``: a command that speaks over its standard streams, or an address.

    A value of ``env`` or ``headers`` may hold ``${VARIABLE}``: the program's variable is put there when the
    server is started, and is kept nowhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True)

    command: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    """The program; None = the server is at ``url``."""
    args: tuple[_Text, ...] = Field(default=(), max_length=256)
    """Its arguments."""
    env: Mapping[str, _Text] = Field(default_factory=dict, max_length=256, repr=False)
    """Its variables, in addition to a few harmless ones of the program."""
    cwd: str | None = None
    """Its working directory, absolute; with ``confine``, the only place that it can change."""
    url: str | None = None
    """Its address, ``https://…`` or ``http://…``."""
    headers: Mapping[str, _Text] = Field(default_factory=dict, max_length=64, repr=False)
    """Headers of every request to that address."""
    tools: tuple[str, ...] | None = Field(default=None, max_length=1_000)
    """The only tools of it that trees may hold, by their names at the server; None = all."""
    tiers: Mapping[str, TierName] = Field(default_factory=dict)
    """The tier of a tool's calls, by its name at the server; a tool that is not named is Elevated. A server's
    own annotations can raise it."""
    confine: bool = False
    """Whether its command runs in the sandbox of commands: no network, and it changes only ``cwd``."""
    trusted: bool = False
    """Whether its text counts as the owner's own, instead of as text from outside."""
    timeout_s: Annotated[float, Field(gt=0, le=3_600)] | None = None
    """Time limit of one call, in seconds; None = the tree's limit."""
    connect_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Time limit of its start, in seconds."""
    disabled: bool = False
    """Whether it is left out."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("give an address such as https://example.com/mcp")
            # The address is part of errors and of what the owner is shown, and headers are not.
            if parts.username or parts.password:
                raise ValueError("give a name and a password in headers, not in the address")
        return url

    @field_validator("cwd")
    @classmethod
    def _is_absolute(cls, cwd: str | None) -> str | None:
        if cwd is not None and not os.path.isabs(cwd):  # noqa: PTH117 - the text is kept
            raise ValueError("give an absolute path")
        return cwd

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if self.command is not None and self.url is not None:
            raise ValueError("it has a command and a url; give one of them")
        if self.url is None and self.headers:
            raise ValueError("headers are for a server at a url")
        if self.command is None and (self.args or self.env or self.cwd or self.confine):
            raise ValueError("args, env, cwd and confine are for a server with a command")
        if self.confine and self.cwd is None:
            raise ValueError("confine needs cwd: the only place that the server can change")
        return self

    @property
    def is_complete(self) -> bool:
        """Whether it says how the server is reached; else it adds to an entry of another file."""
        return self.command is not None or self.url is not None

    def identity(self) -> dict[str, JsonValue]:
        """Return how the server is reached, with the names of variables instead of their values."""
        return {
            "command": self.command,
            "args": [*self.args],
            "env": [*sorted(self.env)],
            "cwd": self.cwd,
            "url": self.url,
            "headers": [*sorted(self.headers)],
            "confine": self.confine,
        }

    def tier_of(self, tool: str) -> PermissionTier:
        """Return the tier that the owner gives a tool."""
        return TIERS[self.tiers.get(tool, "elevated")]


@dataclass(frozen=True, slots=True)
class ReachedServer:
    """How a server is started or reached, with all values; no journal and no log may hold it."""

    name: str
    command: tuple[str, ...]
    """The program and its arguments; empty = it is at ``url``."""
    env: Mapping[str, str]
    cwd: str | None
    url: str
    headers: Mapping[str, str]
    confine: bool
    connect_s: float
    tokens: str = ""
    """The folder of stored tokens; empty = none are used."""

    def __repr__(self) -> str:
        """Name the server, without values."""
        return f"ReachedServer({self.name!r})"

    def to_order(self) -> dict[str, JsonValue]:
        """Return what its process is asked to connect to."""
        return {
            "name": self.name,
            "command": list(self.command),
            "env": dict(self.env),
            "cwd": self.cwd,
            "url": self.url,
            "headers": dict(self.headers),
            "connect_s": self.connect_s,
            "tokens": self.tokens,
        }


def reach(name: str, server: McpServer, tokens: str = "") -> ReachedServer:
    """Return how to reach a server, with the values of the program's variables.

    Raises:
        ConfigError: a variable that it names is not set; names the variable and its place.
    """
    inherited = {each: os.environ[each] for each in INHERITED if each in os.environ}
    given = {key: _fill(value, f"mcp.{name}.env.{key}") for key, value in server.env.items()}
    headers = {key: _fill(value, f"mcp.{name}.headers.{key}") for key, value in server.headers.items()}
    command = () if server.command is None else (server.command, *server.args)
    return ReachedServer(
        name,
        command,
        {**inherited, **given} if command else {},
        server.cwd,
        server.url or "",
        headers,
        server.confine,
        server.connect_s,
        tokens,
    )


def _fill(text: str, place: str) -> str:
    def read_variable(found: re.Match[str]) -> str:
        value = os.environ.get(found[1])
        if value is None:
            raise ConfigError(f"{place}: the variable {found[1]} is not set")
        return value

    return _VARIABLE.sub(read_variable, text)


def read_server_file(text: str, place: str) -> dict[str, McpServer]:
    """Return the servers of a JSON file with ``mcpServers``, as other programs write it too.

    Args:
        text: The file's text.
        place: Names it in errors.

    Raises:
        ConfigError: it is not such a file, or an entry is wrong; names the entry and shows no value.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        # Neither the text nor the cause is shown: the file may hold keys.
        raise ConfigError(f"{place} is not valid JSON: {type(error).__name__}") from None
    servers = value.get("mcpServers") if isinstance(value, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{place}: give {{"mcpServers": {{"name": {{"command": "…"}}}}}}')
    return {name: _parse_entry(entry, f"{place}: mcpServers.{name}") for name, entry in servers.items()}


def _parse_entry(entry: object, place: str) -> McpServer:
    if not isinstance(entry, dict):
        raise ConfigError(f"{place}: give an object with a command or a url")
    kind = entry.get("type", "stdio" if "command" in entry else "http")
    if kind not in {"stdio", "http", "streamable-http", "streamableHttp"}:
        raise ConfigError(
            f"{place}: transport {kind!r} is not supported; {suggest_names(str(kind), ['stdio', 'http'])}"
        )
    members: dict[str, Any] = {each: entry[each] for each in _OF_OTHERS - {"type"} if each in entry}
    members["disabled"] = entry.get("disabled") is True
    return take_settings(lambda: McpServer.model_validate(members), f"{place}: ")


def merge_servers(
    configured: Mapping[str, McpServer], of_file: Mapping[str, McpServer], place: str
) -> dict[str, McpServer]:
    """Return all servers by name; an entry without command and url adds to the file's of that name.

    Args:
        configured: Those of the configuration.
        of_file: Those of an ``mcpServers`` file.
        place: Names the configuration in errors.

    Raises:
        ConfigError: a name or an entry is wrong, or there are too many.
    """
    found = dict(of_file)
    for name, entry in configured.items():
        if entry.is_complete:
            found[name] = entry
            continue
        if name not in of_file:
            raise ConfigError(f"{place}: mcp.{name}: give a command or a url")
        changed = {each: getattr(entry, each) for each in entry.model_fields_set}
        found[name] = McpServer.model_validate({**of_file[name].model_dump(), **changed})
    for name in found:
        if _NAME.fullmatch(name) is None:
            raise ConfigError(f"{place}: mcp.{name!r}: a name has 1 to 64 letters, digits, '.', '_' or '-'")
    if len(found) > MAX_SERVERS:
        raise ConfigError(f"{place}: there are {len(found)} MCP servers; at most {MAX_SERVERS} fit")
    return {name: entry for name, entry in found.items() if not entry.disabled}
