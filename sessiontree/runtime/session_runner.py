"""What became of preparing a call, as a stimulus for its session."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.codec import pack
from sessiontree.contracts.error_results import error_message
from sessiontree.contracts.errors import ExecutionError, words_of
from sessiontree.contracts.session_facts import CallIntended
from sessiontree.contracts.stimuli import CallFinished, CallPrepared, CallRejected, Stimulus
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall, RejectedCall
from sessiontree.journal.record import Packed
from sessiontree.runtime.approver_function import consult
from sessiontree.runtime.call_watch import CallWatch
from sessiontree.runtime.delegation import Delegation
from sessiontree.runtime.frames import Adopt, HostInstruction, MeterTurn, Outcome
from sessiontree.runtime.model_requests import ModelRequestBuilder
from sessiontree.runtime.replay import session_of
from sessiontree.runtime.tool_calls import Running, RunningCalls
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.state import CallState
from sessiontree.session.turns import standing


def stimulus_of(prepared: PreparedCall | RejectedCall | ImmediateOutcome, at_ms: int) -> Stimulus:
    """Return the stimulus that tells a session how its call was prepared."""
    if isinstance(prepared, PreparedCall):
        tool = prepared.entry.tool
        return CallPrepared(
            at_ms,
            prepared.key,
            tool.name,
            prepared.arguments,
            prepared.tier,
            prepared.digest,
            prepared.needs_approval,
            tool.idempotent or prepared.tier == 0,
        )
    if isinstance(prepared, RejectedCall):
        return CallRejected(
            at_ms,
            prepared.key,
            prepared.tool,
            prepared.message,
            prepared.field,
            prepared.digest,
            prepared.schema,
        )
    return finished(prepared, "")


def finished(outcome: ImmediateOutcome, answer_id: str) -> Stimulus:
    """Return the stimulus that tells a session the result of its call, and which answer it was made of."""
    message = outcome.message
    return CallFinished(
        message.timestamp,
        outcome.key,
        outcome.outcome,
        message,
        outcome.artifacts,
        answer_id,
        outcome.untrusted,
    )


def skipped(call: CallState, reason: str, at_ms: int) -> Stimulus:
    """Return the stimulus that tells a session that its call was not begun."""
    error = ExecutionError(f"skipped before it began: {reason}")
    message = error_message(call.call.id, call.tool or call.call.name, error, at_ms)
    return CallFinished(at_ms, call.key, "skipped", message)


FACTS_PER_REPORT = 256
REPORT_AFTER_S = 0.2
FACTS_WAIT_S = 0.02
YIELD_AFTER_S = 0.005
STIMULI_PER_PUMP = 128
_PACKED: Callable[[tuple[str, int, str]], Packed] = partial(tuple.__new__, Packed)
"""Makes what ``Packed`` makes, without the Python function that a named tuple's class calls."""


