"""What follows from decisions: events for the tree machine, intents of approved calls, messages, frames."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.approvals import Precedent
from sessiontree.contracts.client_call import ClientAnswer, ClientCall
from sessiontree.contracts.codec import pack
from sessiontree.contracts.errors import (
    ClientAnswerRefused,
    ClientCallClosed,
    SessionClosed,
    SessionTreeError,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import ApprovalAnswered, ClientAnswered
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from sessiontree.policy.commands.verdict import precedent_of
from sessiontree.runtime.clock import TreeClock
from sessiontree.runtime.frames import AskModel, MeterTurn, Proceed, Reask
from sessiontree.runtime.live_session import Controller, LiveSession
from sessiontree.runtime.memory_protocol import MemoryPort, ended_of
from sessiontree.runtime.model_gateway import Asker, Gateway
from sessiontree.runtime.progress import ProgressHub
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.runtime.scheduler import Scheduler
from sessiontree.sandbox.program_finder import program_finder
from sessiontree.session import instructions as session_todo
from sessiontree.session.instructions import SettleAnswer
from sessiontree.tree import instructions as tree_todo
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.instructions import Deliver, TreeInstruction
from sessiontree.tree.stimuli import TreeStimulus


def _offered(live: LiveSession, instruction: session_todo.OfferResult, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ResultOffered(
        at_ms, live.session, instruction.result, live.quiet and not instruction.stays
    )


def _asked(live: LiveSession, instruction: session_todo.AskApproval, at_ms: int) -> TreeStimulus:
    if instruction.intent is not None:
        live.asked[instruction.request_id] = instruction.intent
    return tree_stimuli.ApprovalAsked(
        at_ms,
        live.session,
        instruction.request_id,
        instruction.key,
        instruction.tool,
        instruction.arguments,
        instruction.digest,
        instruction.tier,
        _precedent(live, instruction),
        instruction.asked_by,
    )


def _precedent(live: LiveSession, instruction: session_todo.AskApproval) -> Precedent | None:
    config = live.controller.config
    member = next((row.command_in for row in config.tools if row.name == instruction.tool), "")
    if not member:
        return None
    return precedent_of(instruction.arguments, member, program_finder(os.path.realpath(config.workspace)))


def _delegated(live: LiveSession, instruction: session_todo.DelegateCall, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ClientCallDelegated(
        at_ms,
        live.session,
        instruction.client_id,
        instruction.tool,
        instruction.arguments,
        instruction.expires_at_ms,
    )


def _withdrawn(live: LiveSession, instruction: session_todo.WithdrawCall, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ClientCallWithdrawn(
        at_ms, live.session, instruction.client_id, instruction.how, instruction.answer_id
    )


def _returned(live: LiveSession, instruction: session_todo.ReturnAnswer, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ApproverReturned(
        at_ms, live.session, instruction.request_id, instruction.answer, instruction.reason
    )


def _troubled(live: LiveSession, instruction: session_todo.ReportTrouble, at_ms: int) -> TreeStimulus:
    return tree_stimuli.TroubleReported(
        at_ms,
        live.session,
        instruction.tool,
        instruction.attempts,
        instruction.field,
        instruction.message,
    )


def _tainted(live: LiveSession, instruction: session_todo.ReportTaint, at_ms: int) -> TreeStimulus:
    return tree_stimuli.TaintReported(at_ms, live.session, instruction.source)


TO_TREE: dict[type[Any], Callable[[LiveSession, Any, int], TreeStimulus]] = {
    session_todo.OfferResult: _offered,
    session_todo.AskApproval: _asked,
    session_todo.DelegateCall: _delegated,
    session_todo.WithdrawCall: _withdrawn,
    session_todo.ReturnAnswer: _returned,
    session_todo.ReportTrouble: _troubled,
    session_todo.ReportTaint: _tainted,
}
"""By type of instruction; others are carried out where the session is kept."""


def intended_with(
    instructions: Sequence[TreeInstruction], live_sessions: Mapping[str, LiveSession], cause: str
) -> tuple[list[TreeInstruction], list[tuple[LiveSession, Packed]]]:
    """Return the instructions, their answers saying what goes with them, and the intents that do."""
    told: list[TreeInstruction] = []
    intents: list[tuple[LiveSession, Packed]] = []
    for instruction in instructions:
        answer = instruction.stimulus if isinstance(instruction, Deliver) else None
        if isinstance(instruction, Deliver) and isinstance(answer, ApprovalAnswered):
            live = live_sessions.get(instruction.session)
            intent = None if live is None else live.asked.pop(answer.request_id, None)
            listens = live is not None and live.link is not None and not live.over
            if live is not None and listens and intent is not None and answer.decision == "approved":
                intents.append((live, Packed(cause, answer.at_ms, pack(intent))))
                answer = replace(answer, intended=True)
            told.append(replace(instruction, stimulus=answer))
        else:
            told.append(instruction)
    return told, intents


UNKNOWN = "unknown to this tree"
ANSWERED = "answered already"
CANCELLED = "cancelled"


def waiting_in(controller: Controller) -> list[ClientCall]:
    """Return the calls that wait for the program, in the order they were handed over."""
    return [
        ClientCall(client_id, call.session, call.tool, call.arguments, call.expires_at_ms)
        for client_id, call in controller.state.client_calls.items()
    ]


async def answer(
    controller: Controller, client_id: str, given: ClientAnswer, answer_id: str, at_ms: int, *, again: bool
) -> None:
    """Bring an answer to the session that waits for it; it is durable when this returns.

    Args:
        controller: The tree's.
        client_id: The call.
        given: The answer.
        answer_id: Names the answer.
        at_ms: Now.
        again: Whether this answer may have been taken before, by a supervisor that was lost.

    Raises:
        ClientCallClosed: the call waits for no answer, or for none of this tree.
        ClientAnswerRefused: it can't be the call's result; the call still waits.
    """
    controller.check_open()
    call = controller.state.client_calls.get(client_id)
    if call is None:
        await controller.caught_up()
        ended = controller.state.client_ends.get(client_id)
        if ended is None or not (again and ended.answer_id == answer_id):
            raise ClientCallClosed(client_id, UNKNOWN if ended is None else ended.how)
        return
    stimulus = ClientAnswered(at_ms, client_id, answer_id, given)
    told = controller.settling.wait(answer_id)
    controller.live_session_of(call.session).answers[answer_id] = stimulus
    controller.deliver(call.session, stimulus, f"answer:{client_id}")
    await told


def settle_answer(live: LiveSession, settled: SettleAnswer) -> None:
    """Tell who answered what became of it."""
    answered = live.answers.pop(settled.answer_id, None)
    if answered is None:
        return
    name, answers = answered.client_id, live.controller.settling
    if settled.taken:
        answers.settle(settled.answer_id, None)
    elif settled.refusal:
        answers.fail(settled.answer_id, ClientAnswerRefused(name, settled.refusal, settled.field))
    else:
        ended = live.controller.state.client_ends.get(name)
        answers.fail(settled.answer_id, ClientCallClosed(name, ANSWERED if ended is None else ended.how))


def refuse_answers(live: LiveSession) -> None:
    """Tell everybody who answered a session that has ended."""
    for answer_id, answered in live.answers.items():
        live.controller.settling.fail(answer_id, ClientCallClosed(answered.client_id, CANCELLED))
    live.answers.clear()


@dataclass(frozen=True, slots=True)
class ControllerDeps:
    """What the controllers of one supervisor share, and the tree's agents and model."""

    journal: Journal
    scheduler: Scheduler
    gateway: Gateway
    memory: MemoryPort
    hub: ProgressHub
    clock: TreeClock
    agents: dict[str, AgentConfig]


