"""Several children at a time: whatever ends them, each task has one result, and none is more than it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.api.tree.child_results import ChildResult, OnChildError, ResultAccess, run_children
from sessiontree.contracts.errors import LimitExceeded, SessionClosed, SessionFailed
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.reports.fan_outs import FanOutCounts, count_outcomes

FAILED = SessionStatus.FAILED
ENDS: dict[str, SessionResult[Any]] = {
    "completed": SessionResult(SessionStatus.COMPLETED, "fine"),
    "failed": SessionResult(FAILED, "wrong"),
    "expired": SessionResult(SessionStatus.EXPIRED, "late"),
    "lost": SessionResult(FAILED, "its host was lost", cause="lost"),
    "provider": SessionResult(FAILED, "the key was refused", cause="provider"),
    "budget": SessionResult(FAILED, "used up", cause="budget"),
}
TERMINAL = {"provider", "budget"}


@dataclass(eq=False)
class FanChild:
    """A child that ends when its turn comes."""

    session_id: str
    ended: asyncio.Future[SessionResult[Any]] = field(repr=False)

    async def cancel(self, reason: str) -> object:
        """End at once."""
        if not self.ended.done():
            self.ended.set_result(SessionResult(SessionStatus.CANCELLED, reason))
        return None


@dataclass(eq=False)
class Fan:
    """Children whose ends are given; which of those that live ends next is given, too."""

    ends: list[str]
    order: list[int]
    refused: dict[int, Exception] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    living: dict[int, FanChild] = field(default_factory=dict)
    after_end: int = 0
    """Children that started after a terminal end was there."""
    is_ended: bool = False

    async def spawn(self, index: int, label: str | None) -> FanChild:
        """Start a child, or refuse it."""
        if index in self.refused:
            raise self.refused[index]
        self.after_end += self.is_ended
        child = FanChild(f"main/w{index}", asyncio.get_running_loop().create_future())
        self.started.append(index)
        self.living[index] = child
        return child

    async def end_children(self) -> None:
        """End one child after another, each as soon as none more starts by itself."""
        turns = iter(self.order)
        while True:
            for _ in range(8):
                await asyncio.sleep(0)
            living = sorted(self.living)
            if not living:
                continue
            index = living[next(turns, 0) % len(living)]
            child = self.living.pop(index)
            self.is_ended = self.is_ended or self.ends[index] in TERMINAL
            if not child.ended.done():
                child.ended.set_result(ENDS[self.ends[index]])


async def run(fan: Fan, at_a_time: int, on_error: OnChildError = "return") -> list[ChildResult[Any]]:
    """Return the results of a fan-out."""
    ending = asyncio.create_task(fan.end_children())
    access: ResultAccess[FanChild] = ResultAccess(lambda child: child.ended, lambda child, result: result)
    labels: list[str | None] = [None] * len(fan.ends)
    terminal = frozenset[Any](TERMINAL)
    try:
        found = run_children(fan.spawn, access, labels, at_a_time, on_error, terminal)
        return [result async for result in found]
    finally:
        ending.cancel()


FANS = st.builds(
    Fan,
    st.lists(st.sampled_from([*ENDS, "completed", "completed"]), max_size=20),
    st.lists(st.integers(0, 20), max_size=20),
)


@given(FANS, st.integers(1, 6))
def test_each_task_has_one_result_and_nothing_starts_after_a_terminal_end(fan: Fan, at_a_time: int) -> None:
    """Those under way end as they end; the rest is not started, and says so."""
    results = asyncio.run(run(fan, at_a_time))
    assert sorted(each.index for each in results) == list(range(len(fan.ends)))
    assert fan.after_end == 0
    for each in results:
        wanted = fan.ends[each.index] if each.index in fan.started else "not_started"
        assert each.outcome == wanted
        assert bool(each.session_id) == (wanted != "not_started")
    counts = count_outcomes(each.outcome for each in results)
    assert counts.total == len(fan.ends)
    assert counts.not_started == len(fan.ends) - len(fan.started)
    if not TERMINAL & set(fan.ends):
        assert counts.not_started == 0


@given(FANS, st.integers(1, 6), st.sampled_from(["raise", "first"]))
def test_error_has_the_results_of_all_tasks(fan: Fan, at_a_time: int, on_error: Any) -> None:
    """``raise`` and ``first`` lose nothing that was done."""
    try:
        results = asyncio.run(run(fan, at_a_time, on_error))
    except SessionFailed as error:
        assert error.results is not None
        assert len(error.results) == len(fan.ends)
        assert str(error.results.counts) in str(error)
        assert not error.results.is_complete
        by_index: list[Any] = [*error.results]
        assert [each.index for each in by_index] == list(range(len(fan.ends)))
        started = {each.index for each in by_index if each.outcome != "not_started"}
        assert started == set(fan.started)
    else:
        assert {each.outcome for each in results} <= {"completed"}


def test_budget_that_refuses_the_next_child_loses_nothing() -> None:
    """Once a child has started, that ends the fan-out; before, it is a mistake of the caller."""
    spent = LimitExceeded("main", "budget.sessions", 3, 2)
    results = asyncio.run(run(Fan(["completed"] * 5, [], {3: spent}), 1))
    assert count_outcomes(each.outcome for each in results) == FanOutCounts(done=3, not_started=2)
    assert "budget.sessions" in results[-1].summary
    with pytest.raises(LimitExceeded):
        asyncio.run(run(Fan(["completed"] * 5, [], {0: spent}), 2))


def test_parent_that_closed_says_which_of_the_two_it_was() -> None:
    """A used-up budget closes the parent before its children say so; without one it is an error."""
    closed = SessionClosed("main", "it has ended")
    results = asyncio.run(run(Fan(["completed", "budget", "completed"], [], {2: closed}), 3))
    assert [each.outcome for each in results] == ["completed", "budget", "not_started"]
    with pytest.raises(SessionClosed):
        asyncio.run(run(Fan(["completed", "completed", "completed"], [], {2: closed}), 3))
