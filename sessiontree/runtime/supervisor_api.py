"""What the creating program may ask of a supervisor, whichever process each of them runs in.

Every argument and every answer is a plain value, so that each method can be called from afar as it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.client_call import ClientAnswer, ClientCall
from sessiontree.contracts.codec import from_wire
from sessiontree.contracts.errors import ApprovalClosed, ConfigError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Sender, asker_of
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.stimuli import SendMode
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.contracts.tree_facts import (
    CancelBegun,
    InterruptBegun,
    Posted,
    PostsTaken,
    ResultHeld,
    SessionEnded,
    SessionStirred,
)
from sessiontree.journal.record import Record, kind_in
from sessiontree.runtime.effects import answer as bring_answer
from sessiontree.runtime.effects import waiting_in
from sessiontree.runtime.inbox_events import InboxEvent, inbox_events_in
from sessiontree.runtime.replay import fact_of
from sessiontree.runtime.replies import CallReply, Reply, call_in, reply_in
from sessiontree.runtime.session_reports import ActorRow, report_of
from sessiontree.runtime.supervisor import SupervisorCore
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.receipt import ReceiptLine, receipt, request_of

READ_AT_ONCE = 512
LONGEST_READ_S = 20.0


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session's own durable facts, and what they are read with."""

    spec: SessionSpec
    limits: Limits
    facts: tuple[str, ...]
    """JSON texts, oldest first."""
    next_seq: int = 0
    """The number to read on after; 0 = these are the last."""


