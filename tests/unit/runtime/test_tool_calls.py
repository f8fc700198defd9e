"""Calls side by side, and those that run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.runtime.runner.calls.tool_calls import SharedExclusiveLock

Step = tuple[str, int]
"""``many`` or ``alone``: somebody comes; ``done`` or ``gone``: the n-th there leaves it, or is cancelled."""
steps = st.lists(
    st.tuples(st.sampled_from(["many", "alone", "alone", "done", "done", "gone"]), st.integers(0, 9)),
    max_size=30,
)


@dataclass
class Visitor:
    """Somebody in the lane, or before it."""

    number: int
    alone: bool
    let_go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Book:
    """Who is inside, and in which order they came in."""

    inside: list[Visitor] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)

    def enter(self, visitor: Visitor) -> None:
        """Judge the lane by who is inside at the same time."""
        self.inside.append(visitor)
        self.entered.append(visitor.number)
        assert len(self.inside) == 1 or not any(each.alone for each in self.inside), "somebody is not alone"


async def visit(lane: SharedExclusiveLock, visitor: Visitor, book: Book) -> None:
    """Go through the lane."""
    if not lane.enter_at_once(alone=visitor.alone):
        await lane.enter(alone=visitor.alone)
    book.enter(visitor)
    try:
        await visitor.let_go.wait()
    finally:
        book.inside.remove(visitor)
        lane.leave()


async def settled() -> None:
    """Let everybody go as far as they come; nothing here waits for anything but the loop."""
    for _ in range(6):
        await asyncio.sleep(0)


async def walk(make: Callable[[], SharedExclusiveLock], script: list[Step]) -> None:
    """Property: who is alone is alone, all come in in their order, and nobody waits for an empty lane."""
    lane, book = make(), Book()
    visitors: list[tuple[Visitor, asyncio.Task[None]]] = []
    gone: set[int] = set()
    for kind, number in script:
        if kind in {"many", "alone"}:
            visitor = Visitor(len(visitors), kind == "alone")
            visitors.append((visitor, asyncio.create_task(visit(lane, visitor, book))))
        else:
            there = [each for each in visitors if not each[1].done()]
            if there:
                visitor, task = there[number % len(there)]
                if kind == "done":
                    visitor.let_go.set()
                else:
                    task.cancel()
                    gone.add(visitor.number)
        if number % 2:
            await settled()
    await settled()
    for visitor, task in visitors:
        visitor.let_go.set()
        await settled()
        assert task.done(), "somebody waits before an empty lane"
        if not task.cancelled():
            task.result()
    came = [number for number in book.entered if number not in gone]
    lonely = [visitor.number for visitor, _ in visitors if visitor.alone and visitor.number in came]
    for number in lonely:  # those side by side may come in together
        place = came.index(number)
        assert all(before < number for before in came[:place]), "somebody was overtaken"
        assert all(after > number for after in came[place:][1:]), "somebody was overtaken"
    assert {visitor.number for visitor, _ in visitors} - gone == set(came)
    assert lane.enter_at_once(alone=True)


def run(walking: Coroutine[Any, Any, None]) -> None:
    """Run on a loop of its own, within reason."""
    asyncio.run(asyncio.wait_for(walking, 60))


@given(steps)
def test_who_is_alone_is_alone_and_all_keep_their_order(script: list[Step]) -> None:
    """Whoever comes, leaves or is cancelled, at any moment."""
    run(walk(SharedExclusiveLock, script))


class Crowded(SharedExclusiveLock):
    """Planted: who wants to be alone joins the others."""

    def enter_at_once(self, *, alone: bool) -> bool:
        return super().enter_at_once(alone=False)


class Overtaking(SharedExclusiveLock):
    """Planted: who needs not be alone passes those that wait to be."""

    def enter_at_once(self, *, alone: bool) -> bool:
        waiting, self._waiting = self._waiting, type(self._waiting)()
        entered = super().enter_at_once(alone=alone)
        self._waiting = waiting
        return entered


class Forgetful(SharedExclusiveLock):
    """Planted: whoever leaves lets nobody in."""

    def _admit(self) -> None:
        pass


class Leaking(SharedExclusiveLock):
    """Planted: whoever is cancelled in the moment of entering keeps the place."""

    async def enter(self, *, alone: bool) -> None:
        try:
            await super().enter(alone=alone)
        except asyncio.CancelledError:
            self._inside += 1
            raise


@pytest.mark.parametrize("planted", [Crowded, Overtaking, Forgetful, Leaking])
def test_planted_lane_is_found(planted: type[SharedExclusiveLock]) -> None:
    """Each of the four breaks the property."""

    def breaks(script: list[Step]) -> bool:
        try:
            run(walk(planted, script))
        except AssertionError:
            return True
        return False

    search = settings(max_examples=400, derandomize=True, database=None, phases=[Phase.generate])
    assert find(steps, breaks, settings=search)
