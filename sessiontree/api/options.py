"""Conversion of a program's arguments into the configuration of a tree."""

from __future__ import annotations

import json
import secrets
import sys
import tomllib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from pydantic import TypeAdapter, ValidationError

from sessiontree.api.agents import AgentSpec, check_not_inside
from sessiontree.api.approval_modes import mode_of
from sessiontree.api.model_choice import check_prices
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.program_channels import Approver, CallbackChannel, DisplayListener, QueueChannel
from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.context import READER
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hooks import Hook, check_hook, name_of
from sessiontree.contracts.kinds import SessionKind, SystemAnswer
from sessiontree.contracts.model_settings import ModelSettings
from sessiontree.contracts.plugins import PluginContext, PluginSettings
from sessiontree.contracts.settings import Budget, Limits, MessagePolicy, faults_of, meant, suggestion
from sessiontree.contracts.tool import Tool, check_is_tool
from sessiontree.contracts.tree_config import AgentRow, PolicyRow, ToolRow, TreeConfig
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import PolicyWarning
from sessiontree.policy.rules import rule_slips
from sessiontree.policy.settings import PolicyConfig, parse_policy
from sessiontree.runtime.approver_function import load_approver
from sessiontree.runtime.clock import machine_ms
from sessiontree.runtime.session_rights import policy_row
from sessiontree.schema.dialect import SchemaWarning
from sessiontree.tree.budgets import endless
from sessiontree.version import RULES, VERSION

ApproverLike: TypeAlias = "Approver | Sequence[Rule] | str | None"
ChannelLike = HumanChannel | Literal["queue"] | None
PolicyLike: TypeAlias = "PolicyConfig | str | Path | None"
PluginsLike: TypeAlias = "Mapping[str, PluginSettings | Mapping[str, Any]] | str | Path | None"
GUIDANCE_FILE: Final = "AGENTS.md"
"""The file of a workspace that joins the prompts of sessions that may read it."""
GuidanceSource: TypeAlias = Literal["workspace", "trusted", "owner"]
"""Whose text the workspace's AGENTS.md is: a workspace's, one's that the owner trusts, or the owner's."""
FORMS: dict[str, Literal["json", "toml"]] = {".json": "json", ".toml": "toml"}
_SETTINGS = TypeAdapter(dict[str, PluginSettings])


def new_tree_id() -> str:
    """Return a fresh unguessable id."""
    return f"t{secrets.token_hex(8)}"


def new_nonce() -> str:
    """Return 128 fresh random bits, which make a tree's ids its own."""
    return secrets.token_hex(16)


def own_program_name() -> str:
    """Return what a person calls this program: its script, its module, ``notebook`` or ``python``."""
    script = Path(sys.argv[0] if sys.argv else "")
    if script.name == "ipykernel_launcher.py":
        return "notebook"
    if script.name in {"__main__.py", "__init__.py"}:
        return script.parent.name
    return script.name if script.name not in {"", "-c", "-m"} else "python"