class Owner:
    """The creating program's side of one supervisor. Errors are the tree's typed ones; none is retried."""

    def __init__(
        self, supervisor: SupervisorCore, security: Callable[[], Mapping[str, JsonValue]] | None = None
    ) -> None:
        """Bind the supervisor, and what looks up how its engine is protected; None where it has none."""
        self._supervisor = supervisor
        self._security = security

    async def create(self, config: TreeConfig, agents: Mapping[str, AgentConfig]) -> None:
        """Create a tree; durable when this returns."""
        await self._supervisor.create(config, agents)

    async def resume(self, tree_id: str, agents: Mapping[str, AgentConfig]) -> None:
        """Take up a tree from the journal.

        Raises:
            ConfigError: it is open.
            JournalError: it can't be read.
        """
        if self.is_open(tree_id):
            raise ConfigError(f"tree {tree_id} is open in this runtime; close it before you resume it")
        await self._supervisor.resume(tree_id, agents)

    async def config_of(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration.

        Raises:
            TreeNotFound: the journal has none of that id.
        """
        config: TreeConfig = from_wire(dict(self._supervisor.journal.row0(tree_id)))
        return config

    async def send(
        self,
        tree_id: str,
        session: str,
        text: str,
        mode: SendMode,
        message_id: str,
        sender: Sender | None = None,
        again: bool = False,
    ) -> Reply:
        """Say something to a session; returns its last word for it.

        Whether the sender owns the tree is looked up here; None = the creating program speaks itself.
        ``again`` says that this message may have been heard, and answered, before the supervisor was lost.
        """
        if again:
            reply = reply_in(self._texts(tree_id, session), message_id)
            if reply is not None:
                return reply
        self._supervisor.session_exists(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        asked_by = () if sender is None else (asker_of(sender, controller.config.owners),)
        incoming = stimuli.Incoming(controller.now_ms(), message_id, text, mode, "user", asked_by)
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
            reply = call_in(self._texts(tree_id, session), call_id)
            if reply is not None:
                return reply
        self._supervisor.session_exists(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        return await controller.call(
            session, stimuli.CallAsked(controller.now_ms(), call_id, tool, arguments)
        )

    async def spawn(self, tree_id: str, asked: tree_stimuli.SpawnAsked) -> str:
        """Spawn a session; returns its id once it is durable."""
        self._supervisor.session_exists(tree_id, asked.parent)
        return await self._supervisor.spawn_child(tree_id, asked, f"handle:{asked.parent}")

    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end."""
        controller = self._supervisor.tree(tree_id)
        node = controller.state.sessions.get(session)
        if node is not None and node.result is not None:
            await controller.caught_up()
            return node.result
        self._supervisor.session_exists(tree_id, session)
        ended = controller.results.wait(session)
        if node is not None and node.spec.stays_open and not node.is_awaited:
            asked = tree_stimuli.ResultAsked(self._supervisor.clock.now_ms(), session)
            controller.stimulate(asked, f"result:{session}")
        return await ended

    async def stop(
        self, tree_id: str, session: str, reason: str, status: SessionStatus
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        controller = self._supervisor.tree(tree_id)
        node = controller.state.sessions.get(session)
        if node is None:
            self._supervisor.session_exists(tree_id, session)
        elif node.status.is_final:
            await controller.caught_up()
        else:
            ended = controller.results.wait(session)
            asked = tree_stimuli.StopAsked(controller.now_ms(), session, reason, status)
            await controller.settle(asked, f"stop:{session}")
            await ended
        await controller.all_left(session)
        return receipt(controller.state, session)

    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it drop what it does; returns how each of them stands then.

        Returns once whatever ran there has stopped, or was left behind. The session lives on.
        """
        self._supervisor.session_exists(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        before = self._supervisor.journal.last_seq(tree_id)
        asked = tree_stimuli.InterruptAsked(self._supervisor.clock.now_ms(), session, reason)
        await controller.settle(asked, f"interrupt:{session}")
        await self._at_rest(tree_id, session, before)
        return receipt(controller.state, session)

    async def _at_rest(self, tree_id: str, head: str, after: int) -> None:
        """Wait until what was interrupted in a subtree, after this fact, does nothing of what it did then."""
        busy = _Busy(head)
        while True:
            records = await self._supervisor.read(tree_id, after, READ_AT_ONCE, LONGEST_READ_S)
            for record in records:
                busy.take(record)
                after = record.seq
            if busy.is_over and len(records) < READ_AT_ONCE:
                return

    async def decide(
        self, tree_id: str, request_id: str, answer: ApprovalAnswer, by: str, again: bool = False
    ) -> None:
        """Answer an approval request; ``again`` as in :meth:`send`.

        Raises:
            ApprovalClosed: it was decided before, or is of no use any more: who asked was told to stop by the
                time the yes was durable.
            PermissionDenied: whoever answered is no owner; it waits on.
        """
        controller = self._supervisor.tree(tree_id)
        asker = None
        if answer.sender is not None:
            asker = asker_of(answer.sender, controller.config.owners)
            by = asker.id
        decided = tree_stimuli.Decided(
            controller.now_ms(), request_id, answer.approve, answer.always, by, answer.reason, asker
        )
        request = controller.state.requests.get(request_id)
        try:
            await self._supervisor.decide(tree_id, decided)
        except ApprovalClosed as closed:
            if not again or closed.state != ("approved" if answer.approve else "denied"):
                raise
        asker_node = None if request is None else controller.state.live_session(request.session)
        if answer.approve and request is not None and (asker_node is None or asker_node.stop is not None):
            raise ApprovalClosed(request_id, "cancelled")

    async def hook_failed(self, tree_id: str, session: str, hook: str, point: str, reason: str) -> None:
        """Note that a hook failed in the creating program; durable when this returns."""
        controller = self._supervisor.tree(tree_id)
        failed = tree_stimuli.HookFailedOutside(controller.now_ms(), session, hook, point, reason)
        await controller.settle(failed, f"hook:{session}")

    async def answer(
        self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: str, again: bool = False
    ) -> None:
        """Answer a call of a client tool; ``again`` as in :meth:`send`.

        Raises:
            ClientCallClosed: it waits for no answer, or not in this tree.
            ClientAnswerRefused: the answer can't be its result; it still waits.
        """
        controller = self._supervisor.tree(tree_id)
        await bring_answer(controller, client_id, answer, answer_id, controller.now_ms(), again=again)

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[Record]:
        """Return durable facts after a number, waiting for the first."""
        return await self._supervisor.read(tree_id, after_seq, max_n, wait_s)

    async def tidings(self, tree_id: str, after_seq: int, wait_s: float) -> tuple[int, list[InboxEvent]]:
        """Return what concerns a desk in facts after a number, waiting for it, and the last fact's number."""
        records = await self._supervisor.read_tree(tree_id, after_seq, wait_s)
        if not records:
            return after_seq, []
        return records[-1].seq, inbox_events_in(records, self._supervisor.tree(tree_id).state)

    def actors(self) -> list[ActorRow]:
        """Return every process of the runtime, and the session it embodies."""
        return self._supervisor.actors()

    async def security(self) -> Mapping[str, JsonValue] | None:
        """Return what protects the engine the runtime runs on; None where it has none.

        It is looked up beside the loop.
        """
        return None if self._security is None else await asyncio.to_thread(self._security)

    def record_of(self, tree_id: str, session: str, after_seq: int = 0, max_n: int = 0) -> SessionRecord:
        """Return a session's durable facts after a number, at most so many; 0 = all of them.

        Raises:
            SessionNotFound: there is no such session.
        """
        state = self._supervisor.tree(tree_id).state
        node = state.sessions.get(session)
        if node is None:
            self._supervisor.session_exists(tree_id, session)
        journal = self._supervisor.journal
        records = journal.read_session(tree_id, session, after_seq=after_seq, max_n=max_n or None)
        next_seq = records[-1].seq if max_n and len(records) == max_n else 0
        texts = tuple(record.text for record in records)
        return SessionRecord(state.sessions[session].spec, state.limits, texts, next_seq)

    def _texts(self, tree_id: str, session: str) -> tuple[str, ...]:
        return tuple(record.text for record in self._supervisor.journal.read_session(tree_id, session))

    def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        return self._supervisor.journal.last_seq(tree_id)

    def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's standing.

        Raises:
            SessionNotFound: there is no such session.
        """
        controller = self._supervisor.tree(tree_id)
        if controller.state.sessions.get(session) is None:
            self._supervisor.session_exists(tree_id, session)
        return report_of(controller, session)

    def room(self, tree_id: str, session: str) -> int:
        """Return how many more children a session may have now."""
        state = self._supervisor.tree(tree_id).state
        node = state.sessions.get(session)
        return state.limits.max_children - (0 if node is None else node.live_children)

    def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        state = self._supervisor.tree(tree_id).state
        requests = [request_of(state, request_id) for request_id, _ in state.requests.items()]
        return [request for request in requests if request is not None]

    def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        return waiting_in(self._supervisor.tree(tree_id))

    def shown(self, tree_id: str, request_id: str) -> ApprovalRequest | None:
        """Return a request that waits for a person, None where it does not or no more."""
        return request_of(self._supervisor.tree(tree_id).state, request_id)

    def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree and how it stands."""
        return receipt(self._supervisor.tree(tree_id).state, "main")

    def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        return self._supervisor.tree(tree_id).state.sessions["main"].status.is_final

    def is_ending(self, tree_id: str) -> bool:
        """Whether Main has ended, or was told to."""
        main = self._supervisor.tree(tree_id).state.sessions["main"]
        return main.status.is_final or main.stop is not None

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is kept here."""
        return tree_id in self._supervisor.trees

    def open_trees(self) -> tuple[str, ...]:
        """Return the ids of all trees kept here, the one opened first first."""
        return tuple(self._supervisor.trees)

    def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        controller = self._supervisor.trees.pop(tree_id, None)
        if controller is not None:
            controller.close()

    def watch(self, tree_id: str, change: int) -> None:
        """Count those who watch a tree's progress; nothing where the tree is not open."""
        controller = self._supervisor.trees.get(tree_id)
        if controller is not None:
            controller.watch(change)


class _Busy:
    """Which sessions of a subtree, told to drop what they do or to end, have not done so yet."""

    def __init__(self, head: str) -> None:
        self._sessions: set[str] = set()
        self._owed: dict[str, set[str]] = {}
        """Posts that each of them has not taken in yet: a word given before it heard them is not its last."""
        self._head = f"{head}/"
        self._kept: set[str] = set()
        self._interrupted: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether none is left."""
        return not self._sessions and not any(self._owed.values())

    def take(self, record: Record) -> None:
        """Take in one of the tree's facts."""
        if record.session:
            self._take_own(record.session, record.text)
            return
        match fact_of(record.text):
            case InterruptBegun(sessions=told):
                self._kept.update(self._below(told))
                self._sessions |= self._kept
            case CancelBegun(sessions=told):
                self._sessions.update(self._below(told))
            case SessionStirred(session=name) if name in self._kept:
                self._sessions.add(name)  # it hears how something below it ended
            case Posted(session=name, post_id=post) if name in self._kept:
                self._owed.setdefault(name, set()).add(post)
            case PostsTaken(session=name, post_ids=posts):
                self._owed.get(name, set()).difference_update(posts)
            case ResultHeld(session=name):
                self._sessions.discard(name)
            case SessionEnded(session=name):
                self._sessions.discard(name)
                self._owed.pop(name, None)

    def _take_own(self, session: str, text: str) -> None:
        if kind_in(text) == "interrupted":
            self._interrupted.add(session)
        elif session in self._interrupted and kind_in(text) == "turn_started":
            # Somebody said something to it since: what it does now is something else.
            self._sessions.discard(session)
            self._kept.discard(session)
            self._owed.pop(session, None)

    def _below(self, told: tuple[str, ...]) -> list[str]:
        return [name for name in told if f"{name}/".startswith(self._head)]
