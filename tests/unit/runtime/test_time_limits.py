"""Many time limits with one timer: each rings in its time, once, unless it was dropped or replaced."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.runtime.timing.time_limits import SLACK, TimeLimits

Step: TypeAlias = tuple[str, int | None]
"""A name, and the seconds that it is given; None = its limit is dropped."""
STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 5)), max_size=30)


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes forward only when nothing can run before a timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        """Return its own time."""
        return self.now


async def rung(steps: list[Step]) -> list[tuple[float, str, float]]:
    """Carry out a step a second; return when which limit was late, and the seconds it had."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StillLoop)
    late: list[tuple[float, str, float]] = []
    limits: TimeLimits[str] = TimeLimits(lambda name, seconds: late.append((loop.now, name, seconds)))
    for name, seconds in steps:
        if seconds is None:
            limits.drop(name)
        else:
            limits.set(name, seconds, name)
        for _ in range(3 * len(steps)):
            await asyncio.sleep(0)
        loop.now += 1
    for _ in range(20 + 3 * len(steps)):
        await asyncio.sleep(0)
        loop.now += 1
    assert len(limits) == 0
    return late


def expected(steps: list[Step]) -> list[tuple[str, float]]:
    """Return what is late, name by name, with a clock that is looked at after every step."""
    until: dict[str, tuple[int, int]] = {}
    late: list[tuple[str, float]] = []
    for now, (name, seconds) in [*enumerate(steps), *((len(steps) + more, ("", None)) for more in range(20))]:
        if seconds is not None:
            until[name] = (now + seconds, seconds)
        else:
            until.pop(name, None)
        over = [each for each, (at, _) in until.items() if at <= now]
        late += [(each, until.pop(each)[1]) for each in over]
    return late


@given(STEPS)
def test_each_limit_rings_in_its_time_unless_it_was_dropped_or_replaced(steps: list[Step]) -> None:
    """Compared with a list that is searched after every step."""
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        late = runner.run(rung(steps))
    assert sorted((name, seconds) for _, name, seconds in late) == sorted(expected(steps))
    assert [at for at, _, _ in late] == sorted(at for at, _, _ in late)


async def test_limits_that_were_dropped_are_not_kept() -> None:
    """A reply that comes soon leaves nothing behind until its distant limit."""
    limits: TimeLimits[int] = TimeLimits(lambda waits, seconds: None)
    limits.set("stays", 600.0, 0)
    for number in range(1_000):
        limits.set(f"{number % 3}", 600.0, number)
        limits.drop(f"{number % 3}")
        assert len(limits._heap) <= SLACK + 2 * len(limits) + 2
    assert len(limits) == 1
    limits.close()
    assert len(limits) == 0


async def test_limit_whose_report_fails_holds_no_other_up(event_loop_errors: list[BaseException]) -> None:
    """Each is reported in a turn of its own."""
    heard: list[str] = []

    def fail(name: str, seconds: float) -> None:
        heard.append(name)
        raise ValueError(name)

    limits: TimeLimits[str] = TimeLimits(fail)
    limits.set("one", 0.0, "one")
    limits.set("two", 0.0, "two")
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert heard == ["one", "two"]
    assert [str(each) for each in event_loop_errors] == ["one", "two"]


@pytest.fixture
async def event_loop_errors() -> list[BaseException]:
    """What callbacks of the event loop raise."""
    errors: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: errors.append(about["exception"]))
    return errors
