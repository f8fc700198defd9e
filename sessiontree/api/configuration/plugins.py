"""Tools of installed distributions, found by the entry point group ``sessiontree.tools``.

An entry point refers to a tool, or to a factory that is called with the tree's context, once for each tree,
before it opens. An unusable entry point raises an error that names its distribution; an owner may disable a
plugin. Names of this package's own tools are reserved, as in the specification's source system. Source: seed
001, section 3.2.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, describe_error
from sessiontree.contracts.tools.plugins import PLUGIN_GROUP, PluginContext, PluginSettings
from sessiontree.contracts.tools.tool import Tool, check_tool
from sessiontree.contracts.values.jsonable import to_json_value
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolEntry, ToolTable
from sessiontree.policy.catalog import CATALOG
from sessiontree.policy.vocabulary import fold_name

OWN_DISTRIBUTION: Final = "sessiontree"
PATTERN_SIGNS: Final = "*:"
"""Characters that no plugin's id may contain: they have a meaning in lists."""
_RESERVED: Final = {
    fold_name(name): row.name for row in CATALOG if row.is_ready for name in (row.name, *row.aliases)
}
"""Names of tools there are; those still to come are free."""
_AS_IT_IS = PluginSettings()


@dataclass(frozen=True, slots=True)
class InstalledTool:
    """A tool and its distribution."""

    tool: Tool[Any]
    plugin: str
    """Name of the entry point; empty for this distribution's own tools."""
    distribution: str = ""
    """Name and version of the distribution, such as ``weather-tools 1.2``."""
    source: str = ""
    """Location declared by the distribution: ``module:name``."""
    entry: ToolEntry | None = None
    """This distribution's own tools are the same in every tree, so they are compiled once."""


def load_installed_tools(
    context: PluginContext, settings: Mapping[str, PluginSettings] | None = None
) -> tuple[InstalledTool, ...]:
    """Return the tools of every installed distribution, in the order of their entry points' names.

    Args:
        context: The tree's context for every factory; id and configuration are set for each plugin.
        settings: The owner's plugin settings, by id.

    Raises:
        ConfigError: an entry point can't be loaded or returns something other than tools, two plugins have
            the same id or claim the same tool name, a name is reserved, or settings name a plugin that is not
            installed. Says which distribution, and how to disable it.
    """
    own: list[_PluginEntry] = []
    plugins: dict[str, _PluginEntry] = {}
    for each in _find_plugin_entries():
        if each.is_own:
            own.append(each)
            continue
        other = plugins.setdefault(fold_name(each.name), each)
        if other is not each:
            both = f"{other.owner} and {each.owner}"
            raise ConfigError(f"two plugins have the id {each.name!r}: {both}; uninstall one of them")
    said = {fold_name(name): each for name, each in (settings or {}).items()}
    _check_known(settings or {}, plugins)
    found = [tool for each in own for tool in _load_own_tools(each)]
    for name, each in plugins.items():
        settings_of = said.get(name, _AS_IT_IS)
        if settings_of.enabled:
            _check_id(each)
            told = replace(context, plugin_id=each.name, config=_copy_config(settings_of.config))
            found += _load_tools(each, told, plugin=each.name)
    check_claims(found)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _PluginEntry:
    """An entry point of the group, and its distribution, which is slow to read."""

    entry: EntryPoint
    owner: str
    """Name and version of the distribution."""
    is_own: bool
    """Whether it is this distribution's."""

    @property
    def name(self) -> str:
        return self.entry.name


def _find_plugin_entries() -> tuple[_PluginEntry, ...]:
    """Return the group's current entry points, sorted by name.

    The result is cached until ``sys.path`` or one of its directories changes: installing a distribution
    creates a directory there, and uninstalling it removes one.
    """
    finders = [each for each in sys.meta_path if each is not PathFinder]
    if [each for each in finders if hasattr(each, "find_distributions")]:
        return _find_entries.__wrapped__(())  # a finder of distributions without a modification time
    return _find_entries(tuple([(place, _read_mtime_ns(place)) for place in map(os.path.abspath, sys.path)]))


@lru_cache(maxsize=8)
def _find_entries(places: tuple[tuple[str, int], ...]) -> tuple[_PluginEntry, ...]:
    """Return the group's entry points; the key is the directories of ``sys.path`` with their times."""
    entries = entry_points(group=PLUGIN_GROUP)
    found = (
        _PluginEntry(
            each,
            _identify_owner(each),
            each.dist is not None and fold_name(each.dist.name) == OWN_DISTRIBUTION,
        )
        for each in entries
    )
    return tuple(sorted(found, key=lambda each: (each.name, each.owner)))


