"""From what a program gives to what a tree is made from."""

from __future__ import annotations

import json
import secrets
import tomllib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic import TypeAdapter, ValidationError

from sessiontree.channels.callback import Approver, CallbackChannel, DisplayListener
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.queue import QueueChannel
from sessiontree.contracts.agent import AgentConfig, AgentSpec
from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hooks import Hook, check_hook, name_of
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.limits import Budget, Limits
from sessiontree.contracts.message_policy import MessagePolicy
from sessiontree.contracts.plugins import PluginContext, PluginSettings
from sessiontree.contracts.settings import faults_of
from sessiontree.contracts.suggestion import meant, suggestion
from sessiontree.contracts.tiers import SystemAnswer
from sessiontree.contracts.tool import Tool, check_is_tool
from sessiontree.contracts.tree_config import AgentRow, PolicyRow, ToolRow, TreeConfig
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.models.port import name_of as model_name_of
from sessiontree.policy.lint import PolicyWarning
from sessiontree.policy.settings import PolicyConfig, parse_policy
from sessiontree.runtime.approver_function import load_approver
from sessiontree.runtime.clock import machine_ms
from sessiontree.runtime.session_policy import policy_row
from sessiontree.schema.guardrails import SchemaWarning, schema_slips
from sessiontree.tree.accounts import endless
from sessiontree.tree.rights import strictest
from sessiontree.version import VERSION

ApproverLike: TypeAlias = "Approver | Sequence[Rule] | str | None"
ChannelLike = HumanChannel | Literal["queue"] | None
PolicyLike: TypeAlias = "PolicyConfig | str | Path | None"
PluginsLike: TypeAlias = "Mapping[str, PluginSettings | Mapping[str, Any]] | str | Path | None"
MODES = ("auto", "smart", "always", "never")
FORMS: dict[str, Literal["json", "toml"]] = {".json": "json", ".toml": "toml"}
_SETTINGS = TypeAdapter(dict[str, PluginSettings])


def new_tree_id() -> str:
    """Return a fresh unguessable id."""
    return f"t{secrets.token_hex(8)}"


def tree_config(  # noqa: PLR0913 - one value for each thing a tree is made from
    root: Path,
    table: ToolTable,
    agents: Mapping[str, AgentSpec],
    *,
    tree_id: str,
    model_name: str,
    limits: Limits | None,
    budget: Budget | None,
    approvals: ApprovalMode,
    rules: tuple[Rule, ...],
    smart_rules: Sequence[Rule],
    channel: HumanChannel | None,
    purpose: str,
    dedicated: bool,
    policy: PolicyRow,
    messages: tuple[MessagePolicy, ...],
    hooks: tuple[Hook, ...],
) -> TreeConfig:
    """Return the configuration of a new tree.

    Raises:
        ConfigError: there is no such approval mode, or a setting is of another type.
    """
    if approvals not in MODES:
        raise ConfigError(f"approvals {approvals!r} is none of {', '.join(MODES)}{meant(approvals, MODES)}")
    _check_type(limits, Limits, "limits")
    _check_type(budget, Budget, "budget")
    for numbers in (limits, budget):
        name = endless(numbers)
        if name is not None:
            raise ConfigError(f"{name} is not finite; give a number, or None for no bound")
    for rule in smart_rules:
        _check_type(rule, Rule, "smart_rules")
    return TreeConfig(
        tree_id=tree_id,
        nonce=secrets.token_hex(16),
        workspace=str(root),
        package_version=VERSION,
        created_at_ms=machine_ms(),
        model=model_name,
        limits=limits or Limits(),
        mode=approvals,
        rules=rules,
        smart_rules=tuple(smart_rules),
        owns_channel=channel is not None,
        owners=channel_owners(channel),
        system_tier=channel_system_tier(channel),
        messages=messages,
        budget=budget,
        tools=tuple(
            ToolRow(entry.name, tuple(sorted(entry.tool.kinds)), entry.compiled.digest, entry.tool.command_in)
            for entry in table
        ),
        agents=tuple(
            AgentRow(
                name,
                spec.config.model,
                spec.tools,
                spec.config.system_tier,
                spec.config.exec_security,
                spec.config.workspace_access,
            )
            for name, spec in agents.items()
        ),
        purpose=purpose,
        dedicated=dedicated,
        policy=policy,
        guards=_guards(hooks),
    )


def policy_of(given: PolicyLike) -> PolicyConfig:
    """Return what an owner says about tools; a path is that of a JSON or TOML file.

    Raises:
        ConfigError: it is none, or the file can't be read or used; names the member.
    """
    if given is None:
        return PolicyConfig()
    if isinstance(given, PolicyConfig):
        return given
    if not isinstance(given, str | Path):
        raise ConfigError(f"policy: give a PolicyConfig, the path of its file or None, not {given!r}")
    text, form = _read(Path(given), "policy")
    return parse_policy(text, form=form, place=repr(str(given)))


