"""Paired comparisons: exact p values counted another way, values of other sources, and what ties say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.bench.statistics.intervals import Estimate, compute_wilson_interval
from sessiontree.bench.statistics.paired_tests import (
    adjust_by_holm,
    compare_paired,
    run_wilcoxon_test,
    sign_test,
)

FEW = 200
"""Resamples where their number does not matter."""
outcomes = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=3)
runs = st.dictionaries(st.sampled_from("abcdefgh"), outcomes)
differences = st.lists(st.integers(-4, 4).map(float), max_size=10)


def ends(estimate: Estimate) -> tuple[float, float]:
    """Return both ends of an interval that must be known."""
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


@given(st.integers(0, 60), st.integers(0, 60))
def test_sign_test_counts_all_splits(wins: int, losses: int) -> None:
    """The p value is the exact share of splits at least as uneven, counted with whole numbers."""
    total = wins + losses
    tail = sum(math.comb(total, fewer) for fewer in range(min(wins, losses) + 1))
    exact = min(Fraction(1), Fraction(2 * tail, 2**total))
    assert sign_test(wins, losses) == pytest.approx(float(exact), rel=1e-9)
    assert sign_test(wins, losses) == sign_test(losses, wins)


def test_sign_test_of_many() -> None:
    """Large splits neither overflow nor vanish; a negative number is refused."""
    assert sign_test(5_100, 4_900) == pytest.approx(0.0466, abs=5e-4)
    assert 0 <= sign_test(100_000, 1) < 1e-300
    with pytest.raises(ValueError, match="negative"):
        sign_test(-1, 3)


@given(runs, runs)
def test_comparison_is_symmetric(first: dict[str, list[float]], second: dict[str, list[float]]) -> None:
    """Exchanging the runs exchanges wins and losses and turns the difference around."""
    there = compare_paired(first, second, resamples=FEW)
    back = compare_paired(second, first, resamples=FEW)
    assert (there.wins, there.losses, there.ties) == (back.losses, back.wins, back.ties)
    assert (there.only_first, there.only_second) == (back.only_second, back.only_first)
    assert there.p_value == back.p_value
    assert (there.first_mean, there.second_mean) == (back.second_mean, back.first_mean)
    shared = first.keys() & second.keys()
    assert there.wins + there.losses + there.ties == there.difference.n == len(shared)
    assert there.only_first == tuple(sorted(first.keys() - second.keys()))
    if not shared:
        assert there.difference.value is None
        return
    assert there.difference.value is not None
    assert back.difference.value is not None
    assert there.difference.value == pytest.approx(-back.difference.value)
    assert there.difference.value == pytest.approx(
        sum(sum(second[each]) / len(second[each]) - sum(first[each]) / len(first[each]) for each in shared)
        / len(shared)
    )


def test_pairing_narrows_the_interval() -> None:
    """Runs that differ in few samples are distinguished, although their pass rates overlap."""
    random = np.random.default_rng(7)
    first = {str(index): [float(value)] for index, value in enumerate(random.integers(0, 2, 400))}
    second = {**first, **{key: [1.0] for key in list(first)[:30]}}
    found = compare_paired(first, second)
    low, _ = ends(found.difference)
    assert low > 0
    assert found.losses == 0
    assert found.p_value < 0.001
    assert found.wins == sum(first[key] == [0.0] for key in list(first)[:30])


def counted(found: Sequence[float]) -> float:
    """Return the p value from all ways to give signs to the ranks, in whole numbers."""
    amounts = [abs(each) for each in found if each]
    if not amounts:
        return 1.0
    ranks = [
        sum(other < each for other in amounts) * 2 + sum(other == each for other in amounts) + 1
        for each in amounts
    ]
    positive = [each > 0 for each in found if each]
    gained = sum(rank for rank, is_gain in zip(ranks, positive, strict=True) if is_gain)
    fewer = min(gained, sum(ranks) - gained)
    signs = itertools.product([0, 1], repeat=len(ranks))
    as_few = sum(sum(map(math.prod, zip(ranks, each, strict=True))) <= fewer for each in signs)
    return float(min(Fraction(1), Fraction(2 * as_few, 2 ** len(ranks))))


@given(differences)
def test_wilcoxon_counts_all_signs(found: list[float]) -> None:
    """Up to fifty differences the p value is exact, with equal amounts and zeros."""
    assert run_wilcoxon_test(found) == pytest.approx(counted(found), rel=1e-9)
    assert run_wilcoxon_test([-each for each in found]) == run_wilcoxon_test(found)


@given(st.integers(0, 25), st.integers(0, 25))
def test_wilcoxon_of_equal_amounts_is_the_sign_test(wins: int, losses: int) -> None:
    """Ranks that are all the same say nothing beyond the signs."""
    assert run_wilcoxon_test([0.5] * wins + [-0.5] * losses) == pytest.approx(
        sign_test(wins, losses), rel=1e-9
    )


TWENTY = [
    0.869,
    1.225,
    1.386,
    1.827,
    1.22,
    1.767,
    -0.913,
    0.397,
    1.83,
    0.947,
    1.703,
    -0.66,
    0.407,
    -0.26,
    0.631,
    0.722,
    -0.961,
    -0.35,
    -0.162,
    1.749,
]
SIXTY = [float(index * 7919 % 23 - 9) for index in range(60)]


@pytest.mark.parametrize(
    ("found", "p_value"),
    [
        ([0.5, -1.25, 2, 3.5, -0.75, 4, 1.5, -2.5], 0.3828125),
        (TWENTY, 0.0072956085205078125),
        (SIXTY, 0.033735606717976555),
    ],
)
def test_wilcoxon_is_that_of_other_sources(found: list[float], p_value: float) -> None:
    """Scipy 1.17.1: ``wilcoxon(…, zero_method="wilcox", correction=False)``, exact and asymptotic."""
    assert run_wilcoxon_test(found) == pytest.approx(p_value, rel=1e-9)


def test_holm_is_that_of_other_sources() -> None:
    """Statsmodels 0.15.0: ``multipletests(…, method="holm")``; the order given stays."""
    assert adjust_by_holm([0.01, 0.04, 0.03, 0.005, 0.6]) == pytest.approx(
        [0.04, 0.09, 0.09, 0.025, 0.6], rel=1e-9
    )
    assert adjust_by_holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_adjusted_values_are_no_smaller_and_keep_their_order(p_values: list[float]) -> None:
    """And none is above 1."""
    adjusted = adjust_by_holm(p_values)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    assert [adjusted[place] for place in order] == sorted(adjusted)


def test_ties_are_no_certainty() -> None:
    """Ten samples that agree allow the difference of Wilson's interval of 0 of 10; values have none."""
    first = {f"s{index}": [1.0] for index in range(10)}
    found = compare_paired(first, first)
    most = compute_wilson_interval(0, 10).high or 0.0
    assert (found.difference.value, found.ties, found.p_value) == (0.0, 10, 1.0)
    assert ends(found.difference) == pytest.approx((-most, most))
    values = {sample: [0.3] for sample in first}
    assert compare_paired(values, values).difference == Estimate(0.0, None, None, 10)


