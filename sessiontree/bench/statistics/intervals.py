"""Intervals and comparisons: what the scores of some samples say about all samples like them.

All functions are pure: the same values and the same seed give the same result. A *cluster* is what was drawn
independently: a sample, with one value for each of its epochs. Epochs of one sample resemble each other, so
they are never counted as independent draws.

Sources: E. Miller, "Adding Error Bars to Evals" (2024), for clustered standard errors; E. B. Wilson,
"Probable inference, the law of succession, and statistical inference" (1927) for the interval of a rate;
B. Efron and R. Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 8 and 13, for bootstrap
intervals by percentiles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sessiontree.contracts.values.quick_dataclass import dataclass

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
NOT_FINITE: Final = "a value, or a sum of them, is not a finite number; statistics need finite numbers"
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


def compute_wilson_interval(passed: int, total: int, *, confidence: float = CONFIDENCE) -> Estimate:
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


def compute_clustered_mean(
    clusters: Sequence[Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Return the mean of all values with a bootstrap interval that draws whole clusters, by percentiles.

    Clusters without values are ignored. A single cluster has a mean and no interval. The interval is widened
    to hold the mean where few resamples would exclude it.

    Equal clusters have no variance to draw from, which does not make the value certain: other clusters were
    not among so many. With ``bounds`` the interval then is how far the mean may be if as large a share of all
    clusters as Wilson's interval allows differs, as much as it can. Without them it is unknown.

    Args:
        clusters: The values of each cluster, in any order.
        confidence: Probability that the interval covers, between 0 and 1.
        resamples: How often as many clusters as there are are drawn, with replacement.
        seed: Seed of the draws.
        bounds: The smallest and the largest value that there can be, such as 0 and 1 of outcomes.

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
        raise ValueError(NOT_FINITE)
    if len(filled) == 1:
        return Estimate(value, None, None, 1)
    if bool((sums * sizes[0] == sums[0] * sizes).all()):
        return _estimate_constant(value, len(filled), bounds, confidence)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.concatenate(
            [drawn[0] / drawn[1] for drawn in _draw_resamples(sums, sizes, resamples, seed)]
        )
    if not np.isfinite(means).all():
        raise ValueError(NOT_FINITE)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(value, min(float(low), value), max(float(high), value), len(filled))


def _estimate_constant(
    value: float, n: int, bounds: tuple[float, float] | None, confidence: float
) -> Estimate:
    if bounds is None:
        return Estimate(value, None, None, n)
    other = compute_wilson_interval(0, n, confidence=confidence).high or 0.0
    low, high = ((1 - other) * value + other * bound for bound in bounds)
    return Estimate(value, min(low, value), max(high, value), n)


def compute_clustered_error(clusters: Sequence[Sequence[float]]) -> float | None:
    """Return the standard error of the mean of all values, whose clusters were drawn independently.

    ``sqrt(G / (G - 1) · Σ_g (Σ_i (x_gi - mean))²) / n`` for ``G`` clusters with ``n`` values: with one value
    in each this is the usual standard error. None = fewer than two clusters.

    Raises:
        ValueError: a value is not finite.
    """
    filled = [cluster for cluster in clusters if len(cluster)]
    count = len(filled)
    if count < 2:
        return None
    number = sum(map(len, filled))
    try:
        mean = math.fsum(itertools.chain.from_iterable(filled)) / number
        squares = math.fsum(math.fsum(value - mean for value in cluster) ** 2 for cluster in filled)
        error = math.sqrt(count / (count - 1) * squares) / number
    except OverflowError as too_large:
        raise ValueError(NOT_FINITE) from too_large
    if not math.isfinite(error):
        raise ValueError(NOT_FINITE)
    return error


def choose_resamples(clusters: int) -> int:
    """Return a number of resamples that suits a report: :data:`RESAMPLES`, and fewer for many clusters."""
    return max(_MIN_RESAMPLES, min(RESAMPLES, _MAX_DRAWS // max(1, clusters)))


def _draw_resamples(
    sums: Values, sizes: Values, resamples: int, seed: int
) -> Iterator[tuple[Values, Values]]:
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


def compute_quantile(values: Sequence[float] | NDArray[Any], share: float) -> float | None:
    """Return the value below which a share of the values is, interpolated; None without values."""
    found = np.asarray(values, np.float64)
    return float(np.quantile(found, share)) if found.size else None


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence is {confidence}; give a number between 0 and 1, such as 0.95")


def _check_resamples(resamples: int) -> None:
    if resamples < 1:
        raise ValueError(f"the number of resamples is {resamples}; give at least 1")
