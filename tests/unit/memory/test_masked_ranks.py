"""Sifting a ranking through a mask: however much is asked of the ranking, what is left is right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sessiontree.contracts.values.memory import MemoryRecord, MemoryScope
from sessiontree.memory.mirror.row_index import RowIndex
from sessiontree.memory.search import filter_ranking

ROWS = 3_000


class Fixed:
    """Ranks rows in a given order, and counts how often it is asked, and for how many."""

    def __init__(self, order: NDArray[np.int64]) -> None:
        self.order = order
        self.asked: list[int] = []

    async def __call__(self, most: int, among: Sequence[int] | None, /) -> NDArray[np.int64]:
        self.asked.append(most)
        order = self.order if among is None else self.order[np.isin(self.order, among)]
        return order[:most]


@pytest.fixture(scope="module")
def mirror() -> RowIndex:
    """Rows whose numbers in the table are twice their positions; every seventh is dead."""
    made = RowIndex(1, vectors=False)
    scope = MemoryScope("t", "main", "a", "/w")
    made.append(
        [MemoryRecord(f"{n:032x}", "free", "x", None, "session", scope, n) for n in range(ROWS)],
        np.empty((0, 1), np.float32),
    )
    made.number([f"{n:032x}" for n in range(ROWS)], np.arange(ROWS) * 2)
    made.drop(np.arange(0, ROWS, 7))
    return made


def check_sifted(mirror: RowIndex, ranking: Fixed, allowed: int, most: int, *, least_first: bool) -> None:
    """The first of the ranking that may be seen, in its order; asked at most twice."""
    mask = mirror.alive().copy()
    order = ranking.order // 2
    shown = (
        order[::-1][:allowed] if least_first else np.random.default_rng(allowed).permutation(order)[:allowed]
    )
    mask &= np.isin(np.arange(ROWS), shown)
    found = asyncio.run(filter_ranking(mirror, mask, most, ranking))
    assert found.tolist() == [position for position in order.tolist() if mask[position]][:most]
    assert len(ranking.asked) <= 2


@given(st.integers(0, ROWS), st.integers(0, ROWS), st.integers(1, 100), st.booleans(), st.integers(0, 2**16))
def test_sifting_is_filtering_the_whole_ranking(
    mirror: RowIndex, ranked: int, allowed: int, most: int, least_first: bool, seed: int
) -> None:
    """With any ranking of some of the rows, and any mask, the one that hides just its best included."""
    order = np.random.default_rng(seed).permutation(ROWS)[:ranked].astype(np.int64) * 2
    check_sifted(mirror, Fixed(order), allowed, most, least_first=least_first)


def test_all_is_asked_for_where_the_best_are_hidden(mirror: RowIndex) -> None:
    """A mask that shows just the end of a ranking is no reason to find less."""
    ranking = Fixed(np.arange(ROWS) * 2)
    check_sifted(mirror, ranking, 1_500, 40, least_first=True)
    assert len(ranking.asked) == 2


class Hasty(Fixed):
    """Planted: gives half of what it is asked for, as if that were all."""

    async def __call__(self, most: int, among: Sequence[int] | None, /) -> NDArray[np.int64]:
        return (await super().__call__(most, among))[: most // 2]


def test_planted_short_ranking_is_found(mirror: RowIndex) -> None:
    """Fewer rows than may be seen fail the property."""
    with pytest.raises(AssertionError):
        check_sifted(mirror, Hasty(np.arange(ROWS) * 2), 1_100, 40, least_first=False)


def test_ranking_is_asked_for_little(mirror: RowIndex) -> None:
    """Where most may be seen, for not much more than is wanted."""
    ranking = Fixed(np.arange(ROWS) * 2)
    asyncio.run(filter_ranking(mirror, mirror.alive().copy(), 40, ranking))
    assert len(ranking.asked) == 1
    assert ranking.asked[0] < 120