def _read(path: Path, name: str) -> tuple[str, Literal["json", "toml"]]:
    """Return the text of a file of settings, and what it is written in."""
    form = FORMS.get(path.suffix)
    if form is None:
        raise ConfigError(f"{name} {str(path)!r}: its name must end in .json or .toml")
    try:
        return path.read_text("utf-8"), form
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} {str(path)!r} can't be read: {error}") from error


def plugins_of(given: PluginsLike) -> dict[str, PluginSettings]:
    """Return what an owner says about plugins, by id; a path is that of a JSON or TOML file.

    Raises:
        ConfigError: it is none, or the file can't be read or used; names the member, and shows no value.
    """
    value: object = {} if given is None else given
    place = "plugins"
    if isinstance(given, str | Path):
        text, form = _read(Path(given), "plugins")
        place = f"plugins {str(given)!r}"
        try:
            value = json.loads(text) if form == "json" else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{place} is no {form.upper()}: {type(error).__name__}") from None
    try:
        return _SETTINGS.validate_python(dict(value) if isinstance(value, Mapping) else value)
    except ValidationError as error:
        # The cause would show a secret.
        raise ConfigError(f"{place} can't be used: {faults_of(error)}") from None


def plugin_context(
    root: Path,
    agents: Iterable[str],
    channel: HumanChannel | None,
    group: str,
    state_dir: Path,
    tree_id: str = "",
) -> PluginContext:
    """Return what factories are told about a tree."""
    names = tuple(agents)
    return PluginContext(
        plugin_id="",
        workspace_root=root,
        agent_id=names[0],
        agents=names,
        channel=_said(channel, "name"),
        account=_said(channel, "account"),
        group=group,
        agent_dir=state_dir / "agents" / names[0],
        tree_id=tree_id,
    )


def _said(channel: HumanChannel | None, name: str) -> str:
    """Return a text that a channel says of itself in an attribute; empty where it says none."""
    said = getattr(channel, name, "")
    return said if isinstance(said, str) else ""


def policy_row_of(
    policy: PolicyConfig, group: str, table: ToolTable, agents: Mapping[str, AgentSpec], model_name: str
) -> PolicyRow:
    """Return the policy of a new tree for its journal; what is probably a slip in it is warned of.

    Raises:
        ConfigError: the policy is strict, and there is a slip; or the group is no text.
    """
    _check_type(group, str, "group")
    models = {name: spec.config.model or model_name for name, spec in agents.items()}
    row, slips = policy_row(policy, group, table, models)
    named = [(f"systemTierByAgent.{name}", name) for name in policy.system_tier_by_agent]
    named += [(f"messages.agents: {name}", name) for name in policy.messages.agents or ()]
    unknown = [
        f"{place}: the tree has no agent of that name{meant(name, agents)}"
        for place, name in named
        if name not in agents
    ]
    if unknown and policy.strict:
        raise ConfigError(f"policy: {unknown[0]}")
    for slip in (*slips, *unknown):
        warnings.warn(PolicyWarning(slip), stacklevel=3)  # the line that makes the tree
    return row


def tools_of(tools: Iterable[Tool[Any]]) -> tuple[Tool[Any], ...]:
    """Return the tools a program gives.

    Raises:
        ConfigError: they are no list, or one of them is no tool; says what to write instead.
    """
    if isinstance(tools, Tool | str) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools: give a list of tools, such as tools=[my_tool], not {tools!r}")
    given = tuple(tools)
    for each in given:
        check_is_tool(each)
    return given


def check_reach(table: ToolTable, agents: Mapping[str, AgentSpec], own: Collection[str]) -> None:
    """Refuse agents whose tools nobody knows; warn of a tool that no session can hold.

    Rights only shrink on the way down, so that a tool reaches a Worker through Main alone.

    Args:
        table: A tree's tools.
        agents: Its agents by name.
        own: Names of the tools that come with this package: agents may name them although left out.

    Raises:
        ConfigError: an agent names a tool there is not.
    """
    names = {entry.name for entry in table}
    for agent, spec in agents.items():
        for name in (*(spec.tools or ()), *spec.config.tool_timeouts):
            if name not in names and name not in own:
                entry = table.get(name)
                near = suggestion(name, names) if entry is None else f"it is an alias: write {entry.name!r}"
                raise ConfigError(f"agent {agent!r}: there is no tool {name!r}; {near}")
    for entry in table:
        if SessionKind.MAIN not in entry.tool.kinds:
            kinds = ", ".join(sorted(entry.tool.kinds)) or "no kind of session"
            warnings.warn(
                PolicyWarning(
                    f"tool {entry.name!r} is for {kinds} alone and reaches nobody: a session holds at most "
                    "what its parent holds, Main first; add SessionKind.MAIN to its kinds"
                ),
                stacklevel=3,  # the line that makes the tree
            )


