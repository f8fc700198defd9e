"""Reducers: one value for each sample from the values of its epochs.

Names are those of the field: ``mean``, ``median``, ``mode``, ``max``, ``at_least_K``, ``pass_at_K`` and
``pass_hat_K``. All functions are pure.

Sources: M. Chen et al., "Evaluating Large Language Models Trained on Code" (2021), section 2.1, for pass@k,
its unbiased form; S. Yao et al., "τ-bench" (2024), section 3, for pass^k.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from sessiontree import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass

Reduce: TypeAlias = Callable[[Sequence[float]], float | None]
MAX_K: Final = 10_000


@dataclass(frozen=True, slots=True)
class Reducer:
    """How the epochs of a sample become one value."""

    name: str
    label: str
    """As it is shown, such as ``pass@5``."""
    reduce: Reduce
    """From the values of one sample, at least one; None = it has too few epochs."""
    of_passes: bool = False
    """Whether it counts passes; else it takes the scores' values."""


def pass_at_k(passed: int, total: int, k: int) -> float | None:
    """Return how probable it is that at least one of ``k`` epochs, drawn without replacement, passed.

    ``1 - C(total - passed, k) / C(total, k)``: the unbiased estimate of solving a sample in ``k`` tries.

    Args:
        passed: How many epochs passed.
        total: How many there are; fewer than ``k`` determine nothing, and the answer is None.
        k: How many tries.

    Raises:
        ValueError: a number is impossible.
    """
    _check(passed, total, k)
    if total < k:
        return None
    return 1.0 - math.comb(total - passed, k) / math.comb(total, k)


def pass_hat_k(passed: int, total: int, k: int) -> float | None:
    """Return how probable it is that all of ``k`` epochs, drawn without replacement, passed.

    ``C(passed, k) / C(total, k)``, said as pass^k: how far an agent can be relied on. Arguments and errors
    are those of :func:`pass_at_k`.
    """
    _check(passed, total, k)
    if total < k:
        return None
    return math.comb(passed, k) / math.comb(total, k)


def _check(passed: int, total: int, k: int) -> None:
    if not 0 <= passed <= total or k < 1:
        raise ValueError(f"{passed} of {total} epochs passed, k = {k}: give 0 ≤ passed ≤ total and k ≥ 1")


def _find_mode(values: Sequence[float]) -> float:
    """Return the most frequent value; of several, the smallest: the order of epochs must not matter."""
    counts = Counter(values)
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)


def _compute_mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _score_at_least(k: int, values: Sequence[float]) -> float | None:
    return None if len(values) < k else float(sum(value >= 1 for value in values) >= k)


def _score_drawn(
    probability: Callable[[int, int, int], float | None], k: int, values: Sequence[float]
) -> float | None:
    return probability(sum(value >= 1 for value in values), len(values), k)


_PLAIN: Final[dict[str, Reduce]] = {
    "mean": _compute_mean,
    "median": statistics.median,
    "mode": _find_mode,
    "max": max,
}
_WITH_K: Final[dict[str, tuple[str, Callable[[int, Sequence[float]], float | None]]]] = {
    "at_least": ("at least {k}", _score_at_least),
    "pass_at": ("pass@{k}", partial(_score_drawn, pass_at_k)),
    "pass_hat": ("pass^{k}", partial(_score_drawn, pass_hat_k)),
}
NAMES: Final = (*_PLAIN, *(f"{name}_K" for name in _WITH_K))
"""What :func:`find_reducer` takes; K is a whole number from 1."""


def find_reducer(name: str) -> Reducer:
    """Return a reducer by its name.

    Args:
        name: ``mean``, ``median``, ``mode`` or ``max`` of the values; ``at_least_K``: 1 if at least K epochs
            passed, else 0; ``pass_at_K`` and ``pass_hat_K``: the probability that at least one, or each, of K
            epochs passed.

    Raises:
        ConfigError: no reducer has this name.
    """
    if name in _PLAIN:
        return Reducer(name, name, _PLAIN[name])
    kind, _, number = name.rpartition("_")
    if kind in _WITH_K and number.isascii() and number.isdigit() and 1 <= int(number[:6]) <= MAX_K:
        k = int(number)
        label, reduce = _WITH_K[kind]
        return Reducer(f"{kind}_{k}", label.format(k=k), partial(reduce, k), of_passes=True)
    raise ConfigError(
        f"{name!r} is not a reducer; give one of {', '.join(NAMES)}, with a whole number from 1 to "
        f"{MAX_K:,} for K, such as pass_at_5"
    )
