"""The tool calls of one session: those that run here, and those that the program answers.

Calls run in parallel, except those that must run alone. A host keeps nothing of a call that the program
answers: while the call waits, it is in the journal, owed to the program.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from sessiontree.contracts.errors import ToolError, ValidationError
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.tool_inputs import ToolInput
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.contracts.tools.tool import OF_TIMEOUTS
from sessiontree.contracts.values.session_ids import SessionIds
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.runtime.runner.call_watch import CallWatch
from sessiontree.runtime.runner.calls.call_book import CallBook, CallEntry, CallPhase, Running
from sessiontree.sandbox import SessionTurns
from sessiontree.session import instructions as todo
from sessiontree.session.inputs import derive_client_id
from sessiontree.session.instructions import ExecuteCall
from sessiontree.session.state import CallState, SessionState


class SharedExclusiveLock:
    """Admits calls in the order of their arrival: many together, or one alone.

    Calls that arrive after one that waits to be alone wait behind it, so that no call waits forever.
    """

    __slots__ = ("_alone", "_inside", "_waiting")

    def __init__(self) -> None:
        self._inside = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    def enter_at_once(self, *, alone: bool) -> bool:
        """Enter without waiting; return False if that is not possible now."""
        if self._waiting or self._alone or (alone and self._inside):
            return False
        self._inside += 1
        self._alone = alone
        return True

    async def enter(self, *, alone: bool) -> None:
        """Wait for this call's turn and enter. A caller that is cancelled meanwhile has not entered."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (turn, alone)
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was admitted at the same moment
                self.leave()
            elif place in self._waiting:
                self._waiting.remove(place)
                self._admit()
            raise

    def leave(self) -> None:
        """Leave; once for each call that entered."""
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
"""A cancelled call that has not stopped by then is abandoned. A tool that needs the shell also gets the time
that its command may take to end."""


Abandoned = Callable[[Running, ImmediateOutcome], None]


def _ignore_abandoned(running: Running, outcome: ImmediateOutcome) -> None:
    """Ignore an abandoned call: its session has left the host."""


