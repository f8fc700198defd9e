"""What is done with one session, and what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallResolved, RunFinished
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Sender, resolve_asker
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.journal.record import read_kind
from sessiontree.journal.replay import read_fact, read_facts
from sessiontree.runtime.scheduling.live_session import build_session_report
from sessiontree.runtime.supervisor.answers.fact_answers import read_durable
from sessiontree.runtime.supervisor.answers.interruption import Interruption
from sessiontree.runtime.supervisor.controller.tree_controller import TreeController
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.result_push import ResultListener
from sessiontree.runtime.transport.supervisor_api import (
    MAX_READ,
    MAX_READ_WAIT_S,
    CallReply,
    Reply,
    SessionApi,
    SessionRecord,
)
from sessiontree.tree.report import ReceiptLine, build_receipt
from sessiontree.tree.state import protocol as tree_stimuli


class SessionAnswers(SessionApi):
    """Answers questions about sessions. Nothing is retried."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def send(  # noqa: PLR0913 - as the interface says
        self,
        tree_id: str,
        session: str,
        text: str,
        mode: SendMode,
        message_id: str,
        sender: Sender | None = None,
        settings: ModelSettings | None = None,
        images: tuple[ImageContent, ...] = (),
        again: bool = False,
    ) -> Reply:
        """Send a message to a session; returns the session's reply to it.

        Whether the sender owns the tree is looked up here; None = the creating program speaks itself.
        ``again`` says that this message may have been heard, and answered, before the supervisor was lost.
        """
        if again:  # Race: the supervisor that was lost may have answered, and its answer may be lost with it
            reply = reply_in(self._read_texts(tree_id, session), message_id)
            if reply is not None:
                return reply
        self._supervisor.check_session(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        asked_by = () if sender is None else (resolve_asker(sender, controller.config.owners),)
        incoming = stimuli.Incoming(
            controller.now_ms(), message_id, text, mode, "user", asked_by, settings=settings, images=images
        )
        return await controller.say(session, incoming)

    async def call(
        self,
        tree_id: str,
        session: str,
        call_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        again: bool = False,
    ) -> CallReply:
        """Have a session make one call outside its transcript; ``again`` as in :meth:`send`."""
        if again:
            reply = call_in(self._read_texts(tree_id, session), call_id)
            if reply is not None:
                return reply
        self._supervisor.check_session(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        return await controller.call(
            session, stimuli.CallAsked(controller.now_ms(), call_id, tool, arguments)
        )

    async def spawn(self, tree_id: str, asked: tree_stimuli.SpawnAsked) -> str:
        """Spawn a session; returns its id once it is durable."""
        self._supervisor.check_session(tree_id, asked.parent)
        return await self._supervisor.spawn_child(tree_id, asked, f"handle:{asked.parent}")

    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end."""
        controller = self._supervisor.tree(tree_id)
        node = controller.state.sessions.get(session)
        if node is not None and node.result is not None:
            await controller.wait_until_durable()
            return node.result
        self._supervisor.check_session(tree_id, session)
        return await self._end_of(controller, session)

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future, for callers in this process; errors as :meth:`result`."""
        controller = self._supervisor.trees.get(tree_id)
        if controller is None or not _is_live(controller, session):
            return asyncio.ensure_future(self.result(tree_id, session))
        return self._end_of(controller, session)

    def listen(self, tree_id: str, session: str, listener: ResultListener) -> bool:
        """Call a listener when a session has ended; False = the session does not live, nothing is called."""
        controller = self._supervisor.trees.get(tree_id)
        if controller is None or not _is_live(controller, session):
            return False
        controller.waiters.results.listen(session, listener)
        self._note_awaited(controller, session)
        return True

    def drop_listener(self, tree_id: str, session: str | None, listener: ResultListener) -> None:
        """Call a listener no more for a session, or for any session of a tree."""
        controller = self._supervisor.trees.get(tree_id)
        if controller is not None:
            controller.waiters.results.drop_listener(session, listener)

    def _end_of(self, controller: TreeController, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return the result of a session that lives, as a future."""
        ended = controller.waiters.results.wait(session)
        self._note_awaited(controller, session)
        return ended

    def _note_awaited(self, controller: TreeController, session: str) -> None:
        """Note that a session's result is awaited: one that stays open until then may end now."""
        node = controller.state.sessions[session]
        if node.spec.stays_open and not node.is_awaited:
            asked = tree_stimuli.ResultAsked(self._supervisor.clock.now_ms(), session)
            controller.stimulate(asked, f"result:{session}")

    async def stop(
        self, tree_id: str, session: str, reason: str, status: SessionStatus = SessionStatus.CANCELLED
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        controller = self._supervisor.tree(tree_id)
        node = controller.state.sessions.get(session)
        if node is None:
            self._supervisor.check_session(tree_id, session)
        elif node.status.is_final:
            await controller.wait_until_durable()
        else:
            # Race: the session may have ended when the stop is durable; so its end is awaited from before.
            ended = controller.waiters.results.wait(session)
            asked = tree_stimuli.StopAsked(controller.now_ms(), session, reason, status)
            await controller.settle(asked, f"stop:{session}")
            await ended
        await controller.departures.wait(session)
        return build_receipt(controller.state, session)

    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it stop what they do; returns the state of each afterwards.

        Returns once whatever ran there has stopped, or was left behind. The session lives on.
        """
        self._supervisor.check_session(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        # Race: the sessions may have stopped when the interruption is durable; so reading begins before it.
        before = self._supervisor.journal.last_seq(tree_id)
        asked = tree_stimuli.InterruptAsked(self._supervisor.clock.now_ms(), session, reason)
        await controller.settle(asked, f"interrupt:{session}")
        await self._wait_until_at_rest(tree_id, session, before)
        return build_receipt(controller.state, session)

    async def _wait_until_at_rest(self, tree_id: str, head: str, after: int) -> None:
        """Wait until the sessions that an interruption after this fact concerns have stopped their work."""
        busy = Interruption(head)
        while True:
            records = await read_durable(self._supervisor, tree_id, after, MAX_READ, MAX_READ_WAIT_S)
            for record in records:
                busy.take(record)
                after = record.seq
            if busy.is_over and len(records) < MAX_READ:
                return

    async def record_of(
        self, tree_id: str, session: str, after_seq: int = 0, max_n: int = 0
    ) -> SessionRecord:
        """Return a session's durable facts after a number, at most so many; 0 = all of them.

        Raises:
            SessionNotFound: the session does not exist.
        """
        state = self._supervisor.tree(tree_id).state
        node = state.sessions.get(session)
        if node is None:
            self._supervisor.check_session(tree_id, session)
        journal = self._supervisor.journal
        records = journal.read_session(tree_id, session, after_seq=after_seq, max_n=max_n or None)
        next_seq = records[-1].seq if max_n and len(records) == max_n else 0
        texts = tuple(record.text for record in records)
        return SessionRecord(state.sessions[session].spec, state.limits, texts, next_seq)

    def _read_texts(self, tree_id: str, session: str) -> tuple[str, ...]:
        return tuple(record.text for record in self._supervisor.journal.read_session(tree_id, session))

    async def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's state.

        Raises:
            SessionNotFound: the session does not exist.
        """
        controller = self._supervisor.tree(tree_id)
        if controller.state.sessions.get(session) is None:
            self._supervisor.check_session(tree_id, session)
        return build_session_report(controller, session)

    async def room(self, tree_id: str, session: str) -> int:
        """Return how many more children a session may have now."""
        state = self._supervisor.tree(tree_id).state
        node = state.sessions.get(session)
        return state.limits.max_children - (0 if node is None else node.live_children)


def _is_live(controller: TreeController, session: str) -> bool:
    """Whether a session of a tree that can go on has not ended."""
    return controller.failure is None and controller.state.find_live_session(session) is not None


def reply_in(facts: Iterable[str], message_id: str) -> Reply | None:
    """Return the final message that answers a message; None = none does so far."""
    for text in facts:
        if read_kind(text) in {"run_finished", "turn_replied"} and message_id in text:
            fact = read_facts(text)[-1]
            if isinstance(fact, RunFinished) and message_id in fact.answers:
                return Reply(fact.text, fact.error, fact.interrupted, fact.failure)
    return None


def call_in(facts: Iterable[str], call_id: str) -> CallReply | None:
    """Return how a call outside the transcript ended; None = it has not ended."""
    for text in facts:
        if read_kind(text) == "call_resolved" and call_id in text:
            fact = read_fact(text)
            if isinstance(fact, CallResolved) and fact.key == f"call.{call_id}":
                return CallReply(fact.outcome, fact.message)
    return None
