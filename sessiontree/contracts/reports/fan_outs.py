"""The results of several children that one call started: in the order of their tasks, with counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sessiontree.contracts.recorded.results import ChildOutcome, R, SessionResult
from sessiontree.contracts.values.quick_dataclass import dataclass

SAYS_NOTHING: Final = frozenset({"provider", "budget", "lost"})
"""Outcomes that say nothing about a child's task: its provider, a budget or its host ended it."""


@dataclass(frozen=True, slots=True)
class FanOutCounts:
    """How many of several children ended in which way; together they are all tasks."""

    done: int = 0
    """Completed."""
    failed: int = 0
    """Failed at their task, were cancelled, or used up their time to live."""
    lost: int = 0
    """Ended by their provider, a budget or the loss of their host: that says nothing about their task."""
    not_started: int = 0

    @property
    def total(self) -> int:
        """All tasks."""
        return self.done + self.failed + self.lost + self.not_started

    def __str__(self) -> str:
        """Return all counts in words, such as ``40 done, 0 failed, 4 lost, 156 not started``."""
        ended = f"{self.done:,} done, {self.failed:,} failed, {self.lost:,} lost"
        return f"{ended}, {self.not_started:,} not started"


def count_outcomes(outcomes: Iterable[ChildOutcome]) -> FanOutCounts:
    """Return the counts of outcomes."""
    done = failed = lost = not_started = 0
    for outcome in outcomes:
        done += outcome == "completed"
        lost += outcome in SAYS_NOTHING
        not_started += outcome == "not_started"
        failed += outcome in {"failed", "cancelled", "expired"}
    return FanOutCounts(done, failed, lost, not_started)


class ChildResults(list[SessionResult[R]]):
    """The results of several children, in the order of their tasks; those not started are among them."""

    @property
    def counts(self) -> FanOutCounts:
        """How many are done, failed, lost and not started."""
        return count_outcomes(each.outcome for each in self)

    @property
    def is_complete(self) -> bool:
        """Whether every child completed."""
        return all(each.outcome == "completed" for each in self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle makes it again."""
        return ChildResults, (list(self),)