class RunningCalls:
    """Runs calls and enforces their deadlines with one timer.

    Args:
        book: The phases of the session's calls; a call that runs is in ``RUNNING``.
        on_abandoned: Called with a call that ignored its cancellation, and the outcome it gets. It moves the
            call on in the book.
        turns: Those of the session's calls that may run commands; None = any number runs at a time.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        watch: CallWatch,
        book: CallBook,
        on_abandoned: Abandoned,
        turns: SessionTurns | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._watch = watch
        self._book = book
        self._on_abandoned = on_abandoned
        self._turns = turns
        self._lock = SharedExclusiveLock()
        self._timer: asyncio.TimerHandle | None = None
        self._next_look = math.inf

    def stop(self, running: Running) -> None:
        """Ask a call to stop, and do not try it again."""
        running.unwanted = True
        self._cancel(running)

    def stop_all(self) -> None:
        """Ask every call to stop."""
        for _, running in self._book.list_running():
            self.stop(running)

    def close(self) -> None:
        """Stop the timer; mark running calls as cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, running in self._book.list_running():
            running.signals.cancelled = True
        # Without the callback's cycle, the session is freed now and not by the next garbage collection.
        self._on_abandoned = _ignore_abandoned

    async def run(
        self,
        prepared: PreparedCall,
        execute: ExecuteCall,
        call: CallEntry,
        task: asyncio.Task[Any] | None,
    ) -> ImmediateOutcome | None:
        """Run one call in the current task, given if known; return None if it was abandoned meanwhile.

        A call with an outcome stays in ``RUNNING`` until the caller has passed the outcome on.
        """
        alone = prepared.entry.tool.sequential
        turns = self._turns if prepared.entry.can_run_commands else None
        inside = self._lock.enter_at_once(alone=alone)
        begins = inside and (turns is None or turns.enter_at_once())
        signals = self._make_signals(prepared, 1) if begins else CallSignals(math.inf)
        running = Running(prepared, signals, task or asyncio.current_task(), inside=inside)
        running.turns = turns if begins else None
        self._book.move(call, CallPhase.RUNNING)
        call.running = running
        outcome = None
        try:
            ended = None if begins else await self._wait(running, turns, alone=alone)
            if ended is None:
                ended = await self._dispatcher.execute(
                    prepared, execute.call_id, execute.call.digest, running.signals
                )
                if ended.again:
                    ended = await self._try_again(running, execute, ended)
            outcome = ended
        finally:
            running.signals.over = True
            # A call that was abandoned has moved on: this task ends late, and nothing of it counts any more.
            is_current = call.running is running
            if is_current:
                call.running = None
            if is_current and outcome is None:
                self._book.move(call, CallPhase.ABSENT)
            self._leave(running)
        if running.give_up_at < math.inf and running.task is not None:
            # The call alone was cancelled, and it has ended; its task, maybe the driver's, continues.
            running.task.uncancel()
        return outcome if is_current else None

    async def _wait(
        self, running: Running, turns: SessionTurns | None, *, alone: bool
    ) -> ImmediateOutcome | None:
        """Wait until a call may run: alone if it is sequential, and when enough other commands have ended.

        Its time limit begins when it runs.
        """
        try:
            if not running.inside:
                await self._lock.enter(alone=alone)
                running.inside = True
            if turns is not None:
                if not turns.enter_at_once():
                    self._watch.waits(running.prepared, turns)
                    await turns.enter()
                running.turns = turns
        except asyncio.CancelledError:
            if not running.signals.cancelled:
                raise
            return self._dispatcher.make_skipped_outcome(running.prepared)
        running.signals = self._make_signals(running.prepared, 1)
        return None

    def _make_signals(self, prepared: PreparedCall, attempt: int) -> CallSignals:
        """Return the signals of an attempt that begins now, and set the timer for its deadline."""
        signals = CallSignals(time.monotonic() + self._dispatcher.timeout_s(prepared), attempt=attempt)
        signals.on_update = signals.on_images = self._watch.make_progress_callback(prepared, signals)
        if signals.deadline < self._next_look:
            self._look_at(signals.deadline)
        return signals

    async def _try_again(
        self, running: Running, execute: ExecuteCall, outcome: ImmediateOutcome
    ) -> ImmediateOutcome:
        """Repeat a call that changes nothing until it succeeds, fails for good, or is cancelled."""
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
                return self._dispatcher.make_interrupted_outcome(running.prepared, running.signals)
            number += 1
            running.signals = self._make_signals(running.prepared, number)
            outcome = await self._dispatcher.execute(
                running.prepared, execute.call_id, execute.call.digest, running.signals
            )
        return outcome

    def _leave(self, running: Running) -> None:
        if running.turns is not None:
            running.turns.leave()
            running.turns = None
        if running.inside:
            running.inside = False
            self._lock.leave()

    def _cancel(self, running: Running) -> None:
        running.signals.cancelled = True
        if running.give_up_at < math.inf or running.task is None:
            return
        cleanup_s = self._dispatcher.cleanup_s if running.prepared.entry.can_run_commands else 0.0
        patience_s = ABANDON_AFTER_S + cleanup_s
        running.give_up_at = time.monotonic() + patience_s
        running.task.cancel()
        self._look_at(running.give_up_at)

    def _look_at(self, when: float) -> None:
        """Set the timer to a time, unless it fires earlier; it stays set when calls end."""
        if when >= self._next_look:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next_look = when
        delay_s = max(0.0, when - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Stop calls whose deadline has passed; abandon those that did not stop."""
        self._timer = None
        self._next_look = math.inf
        now = time.monotonic()
        for call, running in self._book.list_running():
            if running.give_up_at <= now:
                # From here on the call has this outcome, whatever its task still does or returns.
                call.running = None
                self._watch.abandoned += 1
                running.unwanted = True
                running.signals.over = True
                self._leave(running)
                self._on_abandoned(
                    running, self._dispatcher.make_interrupted_outcome(running.prepared, running.signals)
                )
            elif running.give_up_at < math.inf:
                self._look_at(running.give_up_at)
            elif running.signals.deadline <= now:
                self._cancel(running)
            else:
                self._look_at(running.signals.deadline)


Making: TypeAlias = Callable[[], Awaitable[ImmediateOutcome]]
"""Makes a call's outcome."""


class Delegation:
    """Hands a session's calls over to the program or to a person, and makes results of the answers.

    Args:
        dispatcher: Checks calls and makes results.
        now_ms: The clock.
        book: The phases of the session's calls; a call whose result is being made is in ``ANSWERING``.
        put: Takes a cause and a stimulus for the session.
        out: Receives the instructions for the supervisor.
        ids: Gives the calls their ids for the program.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        now_ms: Callable[[], int],
        book: CallBook,
        put: Callable[[str, Stimulus], None],
        out: list[Any],
        ids: SessionIds,
    ) -> None:
        self.tools = dispatcher.client_tools
        """Names of the tools that the program runs."""
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._book = book
        self._put = put
        self._out = out
        self._ids = ids

    def hand_over(
        self, execute: todo.ExecuteCall, prepared: PreparedCall | None, call: CallState
    ) -> ImmediateOutcome | None:
        """Hand a call over to the program; if another host had prepared it, prepare it again.

        Returns:
            The outcome of a call that may no longer be made; None if it was handed over.
        """
        wanted, key = execute.call, execute.call.key
        checked: PreparedCall | ImmediateOutcome | None = prepared
        if checked is None:
            checked = self._dispatcher.prepare_again(wanted, call.call.id, call.asked_by)
        if isinstance(checked, PreparedCall):
            checked = self._dispatcher.check_unchanged(checked, wanted.digest) or checked
        if isinstance(checked, ImmediateOutcome):
            return checked
        at_ms = self._now_ms()
        to_person = wanted.tool in self._dispatcher.person_tools
        if to_person and not self._dispatcher.can_ask_person:
            return self._dispatcher.make_unasked_outcome(checked, call.call.id)
        expires_at_ms = at_ms + int(self._dispatcher.timeout_s(checked) * 1000)
        client_id = self._ids.client(key)
        delegated = stimuli.CallHandedOver(at_ms, client_id, checked.call, expires_at_ms, to_person)
        self._put(f"call:{key}", delegated)
        return None

    def ask_for(self, wanted: ToolInput, state: SessionState, checked: CheckedCall) -> stimuli.CallHandedOver:
        """Return the stimulus by which a call that ran asks a person for input."""
        at_ms = self._now_ms()
        client_id = derive_client_id(state, state.calls[checked.key])
        expires_at_ms = at_ms + int(self._dispatcher.answer_s * 1000)
        return stimuli.CallHandedOver(at_ms, client_id, checked, expires_at_ms, to_person=True, input=wanted)

    def prepare_outcome(self, take: todo.TakeAnswer, call: CallState) -> Making | None:
        """Return a function that makes an answer's outcome; None if the answer is refused and reported."""
        # Two surfaces may answer at the same time: the first answer counts while its result is made.
        if self._book.find(take.key) is not None:
            self._out.append(todo.SettleAnswer(take.answer_id, taken=False))
            return None
        try:
            made = self._dispatcher.make_client_outcome(take.key, call.call.id, call.tool, take.answer)
        except ToolError as error:
            field = error.field if isinstance(error, ValidationError) else None
            refused = todo.SettleAnswer(take.answer_id, taken=False, refusal=error.message, field=field)
            self._out.append(refused)
            return None
        self._book.enter(take.key, CallPhase.ANSWERING).take = take
        limits = None if take.answer.result is None else take.answer.result.image_limits
        return partial(self._dispatcher.fit_images, made, call.final.tier, limits)
