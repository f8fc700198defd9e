"""The sessions that wait for a host, in the order in which they get one.

Trees take turns, so thousands of waiting sessions of one tree do not delay another tree. Within a tree,
sessions that have begun go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import field

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession

MAX_BEGUN_IN_A_ROW = 8
"""How many sessions of a tree that have begun go before one that has not and waits."""


@dataclass(slots=True)
class TreeQueue:
    """The waiting sessions of one tree, each group in order of arrival."""

    begun: OrderedDict[LiveSession, None] = field(default_factory=OrderedDict)
    """Those with facts in the journal; to finish them frees what they hold."""
    new: OrderedDict[LiveSession, None] = field(default_factory=OrderedDict)
    in_a_row: int = 0
    """How many that have begun went before those that have not and wait."""

    def first(self) -> LiveSession:
        """Return the session whose turn it is."""
        begun_first = self.begun and (not self.new or self.in_a_row < MAX_BEGUN_IN_A_ROW)
        return next(iter(self.begun if begun_first else self.new))

    def discard(self, live: LiveSession) -> bool:
        """Remove a session; return whether it waited."""
        if live in self.begun:
            del self.begun[live]
        elif live in self.new:
            del self.new[live]
        else:
            return False
        return True


class FairQueue:
    """Sessions that wait for a host of a pool. Trees take turns; each keeps its own :class:`TreeQueue`."""

    def __init__(self) -> None:
        self._trees: OrderedDict[Controller, TreeQueue] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return how many sessions wait."""
        return self._count

    def __iter__(self) -> Iterator[LiveSession]:
        """Iterate over all of them, tree by tree."""
        for tree in self._trees.values():
            yield from tree.begun
            yield from tree.new

    def add(self, live: LiveSession) -> None:
        """Let a session wait; one that waits already keeps its place."""
        tree = self._trees.setdefault(live.controller, TreeQueue())
        if live not in tree.begun and live not in tree.new:
            (tree.begun if live.journaled else tree.new)[live] = None
            self._count += 1

    def first(self) -> LiveSession:
        """Return the session whose turn it is."""
        return next(iter(self._trees.values())).first()

    def discard(self, live: LiveSession) -> None:
        """Remove a session if it waits; its tree keeps its turn."""
        tree = self._trees.get(live.controller)
        if tree is not None and tree.discard(live):
            self._count -= 1
            if not tree.begun and not tree.new:
                del self._trees[live.controller]

    def take(self, live: LiveSession) -> None:
        """Remove a session that got a host; the next turn is another tree's."""
        tree = self._trees.get(live.controller)
        if tree is not None:
            tree.in_a_row = tree.in_a_row + 1 if tree.new and live in tree.begun else 0
            self._trees.move_to_end(live.controller)
            self.discard(live)
