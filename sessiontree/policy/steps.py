"""The steps that a session's tools pass through: preliminary ones, the specification's nine, and one more.

Source: seed 001, sections 8.1 and 8.2; the labels are those of its source system. The preliminary steps
remove: what a kind of session never holds, what is above the policy's highest tier, what needs a missing
channel, web access, browser, speech, image model or interpreter, what each plugin's filter removes, optional
tools of plugins, ``apply_patch``, and tools only for owners. The last step removes what the session only
delegates. A scope without settings makes no step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import BROWSER, CANVAS, CHANNEL, HTTP, SPEECH, VISION, WEB
from sessiontree.contracts.tools.tool import ToolFlag
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.policy.catalog import CatalogRow
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.vocabulary import PLUGINS, Vocabulary, fold_name, split_model_name

OWNERS_ALONE = "Tool restricted to owner senders."
"""The text for a requester who is not an owner. Source: seed 001, section 7.3."""

NO_CHANNEL = "it needs a channel, and no session at or above this one has one; give the tree channel=…"
NO_WEB = "the session holds no web: the owner of this tree gave it web=None"
NO_BROWSER = "no browser is installed where its session runs; `sessiontree doctor` says what to install"
NO_SPEECH = "nothing can speak where its session runs; install espeak-ng, or give WebSettings(speech_url=…)"
NO_VISION = "its agent has no image model; give it AgentSpec(image_model=…)"
NO_INTERPRETER = (
    "no interpreter of programs is installed where its session runs; install sessiontree[programs], and see "
    "`sessiontree doctor`"
)
NO_TOOL_SEARCH = "its agent's model is offered all tools; give it AgentSpec(tools_offered='program')"
PROGRAM = "program"
TOOL_SEARCH = "tool_search"
_OF_PROGRAMS = "sessions"
"""Section of these two."""
WEB_SEARCH = "web_search"
NO_SEARCH = (
    "no search provider is configured; the owner of this tree can give it web=WebSettings(search_url=…)"
)

DELEGATED = "its agent does not hold it and only delegates it"
FOR_CHILDREN = "its children may hold it: its agent delegates it"
APPLY_PATCH = "apply_patch"
PATCHING = ("openai", "openai_codex")
"""Providers whose models were trained on ``apply_patch``, folded."""

WebAccess: TypeAlias = Literal["none", "pages", "search"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts that decide which tools one session may hold."""

    kind: SessionKind
    is_owner: bool
    """Whether the requester in that session owns the tree."""
    agent: str = "default"
    model: str = ""
    """``provider/model`` or ``provider:model``."""
    group: str = ""
    """Group that its tree's channel belongs to; empty = none."""
    has_channel: bool = True
    """Whether it or a session above it has a channel."""
    web: WebAccess = "search"
    """What the owner lets it read from the web: nothing, pages, or pages and search results."""
    named: frozenset[str] = frozenset()
    """Names in the list of tools of its agent."""
    has_browser: bool = True
    """Whether a browser is installed where it runs."""
    has_speech: bool = True
    """Whether espeak-ng is installed where it runs, or the owner configured a speech service."""
    has_vision: bool = True
    """Whether its agent has an image model."""
    has_interpreter: bool = True
    """Whether the interpreter of programs is installed where it runs."""
    has_tool_search: bool = True
    """Whether its agent's model is offered a search of the tools in their place."""
    delegates: frozenset[str] = frozenset()
    """Names of the tools that it may not use and its children may hold."""
    is_tainted: bool = False
    """Whether it has taken in untrusted text; removes no tool, see ``after_untrusted`` of the policy."""


@dataclass(frozen=True, slots=True)
class Step:
    """One filter. It only removes tools and never adds one."""

    label: str
    number: int = 0
    """1 to 9; 0 for the others."""
    profile: str = ""
    """Keeps what the profile includes and what ``allow`` adds; empty = no profile."""
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    plugin: str = ""
    """Applies only to that plugin's tools; empty = all tools."""
    gone: tuple[str, ...] = ()
    """Exact names that it removes."""
    why: str = ""
    """Why it removes those."""

    def keeps(self, words: Vocabulary) -> int:
        """Return the mask of the tools that it keeps, out of all tools."""
        kept = words.all
        if self.profile or self.allow is not None:
            kept = words.profile(self.profile) if self.profile else 0
            for entry in self.allow or ():
                kept |= words.allowed(entry)
        for entry in self.deny:
            kept &= ~words.denied(entry)
        if self.plugin:
            kept |= words.all & ~words.select_plugin(self.plugin)
        for name in self.gone:
            kept &= ~words.get_bit(name)
        return kept


