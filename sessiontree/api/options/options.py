"""Conversion of a program's arguments into the configuration of a tree."""

from __future__ import annotations

import json
import secrets
import sys
import tomllib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict, cast

from pydantic import TypeAdapter

from sessiontree.api.agents.agents import AgentSpec, check_not_inside
from sessiontree.api.agents.approval_modes import choose_mode
from sessiontree.api.agents.model_choice import check_prices
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.program_channels import (
    Approver,
    BelowListener,
    CallbackChannel,
    DisplayListener,
    QueueChannel,
)
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import AgentRow, PolicyRow, TreeConfig
from sessiontree.contracts.kinds import SessionKind, SystemAnswer, WorkspaceChoice
from sessiontree.contracts.recorded.approvals import ApprovalMode, Rule
from sessiontree.contracts.recorded.capabilities import READER
from sessiontree.contracts.settings.given_values import (
    Choice,
    Give,
    Instance,
    Parts,
    Text,
    take_members,
    take_settings,
)
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec
from sessiontree.contracts.settings.settings import (
    Budget,
    Limits,
    MessagePolicy,
    get_default_settings,
    suggest_names,
    suggest_nearest,
)
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.hooks import Hook, check_hook, get_hook_name
from sessiontree.contracts.tools.plugins import PluginContext, PluginSettings
from sessiontree.contracts.tools.tool import Tool, check_is_tool
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.mcp.server_tools import ServerTool
from sessiontree.policy.compiled import PolicyWarning
from sessiontree.policy.rules import find_rule_slips
from sessiontree.policy.settings import PolicyConfig, parse_policy
from sessiontree.runtime.rights.session_rights import make_policy_row
from sessiontree.runtime.runner.approver_function import load_approver
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.schema.dialect import SchemaWarning
from sessiontree.tree.state.budgets import find_endless
from sessiontree.version import RULES, VERSION

ApproverLike: TypeAlias = "Approver | Sequence[Rule] | str | None"
"""Who answers requests for approval: a function, rules, a function as ``module:function``, or nobody."""
ChannelLike = HumanChannel | Literal["queue"] | None
"""Where a tree meets a person: a channel, ``queue`` for a :class:`QueueChannel`, or nowhere."""
PolicyLike: TypeAlias = PolicyConfig | str | Path | None
"""Which tools sessions may hold: a policy, the path of a JSON or TOML file with one, or None."""
PluginsLike: TypeAlias = Mapping[str, PluginSettings | Mapping[str, Any]] | str | Path | None
"""Settings of plugins by id, the path of a JSON or TOML file with them, or None."""
GUIDANCE_FILE: Final = "AGENTS.md"
"""The file of a workspace that joins the prompts of sessions that may read it."""
GuidanceSource: TypeAlias = Literal["workspace", "trusted", "owner"]
"""Whose text the workspace's AGENTS.md is: a workspace's, one's that the owner trusts, or the owner's."""
FORMS: dict[str, Literal["json", "toml"]] = {".json": "json", ".toml": "toml"}
_SETTINGS = TypeAdapter(dict[str, PluginSettings])


def make_tree_id() -> str:
    """Return a fresh unguessable id."""
    return f"t{secrets.token_hex(8)}"


def make_nonce() -> str:
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


def build_tree_config(  # noqa: PLR0913 - one value for each thing a tree is made from
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
    child_workspace: WorkspaceChoice,
    policy: PolicyRow,
    messages: tuple[MessagePolicy, ...],
    hooks: tuple[Hook, ...],
) -> TreeConfig:
    """Return the configuration of a new tree.

    Raises:
        ConfigError: a budget can't be kept, or a number is endless.
    """
    members = get_channel_members(channel)
    if budget is not None and budget.cost_usd is not None:
        check_prices(agents.values())
    for numbers in (limits, budget):
        name = find_endless(numbers)
        if name is not None:
            raise ConfigError(f"{name} is not finite; give a number, or None for no bound")
    return TreeConfig(
        tree_id=tree_id,
        nonce=make_nonce(),
        workspace=str(root),
        package_version=VERSION,
        rules_number=RULES,
        created_at_ms=read_machine_ms(),
        model=model_name,
        limits=limits or get_default_settings(Limits),
        mode=choose_mode(approvals),
        rules=rules,
        smart_rules=tuple(smart_rules),
        owns_channel=channel is not None,
        owners=tuple(dict.fromkeys(members.get("owners", ()))),
        system_tier=members.get("system_tier", "allow"),
        messages=messages,
        budget=budget,
        tools=table.journal_rows,
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
                spec.config.workspace,
                tuple(sorted(spec.config.exec_hosts)),
                spec.config.outside_roots,
                spec.delegates,
            )
            for name, spec in agents.items()
        ),
        purpose=purpose,
        dedicated=dedicated,
        child_workspace=child_workspace,
        policy=policy,
        guards=_list_guards(hooks),
    )


