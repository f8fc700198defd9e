"""Spread: how complex the functions of a folder are, in a form that adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest

from pydantic import BaseModel, ConfigDict, Field

MOST_TOLD_APART = 50
"""Complexities from this on count as one."""


class Spread(BaseModel):
    """Complexities of a set of functions; add up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: tuple[int, ...] = ()
    """How many functions have complexity 1, 2, 3 and so on; the 50th: that or more; no zero at the end."""
    maximum: int = Field(default=0, ge=0)
    """The largest complexity, 0 where there is no function."""
    approximate: int = Field(default=0, ge=0)
    """How many of the functions were measured by their words, not by a syntax tree."""

    @property
    def functions(self) -> int:
        """How many there are."""
        return sum(self.counts)

    @property
    def median(self) -> int:
        """Return the lower median, 0 where there is no function; exact below 50."""
        half = (self.functions + 1) // 2
        for complexity, count in enumerate(self.counts, start=1):
            half -= count
            if half <= 0:
                return complexity
        return 0

    def __add__(self, other: Spread) -> Spread:
        """Return the spread of both sets together; they must not share a function."""
        counts = zip_longest(self.counts, other.counts, fillvalue=0)
        return Spread(
            counts=tuple(a + b for a, b in counts),
            maximum=max(self.maximum, other.maximum),
            approximate=self.approximate + other.approximate,
        )


def spread_of(complexities: Iterable[int], approximate: int) -> Spread:
    """Return the spread of functions.

    Args:
        complexities: Each at least 1.
        approximate: How many of them are approximations.
    """
    found = Counter(complexities)
    told = Counter[int]()
    for complexity, count in found.items():
        told[min(complexity, MOST_TOLD_APART)] += count
    counts = tuple(told[complexity] for complexity in range(1, max(told, default=0) + 1))
    return Spread(counts=counts, maximum=max(found, default=0), approximate=approximate)