def build_steps(config: PolicyConfig, standing: Standing, words: Vocabulary) -> tuple[Step, ...]:
    """Return the steps for one session's tools, in the order in which they are applied."""
    # Each step only removes, so the order does not change what is kept, only which step an explanation names.
    steps = (*_make_earlier_steps(config, standing, words), *_make_nine_steps(config, standing))
    if not standing.delegates:
        return steps
    passed_on = tuple(row.name for row in words.rows if row.name in standing.delegates)
    return (*steps, Step("delegates", gone=passed_on, why=DELEGATED))


def _make_earlier_steps(config: PolicyConfig, standing: Standing, words: Vocabulary) -> Iterator[Step]:
    kind = standing.kind
    gone = tuple(row.name for row in words.rows if kind not in row.kinds)
    yield Step(f"kind {kind}", gone=gone, why=f"no {kind} holds it")
    most = config.highest_tier_in(standing.group)
    if most is not PermissionTier.ELEVATED:
        above = tuple(row.name for row in words.rows if row.tier > most)
        yield Step("max tier", gone=above, why=f"the policy allows {most.label} at most (max_tier)")
    if config.max_tools is not None:
        yield Step("max tools", allow=config.max_tools)
    if not standing.has_channel:
        needing = {CHANNEL.name, CANVAS.name}
        mute = tuple(row.name for row in words.rows if not needing.isdisjoint(row.capabilities))
        yield Step("channel", gone=mute, why=NO_CHANNEL)
    if standing.web != "search":
        yield _make_web_step(standing.web, words)
    yield from _make_means_steps(standing, words)
    for plugin, lists in config.plugins.items():
        yield Step(f"plugin {plugin}", allow=lists.allow, deny=lists.deny, plugin=plugin)
    left_out = tuple(
        row.name for row in words.rows if ToolFlag.OPTIONAL in row.flags and _is_left_out(config, row, words)
    )
    unnamed = tuple(name for name in left_out if name not in standing.named)
    yield Step("optional", gone=unnamed, why="it is optional, and no profile or allow list names it")
    why = _explain_patchless(config, standing.model)
    if why:
        yield Step(APPLY_PATCH, gone=(APPLY_PATCH,), why=why)
    if not standing.is_owner:
        owned = tuple(row.name for row in words.rows if ToolFlag.OWNER_ONLY in row.flags)
        yield Step("owner only", gone=owned, why=OWNERS_ALONE)


def _make_means_steps(standing: Standing, words: Vocabulary) -> Iterator[Step]:
    """Yield the steps for what is not installed where a session runs, or not given to its agent."""
    if not standing.has_browser:
        shown = tuple(row.name for row in words.rows if BROWSER.name in row.capabilities)
        yield Step("browser", gone=shown, why=NO_BROWSER)
    if not standing.has_speech:
        spoken = tuple(row.name for row in words.rows if SPEECH.name in row.capabilities)
        yield Step("speech", gone=spoken, why=NO_SPEECH)
    if not standing.has_vision:
        seen = tuple(row.name for row in words.rows if VISION.name in row.capabilities)
        yield Step("vision", gone=seen, why=NO_VISION)
    ours = [row.name for row in words.rows if row.section == _OF_PROGRAMS]  # not a custom tool of that name
    if not standing.has_interpreter:
        means = tuple(name for name in ours if name in {PROGRAM, TOOL_SEARCH})
        yield Step("programs", gone=means, why=NO_INTERPRETER)
    if not standing.has_tool_search:
        yield Step(
            "tool search", gone=tuple(name for name in ours if name == TOOL_SEARCH), why=NO_TOOL_SEARCH
        )


