"""Spread: medians are right, and spreads add up to the spread of all."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median_low

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.spread import MOST_TOLD_APART, Spread, spread_of

Add = Callable[[Spread, Spread], Spread]

COMPLEXITIES = st.lists(st.integers(1, 70), max_size=40)


def adds_up(add: Add, a: list[int], b: list[int]) -> None:
    """The sum of two spreads is the spread of both sets."""
    whole = spread_of([*a, *b], 3)
    assert add(spread_of(a, 1), spread_of(b, 2)) == whole == add(spread_of(b, 2), spread_of(a, 1))


@given(COMPLEXITIES, COMPLEXITIES)
def test_spreads_add_up(a: list[int], b: list[int]) -> None:
    """However functions are shared out, their spread is the same."""
    adds_up(Spread.__add__, a, b)


def test_a_sum_that_cuts_is_found_out() -> None:
    """The property kills a sum as long as the shorter spread."""

    def cutting(a: Spread, b: Spread) -> Spread:
        counts = tuple(x + y for x, y in zip(a.counts, b.counts, strict=False))
        return (a + b).model_copy(update={"counts": counts})

    @settings(max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(COMPLEXITIES, COMPLEXITIES)
    def planted(a: list[int], b: list[int]) -> None:
        adds_up(cutting, a, b)

    with pytest.raises(AssertionError):
        planted()


@given(COMPLEXITIES.filter(bool))
def test_median_and_maximum_are_those_of_the_list(complexities: list[int]) -> None:
    """Numbers from 50 on count as 50 in the median, not in the maximum."""
    spread = spread_of(complexities, 0)
    assert spread.functions == len(complexities)
    assert spread.median == median_low(min(one, MOST_TOLD_APART) for one in complexities)
    assert spread.maximum == max(complexities)


def test_nothing_has_no_median() -> None:
    """No function, no number."""
    assert (Spread().median, Spread().maximum, Spread().functions) == (0, 0, 0)
    assert spread_of([], 0) == Spread()
