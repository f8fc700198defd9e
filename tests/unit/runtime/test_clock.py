"""The kernel's time goes forward only, and rings when it should."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.reports.events import TextDelta
from sessiontree.runtime.timing.clock import TreeClock, read_machine_ms
from sessiontree.runtime.transport.progress import ProgressHub


@given(
    st.integers(-(10**13), 10**13),
    st.lists(st.integers(0, 10**6), min_size=1),
    st.lists(st.integers(-(10**13), 10**13)),
)
def test_time_passes_evenly(offset_ms: int, passed: list[int], noted: list[int]) -> None:
    """It never steps back, whatever a journal had seen, and from then on it is what passes."""
    now = [0]
    clock = TreeClock(offset_ms, lambda: now[0])
    for number, step in enumerate(passed):
        before = clock.now_ms()
        if number < len(noted):
            clock = clock.not_before(noted[number])
            assert clock.now_ms() == max(before, noted[number])
            before = clock.now_ms()
        now[0] += step
        assert clock.now_ms() == before + step


def test_clock_begins_at_the_machines_time() -> None:
    """And another one on the machine, given how far it is ahead, shows the same."""
    before, clock = read_machine_ms(), TreeClock()
    other = TreeClock(clock.offset_ms)
    assert before - 1 <= clock.now_ms() <= other.now_ms() <= clock.now_ms() <= read_machine_ms() + 1


async def test_bell_rings_at_its_time_or_at_once_where_that_is_over() -> None:
    """A time that has passed rings in the next turn of the loop; a cancelled timer does not fire."""
    clock = TreeClock()
    rung: list[str] = []
    over = asyncio.Event()
    clock.ring(clock.now_ms() - 5000, lambda: rung.append("past"))
    clock.ring(clock.now_ms() + 5, lambda: rung.append("cancelled")).cancel()
    clock.ring(clock.now_ms() + 10, over.set)
    await over.wait()
    assert rung == ["past"]


async def test_slow_watcher_loses_the_oldest_and_is_told_how_many() -> None:
    """Progress is a bounded ring per reader; others lose nothing, and nobody else's events come in."""
    hub = ProgressHub()
    slow, quick, other = hub.watch("t", capacity=3), hub.watch("t", "main"), hub.watch("u")
    for number in range(5):
        hub.emit("t", "main", TextDelta(str(number)))
    hub.emit("t", "main/w1", TextDelta("worker"))
    assert [each.event for each in slow.drain()] == [TextDelta("3"), TextDelta("4"), TextDelta("worker")]
    assert slow.dropped == 3
    assert len(quick.drain()) == 5
    assert other.drain() == []
    waiting = asyncio.ensure_future(quick.next())
    await asyncio.sleep(0)
    hub.emit("t", "main", TextDelta("late"))
    assert (await waiting).event == TextDelta("late")
    for reader in (slow, quick, other):
        reader.close()
        reader.close()
