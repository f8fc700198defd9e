"""Tools that installed distributions bring along, found by the entry point group ``sessiontree.tools``.

An entry point leads to a tool, or to a factory: called once for each tree, before it opens, with what the
tree is. What can't be used is an error that names its distribution; an owner may leave a plugin out. Source:
seed 001, section 3.2; names of this house's own tools are reserved, as in the specification's source system.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError, words_of
from sessiontree.contracts.jsonable import to_json_value
from sessiontree.contracts.plugins import PLUGIN_GROUP, PluginContext, PluginSettings
from sessiontree.contracts.tool import Tool, check_tool
from sessiontree.policy.catalog import CATALOG
from sessiontree.policy.names import folded

OWN_DISTRIBUTION: Final = "sessiontree"
PATTERN_SIGNS: Final = "*:"
"""What no plugin's id may hold: lists give these a meaning."""
_RESERVED: Final = {
    folded(name): row.name for row in CATALOG if row.is_ready for name in (row.name, *row.aliases)
}
"""Names of tools there are; those still to come are free."""
_AS_IT_IS = PluginSettings()


@dataclass(frozen=True, slots=True)
class InstalledTool:
    """A tool and who brings it along."""

    tool: Tool[Any]
    plugin: str
    """Name of the entry point; empty where it is this distribution's own."""
    distribution: str = ""
    """Name and version of the distribution, such as ``weather-tools 1.2``."""
    source: str = ""
    """Where the distribution says that it is: ``module:name``."""


def installed_tools(
    context: PluginContext, settings: Mapping[str, PluginSettings] | None = None
) -> tuple[InstalledTool, ...]:
    """Return the tools of every installed distribution, in the order of their entry points' names.

    Args:
        context: The tree, as every factory is told of it; id and configuration are put in for each.
        settings: What the owner says about plugins, by id.

    Raises:
        ConfigError: an entry point can't be loaded or gives something other than tools, two plugins have one
            id or claim one tool's name, a name is reserved, or settings are for a plugin nobody installed.
            Says which distribution, and how to do without.
    """
    own: list[EntryPoint] = []
    plugins: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=PLUGIN_GROUP), key=lambda each: (each.name, _owner_of(each))):
        if entry.dist is not None and folded(entry.dist.name) == OWN_DISTRIBUTION:
            own.append(entry)
            continue
        other = plugins.setdefault(folded(entry.name), entry)
        if other is not entry:
            both = f"{_owner_of(other)} and {_owner_of(entry)}"
            raise ConfigError(f"two plugins have the id {entry.name!r}: {both}; uninstall one of them")
    said = {folded(name): each for name, each in (settings or {}).items()}
    _check_known(settings or {}, plugins)
    found = [each for entry in own for each in _tools_of(entry, replace(context, plugin_id=""), plugin="")]
    for name, entry in plugins.items():
        settings_of = said.get(name, _AS_IT_IS)
        if settings_of.enabled:
            _check_id(entry)
            told = replace(context, plugin_id=entry.name, config=_copy_of(settings_of.config))
            found += _tools_of(entry, told, plugin=entry.name)
    check_claims(found)
    return tuple(found)


def check_claims(installed: Iterable[InstalledTool], given: Iterable[Tool[Any]] = ()) -> None:
    """Check that every name and alias of a plugin's tool is its own.

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
        who = f"{_place(each.distribution, each.plugin)} ({_class_of(each.tool)})"
        for spelling in _spellings(each.tool):
            if folded(spelling) in _RESERVED:
                raise ConfigError(
                    f"two tools are called {spelling!r}: {who} brings one along, and this package has "
                    f"{_RESERVED[folded(spelling)]}, whose names are reserved; {_without(each.plugin)}"
                )
            other = claimed.setdefault(folded(spelling), who)
            if other is not who:
                raise ConfigError(
                    f"two tools are called {spelling!r}: {other} brings one along, and {who}; "
                    f"{_without(each.plugin)}"
                )
    for tool in given:
        for spelling in _spellings(tool):
            if folded(spelling) in claimed:
                raise ConfigError(
                    f"two tools are called {spelling!r}: {claimed[folded(spelling)]} brings one along, and "
                    f"the program gives {_class_of(tool)}; rename that, or leave the plugin out"
                )


def _spellings(tool: Tool[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((tool.name, *tool.aliases)))


def _class_of(tool: Tool[Any]) -> str:
    return f"{type(tool).__module__}.{type(tool).__qualname__}"


def _check_known(settings: Mapping[str, PluginSettings], plugins: Mapping[str, EntryPoint]) -> None:
    strangers = [name for name in settings if folded(name) not in plugins]
    if strangers:
        there = ", ".join(sorted(entry.name for entry in plugins.values())) or "none"
        raise ConfigError(f"plugins: nobody installed {', '.join(map(repr, strangers))}; there are: {there}")


def _check_id(entry: EntryPoint) -> None:
    name = entry.name
    if folded(name) in _RESERVED:
        why = f"is the name of this package's tool {_RESERVED[folded(name)]}"
    elif not folded(name) or any(sign in name for sign in PATTERN_SIGNS):
        why = f"can't be named in a list: it is empty there, or holds one of {PATTERN_SIGNS}"
    else:
        return
    raise ConfigError(f"{_place(_owner_of(entry), name)}: its id {why}; {_without(name)}")


def _copy_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plugin's own copy of its configuration: what it changes there nobody else sees."""
    return {name: to_json_value(value) for name, value in config.items()}


def _tools_of(entry: EntryPoint, context: PluginContext, *, plugin: str) -> list[InstalledTool]:
    distribution = _owner_of(entry)
    place = f"{_place(distribution, entry.name)}, entry point {entry.value!r} in group {PLUGIN_GROUP},"
    try:
        made = _made(entry.load(), context)
        for each in made:
            check_tool(each)
        return [InstalledTool(each, plugin, distribution, entry.value) for each in made]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: loading runs the distribution's own code
        raise ConfigError(f"{place} can't be used: {words_of(error)}; {_without(entry.name)}") from error


def _made(loaded: Any, context: PluginContext) -> tuple[Tool[Any], ...]:
    """Return the tools an entry point leads to.

    Raises:
        TypeError: it leads to something else.
    """
    if isinstance(loaded, Tool):
        return (loaded,)
    if not callable(loaded):
        raise TypeError(f"it leads to {loaded!r}, which is neither a Tool nor a factory of tools")
    made = _called(loaded, context)
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
            raise TypeError(f"its factory gives {each!r}, which is no Tool")
    return tools


def _called(factory: Callable[..., Any], context: PluginContext) -> Any:
    """Call a factory with the context, or with nothing where it takes nothing."""
    try:
        takes = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # it does not tell
        return factory(context)
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    wanted = [each for each in takes if each.kind in positional or each.kind is each.VAR_POSITIONAL]
    return factory(context) if wanted else factory()


def _owner_of(entry: EntryPoint) -> str:
    """Return name and version of the distribution an entry point is of."""
    return "an unknown distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _place(distribution: str, plugin: str) -> str:
    return f"plugin {plugin!r} of {distribution}"


def _without(plugin: str) -> str:
    return f"leave it out with plugins={{{plugin!r}: {{'enabled': False}}}}, or uninstall it"
