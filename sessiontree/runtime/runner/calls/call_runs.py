"""The life of a call on a host: it is prepared, it runs, and it ends.

``CallRuns`` carries out what the session's machine wants done. ``CallPreparation`` checks a call, and
``CallEndings`` passes its outcome on; both ask interceptors, where there are any.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.facts.session_facts import CallResolved, SessionFact
from sessiontree.contracts.facts.stimuli import (
    CallFinished,
    CallHandedOver,
    CallPrepared,
    CallRejected,
    ProgramBegan,
    Stimulus,
)
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.programs import MAX_PROGRAM_DEPTH, count_depth
from sessiontree.contracts.recorded.results import make_error_message
from sessiontree.contracts.recorded.tool_inputs import ToolInput
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.runtime.runner.calls.call_book import CallEntry, CallPhase
from sessiontree.runtime.runner.calls.hosted_session import HostedSession
from sessiontree.runtime.runner.calls.program_calls import ProgramCalls
from sessiontree.runtime.runner.calls.tool_calls import Abandoned, Delegation, Making, RunningCalls
from sessiontree.runtime.runner.interceptors import CallChecked
from sessiontree.sandbox import SessionTurns
from sessiontree.session.instructions import AbortCalls, ExecuteCall, PrepareCall, TakeAnswer
from sessiontree.session.state import CallState

# Looking a member up in an enum costs as much as a call, and every tool call needs these several times.
_ABSENT, _PREPARED, _SETTLING = CallPhase.ABSENT, CallPhase.PREPARED, CallPhase.SETTLING


def report_outcome(outcome: ImmediateOutcome, taken: TakeAnswer | None) -> Stimulus:
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


def report_skipped(call: CallState, reason: str, at_ms: int) -> Stimulus:
    """Return the stimulus that reports to a session that its call was not begun, or that its program ends."""
    if call.program is not None:
        stopped = ExecutionError(f"the program was ended: {reason}; some of its calls may have run")
        message = make_error_message(call.call.id, call.tool, stopped, at_ms)
        return CallFinished(at_ms, call.key, "aborted", message)
    error = ExecutionError(f"skipped before it began: {reason}")
    message = make_error_message(call.call.id, call.tool, error, at_ms)
    return CallFinished(at_ms, call.key, "skipped", message)


AskFor: TypeAlias = Callable[[ToolInput, CheckedCall], CallHandedOver]
"""Makes the stimulus by which a call that ran asks a person for input."""


class CallEndings:
    """Passes the outcomes of one session's calls on.

    Args:
        session: The session on this host.
        ask_for: Asks a person on behalf of a call.
    """

    def __init__(self, session: HostedSession, ask_for: AskFor) -> None:
        self._session = session
        self._ask_for = ask_for
        self._book = session.book
        self._put = session.queue.put
        self._interceptors = session.interceptors
        self._watch = session.watch

    def finish(self, outcome: ImmediateOutcome) -> None:
        """Take the outcome of a call, whatever phase the call is in."""
        book, key = self._book, outcome.key
        call = book.find(key)
        if self._interceptors and outcome.wanted is None and not self._session.tasks.over:
            self._begin_to_settle(key, call, outcome)
            return
        if call is not None:
            book.move(call, _ABSENT)
        if self._session.tasks.over:
            return
        if outcome.wanted is not None and call is not None and call.checked is not None:
            self._put(f"call:{key}", self._ask_for(outcome.wanted, call.checked))
        else:
            self._put(f"call:{key}", report_outcome(outcome, None if call is None else call.take))

    def _begin_to_settle(self, key: str, call: CallEntry | None, outcome: ImmediateOutcome) -> None:
        if call is not None and call.phase is _SETTLING:
            # A program that is given an answer while its outcome is settled runs again, and ends again.
            # The first outcome counts.
            return
        call = self._book.enter(key, _SETTLING)
        ran_s = 0.0 if call.begun_s is None else time.monotonic() - call.begun_s
        self._session.tasks.begin(partial(self._settle, call, outcome, ran_s))

    async def _settle(self, call: CallEntry, outcome: ImmediateOutcome, ran_s: float) -> None:
        """Pass an outcome through the interceptors.

        The call stays in ``SETTLING`` until a fact has its result: interceptors have seen the outcome here,
        and do not observe that fact. An abort that comes meanwhile comes too late.
        """
        for interceptor in self._interceptors:
            outcome = await interceptor.settle(outcome, ran_s)
        if call.phase is _SETTLING and call.key not in self._session.state.calls:
            self._book.move(call, _ABSENT)
        self._session.queue.post(f"call:{call.key}", report_outcome(outcome, call.take))

    def observe(self, facts: Sequence[SessionFact]) -> None:
        """Show new facts to watchers, and to interceptors those that they do not know yet."""
        book = self._book
        if self._watch.readers:
            self._watch.observe(facts)
        for interceptor in self._interceptors:
            for fact in facts:
                if not (type(fact) is CallResolved and book.has_phase(fact.key, _SETTLING)):
                    interceptor.observe(fact)
        for fact in facts:
            if type(fact) is CallResolved:
                book.resolve(fact.key)


def report_preparation(prepared: CallChecked, at_ms: int) -> Stimulus:
    """Return the stimulus that reports to a session how its call was prepared."""
    if isinstance(prepared, PreparedCall):
        return CallPrepared(at_ms, prepared.call, prepared.needs_approval)
    if isinstance(prepared, RejectedCall):
        return CallRejected(at_ms, prepared)
    return report_outcome(prepared, None)


class CallPreparation:
    """Prepares the calls of one session.

    Args:
        session: The session on this host.
        endings: Takes the outcome of a call that ends before it runs.
    """

    def __init__(self, session: HostedSession, endings: CallEndings) -> None:
        self._session = session
        self._endings = endings
        self._check = session.dispatcher.prepare
        self._interceptors = session.interceptors
        self._state = session.state
        self._book = session.book
        self._put = session.queue.put
        self._now_ms = session.now_ms
        self._turn = asyncio.Lock()
        """Held by the call that interceptors prepare."""

    def prepare(self, asked: PrepareCall) -> ExecuteCall | None:
        """Prepare a call; return what runs at once, if its session needs no answer in between."""
        key = asked.key
        here = self._book.find(key)
        if here is not None and here.phase is not _PREPARED:
            return None
        if self._interceptors and here is not None and here.prepared is not None:
            # Interceptors have prepared it; it was held back afterwards. They judge each call once.
            self._put(f"call:{key}", report_preparation(here.prepared, self._now_ms()))
            return None
        if self._session.watch.readers:
            self._session.watch.began(key, asked.call)
        if self._interceptors:
            call = self._book.enter(key, CallPhase.PREPARING)
            call.task = self._session.tasks.begin(partial(self._prepare_in_turn, call, asked))
            return None
        prepared = self._check(
            key, asked.call, asked.asked_by, self._state.taint, may_be_cut=asked.may_be_cut
        )
        if isinstance(prepared, PreparedCall):
            self._book.keep_prepared(prepared)
            given_up = asked.run_unless
            if given_up is not None and prepared.harmless and prepared.call.tool not in given_up:
                return ExecuteCall(self._state.ids.call(key), prepared.call)
        self._put(f"call:{key}", report_preparation(prepared, self._now_ms()))
        return None

    async def _prepare_in_turn(self, call: CallEntry, asked: PrepareCall) -> None:
        """Let interceptors prepare a call, one call after the other: they may ask about each."""
        async with self._turn:
            taint = self._state.taint
            prepared = self._check(asked.key, asked.call, asked.asked_by, taint, may_be_cut=asked.may_be_cut)
            for interceptor in self._interceptors:
                prepared = await interceptor.prepare(asked, prepared, taint)
        # An abort cancels this task; an interceptor may have swallowed that.
        if self._book.find(asked.key) is not call or self._session.tasks.over:
            return
        if isinstance(prepared, ImmediateOutcome):
            self._endings.finish(prepared)
            return
        if isinstance(prepared, PreparedCall):
            self._book.keep_prepared(prepared)
        else:
            self._book.move(call, _ABSENT)
        self._session.queue.post(f"call:{asked.key}", report_preparation(prepared, self._now_ms()))

    async def reword(self, asked: PrepareCall, rejected: RejectedCall) -> None:
        """Pass a refused call through the interceptors, which may reword why it was refused."""
        checked: CallChecked = rejected
        for interceptor in self._interceptors:
            checked = await interceptor.prepare(asked, checked, self._state.taint)
        self._session.queue.post(f"call:{asked.key}", report_preparation(checked, self._now_ms()))


class CallRuns:
    """The calls of one session: what is carried out for them on this host.

    Args:
        session: The session on this host.
        out: Receives the instructions for the supervisor.
        on_abandoned: Called with a call that ignored its cancellation, and the outcome it gets.
        on_rested: Called when a program has nothing to say.
        turns: Those of the session's calls that may run commands; None = any number runs at a time.
    """

    def __init__(
        self,
        session: HostedSession,
        out: list[Any],
        on_abandoned: Abandoned,
        on_rested: Callable[[], None],
        turns: SessionTurns | None,
    ) -> None:
        self._session = session
        self._state = session.state
        self._dispatcher = session.dispatcher
        self._book = session.book
        self._interceptors = session.interceptors
        self.endings = CallEndings(session, self._ask_for)
        self._preparation = CallPreparation(session, self.endings)
        self.programs = ProgramCalls(session, self.endings.finish, self._preparation.reword, on_rested)
        self.running = RunningCalls(session.dispatcher, session.watch, session.book, on_abandoned, turns)
        self._delegation = Delegation(
            session.dispatcher,
            session.now_ms,
            session.book,
            session.queue.put,
            out,
            session.state.ids,
        )

    def prepare(self, asked: PrepareCall) -> None:
        """Prepare a call, and run it at once if its session needs no answer in between."""
        at_once = self._preparation.prepare(asked)
        if at_once is not None:
            self.begin(at_once)

    def begin(self, execute: ExecuteCall) -> None:
        """Run a call, hand it over, or begin it as a program; not if it is under way here already."""
        key, tool = execute.call.key, execute.call.tool
        if not self._book.can_begin(key):
            return
        if tool in self._delegation.tools:
            prepared = self._book.take_prepared(key)
            refused = self._delegation.hand_over(execute, prepared, self._state.calls[key])
            if refused is not None:
                self.endings.finish(refused)
        elif tool in self._dispatcher.program_tools:
            self._book.take_prepared(key)
            self._begin_program(key, execute.call)
        elif tool in self._dispatcher.search_tools:
            self._book.take_prepared(key)
            self.endings.finish(self.programs.search(key, execute.call))
        else:
            self._book.start(execute)

    def _begin_program(self, key: str, call: CheckedCall) -> None:
        """Begin a program: its own text, or that of a saved one, which is read here for the last time."""
        source = self._dispatcher.source_of(call.tool)
        if source is not None and count_depth(key) >= MAX_PROGRAM_DEPTH:
            self._skip(key, f"saved programs call each other at most {MAX_PROGRAM_DEPTH} deep")
        else:
            self._session.queue.put(f"call:{key}", ProgramBegan(self._session.now_ms(), call, source))

    def _skip(self, key: str, reason: str) -> None:
        skipped = report_skipped(self._state.calls[key], reason, self._session.now_ms())
        self._session.queue.put(f"call:{key}", skipped)

    def abort(self, abort: AbortCalls) -> None:
        """Stop calls; one that has not begun is reported as skipped."""
        book = self._book
        book.to_start = [execute for execute in book.to_start if execute.call.key not in abort.keys]
        for key in abort.keys:
            self.programs.abort(key)
            call = book.find(key)
            if call is not None and call.phase is _SETTLING:
                continue  # it has ended, and its outcome is being settled
            if call is not None and call.running is not None:
                self.running.stop(call.running)
                continue
            if call is not None and call.phase is not CallPhase.ANSWERING:
                # If a task was made for it, that one finds it gone when it begins.
                book.move(call, _ABSENT)
                if call.task is not None:
                    call.task.cancel()
            if key in self._state.calls:
                self._skip(key, abort.reason)

    def launch_all(self) -> None:
        """Run each call that is to start in a task of its own."""
        for execute in self._book.to_start:
            call = self._book.find(execute.call.key)
            if call is not None:
                self._session.tasks.begin(partial(self._run_unless_aborted, call, execute))
        self._book.to_start.clear()

    def take_answer(self, take: TakeAnswer) -> None:
        """Make a call's result of an answer, or refuse the answer."""
        call = self._state.calls[take.key]
        make = self._delegation.prepare_outcome(take, call)
        if make is None:
            return
        hosted = self._book.find(take.key)
        if hosted is not None and self._interceptors:
            hosted.begun_s = time.monotonic() - (self._session.now_ms() - call.asked_at_ms) / 1e3
        self._session.tasks.begin(partial(self._answer, make))

    async def run(self, execute: ExecuteCall, task: asyncio.Task[Any] | None) -> ImmediateOutcome | None:
        """Run a call in a task; return None if it was abandoned meanwhile.

        A call that another host had prepared is prepared again from its facts.
        """
        call = self._book.find(execute.call.key)
        if call is None:
            return None
        if self._interceptors:
            call.begun_s = time.monotonic()
        prepared, call.prepared = call.prepared, None
        if prepared is None:
            known = self._state.calls[call.key]
            again = self._dispatcher.prepare_again(execute.call, known.call.id, known.asked_by)
            if isinstance(again, ImmediateOutcome):
                return again
            prepared = again
        prepared.answered = execute.answered
        return await self.running.run(prepared, execute, call, task)

    async def _run_unless_aborted(self, call: CallEntry, execute: ExecuteCall) -> None:
        # The call may have been aborted, and reported as skipped, after its task was made.
        if self._book.find(call.key) is call:
            outcome = await self.run(execute, asyncio.current_task())
            if outcome is not None:
                self.endings.finish(outcome)
                self._session.queue.wake()

    async def _answer(self, make: Making) -> None:
        self.endings.finish(await make())
        self._session.queue.wake()

    def _ask_for(self, wanted: ToolInput, checked: CheckedCall) -> CallHandedOver:
        return self._delegation.ask_for(wanted, self._state, checked)
