"""Reducers: formulas counted out another way, bounds and order; planted bugs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ConfigError
from sessiontree.bench.statistics.reducers import NAMES, find_reducer, pass_at_k, pass_hat_k

Drawn = Callable[[int, int, int], float | None]
counts = st.integers(1, 9).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))
epochs = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7)
names = st.sampled_from(["mean", "median", "mode", "max", "at_least_2", "pass_at_2", "pass_hat_2"])


def counted(passed: int, total: int, k: int) -> tuple[Fraction, Fraction]:
    """Return how many draws of k epochs hold a pass, and hold only passes, of all of them."""
    draws = list(itertools.combinations([True] * passed + [False] * (total - passed), k))
    return (
        Fraction(sum(map(any, draws)), len(draws)),
        Fraction(sum(map(all, draws)), len(draws)),
    )


def equals_all_draws(at: Drawn, hat: Drawn, passed: int, total: int) -> None:
    """Every k up to the number of epochs."""
    for k in range(1, total + 1):
        some, every = counted(passed, total, k)
        assert at(passed, total, k) == pytest.approx(float(some), abs=1e-12)
        assert hat(passed, total, k) == pytest.approx(float(every), abs=1e-12)


@given(counts)
def test_pass_at_and_pass_hat_count_all_draws(case: tuple[int, int]) -> None:
    """Both are shares of draws without replacement; fewer epochs than k determine nothing."""
    equals_all_draws(pass_at_k, pass_hat_k, *case)
    assert pass_at_k(*case, case[1] + 1) is None
    assert pass_hat_k(*case, case[1] + 1) is None


def biased(passed: int, total: int, k: int) -> float:
    """A planted mistake: draws with replacement."""
    return 1 - (1 - passed / total) ** k


def test_planted_bias_is_found() -> None:
    """The usual mistake is not the share of draws."""
    with pytest.raises(AssertionError):
        equals_all_draws(biased, pass_hat_k, 2, 5)


@given(counts)
def test_more_tries_help_and_more_demands_do_not(case: tuple[int, int]) -> None:
    """pass@k grows with k, pass^k falls, and for one try both are the rate."""
    at = [pass_at_k(*case, k) or 0.0 for k in range(1, case[1] + 1)]
    hat = [pass_hat_k(*case, k) or 0.0 for k in range(1, case[1] + 1)]
    assert at == sorted(at)
    assert hat == sorted(hat, reverse=True)
    assert at[0] == pytest.approx(case[0] / case[1])
    assert hat[0] == pytest.approx(case[0] / case[1])


def test_known_values() -> None:
    """The product by which the paper computes it; many epochs neither overflow nor vanish."""
    product = math.prod(1 - 10 / left for left in range(200 - 13 + 1, 200 + 1))
    assert pass_at_k(13, 200, 10) == pytest.approx(1 - product, rel=1e-9)
    assert pass_at_k(1, 10_000, 5_000) == pytest.approx(0.5)
    assert pass_hat_k(9_999, 10_000, 5_000) == pytest.approx(0.5)


@given(names, epochs, st.randoms())
def test_reduced_value_ignores_the_order_and_stays_within_the_values(
    name: str, values: list[float], random: object
) -> None:
    """Epochs are exchangeable; too few of them give nothing."""
    reducer = find_reducer(name)
    found = reducer.reduce(values)
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert reducer.reduce(shuffled) == found
    if name.endswith("_2") and len(values) < 2:
        assert found is None
        return
    assert found is not None
    low, high = (0.0, 1.0) if reducer.of_passes else (min(values), max(values))
    assert low <= found <= high


def test_reducers_by_name() -> None:
    """Each says what it is; an unknown one is refused with the names that there are."""
    values = [1.0, 0.0, 0.5, 0.5, 1.0]
    expected = {"mean": 0.6, "median": 0.5, "mode": 0.5, "max": 1.0}
    found = {name: find_reducer(name).reduce(values) for name in expected}
    assert found == pytest.approx(expected)
    assert find_reducer("at_least_2").reduce(values) == 1.0
    assert find_reducer("at_least_3").reduce(values) == 0.0
    assert find_reducer("pass_at_2").reduce(values) == pytest.approx(1 - math.comb(3, 2) / math.comb(5, 2))
    assert find_reducer("pass_hat_2").reduce(values) == pytest.approx(0.1)
    assert [find_reducer(name).label for name in ("pass_at_5", "pass_hat_05")] == ["pass@5", "pass^5"]
    for wrong in ("", "average", "pass_at_0", "pass_at_x", "pass_at", "pass_at_-1", "at_least_99999999"):
        with pytest.raises(ConfigError, match=NAMES[0]):
            find_reducer(wrong)


@pytest.mark.parametrize("case", [(-1, 3, 1), (4, 3, 1), (1, 3, 0)])
def test_impossible_numbers_are_refused(case: tuple[int, int, int]) -> None:
    """By both formulas."""
    for formula in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="epochs passed"):
            formula(*case)