def tree_config(  # noqa: PLR0913 - one value for each thing a tree is made from
    root: Path,
    table: ToolTable,
    agents: Mapping[str, AgentSpec],
    *,
    tree_id: str,
    model_name: str,
    limits: Limits | None,
    budget: Budget | None,
    approvals: ApprovalMode | None,
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
        ConfigError: the approval mode is unknown, a setting has the wrong type, or a budget can't be kept.
    """
    mode = mode_of(approvals)
    _check_type(limits, Limits, "limits")
    _check_type(budget, Budget, "budget")
    if budget is not None and budget.cost_usd is not None:
        check_prices(agents.values())
    for numbers in (limits, budget):
        name = endless(numbers)
        if name is not None:
            raise ConfigError(f"{name} is not finite; give a number, or None for no bound")
    return TreeConfig(
        tree_id=tree_id,
        nonce=new_nonce(),
        workspace=str(root),
        package_version=VERSION,
        rules_number=RULES,
        created_at_ms=machine_ms(),
        model=model_name,
        limits=limits or Limits(),
        mode=mode,
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
                spec.skills,
                spec.description,
            )
            for name, spec in agents.items()
        ),
        purpose=purpose,
        dedicated=dedicated,
        policy=policy,
        guards=_guards(hooks),
    )


def guidance_source(given: GuidanceSource | None) -> GuidanceSource | None:
    """Return whose text AGENTS.md is; None = it joins no prompt.

    Raises:
        ConfigError: the value is unknown.
    """
    known = get_args(GuidanceSource)
    if given is not None and given not in known:
        near = meant(given, known)
        raise ConfigError(f"agents_md {given!r} is not None or one of {', '.join(known)}{near}")
    return given


def policy_of(given: PolicyLike) -> PolicyConfig:
    """Return an owner's tool policy; a path refers to a JSON or TOML file.

    Raises:
        ConfigError: the policy is not valid, or the file can't be read; names the member.
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
    """Return the text of a settings file, and its format."""
    form = FORMS.get(path.suffix)
    if form is None:
        raise ConfigError(f"{name} {str(path)!r}: its name must end in .json or .toml")
    try:
        return path.read_text("utf-8"), form
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} {str(path)!r} can't be read: {error}") from error


def plugins_of(given: PluginsLike) -> dict[str, PluginSettings]:
    """Return an owner's plugin settings by id; a path refers to a JSON or TOML file.

    Raises:
        ConfigError: a setting is not valid, or the file can't be read; names the member, and shows no value.
    """
    value: object = {} if given is None else given
    place = "plugins"
    if isinstance(given, str | Path):
        text, form = _read(Path(given), "plugins")
        place = f"plugins {str(given)!r}"
        try:
            value = json.loads(text) if form == "json" else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{place} is not valid {form.upper()}: {type(error).__name__}") from None
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
    """Return the context that factories get about a tree."""
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
    """Return the text of a channel's attribute; empty if it has none."""
    said = getattr(channel, name, "")
    return said if isinstance(said, str) else ""


def policy_row_of(
    policy: PolicyConfig,
    group: str,
    table: ToolTable,
    agents: Mapping[str, AgentSpec],
    rules: Mapping[str, Sequence[Rule]],
) -> PolicyRow:
    """Return the policy of a new tree for its journal; warn of probable mistakes in it, and in rules.

    Args:
        policy: What its owner configured.
        group: The group of its channel.
        table: Its tools.
        agents: Its agents by name.
        rules: Approver rules, by the argument that holds them.

    Raises:
        ConfigError: the policy is strict and it or a rule has a probable mistake, or the group is not text.
    """
    _check_type(group, str, "group")
    models = {name: spec.config.model for name, spec in agents.items()}
    named_tools = {name: frozenset(spec.tools or ()) for name, spec in agents.items()}
    row, slips = policy_row(policy, group, table, models, named_tools)
    named = [(f"systemTierByAgent.{name}", name) for name in policy.system_tier_by_agent]
    named += [(f"messages.agents: {name}", name) for name in policy.messages.agents or ()]
    unknown = [
        f"{place}: the tree has no agent of that name{meant(name, agents)}"
        for place, name in named
        if name not in agents
    ]
    schemas = {entry.name: entry.compiled.schema for entry in table}
    aliases = {alias: entry.name for entry in table for alias in entry.tool.aliases}
    for place, listed in rules.items():
        for rule in listed:
            _check_type(rule, Rule, place)
        unknown += rule_slips(place, listed, schemas, aliases)
    if unknown and policy.strict:
        raise ConfigError(f"policy: {unknown[0]}")
    for slip in (*slips, *unknown):
        warnings.warn(PolicyWarning(slip), stacklevel=3)  # the line that makes the tree
    return row


def tools_of(tools: Iterable[Tool[Any]]) -> tuple[Tool[Any], ...]:
    """Return the tools a program gives.

    Raises:
        ConfigError: they are not a list, or one of them is not a tool; says what to write instead.
    """
    if isinstance(tools, Tool | str) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools: give a list of tools, such as tools=[my_tool], not {tools!r}")
    given = tuple(tools)
    for each in given:
        check_is_tool(each)
    return given


