"""An agent as an owner gives it to a tree: its configuration, its tools, its policy and its skills."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from sessiontree.api.runtime.paths import list_owner_folders
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.model_settings import NO_SETTINGS, ModelSettings
from sessiontree.contracts.settings.settings import StrictSettings
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.policy.settings import PolicyConfig, ToolPolicy
from sessiontree.policy.steps import PROGRAM, TOOL_SEARCH

MEANS: Final = frozenset({PROGRAM, TOOL_SEARCH})
"""The tools that an agent is offered in place of all."""


class AgentSpec(StrictSettings):
    """An agent as given to a tree. Members of :class:`AgentConfig` may be given directly or in ``config``."""

    FURTHER_NAMES: ClassVar[Collection[str]] = tuple(AgentConfig.model_fields)

    config: AgentConfig = AgentConfig()
    tools: tuple[str, ...] | None = None
    """Names of the tools its sessions may hold; None = all that its kind allows."""
    policy: ToolPolicy | None = None
    """Lists that remove tools from its sessions, as ``agents.<name>`` of the tree's policy does."""
    delegates: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = ()
    """Names of tools that children of its sessions may hold, though its sessions may not use them."""
    skills: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = ()
    """Names of the skills its sessions may read, of those given to the tree."""
    description: str = Field(default="", max_length=1024)
    """What it is for, for sessions that choose an agent."""
    source: str = ""
    """The file that it was read from; empty = the program."""

    def __init__(
        self,
        *,
        prompt: str | None = None,
        model: str = "",
        settings: ModelSettings = NO_SETTINGS,
        tools: Sequence[str] | None = None,
        policy: ToolPolicy | None = None,
        skills: Sequence[str] = (),
        **members: Any,
    ) -> None:
        """Validate the settings.

        Args:
            prompt: As for :class:`AgentConfig`, like ``model``, ``settings`` and further members.
            model: Name of the model; empty = the tree's.
            settings: Model settings of its sessions.
            tools: Names of the tools its sessions may hold; None = all that its kind allows.
            policy: Lists that remove tools from its sessions.
            skills: Names of the skills its sessions may read.
            members: ``description``, ``delegates``, ``config``, or any other member of :class:`AgentConfig`.

        Raises:
            ConfigError: a member is unknown, wrong, or given twice; the error names each.
        """
        given: dict[str, Any] = {"prompt": prompt, "model": model or None, "tools": tools, "policy": policy}
        if settings is not NO_SETTINGS:
            given["settings"] = settings
        members |= {name: value for name, value in given.items() if value is not None}
        super().__init__(**members, skills=skills)

    # As in the base: validation of a mapping skips __init__.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def named_tools(self) -> frozenset[str]:
        """Names of the tools that it asks for, so that optional ones among them are not left out."""
        means = MEANS if self.config.tools_offered == "program" else frozenset()
        return frozenset(self.tools or ()) | means

    @model_validator(mode="after")
    def _has_means(self) -> Self:
        missing = sorted(MEANS - set(self.tools or ()))
        if self.config.tools_offered == "program" and self.tools is not None and missing:
            raise ValueError(
                f"tools_offered='program' needs {' and '.join(map(repr, missing))} in tools; add them, or "
                "leave tools_offered out"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: Any) -> Any:
        """Move the members of the configuration into it."""
        if not isinstance(given, Mapping):
            return given
        members = {name: value for name, value in given.items() if name in AgentConfig.model_fields}
        if not members:
            return given
        config = given.get("config", {})
        if isinstance(config, AgentConfig):
            config = {name: getattr(config, name) for name in config.model_fields_set}
        if not isinstance(config, Mapping):
            return given
        twice = sorted(members.keys() & config.keys())
        if twice:
            raise ValueError(f"{', '.join(twice)}: given directly and in config; give it once")
        rest = {name: value for name, value in given.items() if name not in members}
        return {**rest, "config": {**config, **members}}


def add_agent_policies(policy: PolicyConfig, agents: Mapping[str, AgentSpec]) -> PolicyConfig:
    """Return a tree's policy with the policies that its agents bring; those only remove further tools.

    Raises:
        ConfigError: an agent's policy replaces a part of the tree's policy.
    """
    own = {name: spec.policy for name, spec in agents.items() if spec.policy is not None}
    for name, each in own.items():
        if name in policy.agents:
            raise ConfigError(
                f"agent {name!r} has a policy of its own, and the tree's policy has agents.{name}; keep one"
            )
        if _has_profile(each) and _has_profile(policy.tools):
            raise ConfigError(
                f"agent {name!r}: profile and also_allow of its policy would replace those of the tree's "
                f"policy; use allow and deny, or write agents.{name} in the tree's policy"
            )
    return policy.model_copy(update={"agents": {**policy.agents, **own}}) if own else policy


def add_delegates(agents: Mapping[str, AgentSpec], policy: PolicyConfig) -> dict[str, AgentSpec]:
    """Return agents that also delegate what their tree's policy says."""
    said = policy.delegates_by_agent
    return {
        name: spec.model_copy(update={"delegates": tuple(dict.fromkeys((*spec.delegates, *said[name])))})
        if name in said
        else spec
        for name, spec in agents.items()
    }


def _has_profile(policy: ToolPolicy) -> bool:
    scopes = (policy, *policy.by_provider.values())
    return any(scope.profile is not None or scope.also_allow is not None for scope in scopes)


def check_not_inside(agents: Mapping[str, AgentSpec], root: Path) -> None:
    """Refuse agents from files of the workspace: a session could write them.

    Raises:
        ConfigError: names the agent and its file.
    """
    for name, spec in agents.items():
        source = Path(spec.source)
        if not spec.source or any(source.resolve().is_relative_to(each) for each in list_owner_folders(root)):
            continue  # sessions do not reach the owner's folders
        if source.is_relative_to(root):
            raise ConfigError(
                f"agent {name!r} comes from {spec.source!r}, which is in the workspace, where sessions may "
                "write; keep agents in a folder of their owner"
            )
