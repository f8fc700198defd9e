"""When questions begin: to the moment, in order, never above a limit, also while a provider is down.

Time is skipped here, so no machine is too busy for these tests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from sessiontree import CallLimits, ModelUnreachable
from sessiontree.models.providers.call_limits import (
    FAILURES_IN_A_ROW,
    MAX_PAUSE_S,
    MINUTE_S,
    CallQueue,
    Ended,
)
from tests.unit.models.skipped_time_fixtures import NothingLeft, SkippingLoop

TICK_S = 1.0
PAUSED_S, OVER_S, GIVEN_UP_S = 0.125, 0.25, 0.5
"""Parts of a tick at which pauses begin and end and questions are given up: no two kinds coincide."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Tests of this file skip time."""
    return "asyncio", {"loop_factory": SkippingLoop}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: when it comes, how long it takes, and when it is given up unless it began; in ticks."""

    at: int
    takes: int
    given_up: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Questions in the order in which they come, and what limits them."""

    questions: tuple[Asked, ...]
    at_once: int | None
    per_window: int | None
    window: int
    pauses: tuple[tuple[int, int], ...] = ()
    """When each was asked for, and how long it takes; in ticks."""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw questions that come in crowds."""
    at, questions = 0, []
    for gap, takes, patience in draw(
        st.lists(
            st.tuples(
                st.sampled_from((0, 0, 0, 1, 5)),
                st.integers(1, 9),
                st.one_of(st.none(), st.none(), st.integers(0, 30)),
            ),
            min_size=1,
            max_size=24,
        )
    ):
        at += gap
        questions.append(Asked(at, takes, None if patience is None else at + patience))
    bounds = st.one_of(st.none(), st.integers(1, 5))
    pauses = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=3))
    return Plan(tuple(questions), draw(bounds), draw(bounds), draw(st.integers(1, 25)), tuple(pauses))


def expected(plan: Plan) -> list[float | None]:
    """Return the earliest moment at which each question may begin, in seconds; None = it is given up before.

    Each waits for the one before it, for a free place, for its window and for the end of pauses.
    """
    begun: list[tuple[float, float]] = []
    found: list[float | None] = []
    pauses = [(at + PAUSED_S, at + takes + OVER_S) for at, takes in plan.pauses]
    for question in plan.questions:
        now = max(float(question.at), begun[-1][0] if begun else 0.0)
        before = None
        while now != before:
            before = now
            ends = [end for start, end in begun if start <= now < end]
            if plan.at_once is not None and len(ends) >= plan.at_once:
                now = min(ends)
            if plan.per_window is not None and len(begun) >= plan.per_window:
                now = max(now, begun[-plan.per_window][0] + plan.window)
            for start, end in pauses:
                if start <= now < end:
                    now = end
        if question.given_up is not None and now > question.given_up + GIVEN_UP_S:
            found.append(None)
        else:
            begun.append((now, now + question.takes))
            found.append(now)
    return found


async def begun_s(plan: Plan, make: type[CallQueue]) -> list[float | None]:
    """Carry out a plan; return when each question began."""
    loop = asyncio.get_running_loop()
    queue = make(plan.window * TICK_S)
    queue.limits = CallLimits(plan.at_once, plan.per_window)
    began: list[float | None] = [None] * len(plan.questions)

    async def ask(number: int) -> None:
        tries = await queue.enter()
        began[number] = loop.time()
        await asyncio.sleep(plan.questions[number].takes * TICK_S)
        queue.leave("answered", tries=tries)

    def give_up(number: int) -> None:
        if began[number] is None:
            tasks[number].cancel()

    steps: list[tuple[float, int, Any]] = [
        (each.at, number, ask) for number, each in enumerate(plan.questions)
    ]
    for number, each in enumerate(plan.questions):
        if each.given_up is not None:
            steps.append((each.given_up + GIVEN_UP_S, number, give_up))
    steps += [(at + PAUSED_S, takes, queue.pause) for at, takes in plan.pauses]
    tasks: dict[int, asyncio.Task[None]] = {}
    for at, number, step in sorted(steps, key=lambda each: each[0]):
        await asyncio.sleep(at - loop.time())
        if step is ask:
            tasks[number] = asyncio.create_task(ask(number))
        else:
            step(number if step is give_up else number + OVER_S - PAUSED_S)
    if tasks:
        await asyncio.wait(tasks.values())
    return began


def begins_as_expected(make: type[CallQueue], plan: Plan) -> None:
    """Every question begins at the earliest moment at which it may."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(begun_s(plan, make)) == expected(plan)


