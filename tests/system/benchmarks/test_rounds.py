"""Rounds: medians of medians, and no figure that was not measured in every round."""

from __future__ import annotations

import pytest

from benchmarks.rounds import Rounds


def test_one_bad_round_does_not_count() -> None:
    """The figure is the median of the rounds' own medians."""
    taken = Rounds()
    for values in [(1.0, 2.0, 90.0), (500.0, 600.0, 700.0), (3.0, 3.0, 3.0)]:
        taken.begin()
        taken.add("call_us", *values)
    assert taken.median("call_us") == 3.0


def test_values_of_one_round_may_come_one_by_one() -> None:
    """Values added in turn with others' belong to the round that is on."""
    taken = Rounds()
    taken.begin()
    for value in (1.0, 5.0, 9.0):
        taken.add("first", value)
        taken.add("second", -value)
    assert (taken.median("first"), taken.median("second")) == (5.0, -5.0)


def test_value_before_the_first_round_is_refused() -> None:
    """A warm-up can't slip into the figures."""
    with pytest.raises(ValueError, match="before the first round"):
        Rounds().add("call_us", 1.0)


@pytest.mark.parametrize("measured_in", [(), (1,), (2,)])
def test_figure_left_out_of_a_round_is_none(measured_in: tuple[int, ...]) -> None:
    """Two figures are comparable only when every round has both."""
    taken = Rounds()
    for number in (1, 2):
        taken.begin()
        if number in measured_in:
            taken.add("call_us", 1.0)
    with pytest.raises(ValueError, match="every round"):
        taken.median("call_us")


def test_figure_of_no_rounds_is_none() -> None:
    """Nothing measured is an error, not a zero."""
    with pytest.raises(ValueError, match="every round"):
        Rounds().median("call_us")
