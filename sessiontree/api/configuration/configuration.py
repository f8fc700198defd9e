"""The owner's configuration: ``sessiontree.toml``, and variables whose names begin with ``SESSIONTREE_``.

An option of a command counts before a variable, a variable before the file, the file before the defaults.
What a workspace offers is ignored, unless the owner trusts it: then it can only narrow rights.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from pydantic import PrivateAttr, ValidationError

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.api.agents.model_choice import ModelLike
from sessiontree.api.agents.owned_files import check_outside, read_owned
from sessiontree.api.configuration.configuration_members import (
    FILE_VARIABLE,
    PREFIX,
    ConfigurationMembers,
    WorkspaceEntry,
    expand_place,
)
from sessiontree.api.configuration.workspace_settings import (
    FILE_NAME,
    WorkspaceSettings,
    find_offers,
    narrow_arguments,
    read_workspace_settings,
)
from sessiontree.api.options.options import GuidanceSource
from sessiontree.api.runtime.paths import get_config_folder, make_absolute
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.contracts.settings.given_values import take_settings
from sessiontree.contracts.settings.settings import Budget, Limits, suggest_names, suggest_nearest
from sessiontree.mcp.settings import McpServer, merge_servers, read_server_file
from sessiontree.models.port import Model
from sessiontree.models.providers.provider_model import complete_model_name

PROGRAMS: Final = "programs"
"""The folder of saved programs, next to the file."""


class Configuration(ConfigurationMembers):
    """What an owner configures for all their trees, as :meth:`load` reads it.

    Members that are None are left to the program.
    """

    _file: Path | None = PrivateAttr(default=None)
    _origin: Path | None = PrivateAttr(default=None)
    """Where the file is, or would be."""
    _workspace: Path | None = PrivateAttr(default=None)
    _entry: WorkspaceEntry = PrivateAttr(default=WorkspaceEntry())
    """What the owner says of the workspace."""
    _theirs: WorkspaceSettings | None = PrivateAttr(default=None)
    """A trusted workspace's."""
    _offers: tuple[str, ...] = PrivateAttr(default=())
    _skills: Path | None = PrivateAttr(default=None)
    """The folder of the owner's skills."""
    _programs: Path | None = PrivateAttr(default=None)
    """The folder of the owner's saved programs."""

    @classmethod
    def load(cls, path: str | Path | None = None, *, workspace: str | Path | None = None) -> Configuration:
        """Read the owner's configuration: the file, and the variables that override it.

        Args:
            path: The file; None = the one that ``SESSIONTREE_CONFIG`` names, else ``sessiontree.toml`` in the
                platform's configuration folder, which need not exist. Agents in ``agents/*.md``, skills in
                ``skills/`` and saved programs in ``programs/*.py`` of the same folder belong to it.
            workspace: The workspace of the tree it is for.

        Raises:
            ConfigError: a file can't be read, another user could have written it, it is in the workspace, or
                a member or variable is unknown or wrong; names the file or variable, and the member.
        """
        root = None if workspace is None else make_absolute(workspace, "workspace")
        named = os.environ.get(FILE_VARIABLE) or None if path is None else path
        file = _get_default_file() if named is None else make_absolute(named, "config")
        is_there = named is not None or file.exists()
        if named is not None and not file.exists():
            raise ConfigError(f"the configuration {str(file)!r} does not exist; name a file, or leave it out")
        check_outside(file.parent if named is None else file, "the configuration", root)
        if is_there:
            check_outside(file, "the configuration", root)
        values = _parse_toml(read_owned(file, "configuration"), file) if is_there else {}
        _check_file(values, file)
        found = _add_variables(values)
        agents = _load_agents_beside(file, found.agents)
        found = found.model_copy(update={"agents": {**found.agents, **agents}})
        return found._read_from(file, is_there, root)  # noqa: SLF001 - of this class

    def _read_from(self, file: Path, is_there: bool, workspace: Path | None) -> Self:
        self._file, self._workspace = file if is_there else None, workspace
        self._origin = file
        self._skills = _find_folder_beside(file, "skills")
        self._programs = _find_folder_beside(file, PROGRAMS)
        if workspace is not None:
            self._entry = self._find_entry(workspace.resolve())
            self._offers = find_offers(workspace)
            is_read = FILE_NAME in self._offers and self._entry.trusted
            self._theirs = read_workspace_settings(workspace) if is_read else None
        return self

    def _find_entry(self, place: Path) -> WorkspaceEntry:
        named = [path for path in self.workspaces if expand_place(path).resolve() == place]
        if len(named) > 1:
            twice = " and ".join(map(repr, named))
            raise ConfigError(f"{self._place('workspaces')}: {twice} are the same directory; keep one")
        return self.workspaces[named[0]] if named else WorkspaceEntry()

    def _choose_guidance(self) -> GuidanceSource | None:
        """Return whose text the workspace's AGENTS.md is; None = it joins no prompt."""
        said = self._entry.agents_md or self.agents_md or "workspace"
        if said == "none":
            return None
        return "trusted" if said == "workspace" and self._entry.trusted else said

    @property
    def file(self) -> Path | None:
        """The file that was read; None = none was read."""
        return self._file

    @property
    def programs_folder(self) -> Path:
        """Where the owner's saved programs are, or would be."""
        return (self._origin or _get_default_file()).parent / PROGRAMS

    @property
    def notice(self) -> str:
        """One line about what the workspace offers, and what of it is ignored; empty = it offers nothing."""
        if not self._offers:
            return ""
        if self._theirs is None:
            trust = f'[workspaces."{self._workspace}"] trusted = true in {self._file or _get_default_file()}'
            allowed = f"; to let its file narrow rights: {trust}" if FILE_NAME in self._offers else ""
            return f"ignored in the workspace: {', '.join(self._offers)}{allowed}"
        rest = [name for name in self._offers if name != FILE_NAME]
        used = f"the workspace's {FILE_NAME} narrows rights"
        return f"{used}; ignored in the workspace: {', '.join(rest)}" if rest else used

    def mcp_servers(self) -> dict[str, McpServer]:
        """Return all MCP servers by name, with those of :attr:`mcp_file`, without those that are disabled.

        Raises:
            ConfigError: the file can't be read, another user could have written it, or an entry is wrong.
        """
        of_file: dict[str, McpServer] = {}
        if self.mcp_file is not None:
            file = (self._origin or _get_default_file()).parent / expand_place(self.mcp_file)
            check_outside(file, "mcp_file", self._workspace)
            of_file = read_server_file(read_owned(file, "mcp_file"), f"mcp_file {str(file)!r}")
        return merge_servers(self.mcp, of_file, self._place("mcp"))

    def find_model(self, name: str) -> Model | str:
        """Return a model by its name in :attr:`models`; a name with a colon may also be ``provider:model``.

        Raises:
            ConfigError: the model can't be made, or none has that name.
        """
        entry = self.models.get(name)
        if entry is not None:
            return entry.built(self._place(f"models.{name}"), self._workspace)
        if ":" not in name:
            near = suggest_names(name, self.models)
            whole = complete_model_name(name)
            if whole and not suggest_nearest(name, list(self.models)):
                near = f"did you mean {whole!r}? write provider:model"
            elif not self.models:
                near = "write provider:model, such as openai:gpt-5; sessiontree models lists the providers"
            raise ConfigError(f"{self._place('models')}: no model is called {name!r}; {near}")
        return name

    def model_called(self, name: str) -> str:
        """Return the name under which a tree's model is configured.

        Args:
            name: The model's own name, ``provider:model``, as a journal has it.

        Raises:
            ConfigError: several models are configured that have this name.
        """
        named = [key for key, entry in self.models.items() if entry.model == name]
        if self.model[:1] and self.model[0] in named:
            return self.model[0]
        if not named:
            return name
        if len(named) > 1:
            raise ConfigError(
                f"{self._place('models')}: {', '.join(named)} are all {name}; name the one to continue with"
            )
        return named[0]

    def tree_options(
        self,
        *,
        model: str | None = None,
        agent: str | None = None,
        agents: Mapping[str, AgentSpec] | None = None,
        approvals: ApprovalMode | None = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
    ) -> dict[str, Any]:
        """Return arguments for :class:`sessiontree.SessionTree`, async or sync.

        The settings of a trusted workspace then narrow them.

        Args:
            model: The model instead of the configured one.
            agent: Main's agent instead of the configured one; one of ``agents`` if they are given.
            agents: All agents of the tree, instead of the configured ones and their skills.
            approvals: The approval mode instead of the configured one.
            limits: Limits that apply where the configuration sets none.
            budget: Amounts instead of the configured ones; a member that is None leaves the configured one.

        Raises:
            ConfigError: the agent is unknown, or a model can't be made.
        """
        given = self.agents if agents is None else agents
        configured = self.agent if agents is None else None
        main = agent if agent is not None else configured or "default"
        if main != "default" and main not in given:
            known = {"default", *given}
            raise ConfigError(
                f"{self._place('agents')}: no agent is named {main!r}; {suggest_names(main, known)}"
            )
        chosen = self.model if model is None else (model,)
        options: dict[str, Any] = {
            "agents": self._add_writer(given),
            "agent": main,
            "models": self._find_models(given),
            "limits": _replace_members(limits or Limits(), self.limits),
            "budget": self.budget if budget is None else _replace_members(self.budget or Budget(), budget),
            "policy": self.policy,
        }
        if self._choose_guidance() != "workspace":
            options["agents_md"] = self._choose_guidance()
        if self._skills is not None and agents is None:
            options["skills"] = self._skills
        if self._programs is not None:
            options["programs"] = self._programs
        if self._origin is not None:
            options["configuration"] = self._origin
        if servers := self.mcp_servers():
            options["mcp"] = servers
        if chosen:
            made = [self.find_model(name) for name in chosen]
            options["model"] = made if len(made) > 1 else made[0]
        if approvals or self.approvals:
            options["approvals"] = approvals or self.approvals
        return options if self._theirs is None else narrow_arguments(options, self._theirs)

    def _add_writer(self, agents: Mapping[str, AgentSpec]) -> dict[str, AgentSpec]:
        """Return agents, with the compaction model where they name none."""
        if self.compaction_model is None:
            return dict(agents)
        named = {"compaction_model": self.compaction_model}
        return {
            name: spec
            if spec.config.compaction_model
            else spec.model_copy(update={"config": spec.config.model_copy(update=named)})
            for name, spec in {"default": AgentSpec(), **agents}.items()
        }

    def _find_models(self, agents: Mapping[str, AgentSpec]) -> dict[str, ModelLike]:
        configs = [(f"agent {name!r}: ", spec.config) for name, spec in agents.items()]
        wanted = {config.model: place for place, config in configs}
        wanted |= {config.compaction_model: place for place, config in configs}
        wanted |= {config.image_model: place for place, config in configs}
        wanted[self.compaction_model or ""] = ""
        found: dict[str, ModelLike] = {}
        for model, place in wanted.items():
            if not model:
                continue
            try:
                found[model] = self.find_model(model)
            except ConfigError as error:
                raise ConfigError(f"{place}{error}") from None
        return found

    def _place(self, member: str) -> str:
        return member if self._file is None else f"configuration {str(self._file)!r}: {member}"


