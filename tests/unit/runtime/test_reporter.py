"""A session reports what it did while a call runs for long, and does not wait for the end of the call."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessiontree.contracts.facts.session_facts import TurnStarted
from sessiontree.runtime.runner import reporter as reporter_module
from sessiontree.runtime.runner.reporter import REPORT_AFTER_S, Reporter


class FakeTimer:
    """A timer of the fake loop."""

    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s, self._callback = due_s, callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def fire(self) -> None:
        self._callback()


class FakeLoop:
    """A clock, and the timers that were set by it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[FakeTimer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now_s + delay_s, callback)
        self.timers.append(timer)
        return timer

    def move_to(self, now_s: float) -> None:
        """Fire the timers that are due by then, in order."""
        while due := [each for each in self.timers if each.due_s <= now_s and not each.is_cancelled]:
            first = min(due, key=lambda each: each.due_s)
            self.timers.remove(first)
            self.now_s = max(self.now_s, first.due_s)
            first.fire()
        self.now_s = now_s


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    """Return the loop and the clock of the reporter."""
    made = FakeLoop()
    monkeypatch.setattr(reporter_module, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    monkeypatch.setattr(reporter_module, "asyncio", SimpleNamespace(get_running_loop=lambda: made))
    return made


@pytest.fixture
def sent(loop: FakeLoop) -> list[float]:
    """Return the times of the reports."""
    return []


@pytest.fixture
def reporter(loop: FakeLoop, sent: list[float]) -> Reporter:
    """Return the reporter of a busy session."""
    session = SimpleNamespace(
        state=SimpleNamespace(usage=0),
        queue=SimpleNamespace(accepted=0),
        tasks=SimpleNamespace(over=False),
    )
    return Reporter(
        cast("Any", SimpleNamespace(session="main", epoch=1)),
        lambda _: sent.append(loop.now_s),
        cast("Any", session),
        cast("Any", SimpleNamespace(shown=())),
        0,
        lambda: False,
        lambda: False,
    )


def add_news(reporter: Reporter) -> None:
    """Give it a fact to report."""
    reporter.add("call:1.0", 0, [TurnStarted(1, 0, fresh_run=False)])


def test_long_call_is_reported_while_it_runs(reporter: Reporter, loop: FakeLoop, sent: list[float]) -> None:
    """Once; what follows waits for the end of the call."""
    add_news(reporter)
    reporter.begin_call()
    loop.move_to(REPORT_AFTER_S * 10)
    assert sent == [pytest.approx(REPORT_AFTER_S)]


def test_calls_that_end_soon_share_one_timer_and_are_not_reported(
    reporter: Reporter, loop: FakeLoop, sent: list[float]
) -> None:
    """The timer outlasts the calls, and stops when no call runs."""
    add_news(reporter)
    for number in range(100):
        loop.move_to(number * REPORT_AFTER_S / 10)
        reporter.begin_call()
        assert len(loop.timers) == 1
        reporter.end_call()
    loop.move_to(REPORT_AFTER_S * 100)
    assert not sent
    assert not loop.timers


def test_each_call_has_its_full_time(reporter: Reporter, loop: FakeLoop, sent: list[float]) -> None:
    """The timer was set by a call before it, which has ended."""
    add_news(reporter)
    reporter.begin_call()
    loop.move_to(REPORT_AFTER_S * 0.75)
    reporter.end_call()
    reporter.begin_call()
    loop.move_to(REPORT_AFTER_S * 10)
    assert sent == [pytest.approx(REPORT_AFTER_S * 1.75)]


def test_closed_reporter_sets_no_timer_off(reporter: Reporter, loop: FakeLoop, sent: list[float]) -> None:
    """Its session has left the host."""
    add_news(reporter)
    reporter.begin_call()
    reporter.close()
    loop.move_to(REPORT_AFTER_S * 10)
    assert not sent
