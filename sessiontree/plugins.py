"""Tools that installed distributions bring along, found by the entry point group ``sessiontree.tools``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.tool import Tool

GROUP = "sessiontree.tools"
OWN_DISTRIBUTION = "sessiontree"


@dataclass(frozen=True, slots=True)
class InstalledTool:
    """A tool and who brings it along."""

    tool: Tool[Any]
    plugin: str
    """Name of the entry point; empty where it is this distribution's own."""


def installed_tools() -> tuple[InstalledTool, ...]:
    """Return the tools of every installed distribution, in the order of their entry points' names.

    Raises:
        ConfigError: an entry point can't be loaded or gives something other than tools.
    """
    return tuple(
        InstalledTool(tool, _plugin_of(entry))
        for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name)
        for tool in _load(entry)
    )


def _plugin_of(entry: EntryPoint) -> str:
    return "" if entry.dist is not None and entry.dist.name == OWN_DISTRIBUTION else entry.name


def _load(entry: EntryPoint) -> Iterable[Tool[Any]]:
    place = f"entry point {entry.name!r} = {entry.value!r} in group {GROUP}"
    try:
        made = entry.load()()
    except Exception as error:
        raise ConfigError(f"{place} can't be loaded: {type(error).__name__}: {error}") from error
    made = (made,) if isinstance(made, Tool) else tuple(made or ())
    for each in made:
        if not isinstance(each, Tool):
            raise ConfigError(f"{place} gives {each!r}, which is no Tool")
    return made
