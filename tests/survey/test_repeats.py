"""Repeats: every run that stands in two places is part of one that is told, and nothing else is told."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.repeats import Repeat, repeats

Find = Callable[[Sequence[Sequence[Hashable]], Callable[[int, int], Hashable]], Iterator[Repeat]]

SEQUENCES = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=9), max_size=4)
"""Symbols, each with what lies between it and the one before."""


def naive(sequences: list[list[tuple[int, int]]]) -> set[tuple[int, tuple[tuple[int, int], ...]]]:
    """Return all runs that can't be made longer, from a look at every run there is."""
    runs: dict[tuple[Hashable, ...], list[tuple[int, int]]] = {}
    for number, sequence in enumerate(sequences):
        for first in range(len(sequence)):
            for end in range(first + 1, len(sequence) + 1):
                run = (sequence[first][0], *sequence[first + 1 : end])
                runs.setdefault(run, []).append((number, first))
    told = set()
    for run, places in runs.items():
        lefts = {sequences[n][i - 1][:1] + sequences[n][i][1:] if i else (n, i, "start") for n, i in places}
        ends = [
            sequences[n][i + len(run)] if i + len(run) < len(sequences[n]) else (n, i, "end")
            for n, i in places
        ]
        if len(places) > 1 and len(lefts) > 1 and len(set(ends)) > 1:
            told.add((len(run), tuple(places)))
    return told


def tells_what_repeats(find: Find, sequences: list[list[tuple[int, int]]]) -> None:
    """What is told is exactly what a look at every run finds, each once."""
    symbols = [[symbol for symbol, _ in sequence] for sequence in sequences]
    found = list(find(symbols, lambda number, index: sequences[number][index][1]))
    told = [(one.length, one.places) for one in found]
    assert len(told) == len(set(told))
    assert set(told) == naive(sequences)


@pytest.mark.slow
@given(SEQUENCES)
@settings(max_examples=300)
def test_all_repeats_are_told_and_no_others(sequences: list[list[tuple[int, int]]]) -> None:
    """Runs, overlapping ones too, with all their places."""
    tells_what_repeats(repeats, sequences)


def blind_to_steps(
    sequences: Sequence[Sequence[Hashable]], step: Callable[[int, int], Hashable]
) -> Iterator[Repeat]:
    """Find repeats, but don't look between symbols."""
    return repeats(sequences, lambda number, index: 0)


def longest_alone(
    sequences: Sequence[Sequence[Hashable]], step: Callable[[int, int], Hashable]
) -> Iterator[Repeat]:
    """Tell only those that stand in two places."""
    return (one for one in repeats(sequences, step) if len(one.places) == 2)


@pytest.mark.parametrize("broken", [blind_to_steps, longest_alone])
def test_a_look_that_misses_or_invents_repeats_is_found_out(broken: Find) -> None:
    """The property kills a blind look and one that knows pairs alone."""

    @settings(max_examples=1_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(SEQUENCES)
    def planted(sequences: list[list[tuple[int, int]]]) -> None:
        tells_what_repeats(broken, sequences)

    with pytest.raises(AssertionError):
        planted()
