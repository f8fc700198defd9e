"""What goes from one session to its supervisor, and when.

Facts and instructions are collected while the session is driven. They are reported together when it rests,
when there are many, or when the last report is old: the supervisor learns of a long call while it runs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.recorded.codec import pack_joined
from sessiontree.journal.record import Packed
from sessiontree.runtime.runner.calls.hosted_session import HostedSession
from sessiontree.runtime.runner.job_news import SessionJobNews
from sessiontree.runtime.transport.frames import Adopt, HostInstruction, Outcome
from sessiontree.session.turns import keep_valid_instructions

FACTS_PER_REPORT = 256
REPORT_AFTER_S = 0.2
FACTS_WAIT_S = 0.02
_PACKED: Callable[[tuple[str, int, str]], Packed] = partial(tuple.__new__, Packed)
"""Builds a ``Packed`` without the Python-level ``__new__`` of named tuples."""


def _do_nothing() -> None:
    """Do nothing."""


class Reporter:
    """Collects the news of one session, and sends them as outcomes.

    Args:
        adopt: The adoption that the outcomes belong to.
        send: Takes an outcome for the supervisor.
        session: The session on this host.
        jobs: Its jobs, which outcomes list.
        chars: How long its facts are together.
        is_idle: Whether nothing of the session runs here, so that it can be released.
        works_elsewhere: Whether work is done outside the machine and its driver.
    """

    def __init__(
        self,
        adopt: Adopt,
        send: Callable[[Outcome], None],
        session: HostedSession,
        jobs: SessionJobNews,
        chars: int,
        is_idle: Callable[[], bool],
        works_elsewhere: Callable[[], bool],
    ) -> None:
        self._session_id = adopt.session
        self._epoch = adopt.epoch
        self._send = send
        self._state = session.state
        self._queue = session.queue
        self._tasks = session.tasks
        self._jobs = jobs
        self._is_idle = is_idle
        self._works_elsewhere = works_elsewhere
        self.chars = chars
        """How long the facts that were reported are together."""
        self.on_rest: Callable[[], None] = _do_nothing
        """Called whenever the session may have become idle."""
        self.out: list[HostInstruction] = []
        """Instructions for the supervisor that were not reported yet."""
        self._facts: list[Packed] = []
        self._reported_count = 0
        self._reported_usage = session.state.usage
        self.reported_idle = False
        """Whether the last report said that the session is idle."""
        self._last_report = time.monotonic()
        self._late: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._call_since = math.inf
        """When the call began that the driver waits for, in seconds of the monotonic clock; infinite = none,
        or it was reported that it runs."""

    @property
    def holds(self) -> bool:
        """Whether facts or instructions were not reported yet."""
        return bool(self._facts or self.out)

    @property
    def has_news(self) -> bool:
        """Whether anything was not reported yet, also that a stimulus was taken which had no facts."""
        return self.holds or self._queue.accepted != self._reported_count

    def add(self, cause: str, at_ms: int, facts: Sequence[SessionFact]) -> None:
        """Collect the facts of a stimulus."""
        packed = self._facts
        for text in pack_joined(facts):
            packed.append(_PACKED((cause, at_ms, text)))

    def flush_if_due(self) -> None:
        """Report if there are many facts, or if the last report is old."""
        is_old = time.monotonic() - self._last_report > REPORT_AFTER_S
        if is_old or len(self._facts) >= FACTS_PER_REPORT:
            self.flush()

    def begin_call(self) -> None:
        """Report once the call that begins now has run for a while, unless :meth:`end_call` comes before."""
        self._call_since = time.monotonic()
        # The timer outlasts the call: one for each call would cost more than the rest of this.
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(REPORT_AFTER_S, self._look)

    def end_call(self) -> None:
        """Report no more for the sake of the call that began."""
        self._call_since = math.inf

    def _look(self) -> None:
        self._watch = None
        left_s = self._call_since + REPORT_AFTER_S - time.monotonic()
        if left_s <= 0:
            self._call_since = math.inf
            self.flush()
        elif left_s < math.inf:
            self._watch = asyncio.get_running_loop().call_later(left_s, self._look)

    def close(self) -> None:
        """Stop the timers."""
        for timer in (self._watch, self._late):
            if timer is not None:
                timer.cancel()
        self._watch = self._late = None

    def schedule_flush(self) -> None:
        """Report now if anyone waits for it; facts alone may wait briefly for those that follow."""
        if self.out or not self._works_elsewhere():
            self.flush()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(FACTS_WAIT_S, self.flush)

    def flush(self) -> None:
        """Report what is new, including that the session has become idle."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._tasks.over:
            return
        idle = self._is_idle()
        if idle:
            self.on_rest()
        if not self.has_news and idle == self.reported_idle:
            return
        usage = self._state.usage
        spent = None
        if usage != self._reported_usage:
            spent = usage - self._reported_usage
            self._reported_usage = usage
        self.chars += sum([len(fact.text) for fact in self._facts])
        # A final message that was overtaken since it was collected is left out.
        facts, out = tuple(self._facts), keep_valid_instructions(self.out, self._state)
        accepted = self._queue.accepted
        outcome = Outcome(
            self._session_id, self._epoch, accepted, facts, out, idle, spent, None, self._jobs.shown
        )
        self._facts.clear()
        self.out.clear()
        self._reported_count, self.reported_idle = accepted, idle
        self._last_report = time.monotonic()
        self._send(outcome)

    def report_failure(self, error: Exception) -> None:
        """Report that the session can't go on; facts that were not reported are lost."""
        reason = describe_error(error)
        self._send(Outcome(self._session_id, self._epoch, self._reported_count, (), (), True, None, reason))