MANY = Plan(tuple(Asked(0, 1 + number % 3) for number in range(64)), 4, 24, 60)
"""Sixty-four at once: four at a time, 24 a minute."""


@given(plans())
@example(MANY)
def test_questions_begin_as_soon_as_they_may(plan: Plan) -> None:
    """In order, at most so many at a time and within any window, and not one moment later."""
    begins_as_expected(CallQueue, plan)


def test_limits_hold_for_sixty_four_at_once() -> None:
    """What is expected of sixty-four is within the limits: four at a time, 24 a minute, none left out."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        times = [each for each in runner.run(begun_s(MANY, CallQueue)) if each is not None]
    assert len(times) == 64
    assert times == sorted(times)
    assert all(later - earlier >= MANY.window for earlier, later in zip(times, times[24:], strict=False))
    spans = [(start, start + each.takes) for start, each in zip(times, MANY.questions, strict=True)]
    assert max(sum(start <= now < end for start, end in spans) for now in times) == 4


async def test_pause_is_bounded() -> None:
    """Whoever asks for an hour gets two minutes."""
    queue = CallQueue()
    queue.pause(3600.0)
    await queue.enter()
    assert asyncio.get_running_loop().time() == MAX_PAUSE_S


class Calendar(CallQueue):
    """Planted bug: it counts by the minute of the clock, so that two crowds meet at its turn."""

    def _wait_s(self, now_s: float) -> float:
        """Count since the minute began."""
        minute_s = now_s - now_s % self._window_s
        self._begun_s = type(self._begun_s)(each for each in self._begun_s if each >= minute_s)
        most = self.limits.per_minute
        is_full = most is not None and len(self._begun_s) >= most
        return max(self._paused_until_s - now_s, minute_s + self._window_s - now_s if is_full else 0.0)


class OneMore(CallQueue):
    """Planted bug: one more than allowed at a time."""

    def _advance(self) -> None:
        """Count one too few."""
        self._running -= 1
        super()._advance()
        self._running += 1


class LastFirst(CallQueue):
    """Planted bug: who came last is served first."""

    def _advance(self) -> None:
        """Turn the line round."""
        self._waiting.reverse()
        super()._advance()
        self._waiting.reverse()


class Impatient(CallQueue):
    """Planted bug: a pause is not kept."""

    def pause(self, seconds: float) -> None:
        """Do not wait."""


class Shortened(CallQueue):
    """Planted bug: a short pause ends a long one."""

    def pause(self, seconds: float) -> None:
        """Keep the last one only."""
        self._paused_until_s = 0.0
        super().pause(seconds)


class Cluttered(CallQueue):
    """Planted bug: whoever gave up keeps a place."""

    async def enter(self) -> bool:
        """Count it all the same."""
        try:
            return await super().enter()
        except asyncio.CancelledError:
            self._running += 1
            raise


class Asleep(CallQueue):
    """Planted bug: nobody is woken when a window is over; only an answer moves the line."""

    def _advance(self) -> None:
        """Set no timer."""
        super()._advance()
        if self._timer is not None:
            self._timer.cancel()


class Sluggish(CallQueue):
    """Planted bug: it waits a moment longer than it must."""

    def _wait_s(self, now_s: float) -> float:
        """Add a moment."""
        wait_s = super()._wait_s(now_s)
        return wait_s + 1 if wait_s > 0 else wait_s


PLANTED = (Calendar, OneMore, LastFirst, Impatient, Shortened, Cluttered, Asleep, Sluggish)


@pytest.mark.parametrize("make", PLANTED)
def test_planted_bug_in_a_line_is_found(make: type[CallQueue]) -> None:
    """Each way to get it wrong is found among two hundred plans."""

    @settings(max_examples=200, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(plans())
    def holds(plan: Plan) -> None:
        begins_as_expected(make, plan)

    with pytest.raises((AssertionError, NothingLeft)):
        holds()


async def test_who_gives_up_takes_no_turn() -> None:
    """A question that is cancelled while it waits, or at the moment of its turn, takes no place."""
    queue = CallQueue()
    queue.limits = CallLimits(at_once=1)
    await queue.enter()
    first, second, third = (asyncio.ensure_future(queue.enter()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    queue.leave()
    second.cancel()
    async with asyncio.timeout(MINUTE_S):
        await third
    queue.leave()
    async with asyncio.timeout(MINUTE_S):
        await queue.enter()


class Provider:
    """A provider that is up or down, behind a queue."""

    def __init__(self, make: type[CallQueue] = CallQueue) -> None:
        self.queue = make(provider="acme", rest_s=REST_S)
        self.queue.limits = CallLimits(at_once=4)
        self.is_up = True
        self.under_way = 0
        self.asked = 0
        self.most_at_trial = 0

    async def ask(self) -> str:
        """Ask; return what became of the question."""
        try:
            tries = await self.queue.enter()
        except ModelUnreachable as error:
            assert error.retryable
            assert 0 <= (error.retry_after_s or 0) <= 8 * REST_S
            assert "acme was not asked, because it has failed" in error.message
            return "refused"
        self.asked += 1
        self.under_way += 1
        if tries:
            self.most_at_trial = max(self.most_at_trial, self.under_way)
        up = self.is_up
        await asyncio.sleep(0.01)
        if self.queue._is_trying:
            self.most_at_trial = max(self.most_at_trial, self.under_way)
        self.under_way -= 1
        self.queue.leave("answered" if up else "failed", tries=tries)
        return "answered" if up else "failed"


REST_S = 10.0


async def asked_by(provider: Provider, many: int) -> Counter[str]:
    """Let many ask at once; return how often each end came."""
    async with asyncio.timeout(MINUTE_S):
        return Counter(await wait_all([provider.ask() for _ in range(many)]))


async def wait_all(asking: Sequence[Coroutine[Any, Any, str]]) -> list[str]:
    """Return the results of coroutines that run at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in asking]
    return [task.result() for task in tasks]


