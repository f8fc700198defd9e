"""Tools that a client hosts: what it declared becomes tools of the tree, whose calls wait for the client.

What was declared is in the journal, so that a conversation has its tools again after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.tools.client_tool import ClientTool
from sessiontree.contracts.tools.tool import RawTool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.policy.settings import PolicyConfig
from sessiontree.runtime.rights.session_rights import read_journaled_policy

MAX_TOOLS: Final = 128
MAX_SCHEMA_CHARS: Final = 32_768
"""Longest JSON text of one tool's parameters."""
CALL_S: Final = 3_600.0
"""How long a call waits for its client, in seconds; the tree then goes on without it."""
_NO_PARAMETERS: Final[dict[str, JsonValue]] = {"type": "object", "properties": {}}


class GivenFunction(BaseModel):
    """A function that a client declares."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = Field(default=None, max_length=16_384)
    parameters: dict[str, Any] | None = None

    @property
    def declared(self) -> dict[str, JsonValue]:
        """What the journal keeps of it."""
        parameters = {**_NO_PARAMETERS, **(self.parameters or {})}
        return {"description": self.description or self.name, "parameters": parameters}


class ClientHostedTool(ClientTool, RawTool):
    """A tool that the client of a door hosts.

    Args:
        name: Its name.
        declared: Its ``description``, and the JSON Schema of its ``parameters``.
        tier: The tier of its calls.
    """

    def __init__(self, name: str, declared: Mapping[str, JsonValue], tier: PermissionTier) -> None:
        parameters: Any = declared["parameters"]
        super().__init__(name, str(declared["description"]), parameters, tier=tier, timeout_s=CALL_S)
        self.declared = declared


def declare(functions: Sequence[GivenFunction]) -> dict[str, Mapping[str, JsonValue]]:
    """Return what clients declare, by name.

    Raises:
        ConfigError: there are too many, two have one name, or a schema is too long; names it.
    """
    if len(functions) > MAX_TOOLS:
        raise ConfigError(f"tools: {len(functions)} are given, at most {MAX_TOOLS} fit")
    declared: dict[str, Mapping[str, JsonValue]] = {}
    for each in functions:
        if each.name in declared:
            raise ConfigError(f"tools: two are called {each.name!r}")
        if len(json.dumps(each.parameters)) > MAX_SCHEMA_CHARS:
            raise ConfigError(
                f"tools: the parameters of {each.name!r} have more than {MAX_SCHEMA_CHARS:,} characters"
            )
        declared[each.name] = each.declared
    return declared


def find_declared(config: TreeConfig) -> dict[str, Mapping[str, JsonValue]]:
    """Return what the client of a tree declared, by name."""
    return {row.name: row.declared for row in config.tools if row.declared is not None}


def find_tier(config: TreeConfig) -> str | None:
    """Return the highest tier of a call in a tree; None = it has no bound."""
    return read_journaled_policy(config)[0].max_tier


def check_repeated(config: TreeConfig, declared: Mapping[str, Mapping[str, JsonValue]]) -> None:
    """Refuse tools that are not those of a conversation's first request.

    Raises:
        ConfigError: a tool is new, or another one than before; names it.
    """
    held = find_declared(config)
    for name, each in declared.items():
        if name not in held:
            raise ConfigError(f"tools: the conversation has no {name!r}; its first request says which it has")
        if held[name] != each:
            raise ConfigError(f"tools: {name!r} is not what the first request of the conversation declared")


def add_hosted(
    options: Mapping[str, Any], declared: Mapping[str, Mapping[str, JsonValue]], max_tier: str | None
) -> dict[str, Any]:
    """Return the arguments of a tree with the tools that its client hosts.

    Args:
        options: The arguments before.
        declared: What the client declared, by name.
        max_tier: The highest tier of a call in the tree, which is the tier of these tools.

    Raises:
        ConfigError: a schema can't be used; names its tool.
    """
    tier = PermissionTier.from_label(max_tier) if max_tier else PermissionTier.ELEVATED
    hosted = [ClientHostedTool(name, each, tier) for name, each in declared.items()]
    limits = options.get("limits") or Limits()
    # A turn waits for its client as long as the call does: its answer is what the client asked for.
    patient = limits.model_copy(update={"approval_patience_s": None})
    return {**options, "tools": (*options.get("tools", ()), *hosted), "limits": patient}


def allow_hosted(policy: PolicyConfig, names: Sequence[str]) -> PolicyConfig:
    """Return a policy whose allow lists have the tools that a client hosts; what is denied stays denied."""
    lists = policy.tools
    changes: dict[str, Any] = {}
    if lists.allow is not None:
        changes["allow"] = (*lists.allow, *names)
    if lists.profile is not None:
        changes["also_allow"] = (*(lists.also_allow or ()), *names)
    if not changes:
        return policy
    return policy.model_copy(update={"tools": lists.model_copy(update=changes)})
