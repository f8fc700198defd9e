"""Drives one session on its host: from a stimulus to what is reported.

A turn of the loop takes the next stimulus, lets the session's machine react, collects the facts, and carries
out the instructions. A single call runs inside the driver's task; several calls run in tasks of their own.
While the driver waits in a call, stimuli are processed outside it, so that a message can still stop the call.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sessiontree.contracts.facts.session_facts import CallIntended
from sessiontree.contracts.facts.stimuli import ApprovalAnswered
from sessiontree.dispatch.results import ImmediateOutcome
from sessiontree.runtime.runner.approver_function import SessionApprover
from sessiontree.runtime.runner.calls.call_book import Running
from sessiontree.runtime.runner.calls.call_runs import CallRuns
from sessiontree.runtime.runner.calls.hosted_session import HostedSession
from sessiontree.runtime.runner.model_requests import ModelTurns
from sessiontree.runtime.runner.reporter import Reporter
from sessiontree.session import instructions
from sessiontree.session.decide import react

YIELD_AFTER_S = 0.005
STIMULI_PER_PUMP = 128


class SessionDriver:
    """The loop of one session. At most one task drives it at a time.

    Args:
        session: The session on this host.
        reporter: Takes its facts, and the instructions for the supervisor.
        calls: Carries out what is to be done for its calls.
        model: Asks its model.
        approver: Asks its approver function.
    """

    def __init__(
        self,
        session: HostedSession,
        reporter: Reporter,
        calls: CallRuns,
        model: ModelTurns,
        approver: SessionApprover,
    ) -> None:
        self._state, self._tasks = session.state, session.tasks
        self._queue, self._book = session.queue, session.book
        self._reporter = reporter
        self._calls = calls
        self._model = model
        self._approver = approver
        self.task: asyncio.Task[None] | None = None
        """The task that drives the session; None = the session rests, or only other tasks work."""
        self.in_call = False
        """Whether that task waits in a call."""

    def start(self) -> None:
        """Process what is queued: in a new task, or right now if the driver waits in a call."""
        if self._tasks.over:
            return
        if self.in_call:
            self._pump_outside()
        elif self.task is None:
            self.task = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        me = asyncio.current_task()
        rested = time.monotonic()
        try:
            while not self._tasks.over:
                self._pump()
                single = self._take_single() if self._book.to_start else None
                if single is not None:
                    if not await self._run_inside(single, me):
                        return
                elif not self._queue:
                    break
                if time.monotonic() - rested > YIELD_AFTER_S:
                    self._reporter.flush_if_due()
                    await asyncio.sleep(0)
                    rested = time.monotonic()
        except asyncio.CancelledError:
            if not self._tasks.over:
                raise
        except Exception as error:  # noqa: BLE001 - a failure here ends only this session, with a typed outcome
            self.end(error)
        finally:
            # A driver whose call was abandoned ends late, when another one may be at work.
            if self.task is me:
                self.task = None
                self.in_call = False
        self._reporter.schedule_flush()

    def _pump(self) -> None:
        """Process what is queued, up to a fixed number of stimuli, so that other sessions get their turn."""
        state, take, carry_out = self._state, self._queue.take, self._carry_out
        for _ in range(STIMULI_PER_PUMP):
            taken = take()
            if taken is None:
                return
            cause, stimulus = taken
            facts, decided = react(state, stimulus)
            if type(stimulus) is ApprovalAnswered and stimulus.intended:
                # The intent was journaled with the answer.
                facts = [fact for fact in facts if type(fact) is not CallIntended]
            self._reporter.add(cause, stimulus.at_ms, facts)
            self._calls.endings.observe(facts)
            for instruction in decided:
                carry_out(instruction)

    def _carry_out(self, instruction: instructions.SessionInstruction) -> None:
        """Carry out an instruction if a host can; otherwise report it to the supervisor."""
        match instruction:
            case instructions.CallModel():
                self._model.ask(instruction)
            case instructions.PrepareCall():
                self._calls.prepare(instruction)
            case instructions.ExecuteCall():
                self._calls.begin(instruction)
            case instructions.AdvanceProgram():
                self._calls.programs.advance(instruction.key)
            case instructions.AbortCalls():
                self._calls.abort(instruction)
            case instructions.TakeAnswer():
                self._calls.take_answer(instruction)
            case instructions.RunApprover():
                self._approver.ask(instruction)
            case _:
                self._reporter.out.append(instruction)

    def _take_single(self) -> instructions.ExecuteCall | None:
        """Return the only call, if it may run inside the driver; if there are several, launch all."""
        if len(self._book.to_start) == 1 and not self._book.running and not self._queue.has_input:
            return self._book.to_start.pop()
        self._calls.launch_all()
        self._reporter.flush()
        return None

    async def _run_inside(self, execute: instructions.ExecuteCall, me: asyncio.Task[Any] | None) -> bool:
        """Run a call inside the driver; return False if it was abandoned and another driver runs by now."""
        self.in_call = True
        self._reporter.begin_call()
        outcome = await self._calls.run(execute, me)
        if self.task is not me:
            return False
        self._reporter.end_call()
        self.in_call = False
        if outcome is not None:
            self._calls.endings.finish(outcome)
        return True

    def _pump_outside(self) -> None:
        """Process stimuli while the driver waits in a call; what is to run gets tasks of its own."""
        try:
            self._pump()
            self._calls.launch_all()
            if self._queue:
                asyncio.get_running_loop().call_soon(self.start)
        except Exception as error:  # noqa: BLE001 - a failure here ends only this session, with a typed outcome
            self.end(error)
        self._reporter.flush()

    def on_abandoned(self, running: Running, outcome: ImmediateOutcome) -> None:
        """Continue the session without a call that ignored its cancellation."""
        if running.task is self.task:
            # The driver itself is caught in the call. It is left behind, and the next one continues.
            self.task = None
            self.in_call = False
        self._calls.endings.finish(outcome)
        self.start()

    def end(self, error: Exception) -> None:
        """End the session after a failure in this project's own code."""
        self._tasks.over = True
        self._calls.running.stop_all()
        self._reporter.report_failure(error)
