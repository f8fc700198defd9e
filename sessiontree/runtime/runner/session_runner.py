"""Runs one session: feeds stimuli to its machine, carries out its instructions, and reports its facts.

Interceptors are called at four points of the runner: ``admit``, ``prepare``, ``settle`` and ``observe``.
Without interceptors, everything passes at once. Long because all of this shares one session's state.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

from sessiontree.contracts.errors import ExecutionError, describe_error
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallIntended, CallResolved, HookFailed, SessionFact
from sessiontree.contracts.facts.stimuli import CallFinished, CallPrepared, CallRejected, Stimulus
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.codec import pack_joined
from sessiontree.contracts.recorded.programs import MAX_PROGRAM_DEPTH, STARTS_CHILDREN, count_depth
from sessiontree.contracts.recorded.results import make_error_message
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.journal.record import Packed
from sessiontree.journal.replay import replay_session
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.programs.signatures import build_face
from sessiontree.runtime.runner.approver_function import run_session_approver
from sessiontree.runtime.runner.call_watch import CallWatch
from sessiontree.runtime.runner.interceptors import Interceptor
from sessiontree.runtime.runner.job_news import SessionJobNews
from sessiontree.runtime.runner.model_requests import ModelRequestBuilder
from sessiontree.runtime.runner.program_runs import ProgramHost, ProgramRuns
from sessiontree.runtime.runner.tool_calls import Delegation, Running, RunningCalls
from sessiontree.runtime.runner.tool_searches import ToolSearches
from sessiontree.runtime.transport.frames import Adopt, HostInstruction, MeterTurn, Outcome
from sessiontree.sandbox import SessionTurns
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.state import CallState, SessionState
from sessiontree.session.turns import keep_valid_instructions


def report_preparation(prepared: PreparedCall | RejectedCall | ImmediateOutcome, at_ms: int) -> Stimulus:
    """Return the stimulus that reports to a session how its call was prepared."""
    if isinstance(prepared, PreparedCall):
        return CallPrepared(at_ms, prepared.call, prepared.needs_approval)
    if isinstance(prepared, RejectedCall):
        return CallRejected(at_ms, prepared)
    return finished(prepared, None)


def finished(outcome: ImmediateOutcome, taken: todo.TakeAnswer | None) -> Stimulus:
    """Return the stimulus with a call's result, and of which answer it was made; None = of none."""
    message = outcome.message
    answer_id, by, surface = ("", "", "")
    if taken is not None:
        answer_id, by, surface = taken.answer_id, taken.answer.by, taken.answer.surface
    return CallFinished(
        message.timestamp,
        outcome.key,
        outcome.outcome,
        message,
        outcome.artifacts,
        answer_id,
        outcome.untrusted,
        by,
        surface,
        outcome.is_json,
    )


def skipped(call: CallState, reason: str, at_ms: int) -> Stimulus:
    """Return the stimulus that reports to a session that its call was not begun, or that its program ends."""
    if call.program is not None:
        stopped = ExecutionError(f"the program was ended: {reason}; some of its calls may have run")
        message = make_error_message(call.call.id, call.tool, stopped, at_ms)
        return CallFinished(at_ms, call.key, "aborted", message)
    error = ExecutionError(f"skipped before it began: {reason}")
    message = make_error_message(call.call.id, call.tool, error, at_ms)
    return CallFinished(at_ms, call.key, "skipped", message)


def _is_report(stimulus: Stimulus) -> TypeGuard[stimuli.Incoming]:
    """Whether a stimulus is a child's report."""
    return type(stimulus) is stimuli.Incoming and stimulus.origin == "child"


def _do_nothing() -> None:
    """Do nothing."""


FACTS_PER_REPORT = 256
REPORT_AFTER_S = 0.2
FACTS_WAIT_S = 0.02
YIELD_AFTER_S = 0.005
STIMULI_PER_PUMP = 128
_PACKED: Callable[[tuple[str, int, str]], Packed] = partial(tuple.__new__, Packed)
"""Builds a ``Packed`` without the Python-level ``__new__`` of named tuples."""