async def outage(make: type[CallQueue] = CallQueue) -> None:
    """Take a provider through an outage; fails if it is asked too often, or not again."""
    provider = Provider(make)
    assert await asked_by(provider, 12) == {"answered": 12}
    provider.is_up = False
    ends = await asked_by(provider, 40)
    assert FAILURES_IN_A_ROW <= ends["failed"] <= FAILURES_IN_A_ROW + 3, "those under way end as they do"
    assert ends["refused"] == 40 - ends["failed"]
    asked = provider.asked
    assert await asked_by(provider, 9) == {"refused": 9}
    assert provider.asked == asked
    await asyncio.sleep(REST_S)
    assert await asked_by(provider, 9) == {"failed": 1, "refused": 8}, "one tries, the others hear of it"
    await asyncio.sleep(REST_S)
    assert await asked_by(provider, 9) == {"refused": 9}, "the second rest is longer"
    await asyncio.sleep(REST_S)
    provider.is_up = True
    provider.most_at_trial = 0
    assert await asked_by(provider, 9) == {"answered": 9}
    assert provider.most_at_trial == 1
    provider.is_up = False
    assert await asked_by(provider, 4) == {"failed": 4}
    assert await asked_by(provider, 1) == {"failed": 1}, "the count has begun again"


async def test_who_fails_again_and_again_is_left_alone() -> None:
    """After five failures in a row questions fail at once; then one tries it for all the others."""
    await outage()


class Endless(CallQueue):
    """Planted bug: it is asked on and on."""

    def _rest(self) -> None:
        self._failures = 0


class Crowding(CallQueue):
    """Planted bug: all try at once when the rest is over."""

    async def enter(self) -> bool:
        """Let everybody try."""
        tries = await super().enter()
        self._is_trying = False
        self._advance()
        return tries


class Grudging(CallQueue):
    """Planted bug: a success does not end the count."""

    def leave(self, ended: Ended = "unknown", *, tries: bool = False) -> None:
        """Keep the count."""
        failures = self._failures
        super().leave(ended, tries=tries)
        self._failures = max(failures, self._failures)


@pytest.mark.parametrize("make", [Endless, Crowding, Grudging])
async def test_planted_bug_in_an_outage_is_found(make: type[CallQueue]) -> None:
    """Each way to get it wrong fails the same story."""
    with pytest.raises((AssertionError, TimeoutError)):
        await outage(make)


async def test_trial_that_is_withdrawn_is_made_by_the_next() -> None:
    """Who was to try and gave up leaves the trial to whoever waits."""
    provider = Provider()
    provider.is_up = False
    await asked_by(provider, 8)
    await asyncio.sleep(REST_S)
    assert await provider.queue.enter()
    waiting = asyncio.ensure_future(provider.queue.enter())
    await asyncio.sleep(0)
    assert not waiting.done()
    provider.queue.leave("unknown", tries=True)
    async with asyncio.timeout(MINUTE_S):
        assert await waiting
    provider.queue.leave("answered", tries=True)
