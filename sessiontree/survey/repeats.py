"""Repeats: which runs of symbols stand in several places of several sequences."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[int, int]
"""Number of a sequence, and where in it."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One run of symbols and everywhere it stands."""

    length: int
    """Symbols, at least 1."""
    places: tuple[Place, ...]
    """At least two, ascending; may overlap."""


def repeats(
    sequences: Sequence[Sequence[Hashable]], step: Callable[[int, int], Hashable]
) -> Iterator[Repeat]:
    """Yield every run that stands in two places at least and in fewer when it is made longer at either end.

    Runs are the same where their symbols are and, between every two neighbours, what ``step`` says.

    Args:
        sequences: Symbols.
        step: Says, of a sequence and a place that is not its first, what lies between the one before and it.

    Contract: linear in the symbols of all runs that can't be made longer to the left; no recursion.
    """
    where: dict[Hashable, list[Place]] = {}
    for number, sequence in enumerate(sequences):
        for index, symbol in enumerate(sequence):
            where.setdefault(symbol, []).append((number, index))
    for places in where.values():
        if len(places) > 1 and _differ_before(places, sequences, step):
            yield from _runs_from(places, sequences, step)


def _differ_before(
    places: Sequence[Place], sequences: Sequence[Sequence[Hashable]], step: Callable[[int, int], Hashable]
) -> bool:
    """Whether the runs that begin at these places can't all be made longer to the left."""
    before = {
        (sequences[number][index - 1], step(number, index)) if index else None for number, index in places
    }
    return len(before) > 1 or None in before


def _runs_from(
    places: list[Place], sequences: Sequence[Sequence[Hashable]], step: Callable[[int, int], Hashable]
) -> Iterator[Repeat]:
    waiting = [(1, places)]
    while waiting:
        length, places = waiting.pop()
        longer: dict[Hashable, list[Place]] = {}
        for number, index in places:
            end = index + length
            if end < len(sequences[number]):
                key = (step(number, end), sequences[number][end])
                longer.setdefault(key, []).append((number, index))
        ways = [way for way in longer.values() if len(way) > 1]
        if not any(len(way) == len(places) for way in ways) and _differ_before(places, sequences, step):
            yield Repeat(length, tuple(places))
        waiting.extend((length + 1, way) for way in ways)