def test_all_wins_are_no_certainty() -> None:
    """Ten of ten better: the difference may still be smaller elsewhere."""
    first = {f"s{index}": [0.0] for index in range(10)}
    found = compare_paired(first, {sample: [1.0] for sample in first})
    low, high = ends(found.difference)
    assert (found.difference.value, high) == (1.0, 1.0)
    assert 0.3 < low < 0.6


def test_rounding_is_no_difference() -> None:
    """Sums of decimal fractions that differ only in their last digits are ties."""
    first = {"a": [0.1, 0.2, 0.3], "b": [0.7, 0.1], "c": [0.5]}
    second = {"a": [0.3, 0.2, 0.1], "b": [0.1, 0.7], "c": [0.5]}
    found = compare_paired(first, second)
    assert (found.wins, found.losses, found.ties) == (0, 0, 3)
    assert found.difference.value == 0.0
    swing = compare_paired({"a": [0.1], "b": [0.3], "c": [0.2]}, {"a": [0.2], "b": [0.0], "c": [0.4]})
    assert swing.difference.value == 0.0


def test_test_suits_the_values() -> None:
    """Outcomes of one epoch have McNemar's test, everything else has Wilcoxon's."""
    one = compare_paired({"a": [1.0], "b": [0.0]}, {"a": [0.0], "b": [0.0]})
    assert (one.test, one.p_value) == ("sign", 1.0)
    epochs = compare_paired({"a": [1.0, 0.0], "b": [0.0, 0.0]}, {"a": [1.0, 1.0], "b": [0.0, 0.0]})
    assert epochs.test == "wilcoxon"
    assert compare_paired({"a": [0.4]}, {"a": [0.5]}).test == "wilcoxon"
    with pytest.raises(ValueError, match="finite"):
        run_wilcoxon_test([math.nan])
