"""Which of a session's calls run beside each other: all, but for those that run alone."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts.capabilities import SHELL
from sessiontree.contracts.context import CallSignals
from sessiontree.contracts.retry import OF_TIMEOUTS
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall
from sessiontree.runtime.call_watch import CallWatch
from sessiontree.session.instructions import ExecuteCall


class SharedExclusiveLock:
    """Lets calls in, in the order they come: many side by side, or one alone.

    What comes after a call that waits to be alone waits behind it, so that none waits for ever.
    """

    __slots__ = ("_alone", "_inside", "_waiting")

    def __init__(self) -> None:
        self._inside = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    def enter_at_once(self, *, alone: bool) -> bool:
        """Enter without waiting; False where that can't be."""
        if self._waiting or self._alone or (alone and self._inside):
            return False
        self._inside += 1
        self._alone = alone
        return True

    async def enter(self, *, alone: bool) -> None:
        """Wait until it is this call's turn, and enter. Who is cancelled meanwhile has not entered."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (turn, alone)
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was let in at the same moment
                self.leave()
            elif place in self._waiting:
                self._waiting.remove(place)
                self._admit()
            raise

    def leave(self) -> None:
        """Make room; once for each that entered."""
        self._inside -= 1
        if not self._inside:
            self._alone = False
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while self._waiting and not self._alone:
            turn, alone = self._waiting[0]
            if alone and self._inside and not turn.cancelled():
                return
            self._waiting.popleft()
            if turn.cancelled():
                continue
            self._inside += 1
            self._alone = alone
            turn.set_result(None)


ABANDON_AFTER_S = 5.0
"""A cancelled call that has not stopped by then is left behind; one of a tool that needs the shell when its
command has had its own time as well."""


@dataclass(slots=True)
class Running:
    """A call that executes, or waits for its turn or its next attempt."""

    prepared: PreparedCall
    signals: CallSignals
    task: asyncio.Task[Any] | None
    give_up_at: float = math.inf
    """When it is left behind; set once it was asked to stop."""
    unwanted: bool = False
    """Whether it is not tried again: somebody asked it to stop, or it was left behind."""
    inside: bool = False
    """Whether it is in the lane."""


Abandoned = Callable[[Running, ImmediateOutcome], None]
Run = Callable[[ExecuteCall, asyncio.Task[Any] | None], Awaitable[ImmediateOutcome | None]]


class RunningCalls:
    """Runs calls; one timer watches over all of them.

    Args:
        on_abandoned: Told of a call that ignored its cancellation, with the outcome it gets for it.
    """

    def __init__(self, dispatcher: Dispatcher, watch: CallWatch, on_abandoned: Abandoned) -> None:
        self._dispatcher = dispatcher
        self._watch = watch
        self._on_abandoned = on_abandoned
        self._running: dict[str, Running] = {}
        self._claimed: set[str] = set()
        self._lane = SharedExclusiveLock()
        self._timer: asyncio.TimerHandle | None = None
        self._next_look = math.inf

    def __bool__(self) -> bool:
        """Whether any call runs."""
        return bool(self._running)

    def claim(self, key: str) -> bool:
        """Take a call up; False where it is taken up already.

        After a host was lost, a call may be owed twice: as what the session had intended, and by the word
        that its intent is durable.
        """
        if key in self._claimed:
            return False
        self._claimed.add(key)
        return True

    async def unless_skipped(self, execute: ExecuteCall, run: Run) -> ImmediateOutcome | None:
        """Run a call in a task of its own; None where it was told to stop before the task began."""
        return await run(execute, asyncio.current_task()) if execute.key in self._claimed else None

    def cancel(self, key: str) -> bool:
        """Ask a call to stop; False where it does not run, and then it does not begin any more."""
        running = self._running.get(key)
        if running is not None:
            running.unwanted = True
            self._cancel(running)
        else:
            self._claimed.discard(key)
        return running is not None

    def cancel_all(self) -> None:
        """Ask every call to stop."""
        for key in list(self._running):
            self.cancel(key)

    def close(self) -> None:
        """Watch over nothing any more; what still runs is told that it was cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for running in self._running.values():
            running.signals.cancelled = True

    async def run(
        self, prepared: PreparedCall, execute: ExecuteCall, task: asyncio.Task[Any] | None
    ) -> ImmediateOutcome | None:
        """Run one call in the current task, given if known; None when it was left behind with its result."""
        alone = prepared.entry.tool.sequential
        inside = self._lane.enter_at_once(alone=alone)
        signals = self._signals(prepared, 1) if inside else CallSignals(math.inf)
        running = Running(prepared, signals, task or asyncio.current_task(), inside=inside)
        self._running[execute.key] = running
        try:
            outcome = None if inside else await self._wait(running, alone=alone)
            if outcome is None:
                outcome = await self._dispatcher.execute(
                    prepared, execute.call_id, execute.digest, running.signals
                )
                if outcome.again:
                    outcome = await self._try_again(running, execute, outcome)
        finally:
            running.signals.over = True
            self._claimed.discard(execute.key)
            current = self._running.get(execute.key) is running
            if current:
                del self._running[execute.key]
            if running.inside:
                self._leave(running)
        if running.give_up_at < math.inf and running.task is not None:
            running.task.uncancel()
        return outcome if current else None

    async def _wait(self, running: Running, *, alone: bool) -> ImmediateOutcome | None:
        """Wait for a call's turn: a sequential one runs alone. Its time begins when it runs."""
        try:
            await self._lane.enter(alone=alone)
        except asyncio.CancelledError:
            if not running.signals.cancelled:
                raise
            return self._dispatcher.not_begun(running.prepared)
        running.inside = True
        running.signals = self._signals(running.prepared, 1)
        return None

    def _signals(self, prepared: PreparedCall, attempt: int) -> CallSignals:
        """Return the signals of an attempt that begins now; its deadline is watched over."""
        signals = CallSignals(time.monotonic() + self._dispatcher.timeout_of(prepared), attempt=attempt)
        signals.on_update = self._watch.updates_of(prepared.provider_id, prepared.entry.name, signals)
        if signals.deadline < self._next_look:
            self._look_at(signals.deadline)
        return signals

    async def _try_again(
        self, running: Running, execute: ExecuteCall, outcome: ImmediateOutcome
    ) -> ImmediateOutcome:
        """Repeat a call that changes nothing, as long as it fails of what may pass and it is wanted."""
        retry = running.prepared.entry.tool.retry or OF_TIMEOUTS
        number = running.signals.attempt
        while outcome.again and number < retry.attempts and not running.unwanted:
            running.signals.over = True
            if running.give_up_at < math.inf and running.task is not None:
                running.task.uncancel()
            running.give_up_at = math.inf
            running.signals = CallSignals(math.inf, attempt=number)
            delay_s = retry.delay_s(number, random.random())  # noqa: S311 - spreads load, guards nothing
            self._watch.retries(running.prepared, outcome, number, delay_s)
            try:
                await asyncio.sleep(delay_s)
            except asyncio.CancelledError:
                if not running.signals.cancelled:
                    raise
                return self._dispatcher.stopped(running.prepared, running.signals)
            number += 1
            running.signals = self._signals(running.prepared, number)
            outcome = await self._dispatcher.execute(
                running.prepared, execute.call_id, execute.digest, running.signals
            )
        return outcome

    def _leave(self, running: Running) -> None:
        if running.inside:
            running.inside = False
            self._lane.leave()

    def _cancel(self, running: Running) -> None:
        running.signals.cancelled = True
        if running.give_up_at < math.inf or running.task is None:
            return
        runs_commands = SHELL.name in running.prepared.entry.row.declared
        patience_s = ABANDON_AFTER_S + (self._dispatcher.cleanup_s if runs_commands else 0.0)
        running.give_up_at = time.monotonic() + patience_s
        running.task.cancel()
        self._look_at(running.give_up_at)

    def _look_at(self, when: float) -> None:
        """Look at the running calls at a time; the timer outlives calls that end before."""
        if when >= self._next_look:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next_look = when
        delay_s = max(0.0, when - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Stop calls whose deadline passed, leave those behind that did not stop."""
        self._timer = None
        self._next_look = math.inf
        now = time.monotonic()
        for key, running in list(self._running.items()):
            if running.give_up_at <= now:
                del self._running[key]
                self._watch.abandoned += 1
                running.unwanted = True
                running.signals.over = True
                self._leave(running)
                self._on_abandoned(running, self._dispatcher.stopped(running.prepared, running.signals))
            elif running.give_up_at < math.inf:
                self._look_at(running.give_up_at)
            elif running.signals.deadline <= now:
                self._cancel(running)
            else:
                self._look_at(running.signals.deadline)
