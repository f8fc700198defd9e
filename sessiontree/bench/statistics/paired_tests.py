"""Paired comparisons: whether one run is better than another on the same samples, or chance explains it.

All functions are pure. Sources: Q. McNemar (1947) for paired outcomes, here in its exact form, a sign test;
F. Wilcoxon, "Individual comparisons by ranking methods" (1945), for values; S. Holm (1979) for several
comparisons at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

import numpy as np

from sessiontree.bench.statistics.intervals import (
    CONFIDENCE,
    NOT_FINITE,
    RESAMPLES,
    SEED,
    Estimate,
    compute_clustered_error,
    compute_clustered_mean,
)
from sessiontree.contracts.values.quick_dataclass import dataclass

TestName: TypeAlias = Literal["sign", "wilcoxon"]
EXACT: Final = 50
"""Most differences for which the distribution of Wilcoxon's sum is counted out; more are nearly normal."""
_DIGITS: Final = 12
"""Differences that agree in so many digits are equal: sums of decimal fractions differ behind them."""


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two runs over the same samples, compared sample by sample; differences are second minus first."""

    first_mean: float | None
    """Mean over the shared samples of each sample's mean; None = they share no sample."""
    second_mean: float | None
    difference: Estimate
    """Mean difference, with a bootstrap interval that draws samples."""
    wins: int
    """Samples on which the second is better."""
    losses: int
    """Samples on which the first is better."""
    ties: int
    p_value: float
    """Probability of differences at least as uneven, if neither were better."""
    only_first: tuple[str, ...]
    """Samples that only the first has, sorted."""
    only_second: tuple[str, ...]
    test: TestName = "sign"
    """``sign``: of outcomes, McNemar's exact test. ``wilcoxon``: the signed-rank test, of other values."""
    error: float | None = None
    """Standard error of the mean difference; None = fewer than two samples."""


def compare_paired(
    first: Mapping[str, Sequence[float]],
    second: Mapping[str, Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> PairedComparison:
    """Compare the values of two runs by sample.

    Args:
        first: The values of each sample, one per epoch. For outcomes give 1 and 0: with one epoch the p value
            is then that of McNemar's exact test, and otherwise that of Wilcoxon's signed-rank test.
        second: The same of the other run.
        confidence: As for :func:`sessiontree.bench.statistics.intervals.compute_clustered_mean`.
        resamples: As there.
        seed: As there.

    Raises:
        ValueError: as there.
    """
    have_first = {sample for sample, values in first.items() if len(values)}
    have_second = {sample for sample, values in second.items() if len(values)}
    shared = sorted(have_first & have_second)
    firsts = [_compute_mean(first[sample]) for sample in shared]
    seconds = [_compute_mean(second[sample]) for sample in shared]
    differences = [_subtract(before, after) for before, after in zip(firsts, seconds, strict=True)]
    are_outcomes = all(
        value in {0.0, 1.0} for run in (first, second) for sample in shared for value in run[sample]
    )
    alone = [(each,) for each in differences]
    bounds = (-1.0, 1.0) if are_outcomes else None
    estimate = compute_clustered_mean(
        alone, confidence=confidence, resamples=resamples, seed=seed, bounds=bounds
    )
    wins = sum(each > 0 for each in differences)
    losses = sum(each < 0 for each in differences)
    is_sign = are_outcomes and all(each in {-1.0, 0.0, 1.0} for each in differences)
    return PairedComparison(
        _compute_mean(firsts) if shared else None,
        _compute_mean(seconds) if shared else None,
        _remove_rounding(estimate, max(map(abs, differences), default=0.0)),
        wins,
        losses,
        len(shared) - wins - losses,
        sign_test(wins, losses) if is_sign else run_wilcoxon_test(differences),
        tuple(sorted(have_first - have_second)),
        tuple(sorted(have_second - have_first)),
        "sign" if is_sign else "wilcoxon",
        compute_clustered_error(alone),
    )


def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p value of a split into wins and losses; 1 without any.

    Raises:
        ValueError: a number is negative.
    """
    if wins < 0 or losses < 0:
        raise ValueError(f"{wins} wins and {losses} losses: neither number may be negative")
    total, fewer = wins + losses, min(wins, losses)
    if total == 0 or wins == losses:
        return 1.0
    steps = np.arange(1, fewer + 1, dtype=np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log((total - steps + 1) / steps))]) - total * math.log(2)
    peak = float(logs.max())
    return min(1.0, 2 * math.exp(peak) * float(np.exp(logs - peak).sum()))


def run_wilcoxon_test(differences: Sequence[float]) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test; 1 without differences other than 0.

    Zeros are left out. Up to 50 differences, the distribution is counted out, equal amounts included; more
    are compared with the normal distribution, its variance corrected for equal amounts.

    Raises:
        ValueError: a difference is not finite.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError(NOT_FINITE)
    amounts = [float(f"{each:.{_DIGITS}g}") for each in differences]
    found = [each for each in amounts if each]
    if not found:
        return 1.0
    doubled, ties = _compute_doubled_ranks([abs(each) for each in found])
    total = sum(doubled)
    gained = sum(rank for rank, each in zip(doubled, found, strict=True) if each > 0)
    fewer = min(gained, total - gained)
    if len(found) <= EXACT:
        ways = np.zeros(total + 1, dtype=np.float64)
        ways[0] = 1.0
        for rank in doubled:  # halved each time: the ways become probabilities
            ways[rank:] = (ways[rank:] + ways[:-rank]) / 2
            ways[:rank] /= 2
        return min(1.0, 2 * float(ways[: fewer + 1].sum()))
    count = len(found)
    variance = count * (count + 1) * (2 * count + 1) / 24 - sum(each**3 - each for each in ties) / 48
    z = (fewer / 2 - count * (count + 1) / 4) / math.sqrt(variance)
    return min(1.0, 2 * NormalDist().cdf(z))


def _compute_doubled_ranks(amounts: Sequence[float]) -> tuple[list[int], list[int]]:
    """Return twice the rank of each amount, which is whole for equal ones too, and the sizes of the ties."""
    _, places, counts = np.unique(np.asarray(amounts), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - counts + 1) + ends
    return [int(ranks[place]) for place in places], [int(each) for each in counts]


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return p values of several comparisons, adjusted so that one of them errs as rarely as a single one.

    The smallest is multiplied by their number, the next by one less, and so on; none is less than the one
    before it, and none above 1.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, least = [0.0] * len(p_values), 0.0
    for at, place in enumerate(order):
        least = max(least, min(1.0, p_values[place] * (len(p_values) - at)))
        adjusted[place] = least
    return adjusted


def _subtract(before: float, after: float) -> float:
    return 0.0 if math.isclose(before, after, rel_tol=10.0**-_DIGITS) else after - before


def _remove_rounding(estimate: Estimate, largest: float) -> Estimate:
    """Return an estimate without what only rounding has left of a zero."""

    def drop_rounding(value: float | None) -> float | None:
        return 0.0 if value is not None and abs(value) <= 10.0**-_DIGITS * largest else value

    return replace(
        estimate,
        value=drop_rounding(estimate.value),
        low=drop_rounding(estimate.low),
        high=drop_rounding(estimate.high),
    )


def _compute_mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError) as error:  # too large, or of both infinities
        raise ValueError(NOT_FINITE) from error
