"""An owner's policy for one set of tools: decisions are cached, explanations and warnings are computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier, SystemAnswer
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.policy.catalog import CatalogRow
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.steps import FOR_CHILDREN, Standing, Step, build_steps
from sessiontree.policy.vocabulary import Vocabulary

ListName: TypeAlias = Literal["profile", "allow", "deny", "rule"]
"""What in a step removed a tool: the profile or allow list that lacks it, an entry of the deny list, or a
built-in rule."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The first step that removed a tool, in the order of steps."""

    step: str
    """The step's label."""
    number: int
    """1 to 9; 0 for the steps before and after them."""
    by: ListName
    pattern: str | None
    """The entry that removed it; the profile if the profile lacks it; None if an allow list lacks it."""
    why: str
    """The same, as a sentence for people."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happens to one tool in one session."""

    tool: str
    """Its name, or the requested name if no tool has it."""
    kept: bool
    removal: Removal | None
    """None if the session holds it."""
    note: str = ""
    """What happens to its calls if the session holds it; that children may hold it if the session does not.
    Empty = its tier determines its calls, or no child may hold it."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the members for a program; those about a removal are null if it was kept."""
        gone = self.removal
        return {
            "tool": self.tool,
            "kept": self.kept,
            "step": None if gone is None else gone.step,
            "number": None if gone is None else gone.number,
            "by": None if gone is None else gone.by,
            "pattern": None if gone is None else gone.pattern,
            "why": None if gone is None else gone.why,
            "note": self.note,
        }

    def __str__(self) -> str:
        """Return it as one line."""
        more = f"; {self.note}" if self.note else ""
        if self.removal is None:
            return f"{self.tool} is held{more}"
        number = f"step {self.removal.number}, " if self.removal.number else ""
        return f"{self.tool} is removed by {number}{self.removal.step}: {self.removal.why}{more}"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """Yield what rich shows: the tool, and the members of its removal that are set."""
        yield "tool", self.tool
        yield "kept", self.kept
        if self.removal is not None:
            yield "step", self.removal.step
            yield "pattern", self.removal.pattern
            yield "why", self.removal.why
        if self.note:
            yield "note", self.note


class PolicyWarning(UserWarning):
    """An owner's policy probably contains a mistake; it is used as written."""


def find_slips(config: PolicyConfig, words: Vocabulary) -> tuple[str, ...]:
    """Return the probable mistakes in a policy, each with its place.

    A list with a mistake is still used as written: an allow list with only unknown names removes every tool.
    """
    return tuple(_find_slips(config, words))


def _find_slips(config: PolicyConfig, words: Vocabulary) -> Iterator[str]:
    everyone = config.tools
    yield from _check_policy("tools", everyone, everyone, words)
    for agent, policy in config.agents.items():
        yield from _check_policy(f"agents.{agent}.tools", policy, everyone, words)
    for group, lists in config.groups.items():
        yield from _check_lists(f"groups.{group}.tools", lists, words)
    for plugin, lists in config.plugins.items():
        if not words.select_plugin(plugin):
            yield f"plugins.{plugin}: no plugin of that id brings a tool along"
        yield from _check_lists(f"plugins.{plugin}.tools", lists, words)
    yield from _check_lists("sandbox.tools", config.sandbox, words)
    yield from (
        _explain_unknown("maxTools", entry, words)
        for entry in config.max_tools or ()
        if not words.is_known(entry)
    )
    yield from _check_lists("subagents.tools", config.subagents, words)


def _check_policy(place: str, policy: ToolPolicy, wide: ToolPolicy, words: Vocabulary) -> Iterator[str]:
    yield from _check_profiled(place, policy, wide, words)
    for provider, lists in policy.by_provider.items():
        around = wide.by_provider.get(provider, ProfiledTools())
        yield from _check_profiled(f"{place}.byProvider.{provider}", lists, around, words)


def _check_profiled(
    place: str, lists: ProfiledTools, wide: ProfiledTools, words: Vocabulary
) -> Iterator[str]:
    yield from _check_lists(place, lists, words)
    also = lists.also_allow or ()
    yield from (
        _explain_unknown(f"{place}.alsoAllow", entry, words) for entry in also if not words.is_known(entry)
    )
    if also and lists.profile is None and wide.profile is None:
        yield f"{place}.alsoAllow adds to a profile's list, and no profile is set"


def _check_lists(place: str, lists: ToolLists, words: Vocabulary) -> Iterator[str]:
    for name, entries in (("allow", lists.allow or ()), ("deny", lists.deny)):
        yield from (
            _explain_unknown(f"{place}.{name}", entry, words)
            for entry in entries
            if not words.is_known(entry)
        )


def _explain_unknown(place: str, entry: str, words: Vocabulary) -> str:
    return f"{place}: {entry!r} does not name a tool{suggest_nearest(entry, words.known)}"


MAX_STANDINGS = 1024
MAX_POLICIES = 64


_AFTER_UNTRUSTED: Final[Mapping[SystemAnswer, str]] = {
    "allow": "",
    "ask": "each call needs an approval: the session has taken in untrusted text (after_untrusted is 'ask')",
    "deny": "each call is refused: the session has taken in untrusted text (after_untrusted is 'deny')",
}
"""What happens to calls of a tool above ReadOnly after untrusted text."""


@dataclass(frozen=True, slots=True)
class StepMask:
    """A step, applied to the tools of one tree."""

    step: Step
    keeps: int
    """Mask of the tools that it keeps, out of all tools."""


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """Which tools one session may hold at most."""

    kept: frozenset[str]
    sieves: tuple[StepMask, ...]
    """The steps they passed through, in order."""


