"""Plugins: the context that a distribution's tool factory gets, and the owner's settings of a plugin.

Source: seed 001, section 3.2. The specification's source system calls a factory for each session. Here the
tools of a tree never change, so a factory is called once for each tree, before it opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ConfigDict, Field, JsonValue

from sessiontree.contracts.settings.settings import StrictSettings
from sessiontree.contracts.tools.tool import Tool
from sessiontree.contracts.values.quick_dataclass import dataclass

PLUGIN_GROUP: Final = "sessiontree.tools"
"""The entry point group of tools."""


class PluginSettings(StrictSettings):
    """The owner's settings of one plugin. They may contain secrets, so they are never journaled."""

    model_config = ConfigDict(hide_input_in_errors=True)

    enabled: bool = True
    """False = the plugin is not loaded."""
    config: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Configuration for the plugin; only the plugin interprets it."""


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a factory knows about the tree that its tools are for."""

    plugin_id: str
    """Name of its entry point."""
    workspace_root: Path
    agent_id: str
    """Main's agent."""
    agents: tuple[str, ...] = ("default",)
    """All agents of the tree, Main's first."""
    channel: str = ""
    """Name of the channel on which Main talks to a person; empty = no channel, or one without a name."""
    group: str = ""
    """Group the channel belongs to; empty = none."""
    sandboxed: bool = True
    """Whether the commands of its sessions run confined."""
    config: Mapping[str, JsonValue] = field(default_factory=dict)
    """The owner's configuration of this plugin, as a separate copy."""
    account: str = ""
    """The channel's attribute ``account``: the account it uses; empty = not given."""
    agent_dir: Path | None = None
    """Directory for files that Main's agent keeps between trees; the plugin creates it on demand. It is in
    the state directory, where no command of a session can write."""
    tree_id: str = ""
    """Id of the tree, unchanged when the tree is resumed; empty = tools are only listed, without a tree."""
    session_id: str = "main"
    """The session for which the factory is called: Main, on behalf of all sessions of the tree."""


PluginFactory: TypeAlias = Callable[[PluginContext], "Tool[Any] | Iterable[Tool[Any]] | None"]
"""Returns one tool, several, or none. An entry point refers to a factory or to a tool."""
