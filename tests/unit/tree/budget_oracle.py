"""The watcher's own books of budgets: recomputed from every charge and reservation there ever was."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sessiontree.contracts.facts.tree_facts import SessionSpawned, TreeFact, UsageCharged
from sessiontree.contracts.settings.settings import Budget
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.protocol import SpawnAsked
from sessiontree.tree.state.state import TreeState
from tests.unit.tree.spawn_oracle import SpawnBooks

MEMBERS = ("tokens", "cost_usd", "tool_calls", "sessions")


def cap_of(budget: Budget | None, member: str) -> Fraction | None:
    """Return a budget's cap as an exact number."""
    value = None if budget is None else getattr(budget, member)
    return None if value is None else Fraction(str(value))


def amounts_of(charged: UsageCharged) -> dict[str, Fraction]:
    """Return what a charge counts, as exact numbers."""
    usage = charged.usage
    return {
        "tokens": Fraction(usage.tokens),
        "cost_usd": Fraction(str(usage.cost_usd)),
        "tool_calls": Fraction(usage.tool_calls),
    }


class BudgetBooks:
    """Every charge, by who was charged and what for."""

    def __init__(self, spawns: SpawnBooks) -> None:
        """Share the books of sessions."""
        self.spawns = spawns
        self.charges: list[tuple[str, str, Fraction]] = []

    def book(self, fact: TreeFact) -> None:
        """Take a fact in."""
        if isinstance(fact, SessionSpawned) and fact.spec.parent is not None:
            self.charges.append((fact.spec.parent, "sessions", Fraction(1)))
            for member in MEMBERS:
                for payer in self._payers(fact.spec.parent, member):
                    reserved = cap_of(fact.spec.budget, member)
                    takes = reserved is not None or member == "sessions"
                    cap = cap_of(self.spawns.specs[payer].budget, member)
                    assert cap is not None, "a payer caps what it pays"
                    assert not takes or self.used(payer, member) <= cap, (
                        f"S13: {member} of {payer} is overspent"
                    )
        elif isinstance(fact, UsageCharged):
            self.charges += [(fact.session, member, amount) for member, amount in amounts_of(fact).items()]

    def _payers(self, session: str, member: str) -> list[str]:
        """Return who pays what a session uses: the first cap on its way up, more if that one ended."""
        payers = []
        for name in self.spawns.chain(session):
            if cap_of(self.spawns.specs[name].budget, member) is not None:
                payers.append(name)
                if name in self.spawns.live:
                    break
        return payers

    def used(self, account: str, member: str) -> Fraction:
        """Return what an account has spent and set aside, from the first charge on."""
        total = Fraction(0)
        for session, charged, amount in self.charges:
            # A charge inside a live account below counts there alone; once that has ended, above as well.
            if charged == member and account in self._payers(session, member):
                total += amount
        for name in self.spawns.live:
            cap = cap_of(self.spawns.specs[name].budget, member)
            above = self.spawns.specs[name].parent
            if cap is not None and above is not None and account in self._payers(above, member):
                total += cap
        return total

    def fits(self, asked: SpawnAsked) -> bool:
        """Whether every account above has enough left for a child."""
        for member in MEMBERS:
            wanted = cap_of(asked.budget, member)
            if member == "sessions":
                wanted = (wanted or Fraction(0)) + 1
            if wanted is None:
                continue
            for payer in self._payers(asked.parent, member):
                cap = cap_of(self.spawns.specs[payer].budget, member)
                if cap is not None and self.used(payer, member) + wanted > cap:
                    return False
        return True

    def judge(self, state: TreeState, stopping: set[str], facts: Sequence[TreeFact]) -> None:
        """Judge what is left to every live session, and that whoever spent its budget stops."""
        for name in self.spawns.live:
            left = compute_remaining(state, name)
            for member in MEMBERS:
                payers = self._payers(name, member)
                if not payers:
                    assert member not in left, f"S13: {member} of {name} is capped by nobody"
                    continue
                cap = cap_of(self.spawns.specs[payers[0]].budget, member)
                assert cap is not None, "a payer caps what it pays"
                expected = float(max(Fraction(0), cap - self.used(payers[0], member)))
                assert abs(left[member] - expected) < 1e-9, (
                    f"S13: {name} has {left[member]} {member}, not {expected}"
                )
        charged = [fact for fact in facts if isinstance(fact, UsageCharged)]
        for name in self.spawns.live:
            for member in MEMBERS[:-1]:
                cap = cap_of(self.spawns.specs[name].budget, member)
                if cap is None or name in stopping:
                    continue
                used = self.used(name, member)
                assert used <= cap, f"S13: {name} goes on beyond its {member}"
                hit = any(
                    amounts_of(fact)[member] and name in self._payers(fact.session, member)
                    for fact in charged
                )
                assert used < cap or not hit, f"S13: {name} goes on at its cap of {member}"