def check_schemas(table: ToolTable, own: Collection[str]) -> ToolTable:
    """Return the table; schemas that some providers stumble over are refused or warned of.

    Args:
        table: A tree's tools.
        own: Names of the tools that come with this package: they have no excuse.

    Raises:
        ConfigError: a tool of this package has such a schema.
    """
    for entry in table:
        for slip in schema_slips(entry.compiled.schema):
            if entry.name in own:
                raise ConfigError(f"tool {entry.name!r}: {slip}")
            warnings.warn(SchemaWarning(f"tool {entry.name!r}: {slip}"), stacklevel=4)  # as above
    return table


def hooks_of(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks of a tree, in the order given.

    Raises:
        ConfigError: one is badly declared, or two have one name.
    """
    given = tuple(hooks)
    for each in given:
        check_hook(each)
    names = [name_of(each) for each in given]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two hooks are called {name!r}; give one of them another name")
    return given


def _guards(hooks: Iterable[Hook]) -> tuple[str, ...]:
    return tuple(name_of(each) for each in hooks if each.on_error == "block")


def check_given(config: TreeConfig, agents: Mapping[str, AgentSpec], hooks: Iterable[Hook]) -> None:
    """Refuse to take up a tree without its agents, or without what guards it.

    Raises:
        ConfigError: an agent or a guard of the tree is not given; names them.
    """
    missing = [row.name for row in config.agents if row.name not in agents]
    if missing:
        raise ConfigError(f"tree {config.tree_id} has agents that are not given: {', '.join(missing)}")
    given = _guards(hooks)
    missing = [name for name in config.guards if name not in given]
    if missing:
        raise ConfigError(
            f"tree {config.tree_id} has guards that are not given as hooks: {', '.join(missing)}"
        )


def channel_tools(channel: HumanChannel | None) -> tuple[Tool[Any], ...]:
    """Return the tools a channel brings along in an attribute ``tools``; they are gone where it is not given.

    Raises:
        ConfigError: one is no tool.
    """
    tools = tuple(getattr(channel, "tools", ()))
    for each in tools:
        _check_type(each, Tool, "a channel's tools")
    return tools


def channel_owners(channel: HumanChannel | None) -> tuple[str, ...]:
    """Return the ids of the senders whom a channel lists as owners, in an attribute ``owners``.

    Raises:
        ConfigError: one is no text with something in it, or they are one text.
    """
    owners = getattr(channel, "owners", ())
    listed = [owners] if isinstance(owners, str) else list(owners)
    if isinstance(owners, str) or not all(isinstance(each, str) and each.strip() for each in listed):
        raise ConfigError(f"a channel's owners: give a list of senders' ids, not {owners!r}")
    return tuple(dict.fromkeys(listed))


def channel_system_tier(channel: HumanChannel | None) -> SystemAnswer:
    """Return what a channel says of System calls, in an attribute ``system_tier``.

    Raises:
        ConfigError: it is none of the answers there are.
    """
    said: Any = getattr(channel, "system_tier", "allow")
    if said not in get_args(SystemAnswer):
        raise ConfigError(f"a channel's system_tier: {said!r} is none of {', '.join(get_args(SystemAnswer))}")
    return cast("SystemAnswer", said)


def channel_show(channel: HumanChannel) -> DisplayListener | None:
    """Return what a channel shows lines of tools with, its function ``show``; None = it shows none.

    Raises:
        ConfigError: it is no function.
    """
    show: Any = getattr(channel, "show", None)
    if show is not None and not callable(show):
        raise ConfigError(f"a channel's show: give a function of tool and display, not {show!r}")
    return cast("DisplayListener | None", show)


def message_policies(
    policy: PolicyConfig, channel: HumanChannel | None, agents: Mapping[str, AgentSpec]
) -> tuple[MessagePolicy, ...]:
    """Return what binds the messages of Branches: the policy, then the channel's ``message_policy``.

    Raises:
        ConfigError: a channel's is no MessagePolicy, or names an agent that the tree doesn't have.
    """
    said = getattr(channel, "message_policy", None)
    if said is None:
        said = MessagePolicy()
    _check_type(said, MessagePolicy, "a channel's message_policy")
    for name in said.agents or ():
        if name not in agents:
            raise ConfigError(
                f"a channel's message_policy: the tree has no agent of the name {name!r}{meant(name, agents)}"
            )
    return tuple(each for each in (policy.messages, said) if each != MessagePolicy())


def agents_of(agents: Mapping[str, AgentSpec] | None, model: object) -> dict[str, AgentSpec]:
    """Return agents by name, ``default`` first, each knowing its name and, if the model tells, its context.

    Raises:
        ConfigError: one is no AgentSpec, or the model's context is no number of tokens.
    """
    given = dict(agents or {})
    for name, spec in given.items():
        _check_type(spec, AgentSpec, f"agent {name!r}")
    default = given.pop("default", AgentSpec())
    named = {"default": default, **given}
    return {
        name: spec.model_copy(update={"config": _named(_fitted(spec.config, model), name)})
        for name, spec in named.items()
    }


def restricted(agents: Mapping[str, AgentSpec], policy: PolicyConfig, group: str) -> dict[str, AgentSpec]:
    """Return agents whose System calls are judged as strictly as the policy says."""
    widely = strictest(policy.system_tier, policy.system_tier_by_group.get(group, "allow"))
    found: dict[str, AgentSpec] = {}
    for name, spec in agents.items():
        own = policy.system_tier_by_agent.get(name, "allow")
        config = spec.config.model_copy(
            update={"system_tier": strictest(spec.config.system_tier, widely, own)}
        )
        found[name] = spec.model_copy(update={"config": config})
    return found


def without_tools(agents: Mapping[str, AgentSpec] | None) -> Mapping[str, AgentSpec] | None:
    """Return agents for a tree that is taken up: which tools each may hold is in its journal."""
    if not isinstance(agents, Mapping):
        return agents
    return {
        name: spec.model_copy(update={"tools": None}) if isinstance(spec, AgentSpec) else spec
        for name, spec in agents.items()
    }


def _named(config: AgentConfig, name: str) -> AgentConfig:
    return config.model_copy(update={"agent_id": name})


def _fitted(config: AgentConfig, model: object) -> AgentConfig:
    """Return an agent's settings, with the context of the tree's model where that is theirs."""
    tokens = getattr(model, "context_tokens", None)
    if tokens is None or config.context_tokens is not None or config.model not in {"", model_name_of(model)}:
        return config
    given = {name: getattr(config, name) for name in config.model_fields_set}
    try:
        return AgentConfig.model_validate({**given, "context_tokens": tokens})
    except ValidationError as error:
        raise ConfigError(
            f"model {model_name_of(model)!r}: context_tokens is {tokens!r}; give a whole number above 0"
        ) from error


def _check_type(value: object, wanted: type[object], name: str) -> None:
    if value is not None and not isinstance(value, wanted):
        raise ConfigError(f"{name}: give a {wanted.__name__}, not {value!r}")


def channel_of(channel: ChannelLike, approver: HumanChannel | None) -> HumanChannel | None:
    """Return where Main talks to a person.

    Raises:
        ConfigError: two channels, or something that is none.
    """
    if approver is not None:
        if channel != "queue":
            raise ConfigError("give a channel or a callable approver, not both: a callable is a channel")
        return approver
    if channel == "queue":
        return QueueChannel()
    if channel is None:
        return None
    is_one = callable(getattr(channel, "send", None)) and callable(getattr(channel, "ask", None))
    if not is_one or isinstance(channel, type):
        raise ConfigError(f"channel {channel!r} is none: give an object with send and ask, 'queue' or None")
    channel_show(channel)
    return channel


def main_approver(approver: ApproverLike) -> tuple[tuple[Rule, ...], CallbackChannel | None]:
    """Return Main's approver as rules and channel.

    Raises:
        ConfigError: as for :func:`split_approver`, or it is a function by name.
    """
    rules, function, channel = split_approver(approver)
    if function is not None:
        raise ConfigError("Main's approver is rules or a callable; functions by name serve spawned sessions")
    return rules, channel


def split_approver(
    approver: ApproverLike,
) -> tuple[tuple[Rule, ...], str | None, CallbackChannel | None]:
    """Return an approver as rules, function path and channel; at most one of them is given.

    Raises:
        ConfigError: it is of no known form, or its function can't be imported.
    """
    if approver is None:
        return (), None, None
    if isinstance(approver, str):
        load_approver(approver)
        return (), approver, None
    if callable(approver):
        return (), None, CallbackChannel(approver)
    rules = tuple(approver) if isinstance(approver, Iterable) else (approver,)
    if not all(isinstance(rule, Rule) for rule in rules):
        raise ConfigError(f"approver {approver!r}: give Rules, 'module:name' or a callable")
    return rules, None, None