def apply_steps(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Return the tools that every step keeps."""
    sieves = tuple(StepMask(step, step.keeps(words)) for step in steps)
    left = words.all
    for sieve in sieves:
        left &= sieve.keeps
    return ToolDecision(frozenset(words.list_names(left)), sieves)


def find_first_removal(decision: ToolDecision, words: Vocabulary, name: str) -> Removal | None:
    """Return the first step that removed a tool, and the reason; None if every step keeps it."""
    bit = words.get_bit(name)
    step = next((each.step for each in decision.sieves if not each.keeps & bit), None)
    if step is None:
        return None
    if name in step.gone:
        return Removal(step.label, step.number, "rule", None, step.why)
    for entry in step.deny:
        if words.denied(entry) & bit:
            return Removal(step.label, step.number, "deny", entry, f"its deny list holds {entry!r}")
    if step.profile:
        why = f"neither the profile {step.profile!r} nor also_allow holds it"
        return Removal(step.label, step.number, "profile", step.profile, why)
    why = "its allow list lacks it" if step.allow else "its allow list is empty"
    return Removal(step.label, step.number, "allow", None, why)


class CompiledPolicy:
    """Decides for any session which tools it may hold, and explains why it may not hold the others.

    Args:
        rows: The tools of the tree.
        config: The owner's lists.

    Raises:
        ConfigError: the policy is strict, and an entry names nothing.
    """

    def __init__(self, rows: Iterable[CatalogRow], config: PolicyConfig) -> None:
        """Look for mistakes; everything else is computed on request."""
        self._words = Vocabulary(rows)
        self._config = config
        self.warnings = find_slips(config, self._words)
        """Probable mistakes in the policy."""
        if config.strict and self.warnings:
            raise ConfigError(f"the policy is strict, and {'; '.join(self.warnings)}")
        self._decisions: dict[Standing, ToolDecision] = {}
        self.highest_tier_in = config.highest_tier_in
        """Returns the highest tier of a call in a group."""
        self.after_untrusted = config.after_untrusted
        """What happens to calls above ReadOnly in sessions that have taken in untrusted text."""

    def decide(self, standing: Standing) -> ToolDecision:
        """Return the tools a session may hold at most; repeated questions use the cache."""
        decision = self._decisions.get(standing)
        if decision is None:
            if len(self._decisions) >= MAX_STANDINGS:
                # A program has few standings; the bound only keeps a long-lived one from growing.
                self._decisions.clear()
            decision = apply_steps(build_steps(self._config, standing, self._words), self._words)
            self._decisions[standing] = decision
        return decision

    def explain(self, tool: str, standing: Standing) -> Explanation:
        """Return what happens to a tool, by any of its names, and the first step that removes it."""
        row = self._words.find(tool)
        if row is None:
            why = f"no tool here is called that{suggest_nearest(tool, self._words.known)}"
            return Explanation(tool, False, Removal("tools", 0, "rule", None, why))
        removal = find_first_removal(self.decide(standing), self._words, row.name)
        note = FOR_CHILDREN if row.name in standing.delegates else ""
        if removal is None and standing.is_tainted and row.tier is not PermissionTier.READ_ONLY:
            note = _AFTER_UNTRUSTED[self.after_untrusted]
        return Explanation(row.name, removal is None, removal, note)

    def removed(self, standing: Standing) -> tuple[Explanation, ...]:
        """Return an explanation for every tool that a session does not hold, in the rows' order."""
        kept = self.decide(standing).kept
        return tuple(self.explain(row.name, standing) for row in self._words.rows if row.name not in kept)


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """A policy as it applies to one session."""

    policy: CompiledPolicy
    standing: Standing

    @property
    def kept(self) -> frozenset[str]:
        """The tools it may hold at most."""
        return self.policy.decide(self.standing).kept

    def explain(self, tool: str) -> Explanation:
        """Return what happens to a tool, by any of its names."""
        return self.policy.explain(tool, self.standing)

    def find_withheld(self, askers: Iterable[Principal]) -> frozenset[str]:
        """Return the tools withheld in a turn for these principals: those that any of them may not use."""
        kept = self.kept
        met = {self._narrow_standing(asker) for asker in askers}
        # Withheld if any asker lacks it: a stranger must not act through an owner's right in the same turn.
        return frozenset().union(*(kept - self.policy.decide(standing).kept for standing in met))

    def find_highest_tier(self, askers: Iterable[Principal]) -> PermissionTier:
        """Return the highest tier of a call that is made for all of these principals."""
        groups = {self.standing.group, *(self._narrow_standing(asker).group for asker in askers)}
        return min(map(self.policy.highest_tier_in, groups))

    def explain_to(self, tool: str, askers: Iterable[Principal]) -> Explanation:
        """Return why a tool is withheld from one of these principals, or else what happens to it."""
        for asker in askers:
            found = self.policy.explain(tool, self._narrow_standing(asker))
            if not found.kept:
                return found
        return self.explain(tool)

    def _narrow_standing(self, asker: Principal) -> Standing:
        standing = self.standing
        return replace(
            standing,
            # Only ever narrowed: an asker gives a session nothing that it does not hold.
            is_owner=standing.is_owner and asker.is_owner,
            group=asker.group or standing.group,
        )


def compile_policy(rows: Iterable[CatalogRow], config: PolicyConfig) -> CompiledPolicy:
    """Return the compiled policy; the same object for equal tools and an equal policy.

    Raises:
        ConfigError: the policy is strict, and an entry names nothing.
    """
    # The text is the key of the cache, because a configuration with mappings has no hash.
    return _compile_policy(tuple(rows), config.model_dump_json())


@lru_cache(maxsize=MAX_POLICIES)
def _compile_policy(rows: tuple[CatalogRow, ...], config: str) -> CompiledPolicy:
    return CompiledPolicy(rows, PolicyConfig.model_validate_json(config))
