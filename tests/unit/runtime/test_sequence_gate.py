"""Numbered questions are taken up in order, whatever order they arrive in."""

from __future__ import annotations

import asyncio
from typing import Protocol

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.runtime.supervisor.process.supervisor_process import SequenceGate


class Order(Protocol):
    """What is tried."""

    async def reach(self, number: int) -> None: ...

    def advance(self, number: int) -> None: ...


async def taken_up(order: Order, arrivals: list[int]) -> list[int]:
    """Return the order in which numbers are taken up that arrive in another."""
    done: list[int] = []

    async def one(number: int) -> None:
        await order.reach(number)
        done.append(number)
        order.advance(number)

    async with asyncio.TaskGroup() as group:
        for number in arrivals:
            group.create_task(one(number))
            await asyncio.sleep(0)
    return done


@pytest.mark.covers("REL-S45", "ORD2")
@given(st.permutations(range(1, 9)))
def test_every_order_of_arrival_is_put_right(arrivals: list[int]) -> None:
    """Nobody is taken up before those with a smaller number."""
    assert anyio.run(taken_up, SequenceGate(), arrivals) == sorted(arrivals)


@pytest.mark.covers("REL-S45")
def test_planted_bug_is_seen() -> None:
    """A line that lets everybody through at once keeps no order."""

    class Through(SequenceGate):
        async def reach(self, number: int) -> None:
            return

    with pytest.raises(AssertionError):
        assert anyio.run(taken_up, Through(), [2, 1, 3]) == [1, 2, 3]
