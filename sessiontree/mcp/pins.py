"""Pins: what an owner accepted of a server, so that a change of it is seen and refused by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.settings.given_values import take_settings
from sessiontree.contracts.settings.settings import StrictSettings
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.mcp.settings import McpServer

MAX_TOOLS: Final = 1_000
"""Most tools of one server."""
MAX_SCHEMA_CHARS: Final = 65_536
"""Longest schema of a tool's parameters or output, as JSON."""
MAX_DESCRIPTION_CHARS: Final = 4_000
MAX_NAME_CHARS: Final = 256
MAX_FILE_BYTES: Final = 32 * 2**20


class PinnedTool(StrictSettings):
    """A server's tool as the owner accepted it."""

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    description: str = ""
    parameters: Mapping[str, Any]
    output: Mapping[str, Any] | None = None
    """Schema of its structured output; None = it promises none."""
    is_writing: bool = False
    """Whether the server says that the tool changes something."""
    is_destructive: bool = False
    """Whether the server says that the tool may destroy something."""

    @property
    def digest(self) -> str:
        """What is compared: name, description, schemas and annotations."""
        return _compute_digest(self.model_dump(mode="json"))

    def resolve_tier(self, owners: PermissionTier) -> PermissionTier:
        """Return the tier of its calls: the owner's, unless the server's own words raise it."""
        claimed = PermissionTier.READ_ONLY
        if self.is_writing:
            claimed = PermissionTier.WORKSPACE
        if self.is_destructive:
            claimed = PermissionTier.SYSTEM
        # A server's words can only raise the tier: one that calls a destructive tool harmless gains nothing.
        return max(owners, claimed)


class PinnedServer(StrictSettings):
    """A server as the owner accepted it."""

    identity: str
    """Digest of how it is reached."""
    tools: tuple[PinnedTool, ...] = Field(max_length=MAX_TOOLS)


def compute_identity(server: McpServer) -> str:
    """Return the digest of how a server is reached; values of variables do not count."""
    return _compute_digest(server.identity())


def _compute_digest(value: JsonValue) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def pin_listed_tools(listed: Iterable[Mapping[str, Any]]) -> tuple[dict[str, PinnedTool], dict[str, str]]:
    """Return the tools that a server listed, by name, and why others of it are refused.

    Raises:
        ConfigError: it lists too many.
    """
    found: dict[str, PinnedTool] = {}
    refused: dict[str, str] = {}
    for row in listed:
        name = str(row.get("name", ""))[:MAX_NAME_CHARS]
        if name in found or name in refused:
            # Both are refused: which of the two a server runs by that name is not known, so neither can be
            # accepted.
            found.pop(name, None)
            refused[name] = "two tools have this name"
            continue
        fault = _find_fault(row)
        if fault:
            refused[name] = fault
        else:
            found[name] = _pin(row)
        if len(found) + len(refused) > MAX_TOOLS:
            raise ConfigError(
                f"it lists more than {MAX_TOOLS:,} tools; name those that you want: tools = […]"
            )
    return found, refused


def _find_fault(row: Mapping[str, Any]) -> str:
    name, description = row.get("name"), row.get("description")
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARS:
        return f"its name is not a text of 1 to {MAX_NAME_CHARS} characters"
    if not isinstance(description, str | None):
        return "its description is not text"
    for key in ("parameters", "output"):
        schema = row.get(key)
        if key == "output" and schema is None:
            continue
        if not isinstance(schema, dict):
            return f"the schema of its {key} is not an object"
        # Every question of every session carries the schemas of its tools, so one server could fill a model's
        # context.
        try:
            chars = len(json.dumps(schema, allow_nan=False))
        except (ValueError, RecursionError) as error:
            return f"the schema of its {key} has no JSON form: {error}"
        if chars > MAX_SCHEMA_CHARS:
            return f"the schema of its {key} has more than {MAX_SCHEMA_CHARS:,} characters"
    return ""


def _pin(row: Mapping[str, Any]) -> PinnedTool:
    hints = row.get("annotations") or {}
    return PinnedTool(
        name=row["name"],
        description=str(row.get("description") or "")[:MAX_DESCRIPTION_CHARS],
        parameters=row["parameters"],
        output=row.get("output"),
        is_writing=hints.get("readOnlyHint") is False,
        is_destructive=hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True,
    )


class PinFile:
    """The pin of one server in a state directory.

    Args:
        state_dir: The state directory.
        server: The server's name.
    """

    def __init__(self, state_dir: Path, server: str) -> None:
        self.path = state_dir / "mcp" / "pins" / f"{server}.json"

    def parse(self, text: str) -> PinnedServer:
        """Return the pin of the file's text.

        Raises:
            ConfigError: it is damaged.
        """
        place = f"the pin {str(self.path)!r} is damaged; accept the server again: "
        return take_settings(lambda: PinnedServer.model_validate_json(text), place)


def find_changes(pinned: PinnedServer | None, identity: str, now: Mapping[str, PinnedTool]) -> dict[str, str]:
    """Return what differs from a pin: tool to ``new``, ``changed`` or ``gone``.

    The empty name stands for the server itself: how it is reached has changed, or it was never accepted.
    """
    if pinned is None:
        return {"": "new", **dict.fromkeys(now, "new")}
    before = {each.name: each for each in pinned.tools}
    found = {} if pinned.identity == identity else {"": "changed"}
    found |= {name: "gone" for name in before if name not in now}
    for name, tool in now.items():
        if name not in before:
            found[name] = "new"
        elif before[name].digest != tool.digest:
            found[name] = "changed"
    return found