class EffectRunner:
    """Carries out one tree's instructions."""

    def __init__(self, controller: Controller, around: ControllerDeps) -> None:
        self._controller = controller
        self._around = around
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._for_session: dict[type[Any], Callable[[LiveSession, Any], None]] = {
            session_todo.AwaitCommit: self._await_commit,
            session_todo.AnswerCall: self._answer_call,
            session_todo.AnswerMessages: self._answer_messages,
            session_todo.SettleAnswer: settle_answer,
            session_todo.WakeSessionAt: self._wake_session,
            AskModel: self._ask_model,
            session_todo.WithdrawQuestion: self._withdraw_question,
            MeterTurn: self._meter,
        }
        # Instructions not listed answer whoever gave the stimulus, or are read from the facts by the driver.
        self._for_tree: dict[type[Any], Callable[[Any], None]] = {
            tree_todo.Deliver: self._deliver,
            tree_todo.ReleaseSession: self._release,
            tree_todo.WakeTreeAt: self._wake_tree,
        }

    def close(self) -> None:
        """Stop all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def begin_children(self, instructions: Sequence[tree_todo.TreeInstruction]) -> None:
        """Embody spawned children while their spawn becomes durable, for a host is far.

        Until then a child does what any session may: what leaves no trace. Its facts are committed behind its
        spawn's, and what follows from them waits for both.
        """
        for each in instructions:
            if type(each) is tree_todo.AcceptSpawn and each.started and each.session != "main":
                self._begin(each.session)

    def _begin(self, session: str) -> None:
        if self._controller.failure is None:
            self._around.scheduler.want(self._controller.live_session_of(session))

    def for_session(self, live: LiveSession, instruction: Any) -> None:
        """Carry out what a session wants."""
        self._for_session[type(instruction)](live, instruction)

    def for_tree(self, instruction: tree_todo.TreeInstruction) -> None:
        """Carry out what the tree machine wants."""
        carry = self._for_tree.get(type(instruction))
        if carry is not None:
            carry(instruction)

    def _await_commit(self, live: LiveSession, instruction: session_todo.AwaitCommit) -> None:
        if not live.over:
            stimulus = stimuli.IntentsCommitted(self._controller.now_ms(), instruction.keys)
            self._controller.deliver(live.session, stimulus, f"committed:{instruction.keys[0]}")

    def _ask_model(self, live: LiveSession, question: AskModel) -> None:
        if live.over:
            return
        now_ms, tree_id, session = self._controller.now_ms, self._controller.config.tree_id, live.session

        def answered(message: AssistantMessage) -> None:
            if not live.over:
                stimulus = stimuli.ModelAnswered(now_ms(), question.turn, message)
                self._controller.deliver(session, stimulus, f"model:{question.turn}")

        def failed(reason: str, said: str) -> None:
            if not live.over:
                stimulus = stimuli.ModelFailed(now_ms(), question.turn, reason, said)
                self._controller.deliver(session, stimulus, f"model:{question.turn}")

        def reask() -> None:
            if live.over:
                return
            if live.link is not None:
                live.link.send(Reask(session, live.epoch, question.turn))
            else:
                live.recovered = True  # its next host asks again what it owes
                self._around.scheduler.want(live)

        kind = self._controller.state.sessions[session].spec.kind
        emit = partial(self._around.hub.emit, tree_id, session)
        self._around.gateway.ask(question, Asker(tree_id, session, kind, answered, failed, reask, emit))

    def _withdraw_question(self, live: LiveSession, instruction: session_todo.WithdrawQuestion) -> None:
        self._around.gateway.withdraw(self._controller.config.tree_id, live.session)

    def _meter(self, live: LiveSession, instruction: MeterTurn) -> None:
        def proceed() -> None:
            # A stop that the charge led to is on its way by now, before this frame.
            if not live.over and live.link is not None:
                live.link.send(Proceed(live.session, live.epoch, instruction.turn))

        self._controller.afterwards(proceed)

    def _answer_call(self, live: LiveSession, instruction: session_todo.AnswerCall) -> None:
        self._controller.expected.get(live.session, set()).discard(instruction.call_id)
        self._controller.calls.settle(
            instruction.call_id, CallReply(instruction.outcome, instruction.message)
        )

    def _answer_messages(self, live: LiveSession, instruction: session_todo.AnswerMessages) -> None:
        reply = Reply(instruction.text, instruction.error, instruction.interrupted)
        for message_id in instruction.message_ids:
            self._controller.expected.get(live.session, set()).discard(message_id)
            self._controller.replies.settle(message_id, reply)

    def _wake_session(self, live: LiveSession, instruction: session_todo.WakeSessionAt) -> None:
        session = live.session

        def ring() -> None:
            del self._timers[session, instruction.at_ms]
            if not live.over and self._controller.failure is None:
                self._controller.deliver(session, stimuli.Rang(self._controller.now_ms()), "clock")

        self._set_timer(session, instruction.at_ms, ring)

    def _set_timer(self, name: str, at_ms: int, ring: Callable[[], None]) -> None:
        if (name, at_ms) not in self._timers:
            self._timers[name, at_ms] = self._around.clock.ring(at_ms, ring)

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
            self._around.scheduler.vacate(live, force=instruction.force)
            refuse_answers(live)
        self._around.gateway.forget(self._controller.config.tree_id, session)
        if session == "main" and instruction.result.status is SessionStatus.COMPLETED:
            self._around.memory.ended(ended_of(self._controller.config, self._controller.now_ms()))
        self._controller.results.settle(session, instruction.result)
        error = closed_error(session, instruction.result)
        for key in self._controller.expected.pop(session, ()):
            self._controller.replies.fail(key, error)
            self._controller.calls.fail(key, error)

    def _wake_tree(self, instruction: tree_todo.WakeTreeAt) -> None:
        def ring() -> None:
            del self._timers["", instruction.at_ms]
            if self._controller.failure is None:
                self._controller.stimulate(tree_stimuli.ClockRang(self._controller.now_ms()), "clock")

        self._set_timer("", instruction.at_ms, ring)


def closed_error(session: str, result: SessionResult[Any]) -> SessionTreeError:
    """Return what somebody is told who still waits for an ended session."""
    return SessionClosed(session, f"it ended {result.status} before it answered: {result.summary}")