class SessionRunner:
    """Runs one session until it is let go."""

    def __init__(
        self,
        adopt: Adopt,
        dispatcher: Dispatcher,
        questioner: ModelRequestBuilder,
        watch: CallWatch,
        report: Callable[[Outcome], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Rebuild the session from its facts and say that it is adopted."""
        self.session = adopt.session
        self.epoch = adopt.epoch
        self._metered = adopt.metered
        self._metering = False
        self._dispatcher = dispatcher
        self._questioner = questioner
        self._watch = watch
        self._readers = watch.readers
        self._report = report
        self._now_ms = now_ms
        self._inputs: deque[tuple[str, Stimulus, bool]] = deque()
        self._due: deque[tuple[str, Stimulus]] = deque()
        self._to_run: list[todo.ExecuteCall] = []
        self._prepared: dict[str, PreparedCall] = {}
        self._running = RunningCalls(dispatcher, watch, self._abandoned)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._facts: list[Packed] = []
        self._out: list[HostInstruction] = []
        self.state = session_of(adopt.spec, adopt.limits, adopt.facts, adopt.id_key)
        self._delegation = Delegation(
            dispatcher, now_ms, self._due, self._out, self._finished, self.state.ids
        )
        self._taken = self._told_taken = 0
        self._told_idle = False
        self._late: asyncio.TimerHandle | None = None
        self._last_report = time.monotonic()
        self._driver: asyncio.Task[None] | None = None
        self._in_call = False
        self._over = False
        self._carry: dict[type[Any], Callable[[Any], None]] = {
            todo.PrepareCall: self._prepare,
            todo.ExecuteCall: self._execute,
            todo.AbortCalls: self._abort,
            todo.TakeAnswer: self._take_answer,
            todo.CallModel: self._call_model,
            todo.RunApprover: self._run_approver,
        }
        self._reported_usage = self.state.usage
        at_ms = now_ms()
        if adopt.recovered:
            # First: what the session begins anew now is not owed from before.
            self._inputs.append(("recovered", stimuli.Recovered(at_ms), False))
        self._inputs.append(
            ("adopted", stimuli.Adopted(at_ms, questioner.cards, adopt.model, questioner.prompt), False)
        )

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
        self._running.close()
        for task in (*self._tasks, *([] if self._driver is None else [self._driver])):
            task.cancel()

    @property
    def is_calling(self) -> bool:
        """Whether a call runs, or anything else beside the machine."""
        return bool(self._in_call or self._running or self._tasks)

    @property
    def lingers(self) -> bool:
        """Whether anything runs: what was let go may not heed it."""
        return bool(self._tasks or self._driver)

    def reask(self, turn: int) -> None:
        """Ask the model of an open turn again, with everything it needs."""
        if self.state.asking and self.state.turn == turn:
            self._questioner.forget()
            self._out.append(self._questioner.question(self.state))
            self._flush()

    def proceed(self, turn: int) -> None:
        """Ask the instant model of a turn whose budget was charged, after what was fed before."""
        asyncio.get_running_loop().call_soon(self._proceed, turn)

    def _proceed(self, turn: int) -> None:
        if not self._over and self.state.asking and self.state.turn == turn and self._metering:
            self._metering = False
            self._ask_instant(turn)
            self.start()

    async def _drive(self) -> None:
        me = asyncio.current_task()
        rested = time.monotonic()
        try:
            while not self._over:
                self._pump()
                lone = self._take_lone() if self._to_run else None
                if lone is not None:
                    if not await self._run_lone(lone, me):
                        return
                elif not self._inputs and not self._due:
                    break
                if time.monotonic() - rested > YIELD_AFTER_S:
                    await self._rest()
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
        self._flush_soon()

    async def _run_lone(self, execute: todo.ExecuteCall, me: asyncio.Task[Any] | None) -> bool:
        """Run a call inside the driver; False when it was left behind and somebody else drives by now."""
        self._in_call = True
        outcome = await self._run(execute, me)
        if self._driver is not me:
            return False
        self._in_call = False
        if outcome is not None:
            self._finished(outcome)
        return True

    async def _rest(self) -> None:
        """Report what has become much, and let others on the loop have their turn."""
        late = time.monotonic() - self._last_report > REPORT_AFTER_S
        if late or len(self._facts) >= FACTS_PER_REPORT:
            self._flush()
        await asyncio.sleep(0)

    def _guarded_pump(self) -> None:
        """Pump from outside the driver: while it waits in a call, or for a task that finished."""
        try:
            self._pump()
            for execute in self._to_run:
                self._launch(execute)
            self._to_run.clear()
            if self._inputs or self._due:
                asyncio.get_running_loop().call_soon(self.start)
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
        self._flush()

    def _pump(self) -> None:
        """Take in what is there, a bounded number of stimuli so that others get their turn."""
        due, inputs, state = self._due, self._inputs, self.state
        packed, carriers = self._facts, self._carry
        for _ in range(STIMULI_PER_PUMP):
            if due:
                cause, stimulus = due.popleft()
            elif inputs:
                cause, stimulus, counts = inputs.popleft()
                if counts:
                    self._taken += 1
            else:
                return
            facts, instructions = react(state, stimulus)
            at_ms = stimulus.at_ms
            if type(stimulus) is stimuli.ApprovalAnswered and stimulus.intended:
                # Its intent came with the answer: it is in the journal already.
                facts = [fact for fact in facts if type(fact) is not CallIntended]
            for fact in facts:
                packed.append(_PACKED((cause, at_ms, pack(fact))))
            if self._readers:
                self._watch.saw(facts)
            for instruction in instructions:
                carry = carriers.get(type(instruction))
                if carry is None:
                    self._out.append(instruction)
                else:
                    carry(instruction)

    def _take_lone(self) -> todo.ExecuteCall | None:
        """Return a call that may run inside the driver; launch all of them where there are several."""
        if len(self._to_run) == 1 and not self._running and not self._inputs:
            return self._to_run.pop()
        for execute in self._to_run:
            self._launch(execute)
        self._to_run.clear()
        self._flush()
        return None

    def _call_model(self, instruction: todo.CallModel) -> None:
        if self._questioner.instant is None:
            self._out.append(self._questioner.question(self.state))
        elif self._metered:
            self._metering = True
            self._out.append(MeterTurn(instruction.turn))
        else:
            self._ask_instant(instruction.turn)

    def _ask_instant(self, turn: int) -> None:
        self._due.append((f"model:{turn}", self._questioner.ask(self.state, self._now_ms)))

    def _prepare(self, instruction: todo.PrepareCall) -> None:
        key = instruction.key
        if self._readers:
            self._watch.began(key, instruction.call)
        prepared = self._dispatcher.prepare(key, instruction.call, instruction.asked_by, self.state.taint)
        if isinstance(prepared, PreparedCall):
            self._prepared[key] = prepared
            given_up = instruction.run_unless
            if given_up is not None and prepared.harmless:
                tool = prepared.entry.tool.name
                if tool not in given_up:
                    call_id = self.state.ids.call(key)
                    self._execute(todo.ExecuteCall(key, call_id, tool, prepared.arguments, ""))
                    return
        self._due.append((f"call:{key}", stimulus_of(prepared, self._now_ms())))

    def _execute(self, instruction: todo.ExecuteCall) -> None:
        if instruction.tool in self._delegation.tools:
            prepared = self._prepared.pop(instruction.key, None)
            self._delegation.hand_over(instruction, prepared, self.state.calls[instruction.key])
        elif self._running.claim(instruction.key):
            self._to_run.append(instruction)

    def _abort(self, instruction: todo.AbortCalls) -> None:
        waiting = {execute.key for execute in self._to_run}
        self._to_run = [execute for execute in self._to_run if execute.key not in instruction.keys]
        for key in instruction.keys:
            if not self._running.cancel(key) and (key in waiting or key in self.state.calls):
                self._skip(key, instruction.reason)

    def _skip(self, key: str, reason: str) -> None:
        self._prepared.pop(key, None)
        self._due.append((f"call:{key}", skipped(self.state.calls[key], reason, self._now_ms())))

    def _launch(self, execute: todo.ExecuteCall) -> None:
        self._do_beside(self._run_task(lambda: self._running.unless_skipped(execute, self._run)))

    def _take_answer(self, take: todo.TakeAnswer) -> None:
        making = self._delegation.making_of(take, self.state.calls[take.key])
        if making is not None:
            self._do_beside(self._run_task(making))

    def _do_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the driver; only when it is over can the session be idle."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done_beside)
        return task

    def _done_beside(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._driver is None:
            self._flush_soon()

    async def _run_task(self, run: Callable[[], Awaitable[ImmediateOutcome | None]]) -> None:
        try:
            outcome = await run()
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
            return
        if outcome is not None and not self._over:
            self._finished(outcome)
            self.start()

    async def _run(
        self, execute: todo.ExecuteCall, task: asyncio.Task[Any] | None = None
    ) -> ImmediateOutcome | None:
        """Run one call, prepared again from its facts where another host had prepared it."""
        prepared = self._prepared.pop(execute.key, None)
        if prepared is None:
            key, call = execute.key, self.state.calls[execute.key]
            again = self._dispatcher.again(key, call.call.id, execute.tool, execute.arguments, call.asked_by)
            if isinstance(again, ImmediateOutcome):
                return again
            prepared = again
        return await self._running.run(prepared, execute, task)

    def _abandoned(self, running: Running, outcome: ImmediateOutcome) -> None:
        """A call ignored its cancellation: drive the session on without it."""
        if self._over:
            return
        if running.task is self._driver:
            self._driver = None
            self._in_call = False
        self._finished(outcome)
        self.start()

    def _finished(self, outcome: ImmediateOutcome) -> None:
        stimulus = finished(outcome, self._delegation.answer_to(outcome.key))
        self._due.append((f"call:{outcome.key}", stimulus))

    def _run_approver(self, instruction: todo.RunApprover) -> None:
        self._do_beside(self._consult(instruction))

    async def _consult(self, instruction: todo.RunApprover) -> None:
        answered = await consult(self.state.spec.approver or "", instruction, self.session, self._now_ms)
        if not self._over:
            self._due.append((f"approver:{instruction.request_id}", answered))
            self.start()

    def _crashed(self, error: Exception) -> None:
        self._over = True
        self._running.cancel_all()
        reason = words_of(error)
        self._report(Outcome(self.session, self.epoch, self._told_taken, (), (), True, None, reason))

    def _flush_soon(self) -> None:
        """Report now where anybody waits for it; facts alone may wait for those that follow at once."""
        if self._out or not self._tasks:
            self._flush()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(FACTS_WAIT_S, self._flush)

    def _flush(self) -> None:
        """Report what is new; also that the session has become idle."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._over:
            return
        waits = self._metering and self.state.asking
        busy = waits or self._inputs or self._due or self._to_run or self._running or self._tasks
        idle = not busy and (self._driver is None or not self._in_call)
        news = self._facts or self._out or self._taken != self._told_taken
        if not news and idle == self._told_idle:
            return
        usage = self.state.usage
        spent = None
        if usage != self._reported_usage:
            spent = usage - self._reported_usage
            self._reported_usage = usage
        facts, out = tuple(self._facts), standing(self._out, self.state)
        outcome = Outcome(self.session, self.epoch, self._taken, facts, out, idle, spent, None)
        self._facts.clear()
        self._out.clear()
        self._told_taken, self._told_idle = self._taken, idle
        self._last_report = time.monotonic()
        self._report(outcome)
