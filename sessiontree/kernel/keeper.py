"""The keeper of one tree: its machine and seats, and the rule that facts are durable before anything follows.

Every change takes one way: stimuli are decided, their facts are appended in one commit together with the
session facts that caused them, and the instructions are carried out once that commit is durable, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.codec import pack
from sessiontree.contracts.errors import SessionClosed, SessionTreeError
from sessiontree.contracts.messages import AssistantMessage, ToolResultMessage
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.contracts.tree_facts import (
    Posted,
    PostsTaken,
    ResultHeld,
    SessionStirred,
    UsageCharged,
)
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from sessiontree.kernel.clock import KernelClock
from sessiontree.kernel.frames import Adopt, AskModel, Outcome, Reask
from sessiontree.kernel.gateway import Asker, GatewayCore
from sessiontree.kernel.order import InOrder
from sessiontree.kernel.progress import ProgressHub
from sessiontree.kernel.scheduler import Scheduler
from sessiontree.kernel.seat import Input, Seat
from sessiontree.kernel.waiters import Waiters
from sessiontree.models.port import WaitingModel
from sessiontree.session import instructions as session_todo
from sessiontree.tree import instructions as tree_todo
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.decide import react
from sessiontree.tree.instructions import TreeInstruction
from sessiontree.tree.state import TreeState
from sessiontree.tree.stimuli import TreeStimulus


_ROUTINE = frozenset({UsageCharged, PostsTaken, SessionStirred, ResultHeld, Posted})
"""Facts of a tree that nobody needs to be woken for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The last word for a message, or why there is none."""

    text: str
    error: str | None


@dataclass(frozen=True, slots=True)
class CallReply:
    """The result of a call asked from outside."""

    outcome: str
    message: ToolResultMessage


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a keeper shares with the other keepers of its supervisor, and its tree's agents and model."""

    journal: Journal
    scheduler: Scheduler
    gateway: GatewayCore
    hub: ProgressHub
    clock: KernelClock
    waiting_model: WaitingModel | None
    agents: dict[str, AgentConfig]


