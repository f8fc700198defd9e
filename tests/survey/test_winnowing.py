"""Winnowing: every window keeps its smallest hash, and larger windows keep part of what smaller ones keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.winnowing import reaches, window_for

Reaches = Callable[[Sequence[int]], list[int]]

HASHES = st.lists(st.integers(0, 12), min_size=1, max_size=40)
CASES = st.tuples(HASHES, st.integers(1, 45))


def winnowed(hashes: Sequence[int], window: int) -> set[int]:
    """Return the places kept as the paper says it: of each window the smallest, of equal ones the last."""
    window = min(window, len(hashes))
    return {
        min(range(start, start + window), key=lambda place: (hashes[place], -place))
        for start in range(len(hashes) - window + 1)
    }


def keeps_what_each_window_keeps(find: Reaches, hashes: list[int], window: int) -> None:
    """A hash is kept for a window exactly when it reaches that far."""
    found = find(hashes)
    kept = {place for place, reach in enumerate(found) if reach >= min(window, len(hashes))}
    assert kept == winnowed(hashes, window)


@given(CASES)
def test_reaches_tell_what_each_window_keeps(case: tuple[list[int], int]) -> None:
    """One number per hash answers for all windows."""
    keeps_what_each_window_keeps(reaches, *case)


def first_of_equals(hashes: Sequence[int]) -> list[int]:
    """Find reaches, but of equal hashes keep the first."""
    return reaches(list(hashes)[::-1])[::-1]


def local_minima(hashes: Sequence[int]) -> list[int]:
    """Take a hash to reach as far as it is smaller to its nearer side, twice."""
    found = []
    for place, value in enumerate(hashes):
        left = next((place - one for one in range(place - 1, -1, -1) if hashes[one] < value), place + 1)
        right = next((one - place for one in range(place + 1, len(hashes)) if hashes[one] <= value), 0)
        found.append(2 * min(left, right or len(hashes) - place) - 1)
    return found


@pytest.mark.parametrize("broken", [first_of_equals, local_minima])
def test_reaches_that_lose_a_window_are_found_out(broken: Reaches) -> None:
    """The property kills another choice of equals, and keeping local minima alone."""

    @settings(max_examples=1_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(CASES)
    def planted(case: tuple[list[int], int]) -> None:
        keeps_what_each_window_keeps(broken, *case)

    with pytest.raises(AssertionError):
        planted()


@given(HASHES, st.integers(1, 8), st.integers(1, 10))
def test_window_grows_until_few_enough_are_kept(hashes: list[int], window: int, most: int) -> None:
    """It is doubled no more often than needed, and every window keeps at least one hash."""
    found = reaches(hashes)
    grown = window_for(found, window, most)
    assert sum(reach >= grown for reach in found) <= most
    if grown > window:
        assert sum(reach >= grown // 2 for reach in found) > most
    assert max(found) == len(hashes)
