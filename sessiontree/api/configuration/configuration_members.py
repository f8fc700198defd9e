"""The members of the owner's configuration: what its file and its variables can set.

Not here: where they are read from (``configuration.py``, ``owner_variables.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.api.agents.configured_models import ModelEntry
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.contracts.settings.settings import Budget, Limits, StrictSettings
from sessiontree.mcp.settings import McpServer
from sessiontree.policy.settings import PolicyConfig

FILE_VARIABLE: Final = "SESSIONTREE_CONFIG"
"""Names the file, unless a program or an option does."""
PREFIX: Final = "SESSIONTREE_"
"""How the names of variables begin."""
_Name = Annotated[str, Field(min_length=1, max_length=64)]
_Model = Annotated[str, Field(min_length=1, max_length=200)]


def _to_list(value: object) -> object:
    """Return a list of one name; anything else as it is."""
    return (value,) if isinstance(value, str) else value


def _refuse_owner(value: object) -> object:
    if value == "owner":
        raise ValueError(
            "'owner' here would let every checkout speak as you; name the workspace: "
            '[workspaces."/its/path"] agents_md = "owner"'
        )
    return value


class WorkspaceEntry(StrictSettings):
    """What the owner says of a workspace: ``[workspaces."/path"]``."""

    trusted: bool = False
    """Whether the workspace's own settings may narrow rights and add to prompts."""
    agents_md: Literal["owner", "workspace", "none"] | None = None
    """Whose text its AGENTS.md is; ``none`` leaves it out, None = as for other workspaces."""


class ConfigurationMembers(StrictSettings):
    """What an owner configures for all their trees.

    Members that are None are left to the program.
    """

    model: Annotated[tuple[_Model, ...], BeforeValidator(_to_list)] = ()
    """The model of sessions whose agent names none: a name in ``models``, or ``provider:model``; of several,
    the next one is asked if one fails. Empty = the program names one."""
    compaction_model: _Model | None = None
    """The model that writes the summaries of agents that name none: a name in ``models``, or
    ``provider:model``; None = the session's model."""
    models: Mapping[_Name, ModelEntry] = Field(default_factory=dict)
    """Models by name."""
    agent: _Name | None = None
    """The agent that Main runs as; None = ``default``."""
    agents: Mapping[_Name, AgentSpec] = Field(default_factory=dict)
    """Agents by name."""
    approvals: ApprovalMode | None = None
    """``auto``, ``smart``, ``always`` or ``never``."""
    limits: Limits = Limits()
    """Limits of a tree."""
    budget: Budget | None = None
    """Budget of a tree."""
    policy: PolicyConfig = PolicyConfig()
    """Which tools sessions may hold."""
    agents_md: Annotated[Literal["workspace", "none"], BeforeValidator(_refuse_owner)] | None = None
    """Whether a workspace's AGENTS.md joins prompts, marked as its own; ``none`` = it does not."""
    workspaces: Mapping[str, WorkspaceEntry] = Field(default_factory=dict)
    """Workspaces by their absolute path."""
    mcp: Mapping[_Name, McpServer] = Field(default_factory=dict)
    """MCP servers by name; an entry without command and url adds to that of ``mcp_file``."""
    mcp_file: Annotated[str, Field(min_length=1)] | None = None
    """A JSON file with ``mcpServers``; its path is absolute, or relative to the configuration's folder."""

    @field_validator("workspaces")
    @classmethod
    def _absolute(cls, given: Mapping[str, WorkspaceEntry]) -> Mapping[str, WorkspaceEntry]:
        for path in given:
            if not expand_place(path).is_absolute():
                raise ValueError(f"{path!r}: give an absolute path")
        return given


def expand_place(path: str) -> Path:
    """Return a path with its home directory; ``~name`` of an unknown user stays: it is relative."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
