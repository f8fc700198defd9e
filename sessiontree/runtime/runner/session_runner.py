"""Runs one session on its host: puts the parts together, and answers what the host asks.

The parts: ``input_queue.py`` has what the session is going to hear, ``driver.py`` takes that and carries out
what the session's machine decides, ``calls/`` does it for calls, and ``reporter.py`` sends what is new.

Interceptors are called at four points: ``admit`` (in the queue), ``prepare``, ``settle`` and ``observe`` (for
calls). Without interceptors, everything passes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from sessiontree.contracts.facts.session_facts import HookFailed
from sessiontree.contracts.facts.stimuli import HookErrorReported, Recovered, Stimulus
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.results import ImmediateOutcome
from sessiontree.journal.replay import replay_session
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.runtime.runner.approver_function import SessionApprover
from sessiontree.runtime.runner.call_watch import CallWatch
from sessiontree.runtime.runner.calls.call_book import CallBook, Running
from sessiontree.runtime.runner.calls.call_runs import CallRuns
from sessiontree.runtime.runner.calls.hosted_session import HostedSession
from sessiontree.runtime.runner.driver import SessionDriver
from sessiontree.runtime.runner.input_queue import InputQueue
from sessiontree.runtime.runner.interceptors import Interceptor
from sessiontree.runtime.runner.job_news import SessionJobNews
from sessiontree.runtime.runner.model_requests import ModelRequestBuilder, ModelTurns
from sessiontree.runtime.runner.reporter import Reporter
from sessiontree.runtime.runner.session_tasks import SessionTasks
from sessiontree.runtime.transport.frames import Adopt, Outcome
from sessiontree.sandbox import SessionTurns
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.session.state import SessionState


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

    make_book: ClassVar[type[CallBook]] = CallBook
    """Makes the book of the session's calls."""

    def __init__(  # noqa: PLR0913 - its parts, by name
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
        kept = kept or _rebuild(adopt)
        self.state, questioner.given = kept.state, kept.given
        self._now_ms = now_ms
        self._questioner = questioner
        self._interceptors = interceptors
        self._tasks = SessionTasks(self._on_failed, self._on_work_ended)
        self._queue = InputQueue(self.state, self._tasks, interceptors, self.start)
        self.book = self.make_book()
        hosted = HostedSession(
            self.state, dispatcher, watch, now_ms, interceptors, self._tasks, self._queue, self.book
        )
        self.jobs = SessionJobNews(self.state, now_ms, self._queue.post_admitted)
        """Informed about the session's jobs; while one runs, the session is not idle."""
        self.reporter = Reporter(
            adopt, report, hosted, self.jobs, kept.chars, self._is_idle, self._works_elsewhere
        )
        out = self.reporter.out
        self._calls = CallRuns(hosted, out, self._on_abandoned, self._on_work_ended, turns)
        self._model = ModelTurns(hosted, questioner, out, is_metered=adopt.metered)
        approver = SessionApprover(hosted, adopt.session)
        self._driver = SessionDriver(hosted, self.reporter, self._calls, self._model, approver)
        for interceptor in interceptors:
            interceptor.attach(self.state, self._on_hook_failed)
        at_ms = now_ms()
        if adopt.recovered:
            # It comes first, so that work that the session begins from now on does not count as owed.
            self._queue.add("recovered", Recovered(at_ms))
        self._queue.add("adopted", questioner.make_adopted(at_ms))

    def feed(self, causes: tuple[str, ...], given: tuple[Stimulus, ...]) -> None:
        """Queue stimuli; returns without waiting for their processing."""
        self._queue.feed(causes, given)

    def start(self) -> None:
        """Start the driver if none runs."""
        self._driver.start()

    def stop(self) -> None:
        """Stop the session at once: running work is cancelled, and nothing more is reported."""
        self._tasks.over = True
        self._calls.running.close()
        self.reporter.close()
        self._tasks.cancel()
        if self._driver.task is not None:
            self._driver.task.cancel()

    @property
    def is_calling(self) -> bool:
        """Whether a call runs, or any other work outside the machine."""
        return bool(self._driver.in_call or self.book.running or self._works_elsewhere())

    @property
    def has_leftover_work(self) -> bool:
        """Whether any work still runs, including cancelled work that ignores its cancellation."""
        driver = self._driver.task
        drives = driver is not None and not driver.done()  # cancelled before it began, it is done
        return bool(
            self._works_elsewhere() or drives or any(each.has_leftover_work for each in self._interceptors)
        )

    @property
    def may_leave(self) -> bool:
        """Whether the host may let the session go by itself: it is idle, and everything was reported.

        A session with open calls may not: the supervisor may be writing their facts.
        """
        return self.reporter.reported_idle and not (
            self._tasks.over
            or self._is_busy()
            or self._driver.task
            or self.reporter.has_news
            or self._queue.is_holding
            or self.state.calls
        )

    @property
    def kept_state(self) -> RunnerState | None:
        """What the host may keep of it; None if it is not to come back, or if something was not reported."""
        state = self.state
        is_done = state.spec.kind is SessionKind.WORKER and state.offer is not None
        if is_done or self._tasks.over or self._is_busy() or self._driver.task or self.reporter.holds:
            return None
        return RunnerState(state, self._questioner.kept, self.reporter.chars)

    def resend_prompt(self, turn: int) -> None:
        """Ask the model of an open turn again, with the whole conversation."""
        if self._model.ask_again(turn):
            self.reporter.flush()

    def proceed(self, turn: int) -> None:
        """Ask the instant model of a turn whose budget was charged, after earlier input."""
        self._model.proceed(turn)

    def leave_programs(self) -> tuple[InterpreterProcess | None, set[ProcessIdentity]]:
        """End the interpreters; return their process, and the processes that are ending."""
        return self._calls.programs.leave()

    def _works_elsewhere(self) -> bool:
        """Whether work is done outside the machine and its driver."""
        programs = self._calls.programs.runs
        return bool(self._tasks.running or (programs is not None and programs.asked))

    def _is_busy(self) -> bool:
        works = self._queue or self.book.to_start or self.book.running or self._works_elsewhere()
        return bool(works or (self._model.is_charging and self.state.asking) or self.jobs.running)

    def _is_idle(self) -> bool:
        return not self._is_busy() and not (self._driver.task and self._driver.in_call)

    def _on_work_ended(self) -> None:
        if self._driver.task is None:
            self.reporter.schedule_flush()

    def _on_abandoned(self, running: Running, outcome: ImmediateOutcome) -> None:
        self._driver.on_abandoned(running, outcome)

    def _on_failed(self, error: Exception) -> None:
        self._driver.end(error)

    def _on_hook_failed(self, key: str, fault: HookFault) -> None:
        failed = HookFailed(key, fault.hook, fault.point, fault.reason)
        self._queue.post(f"hook:{key}", HookErrorReported(self._now_ms(), failed))