def _check_file(values: Mapping[str, Any], file: Path) -> None:
    take_settings(lambda: Configuration.model_validate(values), f"configuration {str(file)!r}: ")


def _add_variables(values: Mapping[str, Any]) -> Configuration:
    from sessiontree.api.configuration.owner_variables import read_owner_variables

    try:
        return Configuration.model_validate(_merge_settings(values, read_owner_variables()))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = "__".join(map(str, fault["loc"])).upper()
        raise ConfigError(f"variable {PREFIX}{name}: {fault['msg']}") from None


def _merge_settings(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings in which those of ``over`` replace those of ``under``."""
    found = dict(under)
    for name, value in over.items():
        held = found.get(name)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            value = _merge_settings(held, value)
        found[name] = value
    return found


def _replace_members(under: Any, over: Any) -> Any:
    """Return settings in which the members that ``over`` sets replace those of ``under``."""
    given = {name: getattr(over, name) for name in over.model_fields_set if getattr(over, name) is not None}
    return under.model_copy(update=given)


def _get_default_file() -> Path:
    return get_config_folder() / FILE_NAME


def _load_agents_beside(file: Path, named: Mapping[str, AgentSpec]) -> dict[str, AgentSpec]:
    """Return the agents in Markdown files next to a configuration.

    Raises:
        ConfigError: a file is not valid or not the owner's, or its agent is in the configuration too.
    """
    folder = file.parent / "agents"
    if not folder.is_dir():
        return {}
    from sessiontree.api.agents.agent_files import load_agents

    found = load_agents(folder)
    for name in found.keys() & named.keys():
        raise ConfigError(f"agent {name!r} is in {str(file)!r} and in {found[name].source!r}; keep one")
    return found


def _find_folder_beside(file: Path, name: str) -> Path | None:
    folder = file.parent / name
    return folder if folder.is_dir() else None


def _parse_toml(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"configuration {str(file)!r} is not TOML: {error}") from None
