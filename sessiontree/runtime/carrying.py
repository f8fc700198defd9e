"""Carrying out instructions: what sessions and the tree machine want done once their facts are durable.

One thing is begun before: a spawned child.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.errors import SessionClosed, SessionTreeError
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.contracts.results import SessionResult
from sessiontree.runtime.answering import refuse_answers, settle_answer
from sessiontree.runtime.frames import AskModel, MeterTurn, Proceed, Reask
from sessiontree.runtime.gateway import Asker
from sessiontree.runtime.memory_words import ended_of
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.runtime.seat import Seat
from sessiontree.session import instructions as session_todo
from sessiontree.tree import instructions as tree_todo
from sessiontree.tree import stimuli as tree_stimuli

if TYPE_CHECKING:
    from sessiontree.runtime.keeper import Surroundings, TreeKeeper


class Carrier:
    """Carries out one tree's instructions."""

    def __init__(self, keeper: TreeKeeper, around: Surroundings) -> None:
        """Bind the tree's keeper."""
        self._keeper = keeper
        self._around = around
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._for_session: dict[type[Any], Callable[[Seat, Any], None]] = {
            session_todo.AwaitCommit: self._await_commit,
            session_todo.AnswerCall: self._answer_call,
            session_todo.AnswerMessages: self._answer_messages,
            session_todo.SettleAnswer: settle_answer,
            session_todo.WakeAt: self._wake_session,
            AskModel: self._ask_model,
            session_todo.WithdrawQuestion: self._withdraw_question,
            MeterTurn: self._meter,
        }
        # Instructions not listed answer whoever gave the stimulus, or are read from the facts by the driver.
        self._for_tree: dict[type[Any], Callable[[Any], None]] = {
            tree_todo.Deliver: self._deliver,
            tree_todo.ReleaseSession: self._release,
            tree_todo.WakeAt: self._wake_tree,
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
        if self._keeper.failure is None:
            self._around.scheduler.want(self._keeper.seat_of(session))

    def for_session(self, seat: Seat, instruction: Any) -> None:
        """Carry out what a session wants."""
        self._for_session[type(instruction)](seat, instruction)

    def for_tree(self, instruction: tree_todo.TreeInstruction) -> None:
        """Carry out what the tree machine wants."""
        carry = self._for_tree.get(type(instruction))
        if carry is not None:
            carry(instruction)

    def _await_commit(self, seat: Seat, instruction: session_todo.AwaitCommit) -> None:
        if not seat.over:
            stimulus = stimuli.IntentsCommitted(self._keeper.now_ms(), instruction.keys)
            self._keeper.deliver(seat.session, stimulus, f"committed:{instruction.keys[0]}")

    def _ask_model(self, seat: Seat, question: AskModel) -> None:
        if seat.over:
            return
        now_ms, tree_id, session = self._keeper.now_ms, self._keeper.config.tree_id, seat.session

        def answered(message: AssistantMessage) -> None:
            if not seat.over:
                stimulus = stimuli.ModelAnswered(now_ms(), question.turn, message)
                self._keeper.deliver(session, stimulus, f"model:{question.turn}")

        def failed(reason: str, said: str) -> None:
            if not seat.over:
                stimulus = stimuli.ModelFailed(now_ms(), question.turn, reason, said)
                self._keeper.deliver(session, stimulus, f"model:{question.turn}")

        def reask() -> None:
            if seat.over:
                return
            if seat.link is not None:
                seat.link.send(Reask(session, seat.epoch, question.turn))
            else:
                seat.recovered = True  # its next host asks again what it owes
                self._around.scheduler.want(seat)

        kind = self._keeper.state.sessions[session].spec.kind
        emit = partial(self._around.hub.emit, tree_id, session)
        self._around.gateway.ask(question, Asker(tree_id, session, kind, answered, failed, reask, emit))

    def _withdraw_question(self, seat: Seat, instruction: session_todo.WithdrawQuestion) -> None:
        self._around.gateway.withdraw(self._keeper.config.tree_id, seat.session)

    def _meter(self, seat: Seat, instruction: MeterTurn) -> None:
        def proceed() -> None:
            # A stop that the charge led to is on its way by now, before this frame.
            if not seat.over and seat.link is not None:
                seat.link.send(Proceed(seat.session, seat.epoch, instruction.turn))

        self._keeper.afterwards(proceed)

    def _answer_call(self, seat: Seat, instruction: session_todo.AnswerCall) -> None:
        self._keeper.expected.get(seat.session, set()).discard(instruction.call_id)
        self._keeper.calls.settle(instruction.call_id, CallReply(instruction.outcome, instruction.message))

    def _answer_messages(self, seat: Seat, instruction: session_todo.AnswerMessages) -> None:
        reply = Reply(instruction.text, instruction.error, instruction.interrupted)
        for message_id in instruction.message_ids:
            self._keeper.expected.get(seat.session, set()).discard(message_id)
            self._keeper.replies.settle(message_id, reply)

    def _wake_session(self, seat: Seat, instruction: session_todo.WakeAt) -> None:
        session = seat.session

        def ring() -> None:
            del self._timers[session, instruction.at_ms]
            if not seat.over and self._keeper.failure is None:
                self._keeper.deliver(session, stimuli.Rang(self._keeper.now_ms()), "clock")

        self._set_timer(session, instruction.at_ms, ring)

    def _set_timer(self, name: str, at_ms: int, ring: Callable[[], None]) -> None:
        if (name, at_ms) not in self._timers:
            self._timers[name, at_ms] = self._around.clock.ring(at_ms, ring)

    def _deliver(self, instruction: tree_todo.Deliver) -> None:
        self._keeper.deliver(
            instruction.session,
            instruction.stimulus,
            f"post:{instruction.post_id}",
            instruction.post_id,
        )

    def _release(self, instruction: tree_todo.ReleaseSession) -> None:
        session = instruction.session
        seat = self._keeper.seats.pop(session, None)
        if seat is not None:
            seat.over = True
            self._around.scheduler.vacate(seat, force=instruction.force)
            refuse_answers(seat)
        self._around.gateway.forget(self._keeper.config.tree_id, session)
        if session == "main" and instruction.result.status is SessionStatus.COMPLETED:
            self._around.memory.ended(ended_of(self._keeper.config, self._keeper.now_ms()))
        self._keeper.results.settle(session, instruction.result)
        error = closed_error(session, instruction.result)
        for key in self._keeper.expected.pop(session, ()):
            self._keeper.replies.fail(key, error)
            self._keeper.calls.fail(key, error)

    def _wake_tree(self, instruction: tree_todo.WakeAt) -> None:
        def ring() -> None:
            del self._timers["", instruction.at_ms]
            if self._keeper.failure is None:
                self._keeper.stimulate(tree_stimuli.ClockRang(self._keeper.now_ms()), "clock")

        self._set_timer("", instruction.at_ms, ring)


def closed_error(session: str, result: SessionResult[Any]) -> SessionTreeError:
    """Return what somebody is told who still waits for an ended session."""
    return SessionClosed(session, f"it ended {result.status} before it answered: {result.summary}")