def agents_without_readers(
    table: ToolTable, agents: Mapping[str, AgentSpec], policy: PolicyRow
) -> frozenset[str]:
    """Return the names of agents whose sessions hold no tool that reads files, whatever their kind."""
    gone = {(each.agent, each.kind): each.tools for each in policy.removed}
    readers = [entry for entry in table if READER.name in entry.tool.capabilities]
    return frozenset(
        agent
        for agent, spec in agents.items()
        if not any(
            (spec.tools is None or entry.name in spec.tools) and entry.name not in gone.get((agent, kind), ())
            for entry in readers
            for kind in entry.tool.kinds
        )
    )


def check_reach(table: ToolTable, agents: Mapping[str, AgentSpec], own: Collection[str]) -> None:
    """Refuse agents with unknown tools; warn of a tool that no session can hold.

    Rights only shrink on the way down, so a tool reaches a Worker only through Main.

    Args:
        table: A tree's tools.
        agents: Its agents by name.
        own: Names of this package's tools: agents may name them even if they are left out.

    Raises:
        ConfigError: an agent names an unknown tool.
    """
    names = {entry.name for entry in table}
    for agent, spec in agents.items():
        for name in (*(spec.tools or ()), *spec.config.tool_timeouts):
            if name not in names and name not in own:
                entry = table.get(name)
                near = suggestion(name, names) if entry is None else f"it is an alias: write {entry.name!r}"
                raise ConfigError(f"agent {agent!r}: no tool is named {name!r}; {near}")
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
    """Return the table; refuse schemas that some providers reject, or warn of them.

    Args:
        table: A tree's tools.
        own: Names of this package's tools, whose schemas are refused; others cause a warning.

    Raises:
        ConfigError: a tool of this package has such a schema.
    """
    for entry in table:
        for slip in entry.compiled.warnings:
            if entry.name in own:
                raise ConfigError(f"tool {entry.name!r}: {slip}")
            warnings.warn(SchemaWarning(f"tool {entry.name!r}: {slip}"), stacklevel=4)  # as above
    return table


