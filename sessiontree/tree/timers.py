"""The times at which something in the tree becomes due, in one heap.

Alarms are never taken back one by one: one that means nothing any more is passed over, and swept out when
it comes to the top or when such alarms are more than half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

SLACK = 64
"""Alarms below this number are not worth sweeping."""


class AlarmKind(IntEnum):
    """What becomes due; at one time in this order."""

    APPROVAL = 0
    """A request expires."""
    LIFE = 1
    """A session's time to live ends."""
    WALL = 2
    """A budget's wall time is used up."""
    FORCE = 3
    """A stopping session's grace ends."""


class Alarm(NamedTuple):
    """One time; alarms sort by time, then kind, then rank, then id."""

    at_ms: int
    kind: AlarmKind
    rank: int
    """Depth of the session for those stopped from the top, minus depth for those forced from the leaves."""
    ident: str
    """Id of the request or session."""


class Alarms:
    """A heap of alarms."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Alarm] = []

    def __len__(self) -> int:
        """Number of alarms, those that mean nothing any more included."""
        return len(self._heap)

    def __iter__(self) -> Iterator[Alarm]:
        """Yield all alarms in no order."""
        return iter(self._heap)

    def set(self, alarm: Alarm) -> None:
        """Add an alarm. O(log n)."""
        heappush(self._heap, alarm)

    def due(self, now_ms: int) -> list[Alarm]:
        """Return the alarms at or before a time, sorted, and leave them set. O(number returned)."""
        if not self._heap or self._heap[0].at_ms > now_ms:
            return []
        found, _ = self._split(now_ms)
        found.sort()
        return found

    def next_after(self, now_ms: int) -> int | None:
        """Return the earliest time set after a time, or None. O(number due)."""
        _, later = self._split(now_ms)
        return min(later, default=None)

    def sweep(self, is_set: Callable[[Alarm], bool], at_most: int) -> None:
        """Drop alarms that mean nothing any more from the top; all of them when they are many.

        Args:
            is_set: Whether an alarm still means something.
            at_most: How many alarms can mean something by now.
        """
        heap = self._heap
        while heap and not is_set(heap[0]):
            heappop(heap)
        if len(heap) > SLACK + 2 * at_most:
            self._heap = [alarm for alarm in heap if is_set(alarm)]
            heapify(self._heap)

    def _split(self, now_ms: int) -> tuple[list[Alarm], list[int]]:
        # What is due forms one connected piece at the top of a heap; only its rim is looked at beyond it.
        heap = self._heap
        found: list[Alarm] = []
        later: list[int] = []
        places = [0]
        while places:
            place = places.pop()
            if place >= len(heap):
                continue
            alarm = heap[place]
            if alarm.at_ms <= now_ms:
                found.append(alarm)
                places += (2 * place + 1, 2 * place + 2)
            else:
                later.append(alarm.at_ms)
        return found, later
