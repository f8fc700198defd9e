"""Tools that installed distributions bring along, found by the entry point group ``sessiontree.tools``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.tool import Tool

GROUP = "sessiontree.tools"


def installed_tools() -> tuple[Tool[Any], ...]:
    """Return the tools of every installed distribution, in the order of their entry points' names.

    Raises:
        ConfigError: an entry point can't be loaded or gives something other than tools.
    """
    tools: list[Tool[Any]] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        tools.extend(_load(entry))
    return tuple(tools)


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
