"""The effects of decisions: events for the tree machine, intents of approved calls, messages, and frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sessiontree.contracts.errors import SessionClosed, SessionTreeError
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import (
    ApprovalAsked,
    ModelAnswered,
    ModelFailed,
    ResultOffered,
    TreeEvent,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.reports.events import ModelEvent
from sessiontree.contracts.settings.model_settings import OnLength
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.journal import Journal
from sessiontree.models.answers import ModelFailure
from sessiontree.runtime.gateway.model_gateway import Gateway
from sessiontree.runtime.gateway.question_budget import QuestionBudget, find_price
from sessiontree.runtime.memory.memory_api import MemoryPort, make_end_notice
from sessiontree.runtime.rights.precedents import find_precedent
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession
from sessiontree.runtime.scheduling.scheduler import Scheduler
from sessiontree.runtime.supervisor.child_copies import ChildCopies
from sessiontree.runtime.supervisor.containers import Containers
from sessiontree.runtime.supervisor.image_questions import ImageQuestions
from sessiontree.runtime.supervisor.outside_answers import refuse_answers, settle_answer
from sessiontree.runtime.supervisor.previews import TreePreviews
from sessiontree.runtime.supervisor.timed_jobs import JobTimer
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.runtime.timing.time_limits import TimeLimits
from sessiontree.runtime.transport.frames import AskModel, ChargeTurn, ContinueTurn, ResendPrompt
from sessiontree.runtime.transport.progress import ProgressHub
from sessiontree.runtime.transport.supervisor_api import CallReply, CodeRaised, Reply
from sessiontree.session import instructions as session_todo
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state import protocol as tree_todo
from sessiontree.tree.state.protocol import FromSession


def from_session(live: LiveSession, event: TreeEvent, at_ms: int) -> FromSession:
    """Return a session's event with its context: the time, the session, and what the decision depends on."""
    match event:
        case ResultOffered():
            return FromSession(at_ms, live.session, event, live.quiet)
        case ApprovalAsked(request_id, call, runs_at_once=runs_at_once):
            if runs_at_once:
                if live.asked is None:
                    live.asked = {}
                live.asked[request_id] = call
            spec = live.controller.state.sessions[live.session].spec
            precedent = find_precedent(live.controller.config, call, live.controller.locate_workspace(spec))
            return FromSession(at_ms, live.session, event, precedent=precedent)
        case _:
            return FromSession(at_ms, live.session, event)


@dataclass(frozen=True, slots=True)
class ControllerDeps:
    """What the controllers of one supervisor share, and the tree's agents and models."""

    journal: Journal
    scheduler: Scheduler
    gateway: Gateway
    memory: MemoryPort
    hub: ProgressHub
    clock: TreeClock
    agents: dict[str, AgentConfig]
    containers: Containers
    previews: TreePreviews
    copies: ChildCopies


@dataclass(slots=True, eq=False)
class AwaitedReply:
    """A session's request to its model, until the reply. Thousands may wait, so it holds little.

    Not the question: its messages would be held here until the reply comes.
    """

    runner: EffectRunner
    live: LiveSession
    turn: int
    on_length: OnLength
    agent: str

    @property
    def tree_id(self) -> str:
        """The session's tree."""
        return self.live.controller.config.tree_id

    @property
    def session(self) -> str:
        """The session."""
        return self.live.session

    @property
    def kind(self) -> SessionKind:
        """The session's kind."""
        return self.live.kind

    def answered(self, message: AssistantMessage) -> None:
        """Take the reply."""
        self.runner.answered(self, message)

    def failed(self, failure: ModelFailure) -> None:
        """Take the reason why the model did not reply."""
        self.runner.failed(self, failure)

    def resend_prompt(self) -> None:
        """Ask again with the whole conversation, which the gateway does not hold."""
        self.runner.resend_prompt(self)

    def held(self, is_held: bool) -> None:
        """Note that it waits for its turn at the provider, or does not any more."""
        waits = self.live.controller.waits
        (waits.hold if is_held else waits.release)(self.session, "limiter")

    def emit(self, event: ModelEvent) -> None:
        """Show a part of the reply to those who watch."""
        self.runner.hub.emit(self.tree_id, self.session, event)


