"""Intervals and comparisons: what the scores of some samples say about all samples like them.

All functions are pure: the same values and the same seed give the same result. A *cluster* is what was drawn
independently: a sample, with one value for each of its epochs. Epochs of one sample resemble each other, so
they are never counted as independent draws.

Sources: E. B. Wilson, "Probable inference, the law of succession, and statistical inference" (1927) for the
interval of a rate; B. Efron and R. Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 8 and 13,
for bootstrap intervals by percentiles; Q. McNemar (1947) for the comparison of paired outcomes, here in its
exact form, a sign test.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 10_000
SEED: Final = 20_240_601
"""Seed of the bootstrap, if the caller gives none: reports of the same run show the same intervals."""
_MIN_RESAMPLES: Final = 1_000
_MAX_DRAWS: Final = 50_000_000
"""Draws of single clusters that an interval is worth: a quarter of a second."""
_BLOCK: Final = 100_000
"""Most indices that are drawn at a time, so that memory does not depend on the number of resamples."""
_NOT_FINITE: Final = "a value, or a sum of them, is not a finite number; statistics need finite numbers"
_MAX_TYPES: Final = 64
"""Most different clusters whose numbers are drawn instead of single clusters."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float | None
    """The estimate; None = nothing was observed."""
    low: float | None
    """Lower end of the interval; None = the observations do not allow an interval."""
    high: float | None
    """Upper end of it."""
    n: int
    """Number of observations: trials of a rate, clusters of a mean."""


def wilson_interval(passed: int, total: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """Return the pass rate of independent trials with Wilson's score interval.

    Without trials the rate is unknown, and the interval is 0 to 1.

    Raises:
        ValueError: ``passed`` is not between 0 and ``total``, or the confidence is not between 0 and 1.
    """
    _check_confidence(confidence)
    if not 0 <= passed <= total:
        raise ValueError(f"{passed} of {total} trials passed; the first number must be from 0 to the second")
    if total == 0:
        return Estimate(None, 0.0, 1.0, 0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = passed / total
    weight = z * z / total
    middle = (rate + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(rate * (1 - rate) / total + weight / (4 * total))
    # at the ends the bound is exact, and rounding must not move it past the rate
    low = 0.0 if passed == 0 else max(0.0, middle - half)
    high = 1.0 if passed == total else min(1.0, middle + half)
    return Estimate(rate, min(low, rate), max(high, rate), total)


def clustered_mean(
    clusters: Sequence[Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Estimate:
    """Return the mean of all values with a bootstrap interval that draws whole clusters, by percentiles.

    Clusters without values are ignored. A single cluster has a mean and no interval. The interval is widened
    to hold the mean where few resamples would exclude it.

    Args:
        clusters: The values of each cluster, in any order.
        confidence: Probability that the interval covers, between 0 and 1.
        resamples: How often as many clusters as there are are drawn, with replacement.
        seed: Seed of the draws.

    Raises:
        ValueError: a value is not finite, or another argument is out of bounds.
    """
    _check_confidence(confidence)
    _check_resamples(resamples)
    filled = [cluster for cluster in clusters if len(cluster)]
    if not filled:
        return Estimate(None, None, None, 0)
    sizes = np.array([len(cluster) for cluster in filled], np.float64)
    values = np.fromiter(itertools.chain.from_iterable(filled), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(values, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp))
        value = float(sums.sum() / sizes.sum())
    if not (math.isfinite(value) and np.isfinite(values).all()):
        raise ValueError(_NOT_FINITE)
    if len(filled) == 1:
        return Estimate(value, None, None, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.concatenate([drawn[0] / drawn[1] for drawn in _draws(sums, sizes, resamples, seed)])
    if not np.isfinite(means).all():
        raise ValueError(_NOT_FINITE)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(value, min(float(low), value), max(float(high), value), len(filled))


def resamples_for(clusters: int) -> int:
    """Return a number of resamples that suits a report: :data:`RESAMPLES`, and fewer for many clusters."""
    return max(_MIN_RESAMPLES, min(RESAMPLES, _MAX_DRAWS // max(1, clusters)))


def _draws(sums: Values, sizes: Values, resamples: int, seed: int) -> Iterator[tuple[Values, Values]]:
    """Yield sums and sizes of resamples, block by block.

    Clusters that are equal are interchangeable: where there are few kinds of clusters, the number of draws of
    each kind is drawn at once. This is the same distribution, with a thousandth of the work for outcomes.
    """
    random = np.random.default_rng(seed)
    count = len(sums)
    kinds, numbers = np.unique(np.stack([sums, sizes]), axis=1, return_counts=True)
    if len(numbers) <= _MAX_TYPES:
        weights = random.multinomial(count, numbers / count, size=resamples)
        yield weights @ kinds[0], weights @ kinds[1]
        return
    equal = bool((sizes == sizes[0]).all())
    block = max(1, _BLOCK // count)
    for begin in range(0, resamples, block):
        rows = min(block, resamples - begin)
        chosen = random.integers(0, count, size=(rows, count))
        drawn = sums[chosen].sum(axis=1)
        yield drawn, np.full(rows, sizes.sum()) if equal else sizes[chosen].sum(axis=1)


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
    """Probability of a split between wins and losses at least as uneven, if neither were better."""
    only_first: tuple[str, ...]
    """Samples that only the first has, sorted."""
    only_second: tuple[str, ...]


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
            is then that of McNemar's exact test.
        second: The same of the other run.
        confidence: As for :func:`clustered_mean`.
        resamples: As there.
        seed: As there.

    Raises:
        ValueError: as for :func:`clustered_mean`.
    """
    have_first = {sample for sample, values in first.items() if len(values)}
    have_second = {sample for sample, values in second.items() if len(values)}
    shared = sorted(have_first & have_second)
    firsts = [_mean(first[sample]) for sample in shared]
    seconds = [_mean(second[sample]) for sample in shared]
    differences = [after - before for before, after in zip(firsts, seconds, strict=True)]
    estimate = clustered_mean(
        [(each,) for each in differences], confidence=confidence, resamples=resamples, seed=seed
    )
    wins = sum(each > 0 for each in differences)
    losses = sum(each < 0 for each in differences)
    return PairedComparison(
        _mean(firsts) if shared else None,
        _mean(seconds) if shared else None,
        estimate,
        wins,
        losses,
        len(shared) - wins - losses,
        sign_test(wins, losses),
        tuple(sorted(have_first - have_second)),
        tuple(sorted(have_second - have_first)),
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


def quantile(values: Sequence[float] | NDArray[Any], share: float) -> float | None:
    """Return the value below which a share of the values is, interpolated; None without values."""
    found = np.asarray(values, np.float64)
    return float(np.quantile(found, share)) if found.size else None


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError) as error:  # too large, or of both infinities
        raise ValueError(_NOT_FINITE) from error


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence is {confidence}; give a number between 0 and 1, such as 0.95")


def _check_resamples(resamples: int) -> None:
    if resamples < 1:
        raise ValueError(f"the number of resamples is {resamples}; give at least 1")
