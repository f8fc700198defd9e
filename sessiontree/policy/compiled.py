"""An owner's policy over one set of tools, compiled: decisions are looked up, explanations worked out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.suggestion import meant
from sessiontree.contracts.tiers import PermissionTier, SystemAnswer
from sessiontree.policy.explanation import Explanation, Removal
from sessiontree.policy.lint import slips_of
from sessiontree.policy.row import CatalogRow
from sessiontree.policy.settings import PolicyConfig
from sessiontree.policy.steps import Standing, Step, steps_of
from sessiontree.policy.vocabulary import Vocabulary

MOST_STANDINGS = 1024
MOST_POLICIES = 64


_AFTER_UNTRUSTED: Final[Mapping[SystemAnswer, str]] = {
    "allow": "",
    "ask": "each call needs an approval: the session has taken in untrusted text (after_untrusted is 'ask')",
    "deny": "each call is refused: the session has taken in untrusted text (after_untrusted is 'deny')",
}
"""What becomes of a tool above ReadOnly then."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """A step over the tools of one tree."""

    step: Step
    keeps: int
    """Mask of what it would let stay of all tools."""


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """Which tools one session holds at most."""

    kept: frozenset[str]
    sieves: tuple[Sieve, ...]
    """What they passed through, in order."""


def sift(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Return what every step lets stay."""
    sieves = tuple(Sieve(step, step.keeps(words)) for step in steps)
    left = words.all
    for sieve in sieves:
        left &= sieve.keeps
    return ToolDecision(frozenset(words.names_in(left)), sieves)


def first_removal(decision: ToolDecision, words: Vocabulary, name: str) -> Removal | None:
    """Return which step removed a tool first, and by what; None where all let it stay."""
    bit = words.bit_of(name)
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
    """Says of any session which tools it may hold, and why not the others.

    Args:
        rows: The tools of the tree.
        config: The owner's lists.

    Raises:
        ConfigError: the policy is strict, and an entry stands for nothing.
    """

    def __init__(self, rows: Iterable[CatalogRow], config: PolicyConfig) -> None:
        """Look for slips; nothing else is worked out before it is asked for."""
        self._words = Vocabulary(rows)
        self._config = config
        self.warnings = slips_of(config, self._words)
        """What is probably not meant as it is written."""
        if config.strict and self.warnings:
            raise ConfigError(f"the policy is strict, and {'; '.join(self.warnings)}")
        self._decisions: dict[Standing, ToolDecision] = {}
        self.after_untrusted = config.after_untrusted
        """What happens to calls above ReadOnly of sessions that have taken in untrusted text."""

    def decide(self, standing: Standing) -> ToolDecision:
        """Return what a session holds at most; looked up where it was asked before."""
        decision = self._decisions.get(standing)
        if decision is None:
            if len(self._decisions) >= MOST_STANDINGS:
                self._decisions.clear()
            decision = sift(steps_of(self._config, standing, self._words), self._words)
            self._decisions[standing] = decision
        return decision

    def explain(self, tool: str, standing: Standing) -> Explanation:
        """Return what becomes of a tool, by any of its names, and the first step that removes it."""
        row = self._words.find(tool)
        if row is None:
            why = f"no tool here is called that{meant(tool, self._words.known)}"
            return Explanation(tool, False, Removal("tools", 0, "rule", None, why))
        removal = first_removal(self.decide(standing), self._words, row.name)
        note = ""
        if removal is None and standing.is_tainted and row.tier is not PermissionTier.READ_ONLY:
            note = _AFTER_UNTRUSTED[self.after_untrusted]
        return Explanation(row.name, removal is None, removal, note)

    def removed(self, standing: Standing) -> tuple[Explanation, ...]:
        """Return an explanation of every tool that a session does not hold, in the rows' order."""
        kept = self.decide(standing).kept
        return tuple(self.explain(row.name, standing) for row in self._words.rows if row.name not in kept)


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """A policy as one session meets it."""

    policy: CompiledPolicy
    standing: Standing

    @property
    def kept(self) -> frozenset[str]:
        """The tools it holds at most."""
        return self.policy.decide(self.standing).kept

    def explain(self, tool: str) -> Explanation:
        """Return what becomes of a tool, by any of its names."""
        return self.policy.explain(tool, self.standing)

    def withheld_from(self, askers: Iterable[Principal]) -> frozenset[str]:
        """Return what it does not hold in a turn that acts for these: what any one of them may not have."""
        kept = self.kept
        met = {self._met_by(asker) for asker in askers}
        return frozenset().union(*(kept - self.policy.decide(standing).kept for standing in met))

    def explain_to(self, tool: str, askers: Iterable[Principal]) -> Explanation:
        """Return why a tool is gone where it is gone for one of these, or else what becomes of it."""
        for asker in askers:
            found = self.policy.explain(tool, self._met_by(asker))
            if not found.kept:
                return found
        return self.explain(tool)

    def _met_by(self, asker: Principal) -> Standing:
        standing = self.standing
        return replace(
            standing,
            is_owner=standing.is_owner and asker.is_owner,
            group=asker.group or standing.group,
        )


def compiled(rows: Iterable[CatalogRow], config: PolicyConfig) -> CompiledPolicy:
    """Return the compiled policy; the same object for equal tools and an equal policy.

    Raises:
        ConfigError: the policy is strict, and an entry stands for nothing.
    """
    return _compiled(tuple(rows), config.model_dump_json())


@lru_cache(maxsize=MOST_POLICIES)
def _compiled(rows: tuple[CatalogRow, ...], config: str) -> CompiledPolicy:
    return CompiledPolicy(rows, PolicyConfig.model_validate_json(config))
