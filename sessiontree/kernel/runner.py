"""One adopted session on a host: runs its machine, and does in place whatever leaves no trace outside.

A lone call runs inside the driving task; several run as tasks. What is fed meanwhile is taken in at once, so
that a long call never keeps a steering message, an approval or a cancel waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.codec import pack
from sessiontree.contracts.context import CallSignals
from sessiontree.contracts.envelopes import error_message
from sessiontree.contracts.errors import ExecutionError, ModelError
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.contracts.usage import Usage
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall, RejectedCall
from sessiontree.journal.record import Packed
from sessiontree.kernel.approver_function import run_approver
from sessiontree.kernel.frames import Adopt, HostInstruction, Outcome
from sessiontree.kernel.questions import Questioner
from sessiontree.kernel.replay import fact_of
from sessiontree.kernel.watching import CallWatch
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, initial

FACTS_PER_REPORT = 256
REPORT_AFTER_S = 0.2
YIELD_AFTER_S = 0.005
ABANDON_AFTER_S = 5.0


@dataclass(slots=True)
class Running:
    """A call that executes."""

    prepared: PreparedCall
    signals: CallSignals
    started: float
    task: asyncio.Task[Any] | None
    give_up_at: float = math.inf
    """When it is left behind; set once it was asked to stop."""


class SessionRunner:
    """Runs one session until it is let go."""

    def __init__(
        self,
        adopt: Adopt,
        dispatcher: Dispatcher,
        questioner: Questioner,
        watch: CallWatch,
        report: Callable[[Outcome], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Rebuild the session from its facts and say that it is adopted."""
        self.session = adopt.session
        self.epoch = adopt.epoch
        self._spec = adopt.spec
        self._dispatcher = dispatcher
        self._questioner = questioner
        self._watch = watch
        self._report = report
        self._now_ms = now_ms
        self._inputs: deque[tuple[str, Stimulus, bool]] = deque()
        self._due: deque[tuple[str, Stimulus]] = deque()
        self._to_run: list[todo.ExecuteCall] = []
        self._prepared: dict[str, PreparedCall] = {}
        self._running: dict[str, Running] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._facts: list[Packed] = []
        self._out: list[HostInstruction] = []
        self._taken = 0
        self._told_taken = 0
        self._told_idle = False
        self._reported_usage = Usage()
        self._last_report = time.monotonic()
        self._driver: asyncio.Task[None] | None = None
        self._in_call = False
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_look = math.inf
        self._carry: dict[type[Any], Callable[[Any], None]] = {
            todo.PrepareCall: self._prepare,
            todo.ExecuteCall: self._execute,
            todo.AbortCalls: self._abort,
            todo.CallModel: self._call_model,
            todo.RunApprover: self._run_approver,
        }
        self.state = self._rebuild(adopt)
        self._reported_usage = self.state.usage
        at_ms = now_ms()
        self._inputs.append(
            ("adopted", stimuli.Adopted(at_ms, questioner.cards, adopt.model, questioner.prompt), False)
        )
        if adopt.recovered:
            self._inputs.append(("recovered", stimuli.Recovered(at_ms), False))

    @staticmethod
    def _rebuild(adopt: Adopt) -> SessionState:
        state = initial(adopt.spec, adopt.limits)
        for text in adopt.facts:
            evolve(state, fact_of(text))
        return state

    @property
    def pinned(self) -> tuple[str, ...]:
        """Names of the tools that run now."""
        return tuple(running.prepared.entry.name for running in self._running.values())

    def feed(self, causes: tuple[str, ...], given: tuple[Stimulus, ...]) -> None:
        """Take stimuli in; returns before anything that takes time is done."""
        if self._over:
            return
        for cause, stimulus in zip(causes, given, strict=True):
            self._inputs.append((cause, stimulus, True))
        self.start()

    def start(self) -> None:
        """Drive the session on if nothing drives it now."""
        if self._over:
            return
        if self._in_call:
            self._guarded_pump()
        elif self._driver is None:
            self._driver = asyncio.create_task(self._drive())

    def stop(self) -> None:
        """Let the session go at once: running work is cancelled, nothing more is reported."""
        self._over = True
        for running in self._running.values():
            running.signals.cancelled = True
            if running.task is not None and running.task is not self._driver:
                running.task.cancel()
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._driver is not None:
            self._driver.cancel()

    def reask(self, turn: int) -> None:
        """Ask the model of an open turn again, with everything it needs."""
        if self.state.asking and self.state.turn == turn:
            self._questioner.forget()
            self._out.append(self._questioner.question(self.state))
            self._flush()

    async def _drive(self) -> None:
        me = asyncio.current_task()
        rested = time.monotonic()
        try:
            while not self._over:
                self._pump()
                lone = self._take_lone()
                if lone is None:
                    if not self._inputs and not self._due:
                        break
                else:
                    self._in_call = True
                    outcome = await self._run(lone, me)
                    if self._driver is not me:
                        return
                    self._in_call = False
                    if outcome is not None:
                        self._finished(outcome)
                now = time.monotonic()
                if now - rested > YIELD_AFTER_S:
                    self._report_when_long(now)
                    await asyncio.sleep(0)
                    rested = time.monotonic()
        except asyncio.CancelledError:
            if not self._over:
                raise
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
        finally:
            if self._driver is me:
                self._driver = None
                self._in_call = False
        self._flush()

    def _report_when_long(self, now: float) -> None:
        if len(self._facts) >= FACTS_PER_REPORT or now - self._last_report > REPORT_AFTER_S:
            self._flush()

    def _guarded_pump(self) -> None:
        """Pump from outside the driver: while it waits in a call, or for a task that finished."""
        try:
            self._pump()
            for execute in self._to_run:
                self._launch(execute)
            self._to_run.clear()
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
        self._flush()

    def _pump(self) -> None:
        while True:
            if self._due:
                cause, stimulus = self._due.popleft()
            elif self._inputs:
                cause, stimulus, counts = self._inputs.popleft()
                if counts:
                    self._taken += 1
            else:
                return
            facts, instructions = react(self.state, stimulus)
            at_ms = stimulus.at_ms
            for fact in facts:
                self._facts.append(Packed(cause, at_ms, pack(fact)))
            if self._watch.watched:
                self._watch.saw(facts)
            for instruction in instructions:
                carry = self._carry.get(type(instruction))
                if carry is None:
                    self._out.append(instruction)
                else:
                    carry(instruction)

    def _take_lone(self) -> todo.ExecuteCall | None:
        """Return a call that may run inside the driver; launch all of them where there are several."""
        if not self._to_run:
            return None
        if len(self._to_run) == 1 and not self._running and not self._inputs:
            return self._to_run.pop()
        for execute in self._to_run:
            self._launch(execute)
        self._to_run.clear()
        self._flush()
        return None

    def _call_model(self, instruction: todo.CallModel) -> None:
        model = self._questioner.instant
        if model is None:
            self._out.append(self._questioner.question(self.state))
            return
        turn = instruction.turn
        try:
            message = model.reply(self._questioner.request(self.state))
        except ModelError as error:
            self._due.append((f"model:{turn}", stimuli.ModelFailed(self._now_ms(), turn, error.message)))
            return
        self._due.append((f"model:{turn}", stimuli.ModelAnswered(self._now_ms(), turn, message)))

    def _prepare(self, instruction: todo.PrepareCall) -> None:
        key = instruction.key
        if self._watch.watched:
            self._watch.began(instruction.call)
        prepared = self._dispatcher.prepare(key, instruction.call)
        at_ms = self._now_ms()
        if isinstance(prepared, PreparedCall):
            self._prepared[key] = prepared
            stimulus: Stimulus = stimuli.CallPrepared(
                at_ms,
                key,
                prepared.entry.name,
                prepared.arguments,
                prepared.tier,
                prepared.digest,
                prepared.needs_approval,
                prepared.entry.tool.idempotent or prepared.tier == 0,
            )
        elif isinstance(prepared, RejectedCall):
            stimulus = stimuli.CallRejected(
                at_ms,
                key,
                prepared.tool,
                prepared.message,
                prepared.field,
                prepared.digest,
                prepared.schema,
            )
        else:
            stimulus = stimuli.CallFinished(at_ms, key, prepared.outcome, prepared.message)
        self._due.append((f"call:{key}", stimulus))

    def _execute(self, instruction: todo.ExecuteCall) -> None:
        self._to_run.append(instruction)

    def _abort(self, instruction: todo.AbortCalls) -> None:
        waiting = {execute.key for execute in self._to_run}
        self._to_run = [execute for execute in self._to_run if execute.key not in instruction.keys]
        for key in instruction.keys:
            running = self._running.get(key)
            if running is not None:
                self._cancel(running)
            elif key in waiting or key in self.state.calls:
                self._skip(key, instruction.reason)

    def _skip(self, key: str, reason: str) -> None:
        call = self.state.calls[key]
        at_ms = self._now_ms()
        error = ExecutionError(f"skipped before it began: {reason}")
        message = error_message(call.call.id, call.tool or call.call.name, error, at_ms)
        self._prepared.pop(key, None)
        self._due.append((f"call:{key}", stimuli.CallFinished(at_ms, key, "skipped", message)))

    def _cancel(self, running: Running) -> None:
        """Ask a call to stop; one that does not is left behind after a while."""
        running.signals.cancelled = True
        if running.give_up_at < math.inf or running.task is None:
            return
        running.give_up_at = time.monotonic() + ABANDON_AFTER_S
        running.task.cancel()
        self._look_at(running.give_up_at)

    def _look_at(self, when: float) -> None:
        """Look at the running calls at a time; one timer serves them all, and outlives those that end."""
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
        for running in list(self._running.values()):
            if running.give_up_at <= now:
                self._abandon(running)
            elif running.give_up_at < math.inf:
                self._look_at(running.give_up_at)
            elif running.signals.deadline <= now:
                self._cancel(running)
            else:
                self._look_at(running.signals.deadline)

    def _abandon(self, running: Running) -> None:
        """A call ignores its cancellation: give it a result and drive the session without it."""
        key = running.prepared.key
        if self._over or self._running.get(key) is not running:
            return
        elapsed_s = time.monotonic() - running.started
        outcome = self._dispatcher.stopped(running.prepared, running.signals, elapsed_s)
        del self._running[key]
        self._watch.abandoned += 1
        if running.task is self._driver:
            self._driver = None
            self._in_call = False
        self._finished(outcome)
        self.start()

    def _launch(self, execute: todo.ExecuteCall) -> None:
        task = asyncio.create_task(self._run_task(execute))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_task(self, execute: todo.ExecuteCall) -> None:
        try:
            outcome = await self._run(execute, asyncio.current_task())
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
            return
        if outcome is not None and not self._over:
            self._finished(outcome)
            self.start()

    async def _run(
        self, execute: todo.ExecuteCall, task: asyncio.Task[Any] | None
    ) -> ImmediateOutcome | None:
        """Run one call; None when it was abandoned and has its result already."""
        key = execute.key
        prepared = self._prepared.pop(key, None)
        if prepared is None:
            again = self._dispatcher.again(
                key, self.state.calls[key].call.id, execute.tool, execute.arguments
            )
            if isinstance(again, ImmediateOutcome):
                return again
            prepared = again
        started = time.monotonic()
        timeout_s = self._dispatcher.timeout_of(prepared)
        signals = CallSignals(started + timeout_s)
        running = Running(prepared, signals, started, task)
        self._running[key] = running
        if signals.deadline < self._next_look:
            self._look_at(signals.deadline)
        signals.on_update = self._watch.updates_of(prepared.provider_id, prepared.entry.name)
        try:
            if prepared.entry.tool.sequential:
                outcome = await self._in_turn(prepared, execute, signals, started)
            else:
                outcome = await self._dispatcher.execute(prepared, execute.call_id, execute.digest, signals)
        finally:
            current = self._running.get(key) is running
            if current:
                del self._running[key]
        if running.give_up_at < math.inf and task is not None:
            task.uncancel()
        if not current:
            return None
        return outcome

    async def _in_turn(
        self, prepared: PreparedCall, execute: todo.ExecuteCall, signals: CallSignals, started: float
    ) -> ImmediateOutcome:
        """Run a call of a sequential tool once the earlier ones are through."""
        turn = self._turns.setdefault(prepared.entry.name, asyncio.Lock())
        try:
            await turn.acquire()
        except asyncio.CancelledError:
            if not signals.cancelled:
                raise
            return self._dispatcher.stopped(prepared, signals, time.monotonic() - started)
        try:
            return await self._dispatcher.execute(prepared, execute.call_id, execute.digest, signals)
        finally:
            turn.release()

    def _finished(self, outcome: ImmediateOutcome) -> None:
        stimulus = stimuli.CallFinished(
            outcome.message.timestamp, outcome.key, outcome.outcome, outcome.message, outcome.artifacts
        )
        self._due.append((f"call:{outcome.key}", stimulus))

    def _run_approver(self, instruction: todo.RunApprover) -> None:
        task = asyncio.create_task(self._consult(instruction))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _consult(self, instruction: todo.RunApprover) -> None:
        request = ApprovalRequest(
            instruction.request_id,
            instruction.requester,
            instruction.tool,
            instruction.arguments,
            "",
            instruction.tier,
            0,
            self.session,
        )
        answer, reason = await run_approver(self._spec.approver or "", request)
        if not self._over:
            stimulus = stimuli.ApproverAnswered(self._now_ms(), instruction.request_id, answer, reason)
            self._due.append((f"approver:{instruction.request_id}", stimulus))
            self.start()

    def _crashed(self, error: Exception) -> None:
        self._over = True
        for running in self._running.values():
            self._cancel(running)
        reason = f"{type(error).__name__}: {error}"
        self._report(Outcome(self.session, self.epoch, self._told_taken, (), (), True, None, reason))

    def _flush(self) -> None:
        """Report what is new; also that the session has become idle."""
        if self._over:
            return
        idle = not (self._inputs or self._due or self._to_run or self._running or self._tasks) and (
            self._driver is None or not self._in_call
        )
        news = self._facts or self._out or self._taken != self._told_taken
        if not news and idle == self._told_idle:
            return
        usage = self.state.usage
        spent = None
        if usage is not self._reported_usage:
            spent = _difference(usage, self._reported_usage)
            self._reported_usage = usage
        outcome = Outcome(
            self.session,
            self.epoch,
            self._taken,
            tuple(self._facts),
            tuple(self._out),
            idle,
            spent,
            None,
        )
        self._facts.clear()
        self._out.clear()
        self._told_taken = self._taken
        self._told_idle = idle
        self._last_report = time.monotonic()
        self._report(outcome)


def _difference(now: Usage, before: Usage) -> Usage:
    return Usage(
        now.input_tokens - before.input_tokens,
        now.output_tokens - before.output_tokens,
        now.cost_usd - before.cost_usd,
        now.turns - before.turns,
        now.tool_calls - before.tool_calls,
    )
