"""What an owner writes about tools: lists for all, by agent, by provider, by group and by plugin.

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
from sessiontree.contracts.message_policy import MessagePolicy
from sessiontree.contracts.settings import StrictSettings, faults_of
from sessiontree.contracts.tiers import SystemAnswer
from sessiontree.policy.catalog import Profile

Entry: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
"""A tool's name or alias, a glob such as ``memory_*``, ``group:<section>``, or a plugin's id."""


class _Written(StrictSettings):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class ToolLists(_Written):
    """One scope's lists. Each only removes; deny is stronger."""

    allow: tuple[Entry, ...] | None = None
    """What stays; None = everything, an empty list = nothing."""
    deny: tuple[Entry, ...] = ()
    """What goes, whatever else is said."""


class ProfiledTools(ToolLists):
    """Lists with a profile before them."""

    profile: Profile | None = None
    """``minimal``, ``coding``, ``messaging`` or ``full``; None = what the wider scope says."""
    also_allow: tuple[Entry, ...] | None = None
    """Added to the profile's list, and to no other; None = what the wider scope says."""


class ToolPolicy(ProfiledTools):
    """What one scope says: for every model, and for some."""

    by_provider: Mapping[str, ProfiledTools] = Field(default_factory=dict)
    """By ``provider/model`` or ``provider``; the more exact one alone counts."""


class ApplyPatchPolicy(_Written):
    """Who is offered ``apply_patch``."""

    offer: Literal["openai", "always"] = "openai"
    """``openai``: where the session's model is of that provider; ``always``: everywhere."""
    models: tuple[str, ...] = ()
    """Models of that provider that get it; empty = all."""


def _lifted(value: Any) -> Any:
    """Return a scope's lists, also where they stand inside ``tools``."""
    return value["tools"] if isinstance(value, Mapping) and value.keys() == {"tools"} else value


_Lists: TypeAlias = Annotated[ToolLists, BeforeValidator(_lifted)]
_Policy: TypeAlias = Annotated[ToolPolicy, BeforeValidator(_lifted)]


class PolicyConfig(_Written):
    """All an owner says about tools. Saying nothing removes nothing."""

    tools: ToolPolicy = ToolPolicy()
    """For every session."""
    agents: Mapping[str, _Policy] = Field(default_factory=dict)
    """By agent. Its profile and ``also_allow`` stand in place of those for every session."""
    groups: Mapping[str, _Lists] = Field(default_factory=dict)
    """By the group a tree's channel belongs to; children are of their parent's group."""
    plugins: Mapping[str, _Lists] = Field(default_factory=dict)
    """By plugin: judges that plugin's tools alone, before every other step."""
    sandbox: _Lists = ToolLists()
    """For confined sessions, which all are."""
    subagents: _Lists = ToolLists()
    """For all sessions but Main."""
    apply_patch: ApplyPatchPolicy = ApplyPatchPolicy()
    system_tier: SystemAnswer = "allow"
    """What happens to System calls: they run, need an approval (``ask``), or are refused (``deny``). Of this,
    of what is said of the agent and of the group, and of what agent and channel say in code, the strictest
    counts."""
    system_tier_by_agent: Mapping[str, SystemAnswer] = Field(default_factory=dict)
    """The same for the sessions of an agent."""
    system_tier_by_group: Mapping[str, SystemAnswer] = Field(default_factory=dict)
    """The same for trees whose channel belongs to a group."""
    after_untrusted: SystemAnswer = "allow"
    """What happens to calls above ReadOnly of a session that has taken in untrusted text: they run, need an
    approval (``ask``), or are refused (``deny``). Untrusted is what web tools and memories of others say, and
    what a tool or result says of itself; it reaches children, and whoever takes in a result of theirs."""
    messages: MessagePolicy = MessagePolicy()
    """What Branches may send to people: who, how often, how long. What Main's channel says counts too."""
    strict: bool = False
    """Whether an entry that stands for no tool is an error instead of a warning."""


def parse_policy(text: str, *, form: Literal["json", "toml"], place: str) -> PolicyConfig:
    """Return the policy a text holds.

    Args:
        text: The file's text.
        form: What it is written in.
        place: Where it stands, for messages.

    Raises:
        ConfigError: it is not of that form, or holds what a policy doesn't; names the member.
    """
    try:
        value = json.loads(text) if form == "json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy {place} is no {form.upper()}: {error}") from error
    try:
        return PolicyConfig.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"policy {place} can't be used: {faults_of(error)}") from error