class EffectRunner:
    """Carries out one tree's instructions."""

    def __init__(self, controller: Controller, deps: ControllerDeps) -> None:
        self._controller = controller
        self._deps = deps
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self.hub = deps.hub
        """Shows replies while they are made."""
        self._time_limits: TimeLimits[AwaitedReply] = TimeLimits(self._wait_no_longer)
        """Time limits of model requests, by session."""
        self._budget = QuestionBudget(controller.state)
        self.image_questions = ImageQuestions(controller, deps.gateway, self._budget, deps.agents.__getitem__)
        """The questions of its sessions to image models."""
        self._jobs = JobTimer(controller, deps.clock)

    def close(self) -> None:
        """Stop all timers."""
        self.image_questions.close()
        self._budget.close()
        self._jobs.close()
        self._time_limits.close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def charged(self, session: str) -> None:
        """Take note that a session's usage was charged."""
        if session in self._budget.sizes:
            self._budget.charged(session)

    def begin_children(self, instructions: Sequence[tree_todo.TreeInstruction]) -> None:
        """Embody spawned children while their spawn becomes durable, because reaching a host takes time.

        Until then a child does only what leaves no trace, as every session does before a commit. Its facts
        are committed after its spawn's, and their effects wait for both commits.
        """
        for each in instructions:
            if type(each) is tree_todo.AcceptSpawn and each.started and each.session != "main":
                self._begin(each.session)

    def _begin(self, session: str) -> None:
        if self._controller.failure is None:
            self._deps.scheduler.want(self._controller.ensure_live_session(session))

    def run_for_session(self, live: LiveSession, instruction: Any) -> None:
        """Carry out an instruction of a session."""
        match instruction:
            case session_todo.AwaitCommit():
                self._await_commit(live, instruction)
            case AskModel():
                self._ask_model(live, instruction)
            case ChargeTurn():
                self._meter(live, instruction)
            case session_todo.AnswerCall():
                self._answer_call(live, instruction)
            case session_todo.AnswerMessages():
                self._answer_messages(live, instruction)
            case session_todo.SettleAnswer():
                settle_answer(live, instruction)
            case session_todo.WakeSessionAt():
                self._wake_session(live, instruction)
            case session_todo.ReportRaised(what, frames):
                raised = CodeRaised(f"{what} of session {live.session}", frames)
                self._controller.inbox_notifier.report(raised)
            case session_todo.WithdrawQuestion():
                self.stop_waiting(live.session)
                self._drop_reserved(live.session)
                self._deps.gateway.withdraw(self._controller.config.tree_id, live.session)
            case _:
                raise TypeError(
                    f"a host reported {type(instruction).__name__}, which is its own to carry out"
                )

    def run_for_tree(self, instruction: tree_todo.TreeInstruction) -> None:
        """Carry out an instruction of the tree machine; the caller of the stimulus handles the rest."""
        match instruction:
            case tree_todo.Deliver():
                self._deliver(instruction)
            case tree_todo.ReleaseSession():
                self._release(instruction)
            case tree_todo.WakeTreeAt():
                self._wake_tree(instruction)
            case tree_todo.WatchJobs():
                self._jobs.watch()

    def _await_commit(self, live: LiveSession, instruction: session_todo.AwaitCommit) -> None:
        if not live.over:
            stimulus = stimuli.IntentsCommitted(self._controller.now_ms(), instruction.keys)
            self._controller.deliver(live.session, stimulus, f"committed:{instruction.keys[0]}")

    def _ask_model(self, live: LiveSession, question: AskModel) -> None:
        if live.over:
            return
        session, spec = live.session, self._controller.state.sessions[live.session].spec
        config = self._deps.agents[spec.agent]
        asked = AwaitedReply(self, live, question.turn, question.settings.on_length or "fail", spec.agent)
        self.stop_waiting(session)
        if find_price(question, config) is None:
            self._send_question(asked, question)
            return
        self._budget.ask(session, question, config, partial(self._send_question, asked), asked.failed)

    def answered(self, asked: AwaitedReply, message: AssistantMessage) -> None:
        """Deliver a model's reply to its session."""
        session = asked.live.session
        if session in self._budget.sizes:
            self._budget.on_replied(session, message.usage)
        context_tokens = self._deps.agents[asked.agent].context_tokens
        at_ms = self._controller.now_ms()
        self._settle(asked, ModelAnswered(at_ms, asked.turn, message, asked.on_length, context_tokens))

    def failed(self, asked: AwaitedReply, failure: ModelFailure) -> None:
        """Report to a session why its model did not reply."""
        self._drop_reserved(asked.live.session)
        self._settle(asked, failure.at(self._controller.now_ms(), asked.turn))

    def resend_prompt(self, asked: AwaitedReply) -> None:
        """Have a session ask its model again with the whole conversation."""
        live = asked.live
        if live.over:
            return
        # Race: the host may be lost before it gets the frame, or let the session go. What is owed makes the
        # next host ask then.
        if live.link is not None:
            live.prompt_owed = True
            live.link.send(ResendPrompt(live.session, live.epoch, asked.turn))
        else:
            live.recovered = True  # its next host asks again for what the session owes
            self._deps.scheduler.want(live)

    def _settle(self, asked: AwaitedReply, stimulus: ModelAnswered | ModelFailed) -> None:
        # Race: the session may have ended while its model was asked; nobody takes the reply then.
        self.stop_waiting(asked.live.session)
        if not asked.live.over:
            self._controller.deliver(asked.live.session, stimulus, f"model:{asked.turn}")

    def _drop_reserved(self, session: str) -> None:
        if session in self._budget.sizes:
            self._budget.drop(session)

    def _send_question(self, asked: AwaitedReply, question: AskModel) -> None:
        if not asked.live.over:
            bounds = (self._controller.config.limits.model_timeout_s, question.settings.deadline_s)
            timeout_s = min((each for each in bounds if each is not None), default=None)
            if timeout_s is not None:
                self._time_limits.set(asked.session, timeout_s, asked)
            self._controller.waits.asked(asked.session)
            self._deps.gateway.ask(question, asked)

    def _wait_no_longer(self, asked: AwaitedReply, timeout_s: float) -> None:
        self._deps.gateway.withdraw(self._controller.config.tree_id, asked.session)
        reason = (
            f"no reply within {timeout_s:g} s; allow more with Limits(model_timeout_s=…) or "
            "ModelSettings(deadline_s=…)"
        )
        if self._controller.failure is None:
            asked.failed(ModelFailure(reason, retryable=True, cause="provider"))

    def stop_waiting(self, session: str) -> None:
        """Drop the time limit of a session's request."""
        self._time_limits.drop(session)
        self._controller.waits.answered(session)

    def _meter(self, live: LiveSession, instruction: ChargeTurn) -> None:
        def proceed() -> None:
            # Race: the charge may lead to a stop. That frame is then sent before this one.
            if not live.over and live.link is not None:
                live.link.send(ContinueTurn(live.session, live.epoch, instruction.turn))

        self._controller.run_afterwards(proceed)

    def _answer_call(self, live: LiveSession, instruction: session_todo.AnswerCall) -> None:
        self._controller.waiters.answer_call(
            live.session, instruction.call_id, CallReply(instruction.outcome, instruction.message)
        )

    def _answer_messages(self, live: LiveSession, instruction: session_todo.AnswerMessages) -> None:
        reply = Reply(instruction.text, instruction.error, instruction.interrupted, instruction.failure)
        for message_id in instruction.message_ids:
            self._controller.waiters.answer_message(live.session, message_id, reply)

    def _wake_session(self, live: LiveSession, instruction: session_todo.WakeSessionAt) -> None:
        session = live.session
        if instruction.retries:  # not the end of a call's patience, which may be a day away
            self._controller.waits.hold(session, "retry")

        def ring() -> None:
            # Race: the timer of a session that has ended, or of a tree that was closed, may be due already.
            del self._timers[session, instruction.at_ms]
            self._controller.waits.release(session, "retry")
            if not live.over and self._controller.failure is None:
                self._controller.deliver(session, stimuli.Rang(self._controller.now_ms()), "clock")

        self._set_timer(session, instruction.at_ms, ring)

    def _set_timer(self, name: str, at_ms: int, ring: Callable[[], None]) -> None:
        if (name, at_ms) not in self._timers:
            self._timers[name, at_ms] = self._deps.clock.ring(at_ms, ring)

    def _deliver(self, instruction: tree_todo.Deliver) -> None:
        self._controller.deliver(
            instruction.session,
            instruction.stimulus,
            f"post:{instruction.post_id}",
            instruction.post_id,
        )

    def _release(self, instruction: tree_todo.ReleaseSession) -> None:
        session = instruction.session
        live = self._controller.live_sessions.pop(session, None)
        if live is not None:
            live.over = True
            self._deps.scheduler.evict(live, force=instruction.force)
            refuse_answers(live)
        self.stop_waiting(session)
        self._controller.waits.forget(session)
        self._drop_reserved(session)
        self.image_questions.on_session_over(session)
        self._budget.sizes.pop(session, None)
        self._deps.gateway.forget(self._controller.config.tree_id, session)
        self._deps.containers.on_session_over(self._controller, session)
        self._deps.previews.on_session_over(self._controller.config.tree_id, session)
        self._deps.copies.on_session_over(self._controller, session)
        if session == "main" and instruction.result.status is SessionStatus.COMPLETED:
            self._deps.memory.ended(make_end_notice(self._controller.config, self._controller.now_ms()))
        self._controller.waiters.results.settle(session, instruction.result)
        self._controller.waiters.fail_session(session, make_closed_error(session, instruction.result))

    def _wake_tree(self, instruction: tree_todo.WakeTreeAt) -> None:
        def ring() -> None:
            del self._timers["", instruction.at_ms]
            if self._controller.failure is None:
                self._controller.stimulate(tree_stimuli.ClockRang(self._controller.now_ms()), "clock")

        self._set_timer("", instruction.at_ms, ring)


def make_closed_error(session: str, result: SessionResult[Any]) -> SessionTreeError:
    """Return the error for callers that still wait for an ended session."""
    return SessionClosed(session, f"it ended {result.status} before it answered: {result.summary}")
