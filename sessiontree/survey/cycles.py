"""Cycles: sets of folders each of which leads, over imports, to every other and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def cycles(leads_to: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components with more than one member.

    Args:
        leads_to: To each folder the folders it imports; those that import nothing may be missing.

    Returns:
        Each component's members ascending; largest component first, ties by first member.

    Contract: pure, without recursion; linear in folders and imports but for the sorts.
    Source: Tarjan, Depth-First Search and Linear Graph Algorithms, SIAM Journal on Computing 1 (2), 1972.
    """
    search = _Search({folder: sorted(targets) for folder, targets in leads_to.items()})
    for folder in sorted(leads_to):
        search.visit(folder)
    return sorted(search.components, key=lambda members: (-len(members), members))


class _Search:
    """A depth-first search, its stack written out."""

    def __init__(self, leads_to: Mapping[str, list[str]]) -> None:
        self.leads_to = leads_to
        self.components: list[tuple[str, ...]] = []
        self.number: dict[str, int] = {}
        self.lowest: dict[str, int] = {}
        """Smallest number known to be reachable within the component."""
        self.open: dict[str, None] = {}
        """Seen, component not yet known; in the order they were seen."""

    def visit(self, folder: str) -> None:
        """Go everywhere this folder leads to, and close every component on the way."""
        if folder in self.number:
            return
        way = [self._enter(folder)]
        while way:
            at, targets = way[-1]
            for target in targets:
                if target not in self.number:
                    way.append(self._enter(target))
                    break
                if target in self.open:
                    self.lowest[at] = min(self.lowest[at], self.number[target])
            else:
                way.pop()
                if way:
                    before = way[-1][0]
                    self.lowest[before] = min(self.lowest[before], self.lowest[at])
                if self.lowest[at] == self.number[at]:
                    self._close(at)

    def _enter(self, folder: str) -> tuple[str, Iterator[str]]:
        self.number[folder] = self.lowest[folder] = len(self.number)
        self.open[folder] = None
        return folder, iter(self.leads_to.get(folder, ()))

    def _close(self, first: str) -> None:
        members = []
        while first in self.open:
            members.append(self.open.popitem()[0])
        if len(members) > 1:
            self.components.append(tuple(sorted(members)))
