"""An owner's configuration of tools: lists for all sessions, by agent, by provider, by group and by plugin.

In a file the members may be written as the specification writes them (``alsoAllow``, ``byProvider``, and a
scope's lists inside ``tools``: ``agents.<id>.tools.allow``) or as they are called here.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier, SystemAnswer, TierLabel
from sessiontree.contracts.settings.settings import MessagePolicy, StrictSettings, describe_faults
from sessiontree.policy.catalog import Profile

PolicyEntry: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
"""A tool's name or alias, a glob such as ``memory_*``, ``group:<section>``, or a plugin's id."""


class _Written(StrictSettings):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class ToolLists(_Written):
    """The lists of one scope. Each list only removes tools; deny wins over allow."""

    allow: tuple[PolicyEntry, ...] | None = None
    """What is kept; None = everything, an empty list = nothing."""
    deny: tuple[PolicyEntry, ...] = ()
    """What is removed, whatever other lists say."""


class ProfiledTools(ToolLists):
    """Lists that start from a profile."""

    profile: Profile | None = None
    """``minimal``, ``coding``, ``messaging`` or ``full``; None = the wider scope decides."""
    also_allow: tuple[PolicyEntry, ...] | None = None
    """Added to the profile's list, and to no other; None = the wider scope decides."""


class ToolPolicy(ProfiledTools):
    """The settings of one scope: for every model, and for particular ones."""

    by_provider: Mapping[str, ProfiledTools] = Field(default_factory=dict)
    """By ``provider/model`` or ``provider``; only the more exact one counts."""


class ApplyPatchPolicy(_Written):
    """Which sessions are offered ``apply_patch``."""

    offer: Literal["openai", "always"] = "openai"
    """``openai``: if the session's model is of that provider; ``always``: everywhere."""
    models: tuple[str, ...] = ()
    """Models of that provider that get it; empty = all."""


def _lift(value: Any) -> Any:
    """Return a scope's lists, even if they are inside ``tools``."""
    return value["tools"] if isinstance(value, Mapping) and value.keys() == {"tools"} else value


_Lists: TypeAlias = Annotated[ToolLists, BeforeValidator(_lift)]
_Policy: TypeAlias = Annotated[ToolPolicy, BeforeValidator(_lift)]


class PolicyConfig(_Written):
    """Everything an owner configures about tools. An empty policy removes nothing."""

    tools: ToolPolicy = ToolPolicy()
    """For every session."""
    agents: Mapping[str, _Policy] = Field(default_factory=dict)
    """By agent. Its profile and ``also_allow`` replace those for every session."""
    groups: Mapping[str, _Lists] = Field(default_factory=dict)
    """By the group that a tree's channel belongs to; children belong to their parent's group."""
    plugins: Mapping[str, _Lists] = Field(default_factory=dict)
    """By plugin: applies only to that plugin's tools, before every other step."""
    sandbox: _Lists = ToolLists()
    """For confined sessions; every session is confined."""
    subagents: _Lists = ToolLists()
    """For all sessions except Main."""
    apply_patch: ApplyPatchPolicy = ApplyPatchPolicy()
    """Which sessions are offered ``apply_patch``."""
    system_tier: SystemAnswer = "allow"
    """What happens to System calls: they run, need an approval (``ask``), or are refused (``deny``). The
    strictest counts of this setting, those of agent and group, and those of agent and channel in code."""
    system_tier_by_agent: Mapping[str, SystemAnswer] = Field(default_factory=dict)
    """The same for the sessions of an agent."""
    system_tier_by_group: Mapping[str, SystemAnswer] = Field(default_factory=dict)
    """The same for trees whose channel belongs to a group."""
    delegates_by_agent: Mapping[str, tuple[PolicyEntry, ...]] = Field(default_factory=dict)
    """By agent: names of tools that children of its sessions may hold, though its sessions may not; in
    addition to what the agent itself says."""
    max_tier: TierLabel | None = None
    """No session holds a tool above this tier, and no call above it runs or asks for an approval; None = each
    tier is possible."""
    max_tier_by_group: Mapping[str, TierLabel] = Field(default_factory=dict)
    """The same while a session acts for somebody in a group, and for trees whose channel belongs to it."""
    max_tools: tuple[PolicyEntry, ...] | None = None
    """The tools that a session holds at most, whatever other lists add; None = all."""
    after_untrusted: SystemAnswer = "allow"
    """What happens to calls above ReadOnly of a session that has taken in untrusted text: they run, need an
    approval (``ask``), or are refused (``deny``). Untrusted text comes from web tools, memories of others,
    and tools or results that mark themselves so. It spreads to children, and to sessions that take in their
    results."""
    messages: MessagePolicy = MessagePolicy()
    """What Branches may send to people: who, how often, how long. Limits of Main's channel also apply."""
    strict: bool = False
    """Whether an entry that does not name a tool is an error instead of a warning."""

    def highest_tier_in(self, group: str) -> PermissionTier:
        """Return the highest tier of a call in a group."""
        labels = (self.max_tier, self.max_tier_by_group.get(group))
        found = [PermissionTier.from_label(label) for label in labels if label is not None]
        return min(found, default=PermissionTier.ELEVATED)


def parse_policy(text: str, *, form: Literal["json", "toml"], place: str) -> PolicyConfig:
    """Return the policy in a text.

    Args:
        text: The file's text.
        form: The format of the text.
        place: Where it is, for messages.

    Raises:
        ConfigError: it is not in that format, or contains an unknown or invalid member; names the member.
    """
    try:
        value = json.loads(text) if form == "json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy {place} is not valid {form.upper()}: {error}") from error
    try:
        return PolicyConfig.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"policy {place} can't be used: {describe_faults(error)}") from error
