"""Intervals and paired comparisons: bounds, symmetry, formulas of other sources, and simulated coverage."""

from __future__ import annotations

import math
import statistics
import tracemalloc
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.bench.statistics.intervals import (
    RESAMPLES,
    Estimate,
    choose_resamples,
    compute_clustered_error,
    compute_clustered_mean,
    compute_quantile,
    compute_wilson_interval,
)
from sessiontree.bench.statistics.paired_tests import compare_paired

FEW = 200
"""Resamples where their number does not matter."""
values = st.floats(-1e6, 1e6)
clusters = st.lists(st.lists(values, max_size=4), max_size=12)
trials = st.integers(0, 10_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))
confidences = st.floats(0.5, 0.999)
outcomes = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=3)
runs = st.dictionaries(st.sampled_from("abcdefgh"), outcomes)


def ends(estimate: Estimate) -> tuple[float, float]:
    """Return both ends of an interval that must be known."""
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def roots_of_the_score_test(passed: int, total: int, confidence: float) -> tuple[float, float]:
    """Return the rates whose score test rejects the observed rate just so: |p̂ - p| = z·sqrt(p(1-p)/n)."""
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    rate = passed / total
    found = np.roots([1 + z2 / total, -(2 * rate + z2 / total), rate * rate])
    low, high = sorted(float(each.real) for each in found)
    return low, high


def wilson_solves_the_score_test(
    wilson: Callable[..., Estimate], passed: int, total: int, confidence: float
) -> None:
    """The ends are the roots of the quadratic that the interval is defined by, solved in another way."""
    found = wilson(passed, total, confidence=confidence)
    assert ends(found) == pytest.approx(roots_of_the_score_test(passed, total, confidence), abs=1e-6)


@given(trials.filter(lambda case: case[1] > 0), confidences)
def test_wilson_solves_the_score_test(case: tuple[int, int], confidence: float) -> None:
    """For any number of passes and trials."""
    wilson_solves_the_score_test(compute_wilson_interval, *case, confidence)


def test_wilson_without_trials_excludes_nothing() -> None:
    """The rate is unknown, and the interval is everything."""
    assert compute_wilson_interval(0, 0) == Estimate(None, 0.0, 1.0, 0)


def wilson_is_an_interval(
    wilson: Callable[..., Estimate], passed: int, total: int, confidence: float
) -> None:
    """It holds the rate, stays within 0 and 1, mirrors failures, and grows with the confidence."""
    found = wilson(passed, total, confidence=confidence)
    low, high = ends(found)
    assert 0 <= low <= passed / total <= high <= 1
    mirrored = ends(wilson(total - passed, total, confidence=confidence))
    assert (1 - high, 1 - low) == pytest.approx(mirrored)
    wider = ends(wilson(passed, total, confidence=(1 + confidence) / 2))
    assert wider[0] <= low + 1e-12
    assert wider[1] >= high - 1e-12


@given(trials.filter(lambda case: case[1] > 0), confidences)
def test_wilson_is_an_interval(case: tuple[int, int], confidence: float) -> None:
    """Also where nothing or everything passed."""
    wilson_is_an_interval(compute_wilson_interval, *case, confidence)


def one_sided(passed: int, total: int, *, confidence: float) -> Estimate:
    """A planted mistake: all of the probability that is left over is on one side."""
    return compute_wilson_interval(passed, total, confidence=2 * confidence - 1)


def normal(passed: int, total: int, *, confidence: float) -> Estimate:
    """A planted mistake: the normal approximation, which leaves the bounds and vanishes at them."""
    z, rate = NormalDist().inv_cdf((1 + confidence) / 2), passed / total
    half = z * math.sqrt(rate * (1 - rate) / total)
    return Estimate(rate, rate - half, rate + half, total)


@pytest.mark.parametrize("planted", [one_sided, normal])
def test_planted_interval_is_found(planted: Callable[..., Estimate]) -> None:
    """The usual mistakes do not solve the score test; the second is not even an interval of a rate."""
    wilson_solves_the_score_test(compute_wilson_interval, 1, 10, 0.95)
    with pytest.raises(AssertionError):
        wilson_solves_the_score_test(planted, 1, 10, 0.95)
    if planted is normal:
        with pytest.raises(AssertionError):
            wilson_is_an_interval(planted, 1, 10, 0.95)


@pytest.mark.parametrize(
    ("passed", "total", "confidence"), [(-1, 3, 0.9), (4, 3, 0.9), (1, 3, 0.0), (1, 3, 1.0), (1, 3, math.nan)]
)
def test_impossible_trials_are_refused(passed: int, total: int, confidence: float) -> None:
    """More passes than trials, and confidences that are no probability."""
    with pytest.raises(ValueError, match=r"trials|confidence"):
        compute_wilson_interval(passed, total, confidence=confidence)


