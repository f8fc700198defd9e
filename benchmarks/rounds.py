"""Figures taken in rounds, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import statistics
from collections import defaultdict


class Rounds:
    """Values by name and round."""

    def __init__(self) -> None:
        """Begin before the first round."""
        self._rounds: dict[str, list[list[float]]] = defaultdict(list)
        self._count = 0

    def begin(self) -> None:
        """Begin a round; values added from now on belong to it."""
        self._count += 1

    def add(self, name: str, *values: float) -> None:
        """Add values to the round.

        Raises:
            ValueError: no round has begun.
        """
        if not self._count:
            raise ValueError(f"{name!r} was measured before the first round")
        rounds = self._rounds[name]
        rounds.extend([] for _ in range(self._count - len(rounds)))
        rounds[-1].extend(values)

    def median(self, name: str) -> float:
        """Return the median of the rounds' medians.

        Raises:
            ValueError: a round has no such value.
        """
        rounds = self._rounds[name]
        if not self._count or len(rounds) < self._count or not all(rounds):
            raise ValueError(f"{name!r} was not measured in every round")
        return statistics.median(map(statistics.median, rounds))
