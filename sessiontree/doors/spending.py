"""Spending: what the trees of a principal have cost, against its budget."""

from __future__ import annotations

from collections.abc import Mapping

from sessiontree.doors.principals import DoorPrincipal


class Spending:
    """What the trees of one principal have cost, in US dollars; journals say it, this sums it up.

    Args:
        by_tree: What each tree had cost when it was read.
    """

    def __init__(self, by_tree: Mapping[str, float]) -> None:
        self._by_tree = dict(by_tree)
        self._total = sum(self._by_tree.values())

    def note(self, tree_id: str, cost_usd: float) -> None:
        """Take in what a tree has cost by now."""
        self._total += cost_usd - self._by_tree.get(tree_id, 0.0)
        self._by_tree[tree_id] = cost_usd

    def left(self, principal: DoorPrincipal) -> float | None:
        """Return what the principal may still spend; None = its budget has no end."""
        budget = principal.rights.budget_usd
        return None if budget is None else budget - self._total
