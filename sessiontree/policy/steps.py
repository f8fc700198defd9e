"""The steps a session's tools pass through, in order: six that come before, then the specification's nine.

Source: seed 001, sections 8.1 and 8.2; the labels are those of its source system. Before the nine: what a
kind of session never holds, what needs a channel where there is none, the filter of each plugin, plugins'
optional tools, ``apply_patch``, and tools of owners alone. A scope that says nothing makes no step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sessiontree.contracts.capabilities import CHANNEL
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.kinds import SessionKind
from sessiontree.policy.names import folded, provider_of
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.vocabulary import PLUGINS, Vocabulary

OWNERS_ALONE = "Tool restricted to owner senders."
"""What a requester reads who is no owner. Source: seed 001, section 7.3."""

NO_CHANNEL = "it needs a channel, and no session at or above this one has one; give the tree channel=…"

APPLY_PATCH = "apply_patch"
PATCHING = ("openai", "openai_codex")
"""Providers whose models were taught ``apply_patch``, folded."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides about one session's tools."""

    kind: SessionKind
    is_owner: bool
    """Whether who makes requests there owns the tree."""
    agent: str = "default"
    model: str = ""
    """``provider/model`` or ``provider:model``."""
    group: str = ""
    """Group its tree's channel belongs to; empty = none."""
    has_channel: bool = True
    """Whether it or a session above it has a channel."""
    is_tainted: bool = False
    """Whether it has taken in untrusted text; takes no tool away, see ``after_untrusted`` of the policy."""


@dataclass(frozen=True, slots=True)
class Step:
    """One filter. It only removes: what it lets stay was there before."""

    label: str
    number: int = 0
    """1 to 9; 0 for those before."""
    profile: str = ""
    """Lets stay what the profile includes and what ``allow`` adds; empty = there is none."""
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    plugin: str = ""
    """Judges that plugin's tools alone; empty = all tools."""
    gone: tuple[str, ...] = ()
    """Exact names it removes."""
    why: str = ""
    """Why those are removed."""

    def keeps(self, words: Vocabulary) -> int:
        """Return the mask of what it would let stay of all tools."""
        kept = words.all
        if self.profile or self.allow is not None:
            kept = words.profile(self.profile) if self.profile else 0
            for entry in self.allow or ():
                kept |= words.allowed(entry)
        for entry in self.deny:
            kept &= ~words.denied(entry)
        if self.plugin:
            kept |= words.all & ~words.of_plugin(self.plugin)
        for name in self.gone:
            kept &= ~words.bit_of(name)
        return kept


def steps_of(config: PolicyConfig, standing: Standing, words: Vocabulary) -> tuple[Step, ...]:
    """Return the steps of one session's tools, in the order in which they are asked."""
    return (*_before(config, standing, words), *_nine(config, standing))


def _before(config: PolicyConfig, standing: Standing, words: Vocabulary) -> Iterator[Step]:
    kind = standing.kind
    gone = tuple(row.name for row in words.rows if kind not in row.kinds)
    yield Step(f"kind {kind}", gone=gone, why=f"no {kind} holds it")
    if not standing.has_channel:
        mute = tuple(row.name for row in words.rows if CHANNEL.name in row.capabilities)
        yield Step("channel", gone=mute, why=NO_CHANNEL)
    for plugin, lists in config.plugins.items():
        yield Step(f"plugin {plugin}", allow=lists.allow, deny=lists.deny, plugin=plugin)
    left_out = tuple(row.name for row in words.rows if _is_left_out(config, row.name, words))
    yield Step("optional", gone=left_out, why="it is optional, and no allow list names it")
    why = _patchless(config, standing.model)
    if why:
        yield Step(APPLY_PATCH, gone=(APPLY_PATCH,), why=why)
    if not standing.is_owner:
        owned = tuple(row.name for row in words.rows if ToolFlag.OWNER_ONLY in row.flags)
        yield Step("owner only", gone=owned, why=OWNERS_ALONE)


def _nine(config: PolicyConfig, standing: Standing) -> Iterator[Step]:
    everyone = config.tools
    agent = config.agents.get(standing.agent, ToolPolicy())
    by_provider = _for_model(everyone, standing.model)
    agent_by_provider = _for_model(agent, standing.model)
    yield from _profile(1, "tools.profile", agent, everyone)
    yield from _profile(2, "tools.byProvider.profile", agent_by_provider, by_provider)
    yield from _lists(3, "tools.allow", everyone)
    yield from _lists(4, "tools.byProvider.allow", by_provider)
    yield from _lists(5, f"agents.{standing.agent}.tools.allow", agent)
    yield from _lists(6, f"agents.{standing.agent}.tools.byProvider.allow", agent_by_provider)
    yield from _lists(7, "group tools.allow", config.groups.get(standing.group, ToolLists()))
    yield from _lists(8, "sandbox tools.allow", config.sandbox)
    if standing.kind is not SessionKind.MAIN:
        yield from _lists(9, "subagent tools.allow", config.subagents)


def _profile(number: int, label: str, narrow: ProfiledTools, wide: ProfiledTools) -> Iterator[Step]:
    profile = narrow.profile or wide.profile
    if profile is not None:
        also = wide.also_allow if narrow.also_allow is None else narrow.also_allow
        yield Step(f"{label} ({profile})", number, profile, also or ())


def _lists(number: int, label: str, lists: ToolLists) -> Iterator[Step]:
    if lists.allow is not None or lists.deny:
        yield Step(label, number, allow=lists.allow, deny=lists.deny)


def _for_model(policy: ToolPolicy, model: str) -> ProfiledTools:
    """Return what a scope says about one model: ``provider/model`` before ``provider``."""
    provider, name = provider_of(model)
    said: Mapping[tuple[str, str], ProfiledTools] = {
        provider_of(key) if "/" in key or ":" in key else (folded(key), ""): lists
        for key, lists in policy.by_provider.items()
    }
    return said.get((provider, name)) or said.get((provider, "")) or ProfiledTools()


def _patchless(config: PolicyConfig, model: str) -> str:
    """Return why a model is not offered ``apply_patch``; empty where it is."""
    policy = config.apply_patch
    if policy.offer == "always":
        return ""
    provider, name = provider_of(model)
    if provider not in PATCHING:
        return f"model {model!r} is none of OpenAI's; apply_patch.offer = 'always' gives it to all"
    models = {provider_of(each)[1] for each in policy.models}
    if models and name not in models:
        return f"model {model!r} is not among apply_patch.models"
    return ""


def _is_left_out(config: PolicyConfig, name: str, words: Vocabulary) -> bool:
    """Whether a plugin's optional tool is named by nobody; ``*`` and other groups don't name it."""
    row = words.row(name)
    if ToolFlag.OPTIONAL not in row.flags:
        return False
    names = {folded(each) for each in (row.name, *row.aliases, row.plugin, PLUGINS) if each}
    return names.isdisjoint(folded(entry) for entry in _allowing(config))


def _allowing(config: PolicyConfig) -> Iterator[str]:
    scopes: list[ToolPolicy] = [config.tools, *config.agents.values()]
    profiled: list[ProfiledTools] = [
        each for scope in scopes for each in (scope, *scope.by_provider.values())
    ]
    for each in profiled:
        yield from (*(each.allow or ()), *(each.also_allow or ()))
    others: Iterable[ToolLists] = (*config.groups.values(), *config.plugins.values())
    for lists in (*others, config.sandbox, config.subagents):
        yield from lists.allow or ()