def _read_mtime_ns(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return -1


def check_claims(installed: Iterable[InstalledTool], given: Iterable[Tool[Any]] = ()) -> None:
    """Check that every name and alias of a plugin's tool is unique.

    Args:
        installed: Tools of installed distributions.
        given: Tools of the program and of its channel.

    Raises:
        ConfigError: a name is reserved, or claimed twice; says by whom.
    """
    claimed: dict[str, str] = {}
    for each in installed:
        if not each.plugin:
            continue
        who = f"{_place(each.distribution, each.plugin)} ({_name_class(each.tool)})"
        for spelling in _list_spellings(each.tool):
            if fold_name(spelling) in _RESERVED:
                raise ConfigError(
                    f"two tools are called {spelling!r}: {who} brings one along, and this package has "
                    f"{_RESERVED[fold_name(spelling)]}, whose names are reserved; "
                    f"{_explain_removal(each.plugin)}"
                )
            other = claimed.setdefault(fold_name(spelling), who)
            if other is not who:
                raise ConfigError(
                    f"two tools are called {spelling!r}: {other} brings one along, and {who}; "
                    f"{_explain_removal(each.plugin)}"
                )
    for tool in given:
        for spelling in _list_spellings(tool):
            if fold_name(spelling) in claimed:
                raise ConfigError(
                    f"two tools are called {spelling!r}: {claimed[fold_name(spelling)]} brings one "
                    f"along, and the program gives {_name_class(tool)}; rename that, or leave the plugin out"
                )


def split_hidden(
    installed: Iterable[InstalledTool], given: Iterable[Tool[Any]]
) -> tuple[tuple[InstalledTool, ...], tuple[Tool[Any], ...]]:
    """Return the tools without those that a tool which the client of a door hosts hides.

    Args:
        installed: Tools of installed distributions.
        given: Tools of the program and of its channel.
    """
    kept = tuple(given)
    hosted = [tool for tool in kept if getattr(tool, "declared", None) is not None]
    if not hosted:
        return tuple(installed), kept
    names = {fold_name(tool.name) for tool in hosted}

    def is_hidden(tool: Tool[Any]) -> bool:
        return tool not in hosted and any(fold_name(each) in names for each in _list_spellings(tool))

    found = tuple(each for each in installed if not is_hidden(each.tool))
    return found, tuple(tool for tool in kept if not is_hidden(tool))


def _list_spellings(tool: Tool[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((tool.name, *tool.aliases)))


def _name_class(tool: Tool[Any]) -> str:
    return f"{type(tool).__module__}.{type(tool).__qualname__}"


def _check_known(settings: Mapping[str, PluginSettings], plugins: Mapping[str, _PluginEntry]) -> None:
    strangers = [name for name in settings if fold_name(name) not in plugins]
    if strangers:
        there = ", ".join(sorted(entry.name for entry in plugins.values())) or "none"
        raise ConfigError(f"plugins: {', '.join(map(repr, strangers))}: not installed; installed: {there}")


def _check_id(found: _PluginEntry) -> None:
    name = found.name
    if fold_name(name) in _RESERVED:
        why = f"is the name of this package's tool {_RESERVED[fold_name(name)]}"
    elif not fold_name(name) or any(sign in name for sign in PATTERN_SIGNS):
        why = f"can't be named in a list: it is empty there, or holds one of {PATTERN_SIGNS}"
    else:
        return
    raise ConfigError(f"{_place(found.owner, name)}: its id {why}; {_explain_removal(name)}")


def _copy_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a separate copy of a plugin's configuration, which the plugin may change."""
    return {name: to_json_value(value) for name, value in config.items()}


@lru_cache(maxsize=8)
def _load_own_tools(found: _PluginEntry) -> tuple[InstalledTool, ...]:
    """Return this distribution's tools; their factory takes nothing of a tree, and they keep nothing."""
    context = PluginContext(plugin_id="", workspace_root=Path("/"), agent_id="")
    tools = _load_tools(found, context, plugin="")
    table = ToolTable(each.tool for each in tools)
    return tuple(replace(each, entry=table.get(each.tool.name)) for each in tools)


def _load_tools(found: _PluginEntry, context: PluginContext, *, plugin: str) -> list[InstalledTool]:
    entry, distribution = found.entry, found.owner
    place = f"{_place(distribution, entry.name)}, entry point {entry.value!r} in group {PLUGIN_GROUP},"
    try:
        made = _make_tools(entry.load(), context)
        for each in made:
            check_tool(each)
        return [InstalledTool(each, plugin, distribution, entry.value) for each in made]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: loading runs the distribution's own code
        raise ConfigError(
            f"{place} can't be used: {describe_error(error)}; {_explain_removal(entry.name)}"
        ) from error


def _make_tools(loaded: Any, context: PluginContext) -> tuple[Tool[Any], ...]:
    """Return the tools of an entry point.

    Raises:
        TypeError: it refers to something else.
    """
    if isinstance(loaded, Tool):
        return (loaded,)
    if not callable(loaded):
        raise TypeError(f"it leads to {loaded!r}, which is neither a Tool nor a factory of tools")
    made = _call(loaded, context)
    if made is None:
        return ()
    if isinstance(made, Tool):
        return (made,)
    if inspect.iscoroutine(made):
        made.close()
        raise TypeError("its factory is async; make it a plain function, and wait in the tool's execute")
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise TypeError(f"its factory gives {made!r}; return a Tool, several of them or None")
    tools = tuple(made)
    for each in tools:
        if not isinstance(each, Tool):
            raise TypeError(f"its factory returned {each!r}, which is not a Tool")
    return tools


def _call(factory: Callable[..., Any], context: PluginContext) -> Any:
    """Call a factory with the context, or without arguments if it takes none."""
    try:
        takes = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # its signature is unknown
        return factory(context)
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    wanted = [each for each in takes if each.kind in positional or each.kind is each.VAR_POSITIONAL]
    return factory(context) if wanted else factory()


def _identify_owner(entry: EntryPoint) -> str:
    """Return name and version of an entry point's distribution."""
    return "an unknown distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _place(distribution: str, plugin: str) -> str:
    return f"plugin {plugin!r} of {distribution}"


def _explain_removal(plugin: str) -> str:
    return f"leave it out with plugins={{{plugin!r}: {{'enabled': False}}}}, or uninstall it"
