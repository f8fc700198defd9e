"""Duplicates: files and stretches of program text that stand in several places, from prints alone."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sessiontree.survey.prints import WINDOW, FilePrints, Print
from sessiontree.survey.repeats import repeats


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """Some lines of a file."""

    path: str
    first: int
    last: int

    @property
    def lines(self) -> int:
        """How many."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, order=True)
class Duplicate:
    """The same text in several places."""

    places: tuple[Stretch, ...]
    """By path and line; at least two."""

    @property
    def lines(self) -> int:
        """Lines of the shortest: comments and blank lines may differ."""
        return min(place.lines for place in self.places)

    @property
    def saved(self) -> int:
        """Lines that one copy for all would save, at least."""
        return self.lines * (len(self.places) - 1)


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What stands in several places."""

    files: tuple[Duplicate, ...]
    """Files of the same bytes; most lines saved first."""
    stretches: tuple[Duplicate, ...]
    """Stretches of different files, and within a file; most lines saved first, as many as asked for."""
    lines: int
    """Lines of files of which the same stand elsewhere, at least, those of equal files but one left out."""


def find_duplicates(files: Iterable[FilePrints], most: int) -> Duplicates:
    """Return what stands in several places.

    A stretch of :data:`~sessiontree.survey.prints.PRINT_LINES` + ``window`` - 1 normal lines, ``window`` the
    larger one of two files, is always found, at least eight lines of it, where its prints differ enough;
    nothing shorter than eight normal lines is ever found. Of stretches that overlap by more than half, the
    one that saves most lines is named.

    Args:
        files: Each path once.
        most: Most stretches named.

    Contract: pure; the same for the same files in any order.
    """
    by_digest: dict[bytes, list[FilePrints]] = {}
    for file in sorted(files, key=lambda one: one.path):
        by_digest.setdefault(file.digest, []).append(file)
    equal = [
        Duplicate(tuple(Stretch(one.path, 1, one.lines) for one in group))
        for group in by_digest.values()
        if len(group) > 1
    ]
    different = [group[0] for group in by_digest.values()]
    return Duplicates(
        tuple(sorted(equal, key=_order)),
        tuple(_largest(_candidates(different), most)),
        sum(map(_covered, _repeated(different, WINDOW).values())),
    )


def _order(one: Duplicate) -> tuple[int, tuple[Stretch, ...]]:
    return -one.saved, one.places


def _candidates(files: Sequence[FilePrints]) -> Iterator[Duplicate]:
    """Yield every duplicate; those of files with a larger window among all files thinned to it."""
    for window in sorted({file.window for file in files}):
        found = _repeated([file for file in files if file.window <= window], window)
        paths = list(found)
        prints = list(found.values())

        def between(number: int, index: int, prints: list[list[Print]] = prints) -> int:
            return (prints[number][index].sum - prints[number][index - 1].sum) & 0xFFFF

        for repeat in repeats([[one.hash for one in sequence] for sequence in prints], between):
            yield Duplicate(
                tuple(
                    Stretch(
                        paths[number],
                        prints[number][index].first,
                        prints[number][index + repeat.length - 1].last,
                    )
                    for number, index in repeat.places
                )
            )


def _repeated(files: Iterable[FilePrints], window: int) -> dict[str, list[Print]]:
    """Return the prints that stand in more than one place, per file that has any, by path and line."""
    prints = {file.path: file.unpacked(window) for file in files}
    times = Counter(one.hash for sequence in prints.values() for one in sequence)
    repeated = {path: [one for one in sequence if times[one.hash] > 1] for path, sequence in prints.items()}
    return {path: sequence for path, sequence in repeated.items() if sequence}


def _largest(candidates: Iterable[Duplicate], most: int) -> Iterator[Duplicate]:
    """Yield duplicates, those that save most first, without places that mostly stand in earlier ones."""
    waiting = [(_order(one), one) for one in set(candidates) if one.saved]
    heapq.heapify(waiting)
    taken = _Taken()
    while waiting and most > 0:
        _, one = heapq.heappop(waiting)
        left = tuple(taken.free(one.places))
        if len(left) == len(one.places):
            for place in left:
                taken.add(place)
            most -= 1
            yield one
        elif len(left) > 1:
            rest = Duplicate(left)
            heapq.heappush(waiting, (_order(rest), rest))


def _covered(prints: Sequence[Print]) -> int:
    """Return the number of lines of one file's prints, by line, that lie in any of them."""
    count = 0
    end = 0
    for one in prints:
        count += max(0, one.last - max(one.first - 1, end))
        end = max(end, one.last)
    return count


class _Taken:
    """Lines that are named already."""

    def __init__(self) -> None:
        # per file disjoint pairs of first and last line, ascending
        self.lines: dict[str, list[tuple[int, int]]] = {}

    def free(self, places: Iterable[Stretch]) -> Iterator[Stretch]:
        """Yield the places, by path and line, less than half of which is taken or overlaps the one before."""
        before: Stretch | None = None
        for place in places:
            overlap = 0
            if before is not None and before.path == place.path:
                overlap = before.last - place.first + 1
            if 2 * max(overlap, self._taken_of(place)) <= place.lines:
                before = place
                yield place

    def add(self, place: Stretch) -> None:
        """Take the lines of a place."""
        first, last = place.first, place.last
        apart = []
        for one in self.lines.get(place.path, []):
            if one[1] < first or last < one[0]:
                apart.append(one)
            else:
                first, last = min(first, one[0]), max(last, one[1])
        self.lines[place.path] = sorted([*apart, (first, last)])

    def _taken_of(self, place: Stretch) -> int:
        count = 0
        known = self.lines.get(place.path, [])
        start = max(0, bisect_right(known, (place.first, place.first)) - 1)
        for first, last in known[start:]:
            if first > place.last:
                break
            count += max(0, min(last, place.last) - max(first, place.first) + 1)
        return count
