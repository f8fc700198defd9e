"""Plugins: what an installed distribution's factory of tools is told, and what an owner says about it.

Source: seed 001, section 3.2. The specification's source system calls a factory for each session; here the
tools of a tree are fixed for its life, so that a factory is called once for each tree, before it opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ConfigDict, Field, JsonValue

from sessiontree.contracts.settings import StrictSettings
from sessiontree.contracts.tool import Tool

PLUGIN_GROUP: Final = "sessiontree.tools"
"""The group of entry points that tools are found by."""


class PluginSettings(StrictSettings):
    """What an owner says about one plugin. It is never journaled: it may hold secrets."""

    model_config = ConfigDict(hide_input_in_errors=True)

    enabled: bool = True
    """False: nothing of it is loaded."""
    config: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Whatever the plugin wants to know; only itself understands it."""


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a factory is told about the tree its tools are for."""

    plugin_id: str
    """Name of its entry point."""
    workspace_root: Path
    agent_id: str
    """Main's agent."""
    agents: tuple[str, ...] = ("default",)
    """All agents of the tree, Main's first."""
    channel: str = ""
    """Name of the channel Main talks to a person on; empty = none, or one without a name."""
    group: str = ""
    """Group the channel belongs to; empty = none."""
    sandboxed: bool = True
    """Whether the commands of its sessions run confined."""
    config: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the owner says to this plugin; a copy of its own."""
    account: str = ""
    """Account that the channel speaks as, where it says one in an attribute ``account``."""
    agent_dir: Path | None = None
    """Directory for files that Main's agent keeps from tree to tree; the plugin makes it when it needs it. It
    lies in the state directory, where no command of a session writes."""
    tree_id: str = ""
    """Id of the tree, the same when it is taken up again; empty = the tools are listed, and there is none."""
    session_id: str = "main"
    """The session the factory is called for: Main, on behalf of all sessions of the tree."""


PluginFactory: TypeAlias = Callable[[PluginContext], "Tool[Any] | Iterable[Tool[Any]] | None"]
"""Gives one tool, several, or none. An entry point leads to one, or to a tool itself."""