class TreeKeeper:
    """Keeps one tree."""

    def __init__(self, config: TreeConfig, state: TreeState, around: Surroundings) -> None:
        """Take charge of a tree's state."""
        self.config = config
        self.state = state
        self.seats: dict[str, Seat] = {}
        self.replies: Waiters[Reply] = Waiters()
        self.calls: Waiters[CallReply] = Waiters()
        self.results: Waiters[SessionResult[Any]] = Waiters()
        self.failure: Exception | None = None
        self.news = asyncio.Event()
        """Set whenever facts became durable; who waits clears it first."""
        self.tidings = asyncio.Event()
        """Set when durable facts of the tree itself say more than what was used or taken."""
        self._settling: Waiters[None] = Waiters()
        self._settled = 0
        self._around = around
        self._order = InOrder(self._fail)
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._expected: dict[str, set[str]] = {}
        self._local: dict[type[Any], Callable[[Seat, Any], None]] = {
            session_todo.AwaitCommit: self._await_commit,
            session_todo.AnswerCall: self._answer_call,
            session_todo.AnswerMessages: self._answer_messages,
            session_todo.WakeAt: self._wake_session,
            AskModel: self._ask_model,
        }
        # Instructions not listed answer whoever gave the stimulus, or are read from the facts by the driver.
        self._tree: dict[type[Any], Callable[[Any], None]] = {
            tree_todo.AcceptSpawn: self._accept_spawn,
            tree_todo.Deliver: self._deliver,
            tree_todo.ReleaseSession: self._release,
            tree_todo.WakeAt: self._wake_tree,
        }

    def close(self) -> None:
        """Stop all timers and tell everybody who waits that the tree is closed here."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._fail(SessionClosed("main", "the tree was closed in this process; resume it to go on"))

    # Changing the tree.

    def stimulate(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus; its instructions are carried out after the commit."""
        return self._commit(None, (), (stimulus,), cause, ())

    async def settle(self, stimulus: TreeStimulus, cause: str) -> list[TreeInstruction]:
        """Decide on a stimulus and return its instructions once they are durable and carried out.

        Raises:
            SessionTreeError: the facts could not be made durable, or the tree was closed.
        """
        self.check_open()
        instructions = self.stimulate(stimulus, cause)
        self._settled += 1
        key = str(self._settled)
        done = self._settling.wait(key)
        self._order.after(None, partial(self._settling.settle, key, None))
        await done
        return instructions

    def check_open(self) -> None:
        """Raise what ended the tree in this process, if anything did."""
        if self.failure is not None:
            raise self.failure

    def _commit(
        self,
        seat: Seat | None,
        session_facts: Sequence[Packed],
        given: Sequence[TreeStimulus],
        cause: str,
        local: Sequence[Any],
    ) -> list[TreeInstruction]:
        """Append session facts and what the tree machine makes of them as one commit."""
        tree_facts: list[Packed] = []
        tell = False
        instructions: list[TreeInstruction] = []
        for stimulus in given:
            new_facts, new_instructions = react(self.state, stimulus)
            for fact in new_facts:
                tree_facts.append(Packed(cause, stimulus.at_ms, pack(fact)))
                tell = tell or type(fact) not in _ROUTINE
            instructions.extend(new_instructions)
        commit = None
        chunks: list[tuple[str, Sequence[Packed]]] = []
        if seat is not None and session_facts:
            chunks.append((seat.session, session_facts))
        if tree_facts:
            chunks.append(("", tree_facts))
        if chunks:
            _, commit = self._around.journal.append(self.config.tree_id, chunks)
            if seat is not None and session_facts:
                seat.commits += 1
                seat.journaled = True
        counted = seat if seat is not None and session_facts else None
        self._order.after(commit, partial(self._carry_out, counted, instructions, seat, local, tell))
        return instructions

    def _carry_out(
        self,
        counted: Seat | None,
        instructions: Sequence[TreeInstruction],
        seat: Seat | None,
        local: Sequence[Any],
        tell: bool,
    ) -> None:
        if counted is not None:
            counted.commits -= 1
        self.news.set()
        if tell:
            self.tidings.set()
        if seat is not None:
            for each in local:
                self._local[type(each)](seat, each)
        for instruction in instructions:
            carry = self._tree.get(type(instruction))
            if carry is not None:
                carry(instruction)
        if counted is not None and not counted.over:
            if counted.waiting and counted.link is None:
                self._around.scheduler.want(counted)
            self._around.scheduler.settle(counted)

    def _fail(self, error: Exception) -> None:
        """The journal takes no more, or the tree is closed: nothing goes on, everybody is told."""
        if self.failure is None:
            self.failure = error
        for seat in list(self.seats.values()):
            seat.over = True
            self._around.scheduler.vacate(seat, force=True)
            self._around.gateway.forget(self.config.tree_id, seat.session)
        self.seats.clear()
        for waiters in (self.replies, self.calls, self.results, self._settling):
            waiters.fail_all(self.failure)
        self.news.set()
        self.tidings.set()

    # What hosts report.

    def on_outcome(self, seat: Seat, outcome: Outcome) -> None:
        """Take in what became of a session's step."""
        at_ms = self._around.clock.now_ms()
        before = seat.taken
        posts = self._note_taken(seat, outcome.taken)
        seat.idle = outcome.idle and not seat.sent
        given: list[TreeStimulus] = []
        offers = any(type(each) is session_todo.OfferResult for each in outcome.instructions)
        if seat.taken - before > len(posts) and not offers:
            given.append(tree_stimuli.Stirred(at_ms, seat.session))
        if posts:
            given.append(tree_stimuli.PostsConsumed(at_ms, seat.session, posts))
        if outcome.usage is not None:
            given.append(tree_stimuli.UsageReported(at_ms, seat.session, outcome.usage))
        local: list[Any] = []
        for instruction in outcome.instructions:
            translate = _TO_TREE.get(type(instruction))
            if translate is None:
                local.append(instruction)
            else:
                given.append(translate(seat, instruction, at_ms))
        if outcome.crash is not None:
            given.append(tree_stimuli.SessionLost(at_ms, seat.session, outcome.crash))
        cause = outcome.facts[0].cause if outcome.facts else "outcome"
        if outcome.facts or given or local:
            self._commit(seat, outcome.facts, given, cause, local)
        if not seat.over:
            if seat.waiting:
                self._around.scheduler.want(seat)
            self._around.scheduler.settle(seat)

    def _note_taken(self, seat: Seat, taken: int) -> tuple[str, ...]:
        posts = []
        while seat.taken < taken and seat.sent:
            seat.taken += 1
            post_id = seat.sent.popleft().post_id
            if post_id is not None:
                posts.append(post_id)
        return tuple(posts)

    def model_of(self, agent: str) -> str:
        """Return the name of an agent's model."""
        return self._around.agents[agent].model or self.config.model

    def adoption(self, seat: Seat) -> Adopt:
        """Return the frame that makes a host embody a session."""
        spec = self.state.sessions[seat.session].spec
        texts: tuple[str, ...] = ()
        if seat.journaled:
            records = self._around.journal.read_session(self.config.tree_id, seat.session)
            texts = tuple(record.text for record in records)
        agent = self._around.agents[spec.agent]
        return Adopt(
            self.config.tree_id,
            seat.session,
            seat.epoch,
            spec,
            self.config.limits,
            agent,
            self.config.workspace,
            self.model_of(spec.agent),
            texts,
            seat.recovered,
        )

    # What goes to sessions.

    def seat_of(self, session: str) -> Seat:
        """Return a live session's seat, taking one where it has none yet."""
        seat = self.seats.get(session)
        if seat is None:
            seat = self.seats[session] = Seat(self, session)
        return seat

    def deliver(self, session: str, stimulus: Stimulus, cause: str, post_id: str | None = None) -> None:
        """Bring a stimulus to a live session."""
        seat = self.seat_of(session)
        seat.waiting.append(Input(cause, stimulus, post_id))
        self._around.scheduler.want(seat)

    def say(self, session: str, incoming: stimuli.Incoming) -> asyncio.Future[Reply]:
        """Bring a message to a session; the future gets the last word for it."""
        future = self.replies.wait(incoming.message_id)
        self._expected.setdefault(session, set()).add(incoming.message_id)
        self._stir(session, incoming.at_ms, f"message:{incoming.message_id}")
        self.deliver(session, incoming, f"message:{incoming.message_id}")
        return future

    def call(self, session: str, asked: stimuli.CallAsked) -> asyncio.Future[CallReply]:
        """Have a session make one call outside its transcript."""
        future = self.calls.wait(asked.call_id)
        self._expected.setdefault(session, set()).add(asked.call_id)
        self._stir(session, asked.at_ms, f"call:{asked.call_id}")
        self.deliver(session, asked, f"call:{asked.call_id}")
        return future

    def _stir(self, session: str, at_ms: int, cause: str) -> None:
        """Withdraw a last word that could end the session before it hears; Main's cannot, and waits its turn."""
        if session != "main" and self.state.sessions[session].held is not None:
            self.stimulate(tree_stimuli.Stirred(at_ms, session), cause)

    # Carrying out what sessions want.

    def _await_commit(self, seat: Seat, instruction: session_todo.AwaitCommit) -> None:
        if not seat.over:
            stimulus = stimuli.IntentsCommitted(self._around.clock.now_ms(), instruction.keys)
            self.deliver(seat.session, stimulus, f"committed:{instruction.keys[0]}")

    def _ask_model(self, seat: Seat, question: AskModel) -> None:
        if seat.over:
            return
        model = self._around.waiting_model
        now_ms, tree_id, session = self._around.clock.now_ms, self.config.tree_id, seat.session

        def answered(message: AssistantMessage) -> None:
            if not seat.over:
                stimulus = stimuli.ModelAnswered(now_ms(), question.turn, message)
                self.deliver(session, stimulus, f"model:{question.turn}")

        def failed(reason: str) -> None:
            if not seat.over:
                stimulus = stimuli.ModelFailed(now_ms(), question.turn, reason)
                self.deliver(session, stimulus, f"model:{question.turn}")

        def reask() -> None:
            if seat.link is not None:
                seat.link.send(Reask(session, seat.epoch, question.turn))

        if model is None:
            failed("the tree has no model that waits; give one with model=…")
            return
        kind = self.state.sessions[session].spec.kind
        emit = partial(self._around.hub.emit, tree_id, session)
        self._around.gateway.ask(
            model, question, Asker(tree_id, session, kind, answered, failed, reask, emit)
        )

    def _answer_call(self, seat: Seat, instruction: session_todo.AnswerCall) -> None:
        self._expected.get(seat.session, set()).discard(instruction.call_id)
        self.calls.settle(instruction.call_id, CallReply(instruction.outcome, instruction.message))

    def _answer_messages(self, seat: Seat, instruction: session_todo.AnswerMessages) -> None:
        for message_id in instruction.message_ids:
            self._expected.get(seat.session, set()).discard(message_id)
            self.replies.settle(message_id, Reply(instruction.text, instruction.error))

    def _wake_session(self, seat: Seat, instruction: session_todo.WakeAt) -> None:
        session = seat.session

        def ring() -> None:
            del self._timers[session, instruction.at_ms]
            if not seat.over and self.failure is None:
                self.deliver(session, stimuli.Rang(self._around.clock.now_ms()), "clock")

        self._set_timer(session, instruction.at_ms, ring)

    def _set_timer(self, name: str, at_ms: int, ring: Callable[[], None]) -> None:
        if (name, at_ms) not in self._timers:
            self._timers[name, at_ms] = self._around.clock.ring(at_ms, ring)

    # Carrying out what the tree machine wants.

    def carry(self, instructions: Sequence[TreeInstruction]) -> None:
        """Carry out instructions whose facts are durable already, as after recovery."""
        self._carry_out(None, instructions, None, (), True)

    def _accept_spawn(self, instruction: tree_todo.AcceptSpawn) -> None:
        if instruction.started and instruction.session != "main":
            self._around.scheduler.want(self.seat_of(instruction.session))

    def _deliver(self, instruction: tree_todo.Deliver) -> None:
        self.deliver(
            instruction.session,
            instruction.stimulus,
            f"post:{instruction.post_id}",
            instruction.post_id,
        )

    def _release(self, instruction: tree_todo.ReleaseSession) -> None:
        session = instruction.session
        seat = self.seats.pop(session, None)
        if seat is not None:
            seat.over = True
            self._around.scheduler.vacate(seat, force=instruction.force)
        self._around.gateway.forget(self.config.tree_id, session)
        self.results.settle(session, instruction.result)
        error = closed_error(session, instruction.result)
        for key in self._expected.pop(session, ()):
            self.replies.fail(key, error)
            self.calls.fail(key, error)

    def _wake_tree(self, instruction: tree_todo.WakeAt) -> None:
        def ring() -> None:
            del self._timers["", instruction.at_ms]
            if self.failure is None:
                self.stimulate(tree_stimuli.ClockRang(self._around.clock.now_ms()), "clock")

        self._set_timer("", instruction.at_ms, ring)