def load_policy(given: PolicyLike) -> PolicyConfig:
    """Return an owner's tool policy; a path refers to a JSON or TOML file.

    Raises:
        ConfigError: the policy is not valid, or the file can't be read; names the member.
    """
    if given is None:
        return get_default_settings(PolicyConfig)
    if isinstance(given, PolicyConfig):
        return given
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


def load_plugin_settings(given: PluginsLike) -> dict[str, PluginSettings]:
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
    members = dict(value) if isinstance(value, Mapping) else value
    return take_settings(lambda: _SETTINGS.validate_python(members), f"{place} can't be used: ")


def build_plugin_context(
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
        channel=_read_text(channel, "name"),
        account=_read_text(channel, "account"),
        group=group,
        agent_dir=state_dir / "agents" / names[0],
        tree_id=tree_id,
    )


def _read_text(channel: HumanChannel | None, name: str) -> str:
    """Return the text of a channel's attribute; empty if it has none."""
    said = getattr(channel, name, "")
    return said if isinstance(said, str) else ""


def build_policy_row(
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
        ConfigError: the policy is strict and it or a rule has a probable mistake.
    """
    models = {name: spec.config.model for name, spec in agents.items()}
    named_tools = {name: spec.named_tools for name, spec in agents.items()}
    row, slips = make_policy_row(policy, group, table, models, named_tools)
    named = [(f"systemTierByAgent.{name}", name) for name in policy.system_tier_by_agent]
    named += [(f"delegatesByAgent.{name}", name) for name in policy.delegates_by_agent]
    named += [(f"messages.agents: {name}", name) for name in policy.messages.agents or ()]
    unknown = [
        f"{place}: the tree has no agent of that name{suggest_nearest(name, agents)}"
        for place, name in named
        if name not in agents
    ]
    schemas = {entry.name: entry.compiled.schema for entry in table}
    aliases = {alias: entry.name for entry in table for alias in entry.tool.aliases}
    for place, listed in rules.items():
        unknown += find_rule_slips(place, listed, schemas, aliases)
    if unknown and policy.strict:
        raise ConfigError(f"policy: {unknown[0]}")
    for slip in (*slips, *unknown):
        warnings.warn(PolicyWarning(slip), stacklevel=3)  # the line that makes the tree
    return row


def check_tools(tools: Iterable[Tool[Any]]) -> tuple[Tool[Any], ...]:
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


def find_agents_without_read(
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

    Rights only shrink on the way down, so a tool reaches a Worker only if Main holds or delegates it.

    Args:
        table: A tree's tools.
        agents: Its agents by name.
        own: Names of this package's tools: agents may name them even if they are left out.

    Raises:
        ConfigError: an agent names an unknown tool.
    """
    names = {entry.name for entry in table}
    for agent, spec in agents.items():
        for name in (*(spec.tools or ()), *spec.delegates, *spec.config.tool_timeouts):
            if name not in names and name not in own:
                entry = table.get(name)
                near = (
                    suggest_names(name, names) if entry is None else f"it is an alias: write {entry.name!r}"
                )
                raise ConfigError(f"agent {agent!r}: no tool is named {name!r}; {near}")
    delegated = next((spec.delegates for spec in agents.values()), ())
    for entry in table:
        if SessionKind.MAIN not in entry.tool.kinds and entry.name not in delegated:
            kinds = ", ".join(sorted(entry.tool.kinds)) or "no kind of session"
            warnings.warn(
                PolicyWarning(
                    f"tool {entry.name!r} is for {kinds} alone and reaches nobody: a session holds at most "
                    "what its parent holds or delegates, Main first; add SessionKind.MAIN to its kinds, or "
                    "the tool to delegates of Main's agent"
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
        if isinstance(entry.tool, ServerTool):
            continue  # its schema is the server's, and nobody here can change it
        for slip in entry.compiled.warnings:
            if entry.name in own:
                raise ConfigError(f"tool {entry.name!r}: {slip}")
            warnings.warn(SchemaWarning(f"tool {entry.name!r}: {slip}"), stacklevel=4)  # as above
    return table


def check_hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks of a tree, in the order given.

    Raises:
        ConfigError: a hook is invalid, or two have the same name.
    """
    given = tuple(hooks)
    for each in given:
        check_hook(each)
    names = [get_hook_name(each) for each in given]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two hooks are called {name!r}; give one of them another name")
    return given


def _list_guards(hooks: Iterable[Hook]) -> tuple[str, ...]:
    return tuple(get_hook_name(each) for each in hooks if each.on_error == "block")


def check_given(config: TreeConfig, agents: Mapping[str, AgentSpec], hooks: Iterable[Hook]) -> None:
    """Refuse to resume a tree without its agents or its guards.

    Raises:
        ConfigError: an agent or a guard of the tree is missing; names them.
    """
    missing = [row.name for row in config.agents if row.name not in agents]
    if missing:
        raise ConfigError(f"tree {config.tree_id} has agents that are not given: {', '.join(missing)}")
    given = _list_guards(hooks)
    missing = [name for name in config.guards if name not in given]
    if missing:
        raise ConfigError(
            f"tree {config.tree_id} has guards that are not given as hooks: {', '.join(missing)}"
        )


class ChannelMembers(TypedDict, total=False):
    """What a channel may have besides ``send`` and ``ask``."""

    tools: Annotated[Sequence[Annotated[Tool[Any], Instance("a tool")]], Parts("a list of tools")]
    """A tree without the channel does not have them."""
    owners: Annotated[Sequence[Text], Parts("a list of senders' ids")]
    system_tier: Annotated[SystemAnswer, Choice()]
    """Its setting for System calls."""
    show: Annotated[DisplayListener | None, Give("a function of tool and display")]
    """Shows display lines of tools."""
    show_below: Annotated[BelowListener | None, Give("a function of session, tool and display")]
    """Shows those of the sessions below."""
    message_policy: Annotated[MessagePolicy | None, Instance("a MessagePolicy, or None")]
    """Limits on messages of Branches."""


def get_channel_members(channel: HumanChannel | None) -> ChannelMembers:
    """Return the attributes of a channel that it has of these.

    Raises:
        ConfigError: one does not fit.
    """
    names = ChannelMembers.__optional_keys__
    given = {name: getattr(channel, name) for name in sorted(names) if hasattr(channel, name)}
    return cast("ChannelMembers", take_members(given, ChannelMembers, "a channel's "))


def collect_message_policies(
    policy: PolicyConfig, channel: HumanChannel | None, agents: Mapping[str, AgentSpec]
) -> tuple[MessagePolicy, ...]:
    """Return the limits on messages of Branches: the policy's, then the channel's ``message_policy``.

    Raises:
        ConfigError: the channel's is not a MessagePolicy, or names an agent that the tree does not have.
    """
    no_limits = get_default_settings(MessagePolicy)
    said = get_channel_members(channel).get("message_policy") or no_limits
    for name in said.agents or ():
        if name not in agents:
            raise ConfigError(
                "a channel's message_policy: the tree has no agent of the name "
                f"{name!r}{suggest_nearest(name, agents)}"
            )
    return tuple(each for each in (policy.messages, said) if each != no_limits)


def collect_agents(
    agents: Mapping[str, AgentSpec] | None,
    root: Path,
    main: str = "default",
    sandbox: SandboxSpec | None = None,
) -> dict[str, AgentSpec]:
    """Return agents by name, Main's first, each with its name and its container set.

    Raises:
        ConfigError: one comes from a file below ``root``, the workspace; or Main's is missing.
    """
    given = {"default": get_default_settings(AgentSpec), **(agents or {})}
    check_not_inside(given, root)
    if main not in given:
        raise ConfigError(f"agent: no agent is named {main!r}; {suggest_names(main, given)}")
    return {
        name: spec.model_copy(update={"config": _place_agent(spec.config, name, sandbox)})
        for name, spec in {main: given[main], **given}.items()
    }


def _place_agent(config: AgentConfig, name: str, sandbox: SandboxSpec | None) -> AgentConfig:
    """Return an agent's configuration with its name, and with the place of its commands."""
    place = config.sandbox or sandbox
    if place is None:
        return config.model_copy(update={"agent_id": name})
    if config.exec_security != "full":
        raise ConfigError(
            f"agent {name!r}: exec_security={config.exec_security!r} excludes the tree's container, whose "
            "programs are not known to be harmless; use 'full', or no sandbox"
        )
    prompt = f"{config.prompt}\n\n{place.description}"
    return config.model_copy(update={"agent_id": name, "sandbox": place, "prompt": prompt})


def remove_tools(agents: Mapping[str, AgentSpec] | None) -> Mapping[str, AgentSpec] | None:
    """Return agents for a resumed tree, without rights: the journal says which tools and skills each has."""
    if not isinstance(agents, Mapping):
        return agents
    gone: dict[str, Any] = {"tools": None, "policy": None, "skills": (), "delegates": ()}
    return {
        name: spec.model_copy(update=gone) if isinstance(spec, AgentSpec) else spec
        for name, spec in agents.items()
    }


def choose_channel(channel: ChannelLike, approver: HumanChannel | None) -> HumanChannel | None:
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
    get_channel_members(channel)
    return channel


def resolve_main_approver(approver: ApproverLike) -> tuple[tuple[Rule, ...], CallbackChannel | None]:
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


def parse_kind(kind: SessionKind | str) -> SessionKind:
    """Return the session kind with a name.

    Raises:
        ConfigError: the kind is unknown.
    """
    try:
        return SessionKind(kind)
    except ValueError:
        spawned = (SessionKind.BRANCH.value, SessionKind.WORKER.value)
        raise ConfigError(
            f"kind {kind!r} can't be spawned; give 'branch' or 'worker'{suggest_nearest(kind, spawned)}"
        ) from None
