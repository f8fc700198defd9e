"""The parts of trees that no journal holds, as one value: models, tools, agents, hooks and the like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypedDict, cast

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.api.agents.model_choice import ModelLike
from sessiontree.api.options.options import PluginsLike, check_hooks, check_tools
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.given_values import Instance, Parts, Toggle, check_fields
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec
from sessiontree.contracts.tools.hooks import Hook
from sessiontree.contracts.tools.tool import Tool
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.mcp.settings import McpServer
from sessiontree.web.settings import PUBLIC_WEB, WebSettings

SkillsLike: TypeAlias = str | Path | Sequence[str | Path] | None
"""A folder of skills, several, or None."""
ProgramsLike: TypeAlias = str | Path | Sequence[str | Path] | None
"""A folder of saved programs, several, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What a tree is made of and no journal holds: it is given again when the tree is resumed.

    One value serves many trees: new ones, resumed ones, and those of a suite. It can be a module's constant,
    and it is pickled if its parts can be. ``dataclasses.replace`` makes one that differs.

    Raises:
        ConfigError: a tool or a hook is not valid. What depends on the workspace is checked by the tree.
    """

    model: ModelLike | None = None
    """Model of the sessions: a model, or a provider's model by name, such as ``anthropic:claude-sonnet-5``;
    or a list of them: if one fails, the next is asked. None is for a suite, whose runs name the model."""
    models: Mapping[str, ModelLike] | None = None
    """Models for agents that name another one (``AgentConfig.model``), by any name."""
    tools: Iterable[Tool[Any]] = ()
    """Tools in addition to those of installed distributions. A tree that is resumed loses those of its tools
    that are not given, and gets no new ones."""
    agents: Annotated[
        Mapping[str, Annotated[AgentSpec, Instance("an AgentSpec")]] | None,
        Parts("agents by name, such as {'default': AgentSpec(…)}"),
    ] = None
    """Agents by name; ``default`` is created if it is missing. The rights of a resumed tree's agents come
    from its journal."""
    plugins: PluginsLike = None
    """Plugin settings by id, or the path of a JSON or TOML file with them, which is read for each tree."""
    web: Annotated[WebSettings | None, Instance("WebSettings, or None for no web at all")] = PUBLIC_WEB
    """What the sessions may read on the web: by default public pages, with no search provider; None =
    nothing."""
    hooks: Iterable[Hook] = ()
    """Hooks on the calls, messages, spawns and lives of the sessions. In trees without ``await`` they run on
    the loop or in threads of their own."""
    skills: SkillsLike = None
    """A folder of skills, or several: folders with a file ``SKILL.md``. Sessions see those that their agents
    name. None may be in the workspace."""
    programs: ProgramsLike = None
    """A folder of saved programs, or several: files ``*.py`` with a typed ``main``. Each is a tool for the
    sessions whose lists name it. None may be in the workspace."""
    sandbox: Annotated[SandboxSpec | None, Instance("a SandboxSpec, or None")] = None
    """The container in which sessions run their commands, unless their agent names another one; None = this
    machine's confinement."""
    mcp: Annotated[
        Mapping[str, Annotated[McpServer, Instance("an McpServer")]] | None,
        Parts("servers by name, such as {'git': McpServer(command=…)}"),
    ] = None
    """MCP servers by name. Their tools are those that the owner accepted (``sessiontree mcp
    accept``), Elevated until the owner lowers them. A resumed tree keeps those that are still accepted."""
    builtin_tools: Toggle = True
    """False leaves out the tools of installed distributions."""
    configuration: str | Path | None = None
    """The file of the owner's configuration, which the tool ``gateway`` shows and patches for owners; None =
    the tool has none. It must be outside the workspace."""

    def __post_init__(self) -> None:
        """Check tools and hooks, and keep copies: what the program changes later does not reach trees."""
        check_fields(self)
        object.__setattr__(self, "tools", check_tools(self.tools))
        object.__setattr__(self, "hooks", check_hooks(self.hooks))
        for name in ("models", "plugins", "mcp"):
            if isinstance(given := getattr(self, name), Mapping):
                object.__setattr__(self, name, dict(given))
        for name in ("skills", "programs"):
            if isinstance(given := getattr(self, name), list):
                object.__setattr__(self, name, tuple(given))


APP_MEMBERS: Final = tuple(each.name for each in fields(App))
"""Names of its members."""


class AppOptions(TypedDict, total=False):
    """The members of an :class:`App` as keywords, for a program that opens one tree."""

    model: ModelLike
    models: Mapping[str, ModelLike] | None
    tools: Iterable[Tool[Any]]
    agents: Mapping[str, AgentSpec] | None
    plugins: PluginsLike
    web: WebSettings | None
    hooks: Iterable[Hook]
    skills: SkillsLike
    programs: ProgramsLike
    sandbox: SandboxSpec | None
    mcp: Mapping[str, McpServer] | None
    builtin_tools: bool
    configuration: str | Path | None


def take_app(app: App | None, options: Mapping[str, object]) -> App:
    """Return the app that a program gives, or the one that its keywords make.

    Args:
        app: The app; None = the keywords hold its members.
        options: All keywords of the call; others than an app's members are passed over.

    Raises:
        ConfigError: both are given, or the app is something else.
    """
    members = {name: options[name] for name in APP_MEMBERS if name in options}
    if app is None:
        return App(**cast("dict[str, Any]", members))
    if not isinstance(app, App):
        raise ConfigError(f"app: give an App, such as App(model=…, tools=[…]), not {app!r}")
    if members:
        name = next(iter(members))
        raise ConfigError(
            f"app and {name} are given, and an App holds the {name}: "
            f"give dataclasses.replace(app, {name}=…), or keywords alone"
        )
    return app