@given(clusters, st.integers(0, 2**32))
def test_mean_is_in_its_interval_and_within_the_values(found: list[list[float]], seed: int) -> None:
    """Without values nothing is known, with one cluster no interval; else it is among the values."""
    flat = [value for cluster in found for value in cluster]
    filled = sum(map(bool, found))
    estimate = compute_clustered_mean(found, resamples=FEW, seed=seed)
    assert estimate.n == filled
    if not flat:
        assert estimate == Estimate(None, None, None, 0)
        return
    assert estimate.value == pytest.approx(math.fsum(flat) / len(flat), abs=1e-6)
    if filled == 1:
        assert (estimate.low, estimate.high) == (None, None)
        return
    if estimate.low is None:
        assert len({math.fsum(each) / len(each) for each in found if each}) == 1 or min(flat) == max(flat)
        return
    low, high = ends(estimate)
    slack = 1e-9 * max(1.0, *map(abs, flat))
    assert estimate.value is not None
    assert min(flat) - slack <= low <= estimate.value <= high <= max(flat) + slack


@given(clusters, st.integers(0, 2**32))
def test_same_seed_gives_the_same_interval(found: list[list[float]], seed: int) -> None:
    """A report that is made again shows the same numbers."""
    assert compute_clustered_mean(found, resamples=FEW, seed=seed) == compute_clustered_mean(
        found, resamples=FEW, seed=seed
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    """Silently dropping them would move the mean; so would a sum that overflows."""
    with pytest.raises(ValueError, match="finite"):
        compute_clustered_mean([[1.0], [bad]])
    with pytest.raises(ValueError, match="finite"):
        compare_paired({"a": [1.0]}, {"a": [bad]})
    with pytest.raises(ValueError, match="finite"):
        compute_clustered_mean([[1e308], [1e308]])


def test_sums_of_resamples_and_of_samples_that_overflow_are_refused() -> None:
    """Also where the sum of all values is finite, and where one sample's values overflow."""
    with pytest.raises(ValueError, match="finite"):
        compute_clustered_mean([[1.7e308], [-1.7e308], [1.0]], resamples=FEW)
    large = {"a": [1e308, 1e308, 1e308]}
    with pytest.raises(ValueError, match="finite"):
        compare_paired(large, {"a": [1.0]})
    with pytest.raises(ValueError, match="finite"):
        compare_paired({"a": [1e308], "b": [1e308]}, {"a": [-1e308], "b": [0.0]})


def test_no_resamples_are_refused() -> None:
    """There would be no interval."""
    with pytest.raises(ValueError, match="resamples"):
        compute_clustered_mean([[1.0], [0.0]], resamples=0)


def test_kinds_of_clusters_are_drawn_as_clusters_are() -> None:
    """Outcomes are drawn by kind, values one by one; both are the same distribution."""
    random = np.random.default_rng(5)
    plain = [[float(value)] for value in random.integers(0, 2, 300)]
    nudged = [[value + 1e-9 * index] for index, (value,) in enumerate(plain)]
    by_kind, one_by_one = compute_clustered_mean(plain), compute_clustered_mean(nudged)
    assert ends(by_kind) == pytest.approx(ends(one_by_one), abs=0.005)
    wilson = compute_wilson_interval(sum(value > 0 for (value,) in plain), 300)
    assert ends(by_kind) == pytest.approx(ends(wilson), abs=0.01)


def test_epochs_that_agree_do_not_narrow_the_interval() -> None:
    """Five equal epochs of a sample are one observation; counted as five, the interval would halve."""
    random = np.random.default_rng(6)
    once = [[float(value)] for value in random.integers(0, 2, 200)]
    five = [cluster * 5 for cluster in once]
    flat = [[value] for cluster in five for value in cluster]
    width_once, width_five, width_flat = (
        high - low for low, high in map(ends, map(compute_clustered_mean, (once, five, flat)))
    )
    assert width_five == pytest.approx(width_once, rel=0.1)
    assert width_flat < 0.6 * width_five


def coverage(interval: Callable[[Sequence[Sequence[float]], int], Estimate], clusters: int) -> float:
    """Return the share of 400 simulated runs whose interval holds the true mean of 0.3."""
    random = np.random.default_rng(11)
    hits = 0
    for seed in range(400):
        ability = random.beta(0.6, 1.4, clusters)  # its mean is 0.3; epochs of a sample resemble each other
        drawn = random.random((clusters, 3)) < ability[:, None]
        low, high = ends(interval(drawn.astype(float).tolist(), seed))
        hits += low <= 0.3 <= high
    return hits / 400


@pytest.mark.slow
def test_bootstrap_covers_as_often_as_it_says() -> None:
    """95 % intervals hold the truth in 92 to 98 % of 400 runs with 3 epochs that resemble each other."""
    share = coverage(lambda drawn, seed: compute_clustered_mean(drawn, resamples=1_000, seed=seed), 100)
    assert 0.92 <= share <= 0.98


@pytest.mark.slow
def test_bootstrap_that_ignores_clusters_covers_less() -> None:
    """The simulation tells the two apart: drawing single values is too sure of itself."""

    def flat(drawn: Sequence[Sequence[float]], seed: int) -> Estimate:
        return compute_clustered_mean([[each] for row in drawn for each in row], resamples=1_000, seed=seed)

    assert coverage(flat, 100) < 0.92


def test_wilson_covers_as_often_as_it_says() -> None:
    """95 % intervals hold the truth in 92 to 98 % of 2,000 runs."""
    passed = np.random.default_rng(12).binomial(120, 0.3, 2_000)
    hits = sum(
        low <= 0.3 <= high for low, high in (ends(compute_wilson_interval(int(each), 120)) for each in passed)
    )
    assert 0.92 <= hits / 2_000 <= 0.98


@pytest.mark.slow
def test_ten_thousand_resamples_of_ten_thousand_clusters_are_small() -> None:
    """The resamples are drawn in blocks: less than 32 MB, where one matrix of indices would take 800."""
    single = np.random.default_rng(8).random(10_000).reshape(-1, 1).tolist()
    tracemalloc.start()
    try:
        found = compute_clustered_mean(single, resamples=RESAMPLES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ends(found)[0] < 0.5 < ends(found)[1]
    assert peak < 32 * 2**20


def test_reports_take_fewer_resamples_of_many_clusters() -> None:
    """All of them for small runs, a thousandth of the draws for huge ones, and never few."""
    assert [choose_resamples(each) for each in (0, 40, 5_000, 10_000, 10**6)] == [
        RESAMPLES,
        RESAMPLES,
        RESAMPLES,
        5_000,
        1_000,
    ]


def test_quantile_of_nothing_is_unknown() -> None:
    """And that of values is interpolated."""
    assert compute_quantile([], 0.5) is None
    assert compute_quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5


@given(st.integers(2, 400), st.sampled_from([0.0, 1.0]), confidences)
def test_clusters_that_agree_are_no_certainty(count: int, value: float, confidence: float) -> None:
    """Outcomes without variance have Wilson's interval; other values have none."""
    same = [[value] * (1 + index % 3) for index in range(count)]
    found = compute_clustered_mean(same, confidence=confidence, bounds=(0.0, 1.0))
    wilson = compute_wilson_interval(int(value) * count, count, confidence=confidence)
    assert ends(found) == pytest.approx(ends(wilson), abs=1e-12)
    assert compute_clustered_mean(same, confidence=confidence) == Estimate(value, None, None, count)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_error_of_single_values_is_the_usual_one(found: list[float]) -> None:
    """One value in each cluster: the standard deviation over the root of the number."""
    usual = statistics.stdev(found) / math.sqrt(len(found))
    assert compute_clustered_error([[each] for each in found]) == pytest.approx(usual, rel=1e-9, abs=1e-9)


@given(clusters)
def test_error_grows_with_epochs_that_agree(found: list[list[float]]) -> None:
    """Each value twice in its cluster says no more; a cluster without values does not count."""
    error = compute_clustered_error(found)
    assert compute_clustered_error([*found, []]) == error
    if error is None:
        assert sum(map(bool, found)) < 2
        return
    twice = compute_clustered_error([[*each, *each] for each in found])
    assert twice == pytest.approx(error, rel=1e-9, abs=1e-6)


OUTCOMES = [[0.0, 1.0, 1.0], [1.0, 1.0], [0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0]]
VALUES = [[0.1 * index, 0.3 * index % 1] for index in range(9)]


@pytest.mark.parametrize(
    ("given_clusters", "error"), [(OUTCOMES, 0.15457468529268736), (VALUES, 0.07349309197401636)]
)
def test_error_is_that_of_other_sources(given_clusters: list[list[float]], error: float) -> None:
    """Statsmodels 0.15.0: OLS on a constant, ``cov_type="cluster"`` with its correction."""
    assert compute_clustered_error(given_clusters) == pytest.approx(error, rel=1e-9)


def test_wilson_is_that_of_other_sources() -> None:
    """Statsmodels 0.15.0: ``proportion_confint(7, 20, method="wilson")``."""
    assert ends(compute_wilson_interval(7, 20)) == pytest.approx(
        (0.18119182410108203, 0.5671457233147638), rel=1e-9
    )


def test_error_that_overflows_is_refused() -> None:
    """Values whose squares are no numbers."""
    with pytest.raises(ValueError, match="finite"):
        compute_clustered_error([[1e308], [-1e308]])
