"""Fused rankings: the scores of the definition, scaled to 1, and an order that depends on places alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.memory.search import fuse_rankings

Fuse = Callable[[Sequence[Sequence[int]]], dict[int, float]]
rankings = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=20), min_size=1, max_size=3)


def check_scores(fuse: Fuse, given_rankings: list[list[int]]) -> None:
    """Scores are those of the definition, in exact arithmetic; the order is theirs; nothing is lost."""
    found = fuse(given_rankings)
    assert set(found) == {item for ranking in given_rankings for item in ranking}
    for item, score in found.items():
        sum_ = sum(Fraction(1, 60 + r.index(item) + 1) for r in given_rankings if item in r)
        assert score == pytest.approx(float(sum_ * 61 / len(given_rankings)), abs=1e-12)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(0 < score <= 1 for score in found.values())


@given(rankings)
def test_scores_are_those_of_the_definition(given_rankings: list[list[int]]) -> None:
    """Reciprocal rank fusion, k = 60, over the best there can be."""
    check_scores(fuse_rankings, given_rankings)


@given(st.lists(st.lists(st.integers(1, 30), unique=True, max_size=9), min_size=1, max_size=3))
def test_first_everywhere_is_one_and_first(tails: list[list[int]]) -> None:
    """An item that leads every ranking has score 1.0 exactly."""
    found = fuse_rankings([[0, *tail] for tail in tails])
    assert next(iter(found.items())) == (0, 1.0)


@given(rankings, st.permutations(range(31)))
def test_names_do_not_matter(given_rankings: list[list[int]], names: list[int]) -> None:
    """Renaming the items renames the result, order of equals included."""
    renamed = fuse_rankings([[names[item] for item in ranking] for ranking in given_rankings])
    assert list(renamed.items()) == [
        (names[item], score) for item, score in fuse_rankings(given_rankings).items()
    ]


@given(rankings, st.data())
def test_better_place_is_never_a_worse_score(given_rankings: list[list[int]], data: st.DataObject) -> None:
    """Moving an item up in one ranking raises its score."""
    ranking = data.draw(st.sampled_from(given_rankings))
    if len(ranking) < 2:
        return
    place = data.draw(st.integers(1, len(ranking) - 1))
    before = fuse_rankings(given_rankings)[ranking[place]]
    moved = [ranking[place], *ranking[:place], *ranking[place + 1 :]]
    after = fuse_rankings([moved if other is ranking else other for other in given_rankings])
    assert after[ranking[place]] > before


def counted_from_zero(given_rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Planted: places begin with 0."""
    sums: dict[int, float] = {}
    for ranking in given_rankings:
        for place, item in enumerate(ranking):
            sums[item] = sums.get(item, 0) + 61 / (60 + place) / len(given_rankings)
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def scaled_by_its_own_best(given_rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Planted: the best score found becomes 1, however poor it is."""
    found = fuse_rankings(given_rankings)
    top = max(found.values(), default=1)
    return {item: score / top for item, score in found.items()}


@pytest.mark.parametrize("planted", [counted_from_zero, scaled_by_its_own_best])
def test_planted_fusion_is_found(planted: Fuse) -> None:
    """A fusion that is nearly right fails the property."""
    with pytest.raises(AssertionError):
        check_scores(planted, [[1, 2, 3], [2, 4]])
