"""The calls of one session that execute now: their deadlines, their cancelling, and those left behind."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts.context import CallSignals
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall
from sessiontree.kernel.watching import CallWatch
from sessiontree.session.instructions import ExecuteCall

ABANDON_AFTER_S = 5.0
"""A cancelled call that has not stopped by then is left behind."""


@dataclass(slots=True)
class Running:
    """A call that executes."""

    prepared: PreparedCall
    signals: CallSignals
    started: float
    task: asyncio.Task[Any] | None
    give_up_at: float = math.inf
    """When it is left behind; set once it was asked to stop."""


Abandoned = Callable[[Running, ImmediateOutcome], None]


class RunningCalls:
    """Runs calls; one timer watches over all of them.

    Args:
        on_abandoned: Told of a call that ignored its cancellation, with the outcome it gets for it.
    """

    def __init__(self, dispatcher: Dispatcher, watch: CallWatch, on_abandoned: Abandoned) -> None:
        """Begin with no call running."""
        self._dispatcher = dispatcher
        self._watch = watch
        self._on_abandoned = on_abandoned
        self._running: dict[str, Running] = {}
        self._claimed: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}
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

    def cancel(self, key: str) -> bool:
        """Ask a call to stop; False where it does not run."""
        running = self._running.get(key)
        if running is not None:
            self._cancel(running)
        return running is not None

    def cancel_all(self) -> None:
        """Ask every call to stop."""
        for running in list(self._running.values()):
            self._cancel(running)

    def close(self) -> None:
        """Watch over nothing any more; what still runs is told that it was cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for running in self._running.values():
            running.signals.cancelled = True

    async def run(self, prepared: PreparedCall, execute: ExecuteCall) -> ImmediateOutcome | None:
        """Run one call in the current task; None when it was left behind and has its result already."""
        started = time.monotonic()
        signals = CallSignals(started + self._dispatcher.timeout_of(prepared))
        signals.on_update = self._watch.updates_of(prepared.provider_id, prepared.entry.name)
        running = Running(prepared, signals, started, asyncio.current_task())
        self._running[execute.key] = running
        if signals.deadline < self._next_look:
            self._look_at(signals.deadline)
        try:
            if prepared.entry.tool.sequential:
                outcome = await self._in_turn(running, execute)
            else:
                outcome = await self._dispatcher.execute(prepared, execute.call_id, execute.digest, signals)
        finally:
            self._claimed.discard(execute.key)
            current = self._running.get(execute.key) is running
            if current:
                del self._running[execute.key]
        if running.give_up_at < math.inf and running.task is not None:
            running.task.uncancel()
        return outcome if current else None

    async def _in_turn(self, running: Running, execute: ExecuteCall) -> ImmediateOutcome:
        """Run a call of a sequential tool once the earlier ones are through."""
        turn = self._turns.setdefault(running.prepared.entry.name, asyncio.Lock())
        try:
            await turn.acquire()
        except asyncio.CancelledError:
            if not running.signals.cancelled:
                raise
            return self._stopped(running)
        try:
            return await self._dispatcher.execute(
                running.prepared, execute.call_id, execute.digest, running.signals
            )
        finally:
            turn.release()

    def _stopped(self, running: Running) -> ImmediateOutcome:
        elapsed_s = time.monotonic() - running.started
        return self._dispatcher.stopped(running.prepared, running.signals, elapsed_s)

    def _cancel(self, running: Running) -> None:
        running.signals.cancelled = True
        if running.give_up_at < math.inf or running.task is None:
            return
        running.give_up_at = time.monotonic() + ABANDON_AFTER_S
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
                self._on_abandoned(running, self._stopped(running))
            elif running.give_up_at < math.inf:
                self._look_at(running.give_up_at)
            elif running.signals.deadline <= now:
                self._cancel(running)
            else:
                self._look_at(running.signals.deadline)