@dataclass(slots=True)
class RunnerState:
    """What is kept of a session that left a host, for its next adoption there."""

    state: SessionState
    given: int
    """How many messages of its conversation the gateway holds."""
    chars: int
    """How long its facts are together."""


def _rebuild(adopt: Adopt) -> RunnerState:
    state = replay_session(adopt.spec, adopt.limits, adopt.facts, adopt.id_key)
    return RunnerState(state, 0, sum(map(len, adopt.facts)))


class SessionRunner:
    """Runs one session until it is released."""

    def __init__(  # noqa: PLR0913, PLR0915 - its parts, by name; each line sets one member
        self,
        adopt: Adopt,
        dispatcher: Dispatcher,
        questioner: ModelRequestBuilder,
        watch: CallWatch,
        report: Callable[[Outcome], None],
        now_ms: Callable[[], int],
        interceptors: Sequence[Interceptor] = (),
        kept: RunnerState | None = None,
        turns: SessionTurns | None = None,
    ) -> None:
        """Rebuild the session from its facts, or take its kept state, and report that it is adopted."""
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
        self._running = RunningCalls(dispatcher, watch, self._on_abandoned, turns)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._facts: list[Packed] = []
        self._out: list[HostInstruction] = []
        kept = kept or _rebuild(adopt)
        self.state, self._chars, questioner.given = kept.state, kept.chars, kept.given
        self.jobs = SessionJobNews(self.state, now_ms, self._queue_job_news)
        """Informed about the session's jobs; while one runs, the session is not idle."""
        self.on_rest: Callable[[], None] = _do_nothing
        """Called whenever the session may have become idle."""
        self._delegation = Delegation(dispatcher, now_ms, self._due, self._out, self.state.ids)
        self._programs: ProgramRuns | None = None
        """Made with the first program."""
        self._searches: ToolSearches | None = None
        """Made with the first search."""
        self._interceptors = interceptors
        for interceptor in interceptors:
            interceptor.attach(self.state, self._hook_failed)
        self._held: deque[tuple[str, Stimulus]] = deque()
        """Stimuli that wait for interceptors; the first one is being admitted."""
        self._admission: asyncio.Task[None] | None = None
        self._preparing: dict[str, asyncio.Task[Any] | None] = {}
        """Calls that interceptors prepare now or later."""
        self._preparation = asyncio.Lock()
        self._settling: set[str] = set()
        """Calls whose outcome interceptors settle, or have settled without a fact yet."""
        self._begun_s: dict[str, float] = {}
        """Start of the calls that interceptors will settle, in seconds of the monotonic clock."""
        self._taken = self._told_taken = 0
        self._told_idle = False
        self._late: asyncio.TimerHandle | None = None
        self._last_report = time.monotonic()
        self._driver: asyncio.Task[None] | None = None
        self._in_call = self._over = False
        self._reported_usage = self.state.usage
        at_ms = now_ms()
        if adopt.recovered:
            # It comes first, so that work that the session begins from now on does not count as owed.
            self._inputs.append(("recovered", stimuli.Recovered(at_ms), False))
        self._inputs.append(("adopted", questioner.make_adopted(at_ms), False))

    def feed(self, causes: tuple[str, ...], given: tuple[Stimulus, ...]) -> None:
        """Queue stimuli; returns without waiting for their processing."""
        if self._over:
            return
        if self._interceptors:
            self._admit(causes, given)
        else:
            for cause, stimulus in zip(causes, given, strict=True):
                self._inputs.append((cause, stimulus, True))
        self.start()

    def start(self) -> None:
        """Start the driver if none runs."""
        if self._over:
            return
        if self._in_call:
            self._pump_undriven()
        elif self._driver is None:
            self._driver = asyncio.create_task(self._drive())

    def stop(self) -> None:
        """Stop the session at once: running work is cancelled, and nothing more is reported."""
        self._over = True
        self._running.close()
        for task in (*self._tasks, *([] if self._driver is None else [self._driver])):
            task.cancel()

    @property
    def is_calling(self) -> bool:
        """Whether a call runs, or any other work outside the machine."""
        return bool(self._in_call or self._running or self._works_beside)

    @property
    def has_leftover_work(self) -> bool:
        """Whether any work still runs, including cancelled work that ignores its cancellation."""
        drives = self._driver is not None and not self._driver.done()  # cancelled before it began, it is done
        return bool(
            self._works_beside or drives or any(each.has_leftover_work for each in self._interceptors)
        )

    @property
    def may_leave(self) -> bool:
        """Whether the host may let the session go by itself: it is idle, and everything was reported.

        A session with open calls may not: the supervisor may be writing their facts.
        """
        return self._told_idle and not (
            self._over
            or self._is_busy
            or self._driver
            or self._facts
            or self._out
            or self._held
            or self.state.calls
            or self._taken != self._told_taken
        )

    @property
    def kept_state(self) -> RunnerState | None:
        """What the host may keep of it; None if it is not to come back, or if something was not reported."""
        state = self.state
        is_done = state.spec.kind is SessionKind.WORKER and state.offer is not None
        if is_done or self._over or self._is_busy or self._driver or self._facts or self._out:
            return None
        return RunnerState(state, self._questioner.kept, self._chars)

    @property
    def _is_busy(self) -> bool:
        waits = self._metering and self.state.asking
        works = self._inputs or self._due or self._to_run or self._running or self._works_beside
        return bool(waits or works or self.jobs.running)

    def resend_prompt(self, turn: int) -> None:
        """Ask the model of an open turn again, with the whole conversation."""
        if self.state.asking and self.state.turn == turn:
            self._questioner.forget()
            self._out.append(self._questioner.question(self.state))
            self._flush()

    def proceed(self, turn: int) -> None:
        """Ask the instant model of a turn whose budget was charged, after earlier input."""
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
                    await self._yield_to_loop()
                    rested = time.monotonic()
        except asyncio.CancelledError:
            if not self._over:
                raise
        except Exception as error:  # noqa: BLE001 - a failure here ends only this session, with a typed outcome
            self._on_crashed(error)
        finally:
            if self._driver is me:
                self._driver = None
                self._in_call = False
        self._flush_soon()

    async def _run_lone(self, execute: todo.ExecuteCall, me: asyncio.Task[Any] | None) -> bool:
        """Run a call inside the driver; return False if it was abandoned and another driver runs by now."""
        self._in_call = True
        # The supervisor learns of a long call while it runs.
        report = asyncio.get_running_loop().call_later(REPORT_AFTER_S, self._flush)
        try:
            outcome = await self._run(execute, me)
        finally:
            report.cancel()
        if self._driver is not me:
            return False
        self._in_call = False
        if outcome is not None:
            self._on_finished(outcome)
        return True

    async def _yield_to_loop(self) -> None:
        """Report facts if there are many or the last report is old, then yield to the loop."""
        late = time.monotonic() - self._last_report > REPORT_AFTER_S
        if late or len(self._facts) >= FACTS_PER_REPORT:
            self._flush()
        await asyncio.sleep(0)

    def _pump_undriven(self) -> None:
        """Pump outside the driver: while the driver waits in a call, or for a finished task."""
        try:
            self._pump()
            for execute in self._to_run:
                self._launch(execute)
            self._to_run.clear()
            if self._inputs or self._due:
                asyncio.get_running_loop().call_soon(self.start)
        except Exception as error:  # noqa: BLE001 - a failure here ends only this session, with a typed outcome
            self._on_crashed(error)
        self._flush()

    def _pump(self) -> None:
        """Process what is queued, up to a fixed number of stimuli, so that other sessions get their turn."""
        due, inputs, state = self._due, self._inputs, self.state
        packed, carry_out = self._facts, self._carry_out
        for _ in range(STIMULI_PER_PUMP):
            if due:
                cause, stimulus = due.popleft()
            elif inputs:
                cause, stimulus, counts = inputs.popleft()
                if counts:
                    self._taken += 1
                if _is_report(stimulus) and self._is_report_next:
                    stimulus = replace(stimulus, followed=True)
            else:
                return
            facts, instructions = react(state, stimulus)
            at_ms = stimulus.at_ms
            if type(stimulus) is stimuli.ApprovalAnswered and stimulus.intended:
                # The intent was journaled with the answer.
                facts = [fact for fact in facts if type(fact) is not CallIntended]
            for text in pack_joined(facts):
                packed.append(_PACKED((cause, at_ms, text)))
            if self._readers or self._interceptors:
                self._show(facts)
            for instruction in instructions:
                carry_out(instruction)

    @property
    def _is_report_next(self) -> bool:
        """Whether the next input, admitted or not, is a child's report that the session will take in."""
        if self._inputs:
            following = self._inputs[0][1]
        elif self._held:
            following = self._held[0][1]
        else:
            return False
        return _is_report(following) and following.message_id not in self.state.heard

    def _carry_out(self, instruction: todo.SessionInstruction) -> None:
        """Carry out an instruction if a host can; otherwise report it to the supervisor."""
        match instruction:
            case todo.CallModel():
                self._call_model(instruction)
            case todo.PrepareCall():
                self._prepare(instruction)
            case todo.ExecuteCall():
                self._execute(instruction)
            case todo.AdvanceProgram():
                self._ensure_program_runs().advance(instruction.key)
            case todo.AbortCalls():
                self._abort(instruction)
            case todo.TakeAnswer():
                self._take_answer(instruction)
            case todo.RunApprover():
                self._run_approver(instruction)
            case _:
                self._out.append(instruction)

    def _take_lone(self) -> todo.ExecuteCall | None:
        """Return the only call, if it may run inside the driver; if there are several, launch all."""
        if len(self._to_run) == 1 and not self._running and not self._inputs:
            return self._to_run.pop()
        for execute in self._to_run:
            self._launch(execute)
        self._to_run.clear()
        self._flush()
        return None

    def _call_model(self, instruction: todo.CallModel) -> None:
        if self._questioner.find_instant_model(self.state) is None:
            self._out.append(self._questioner.question(self.state))
        elif self._metered:
            self._metering = True
            self._out.append(MeterTurn(instruction.turn))
        else:
            self._ask_instant(instruction.turn)

    def _ask_instant(self, turn: int) -> None:
        answered = self._questioner.ask(self.state, self._now_ms)
        if self._interceptors and self._is_intercepted(answered):
            self._do_beside(self._guard(partial(self._admit_own, f"model:{turn}", answered)))
        else:
            self._due.append((f"model:{turn}", answered))

    def _is_intercepted(self, stimulus: Stimulus) -> bool:
        return any(each.must_admit(stimulus) for each in self._interceptors)

    def _admit(self, causes: tuple[str, ...], given: tuple[Stimulus, ...]) -> None:
        """Queue stimuli that interceptors pass at once; one that they must admit delays all that follow it.

        A cancellation does not wait. It also queues the delayed stimuli, which interceptors do not see.
        """
        for cause, stimulus in zip(causes, given, strict=True):
            if isinstance(stimulus, stimuli.CancelAsked):
                self._inputs.append((cause, stimulus, True))
                if self._admission is not None:
                    self._admission.cancel()
                    self._admission = None
                self._inputs.extend((held_by, held, True) for held_by, held in self._held)
                self._held.clear()
            elif self._held or self._is_intercepted(stimulus):
                self._held.append((cause, stimulus))
            else:
                self._inputs.append((cause, stimulus, True))
        if self._held and self._admission is None:
            self._admission = self._do_beside(self._guard(self._admit_held))

    async def _admit_held(self) -> None:
        while self._held:
            cause, stimulus = self._held[0]
            for interceptor in self._interceptors:
                stimulus = await interceptor.admit(stimulus)
            self._held.popleft()
            self._inputs.append((cause, stimulus, True))
            self.start()
        self._admission = None

    async def _admit_own(self, cause: str, first: Stimulus, *others: Stimulus) -> None:
        """Queue a stimulus of this host as interceptors leave it, and others that come with it."""
        for interceptor in self._interceptors:
            first = await interceptor.admit(first)
        if not self._over:
            self._due.extend((cause, each) for each in (first, *others))
            self.start()

    def _queue(self, cause: str, stimulus: Stimulus) -> None:
        """Queue a stimulus of this host."""
        if not self._over:
            self._due.append((cause, stimulus))
            self.start()

    def _ensure_program_runs(self) -> ProgramRuns:
        if self._programs is None:
            self._programs = ProgramRuns(
                self.state,
                build_face(
                    {each.name: each.compiled.schema for each in self._dispatcher.callable_in_programs},
                    STARTS_CHILDREN,
                ),
                self._dispatcher.max_chars,
                self._now_ms,
                ProgramHost(
                    self._queue, self._on_program_finished, self._begin_program, self._flush_if_undriven
                ),
            )
        return self._programs

    def _on_program_finished(self, ended: ImmediateOutcome | RejectedCall) -> None:
        call = self.state.calls.get(ended.key)
        if self._over or call is None:
            return
        if isinstance(ended, RejectedCall):  # as any call that is not valid, it passes those that reword it
            asked = todo.PrepareCall(ended.key, call.call, asked_by=call.asked_by)
            self._do_beside(self._guard(partial(self._reword, asked, ended)))
        else:
            self._on_finished(ended)
            self.start()

    async def _reword(self, asked: todo.PrepareCall, checked: RejectedCall) -> None:
        told: PreparedCall | RejectedCall | ImmediateOutcome = checked
        for interceptor in self._interceptors:
            told = await interceptor.prepare(asked, told, self.state.taint)
        self._queue(f"call:{asked.key}", report_preparation(told, self._now_ms()))

    def _begin_program(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self._do_beside(self._guard(work))

    def leave_programs(self) -> tuple[InterpreterProcess | None, set[ProcessIdentity]]:
        """End the interpreters; return their process, and the processes that are ending."""
        if self._searches is not None:
            self._searches.close()
        return (None, set()) if self._programs is None else self._programs.close()

    def _queue_job_news(self, cause: str, news: Sequence[Stimulus]) -> None:
        """Queue what has become of a job."""
        if self._over:
            return
        if self._is_intercepted(news[0]):
            self._do_beside(self._guard(partial(self._admit_own, cause, *news)))
        else:
            self._due.extend((cause, each) for each in news)
            self.start()

    def _prepare(self, instruction: todo.PrepareCall) -> None:
        if self._interceptors:
            self._prepare_later(instruction)
            return
        key = instruction.key
        if self._readers:
            self._watch.began(key, instruction.call)
        asked_by, may_be_cut = instruction.asked_by, instruction.may_be_cut
        prepared = self._dispatcher.prepare(
            key, instruction.call, asked_by, self.state.taint, may_be_cut=may_be_cut
        )
        if isinstance(prepared, PreparedCall):
            self._prepared[key] = prepared
            given_up = instruction.run_unless
            if given_up is not None and prepared.harmless and prepared.call.tool not in given_up:
                self._execute(todo.ExecuteCall(self.state.ids.call(key), prepared.call))
                return
        self._due.append((f"call:{key}", report_preparation(prepared, self._now_ms())))

    def _prepare_later(self, instruction: todo.PrepareCall) -> None:
        """Let interceptors prepare a call, one call after the other and each once."""
        key = instruction.key
        if key in self._preparing:
            return
        prepared = self._prepared.get(key)
        if prepared is not None:  # interceptors have prepared it; it was held back afterwards
            self._due.append((f"call:{key}", report_preparation(prepared, self._now_ms())))
            return
        if self._readers:
            self._watch.began(key, instruction.call)
        self._preparing[key] = None
        self._do_beside(self._guard(partial(self._prepare_in_turn, instruction)))

    async def _prepare_in_turn(self, instruction: todo.PrepareCall) -> None:
        key = instruction.key
        if key not in self._preparing:
            return
        self._preparing[key] = asyncio.current_task()
        async with self._preparation:
            asked_by, taint = instruction.asked_by, self.state.taint
            prepared = self._dispatcher.prepare(
                key, instruction.call, asked_by, taint, may_be_cut=instruction.may_be_cut
            )
            for interceptor in self._interceptors:
                prepared = await interceptor.prepare(instruction, prepared, taint)
        if self._preparing.pop(key, None) is None or self._over:
            return
        if isinstance(prepared, ImmediateOutcome):
            self._on_finished(prepared)
            return
        if isinstance(prepared, PreparedCall):
            self._prepared[key] = prepared
        self._due.append((f"call:{key}", report_preparation(prepared, self._now_ms())))
        self.start()

    def _execute(self, instruction: todo.ExecuteCall) -> None:
        key = instruction.call.key
        if instruction.call.tool in self._delegation.tools:
            call = self.state.calls[key]
            refused = self._delegation.hand_over(instruction, self._prepared.pop(key, None), call)
            if refused is not None:
                self._on_finished(refused)
        elif instruction.call.tool in self._dispatcher.program_tools:
            self._prepared.pop(key, None)
            self._begin_call_of_program(key, instruction.call)
        elif instruction.call.tool in self._dispatcher.search_tools:
            self._prepared.pop(key, None)
            self._searches = self._searches or ToolSearches(self._dispatcher)
            self._on_finished(self._searches.answer(self.state.calls[key], instruction.call, self._now_ms()))
        elif self._running.claim(key):
            self._to_run.append(instruction)

    def _begin_call_of_program(self, key: str, call: CheckedCall) -> None:
        """Begin a program: its own text, or that of a saved one, which is read here for the last time."""
        source = self._dispatcher.source_of(call.tool)
        began = stimuli.ProgramBegan(self._now_ms(), call, source)
        if source is not None and count_depth(key) >= MAX_PROGRAM_DEPTH:
            self._skip(key, f"saved programs call each other at most {MAX_PROGRAM_DEPTH} deep")
        else:
            self._due.append((f"call:{key}", began))

    def _abort(self, instruction: todo.AbortCalls) -> None:
        waiting = {execute.call.key for execute in self._to_run}
        self._to_run = [execute for execute in self._to_run if execute.call.key not in instruction.keys]
        for key in instruction.keys:
            if self._programs is not None:
                self._programs.abort(key)
            preparing = self._preparing.pop(key, None)
            if preparing is not None:
                preparing.cancel()
            if key in self._settling:  # it has ended, and its outcome is being settled
                continue
            if not self._running.cancel(key) and (key in waiting or key in self.state.calls):
                self._skip(key, instruction.reason)

    def _skip(self, key: str, reason: str) -> None:
        self._prepared.pop(key, None)
        self._due.append((f"call:{key}", skipped(self.state.calls[key], reason, self._now_ms())))

    def _launch(self, execute: todo.ExecuteCall) -> None:
        make = partial(self._running.run_unless_skipped, execute, self._run)
        self._do_beside(self._guard(partial(self._finish, make)))

    def _take_answer(self, take: todo.TakeAnswer) -> None:
        call = self.state.calls[take.key]
        if self._interceptors:
            self._begun_s[take.key] = time.monotonic() - (self._now_ms() - call.asked_at_ms) / 1e3
        make = self._delegation.prepare_outcome(take, call)
        if make is not None:
            self._do_beside(self._guard(partial(self._finish, make)))

    def _do_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do work in a separate task; the session is not idle until it is done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done_beside)
        return task

    def _on_done_beside(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._flush_if_undriven()

    def _flush_if_undriven(self) -> None:
        if self._driver is None:
            self._flush_soon()

    @property
    def _works_beside(self) -> bool:
        """Whether work is done outside the machine and its driver."""
        return bool(self._tasks) or (self._programs is not None and self._programs.asked > 0)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a failure here ends only this session, with a typed outcome
            self._on_crashed(error)

    async def _finish(self, make: Callable[[], Awaitable[ImmediateOutcome | None]]) -> None:
        outcome = await make()
        if outcome is not None and not self._over:
            self._on_finished(outcome)
            self.start()

    async def _run(
        self, execute: todo.ExecuteCall, task: asyncio.Task[Any] | None = None
    ) -> ImmediateOutcome | None:
        """Run one call; prepare it again from its facts if another host had prepared it."""
        key = execute.call.key
        if self._interceptors:
            self._begun_s[key] = time.monotonic()
        prepared = self._prepared.pop(key, None)
        if prepared is None:
            call = self.state.calls[key]
            again = self._dispatcher.prepare_again(execute.call, call.call.id, call.asked_by)
            if isinstance(again, ImmediateOutcome):
                return again
            prepared = again
        prepared.answered = execute.answered
        return await self._running.run(prepared, execute, task)

    def _on_abandoned(self, running: Running, outcome: ImmediateOutcome) -> None:
        """Continue the session without a call that ignored its cancellation."""
        if self._over:
            return
        if running.task is self._driver:
            self._driver = None
            self._in_call = False
        self._on_finished(outcome)
        self.start()

    def _on_finished(self, outcome: ImmediateOutcome) -> None:
        if outcome.wanted is not None:
            asked = self._delegation.ask_for(outcome.wanted, self.state, outcome.key)
            self._due.append((f"call:{outcome.key}", asked))
        elif self._interceptors:
            self._settling.add(outcome.key)
            begun_s = self._begun_s.pop(outcome.key, None)
            ran_s = 0.0 if begun_s is None else time.monotonic() - begun_s
            self._do_beside(self._guard(partial(self._settle, outcome, ran_s)))
        else:
            self._conclude(outcome)

    async def _settle(self, outcome: ImmediateOutcome, ran_s: float) -> None:
        for interceptor in self._interceptors:
            outcome = await interceptor.settle(outcome, ran_s)
        if not self._over:
            self._conclude(outcome)
            self.start()

    def _conclude(self, outcome: ImmediateOutcome) -> None:
        stimulus = finished(outcome, self._delegation.answer_to(outcome.key))
        self._due.append((f"call:{outcome.key}", stimulus))

    def _show(self, facts: Sequence[SessionFact]) -> None:
        """Show new facts to watchers, and to interceptors those that they do not know yet."""
        if self._readers:
            self._watch.observe(facts)
        for interceptor in self._interceptors:
            for fact in facts:
                if not (type(fact) is CallResolved and fact.key in self._settling):
                    interceptor.observe(fact)
        if self._settling:
            self._settling.difference_update(fact.key for fact in facts if type(fact) is CallResolved)

    def _hook_failed(self, key: str, fault: HookFault) -> None:
        if not self._over:
            failed = HookFailed(key, fault.hook, fault.point, fault.reason)
            self._due.append((f"hook:{key}", stimuli.HookErrorReported(self._now_ms(), failed)))
            self.start()

    def _run_approver(self, instruction: todo.RunApprover) -> None:
        self._do_beside(self._consult(instruction))

    async def _consult(self, instruction: todo.RunApprover) -> None:
        answered = await run_session_approver(
            self.state.spec.approver or "", instruction, self.session, self._now_ms
        )
        if not self._over:
            self._due.append((f"approver:{instruction.question.request_id}", answered))
            self.start()

    def _on_crashed(self, error: Exception) -> None:
        self._over = True
        self._running.cancel_all()
        reason = describe_error(error)
        self._report(Outcome(self.session, self.epoch, self._told_taken, (), (), True, None, reason))

    def _flush_soon(self) -> None:
        """Report now if anyone waits for it; facts alone may wait briefly for those that follow."""
        if self._out or not self._works_beside:
            self._flush()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(FACTS_WAIT_S, self._flush)

    def _flush(self) -> None:
        """Report what is new, including that the session has become idle."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._over:
            return
        idle = not self._is_busy and (self._driver is None or not self._in_call)
        if idle:
            self.on_rest()
        news = self._facts or self._out or self._taken != self._told_taken
        if not news and idle == self._told_idle:
            return
        usage = self.state.usage
        spent = None
        if usage != self._reported_usage:
            spent = usage - self._reported_usage
            self._reported_usage = usage
        self._chars += sum([len(fact.text) for fact in self._facts])
        facts, out = tuple(self._facts), keep_valid_instructions(self._out, self.state)
        outcome = Outcome(
            self.session, self.epoch, self._taken, facts, out, idle, spent, None, self.jobs.shown
        )
        self._facts.clear()
        self._out.clear()
        self._told_taken, self._told_idle = self._taken, idle
        self._last_report = time.monotonic()
        self._report(outcome)