def hooks_of(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks of a tree, in the order given.

    Raises:
        ConfigError: a hook is invalid, or two have the same name.
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
    """Refuse to resume a tree without its agents or its guards.

    Raises:
        ConfigError: an agent or a guard of the tree is missing; names them.
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
    """Return the tools in a channel's attribute ``tools``; a tree without the channel does not have them.

    Raises:
        ConfigError: one is not a tool.
    """
    tools = tuple(getattr(channel, "tools", ()))
    for each in tools:
        _check_type(each, Tool, "a channel's tools")
    return tools


def channel_owners(channel: HumanChannel | None) -> tuple[str, ...]:
    """Return the ids of the senders in a channel's attribute ``owners``.

    Raises:
        ConfigError: an id is blank or not text, or the attribute is a single text.
    """
    owners = getattr(channel, "owners", ())
    listed = [owners] if isinstance(owners, str) else list(owners)
    if isinstance(owners, str) or not all(isinstance(each, str) and each.strip() for each in listed):
        raise ConfigError(f"a channel's owners: give a list of senders' ids, not {owners!r}")
    return tuple(dict.fromkeys(listed))


def channel_system_tier(channel: HumanChannel | None) -> SystemAnswer:
    """Return a channel's attribute ``system_tier``, its setting for System calls.

    Raises:
        ConfigError: the value is unknown.
    """
    said: Any = getattr(channel, "system_tier", "allow")
    if said not in get_args(SystemAnswer):
        raise ConfigError(
            f"a channel's system_tier: {said!r} is not one of {', '.join(get_args(SystemAnswer))}"
        )
    return cast("SystemAnswer", said)


def channel_show(channel: HumanChannel) -> DisplayListener | None:
    """Return a channel's function ``show``, which shows display lines of tools; None = it has none.

    Raises:
        ConfigError: it is not a function.
    """
    show: Any = getattr(channel, "show", None)
    if show is not None and not callable(show):
        raise ConfigError(f"a channel's show: give a function of tool and display, not {show!r}")
    return cast("DisplayListener | None", show)


def message_policies(
    policy: PolicyConfig, channel: HumanChannel | None, agents: Mapping[str, AgentSpec]
) -> tuple[MessagePolicy, ...]:
    """Return the limits on messages of Branches: the policy's, then the channel's ``message_policy``.

    Raises:
        ConfigError: the channel's is not a MessagePolicy, or names an agent that the tree does not have.
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


def agents_of(
    agents: Mapping[str, AgentSpec] | None, root: Path, main: str = "default"
) -> dict[str, AgentSpec]:
    """Return agents by name, Main's first, each with its name set.

    Raises:
        ConfigError: one is not an AgentSpec, or comes from a file below ``root``, the workspace; or Main's is
            missing.
    """
    given = {"default": AgentSpec(), **(agents or {})}
    for name, spec in given.items():
        _check_type(spec, AgentSpec, f"agent {name!r}")
    check_not_inside(given, root)
    if main not in given:
        raise ConfigError(f"agent: no agent is named {main!r}; {suggestion(main, given)}")
    return {
        name: spec.model_copy(update={"config": spec.config.model_copy(update={"agent_id": name})})
        for name, spec in {main: given[main], **given}.items()
    }


def without_tools(agents: Mapping[str, AgentSpec] | None) -> Mapping[str, AgentSpec] | None:
    """Return agents for a resumed tree, without rights: the journal says which tools and skills each has."""
    if not isinstance(agents, Mapping):
        return agents
    gone: dict[str, Any] = {"tools": None, "policy": None, "skills": ()}
    return {
        name: spec.model_copy(update=gone) if isinstance(spec, AgentSpec) else spec
        for name, spec in agents.items()
    }


def _check_type(value: object, wanted: type[object], name: str) -> None:
    if value is not None and not isinstance(value, wanted):
        raise ConfigError(f"{name}: give a {wanted.__name__}, not {value!r}")


def channel_of(channel: ChannelLike, approver: HumanChannel | None) -> HumanChannel | None:
    """Return the channel on which Main talks to a person.

    Raises:
        ConfigError: two channels are given, or the value is not a channel.
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
        raise ConfigError(
            f"channel {channel!r} is not valid: give an object with send and ask, 'queue' or None"
        )
    channel_show(channel)
    return channel


def main_approver(approver: ApproverLike) -> tuple[tuple[Rule, ...], CallbackChannel | None]:
    """Return Main's approver as rules and channel.

    Raises:
        ConfigError: as for :func:`split_approver`, or the approver is the name of a function.
    """
    rules, function, channel = split_approver(approver)
    if function is not None:
        raise ConfigError("Main's approver is rules or a callable; functions by name serve spawned sessions")
    return rules, channel


def split_approver(
    approver: ApproverLike,
) -> tuple[tuple[Rule, ...], str | None, CallbackChannel | None]:
    """Return an approver as rules, function path and channel; at most one of them is set.

    Raises:
        ConfigError: its form is unknown, or its function can't be imported.
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


def kind_of(kind: SessionKind | str) -> SessionKind:
    """Return the session kind with a name.

    Raises:
        ConfigError: the kind is unknown.
    """
    try:
        return SessionKind(kind)
    except ValueError:
        spawned = (SessionKind.BRANCH.value, SessionKind.WORKER.value)
        raise ConfigError(
            f"kind {kind!r} can't be spawned; give 'branch' or 'worker'{meant(kind, spawned)}"
        ) from None


def text_of(value: object, name: str) -> str:
    """Return a value that must be a text that is not blank.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} must be text with something in it, not {value!r}")
    return value


def check_settings(budget: object, ttl_s: object, settings: object) -> None:
    """Refuse arguments of the wrong type; the tree itself refuses numbers out of bounds."""
    if settings is not None and not isinstance(settings, ModelSettings):
        raise ConfigError(f"settings: give ModelSettings, not {settings!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigError(f"budget: give a Budget, not {budget!r}")
    if ttl_s is not None and (isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float)):
        raise ConfigError(f"ttl_s is {ttl_s!r}; give seconds above 0, or None for the default")
