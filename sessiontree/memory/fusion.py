"""Reciprocal rank fusion: one ranking out of several, by places alone.

Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods", SIGIR 2009; k = 60 is theirs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeVar

K: Final = 60
Item = TypeVar("Item", bound=Hashable)


def fused(rankings: Sequence[Sequence[Item]]) -> dict[Item, float]:
    """Return the items of all rankings with their scores, best first.

    An item's score is the sum of 1 / (k + place) over the rankings it is in, places counted from 1, over the
    best sum there is: 1.0 means first in every one. Equal scores keep the order in which items are met,
    ranking by ranking.
    """
    best = len(rankings) / (K + 1)
    sums: dict[Item, float] = {}
    for ranking in rankings:
        for place, item in enumerate(ranking, 1):
            sums[item] = sums.get(item, 0.0) + 1 / (K + place)
    return {item: total / best for item, total in sorted(sums.items(), key=lambda pair: -pair[1])}