def closed_error(session: str, result: SessionResult[Any]) -> SessionTreeError:
    """Return what somebody is told who still waits for an ended session."""
    return SessionClosed(session, f"it ended {result.status} before it answered: {result.summary}")


def _offered(seat: Seat, instruction: session_todo.OfferResult, at_ms: int) -> TreeStimulus:
    quiet = not seat.waiting and not seat.sent
    return tree_stimuli.ResultOffered(at_ms, seat.session, instruction.result, quiet)


def _asked(keeper: TreeKeeper, seat: Seat, instruction: session_todo.AskApproval, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ApprovalAsked(
        at_ms,
        seat.session,
        instruction.request_id,
        instruction.key,
        instruction.tool,
        instruction.arguments,
        instruction.digest,
        instruction.tier,
    )


def _returned(seat: Seat, instruction: session_todo.ReturnAnswer, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ApproverReturned(
        at_ms, seat.session, instruction.request_id, instruction.answer, instruction.reason
    )


def _troubled(seat: Seat, instruction: session_todo.ReportTrouble, at_ms: int) -> TreeStimulus:
    return tree_stimuli.TroubleReported(
        at_ms,
        seat.session,
        instruction.tool,
        instruction.attempts,
        instruction.field,
        instruction.message,
    )


_TO_TREE: dict[type[Any], Callable[[Seat, Any, int], TreeStimulus]] = {
    session_todo.OfferResult: _offered,
    session_todo.AskApproval: _asked,
    session_todo.ReturnAnswer: _returned,
    session_todo.ReportTrouble: _troubled,
}