def _make_web_step(web: WebAccess, words: Vocabulary) -> Step:
    reading = [row.name for row in words.rows if row.capabilities & {WEB.name, HTTP.name}]
    if web == "none":
        return Step("web", gone=tuple(reading), why=NO_WEB)
    return Step("web search", gone=tuple(name for name in reading if name == WEB_SEARCH), why=NO_SEARCH)


def _make_nine_steps(config: PolicyConfig, standing: Standing) -> Iterator[Step]:
    everyone = config.tools
    agent = config.agents.get(standing.agent, ToolPolicy())
    by_provider = _find_for_model(everyone, standing.model)
    agent_by_provider = _find_for_model(agent, standing.model)
    yield from _make_profile_steps(1, "tools.profile", agent, everyone)
    yield from _make_profile_steps(2, "tools.byProvider.profile", agent_by_provider, by_provider)
    yield from _make_list_steps(3, "tools.allow", everyone)
    yield from _make_list_steps(4, "tools.byProvider.allow", by_provider)
    yield from _make_list_steps(5, f"agents.{standing.agent}.tools.allow", agent)
    yield from _make_list_steps(6, f"agents.{standing.agent}.tools.byProvider.allow", agent_by_provider)
    yield from _make_list_steps(7, "group tools.allow", config.groups.get(standing.group, ToolLists()))
    yield from _make_list_steps(8, "sandbox tools.allow", config.sandbox)
    if standing.kind is not SessionKind.MAIN:
        yield from _make_list_steps(9, "subagent tools.allow", config.subagents)


def _make_profile_steps(
    number: int, label: str, narrow: ProfiledTools, wide: ProfiledTools
) -> Iterator[Step]:
    profile = narrow.profile or wide.profile
    if profile is not None:
        also = wide.also_allow if narrow.also_allow is None else narrow.also_allow
        yield Step(f"{label} ({profile})", number, profile, also or ())


def _make_list_steps(number: int, label: str, lists: ToolLists) -> Iterator[Step]:
    if lists.allow is not None or lists.deny:
        yield Step(label, number, allow=lists.allow, deny=lists.deny)


def _find_for_model(policy: ToolPolicy, model: str) -> ProfiledTools:
    """Return a scope's settings for one model: ``provider/model`` before ``provider``."""
    provider, name = split_model_name(model)
    said: Mapping[tuple[str, str], ProfiledTools] = {
        split_model_name(key) if "/" in key or ":" in key else (fold_name(key), ""): lists
        for key, lists in policy.by_provider.items()
    }
    return said.get((provider, name)) or said.get((provider, "")) or ProfiledTools()


def _explain_patchless(config: PolicyConfig, model: str) -> str:
    """Return why a model is not offered ``apply_patch``; empty if it is."""
    policy = config.apply_patch
    if policy.offer == "always":
        return ""
    provider, name = split_model_name(model)
    if provider not in PATCHING:
        return f"model {model!r} is not one of OpenAI's; apply_patch.offer = 'always' gives it to all"
    models = {split_model_name(each)[1] for each in policy.models}
    if models and name not in models:
        return f"model {model!r} is not among apply_patch.models"
    return ""


def _is_left_out(config: PolicyConfig, row: CatalogRow, words: Vocabulary) -> bool:
    """Whether nothing asks for an optional tool; ``*`` and other groups do not name a plugin's tool."""
    if not row.plugin:
        bit = words.get_bit(row.name)
        profiles = {each.profile for each in _list_profiled(config) if each.profile is not None}
        included = any(words.profile(profile) & bit for profile in profiles)
        return not included and not any(words.allowed(entry) & bit for entry in _list_allowing(config))
    names = {fold_name(each) for each in (row.name, *row.aliases, row.plugin, PLUGINS) if each}
    return names.isdisjoint(fold_name(entry) for entry in _list_allowing(config))


def _list_profiled(config: PolicyConfig) -> Iterator[ProfiledTools]:
    for scope in (config.tools, *config.agents.values()):
        yield scope
        yield from scope.by_provider.values()


def _list_allowing(config: PolicyConfig) -> Iterator[str]:
    for each in _list_profiled(config):
        yield from (*(each.allow or ()), *(each.also_allow or ()))
    others: Iterable[ToolLists] = (*config.groups.values(), *config.plugins.values())
    for lists in (*others, config.sandbox, config.subagents):
        yield from lists.allow or ()
