"""One supervisor's answers to what it can be asked, in whichever process the question came from.

Long because it has a method for each question of the interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sessiontree.contracts.errors import (
    AnswerTooLate,
    ConfigError,
    JournalError,
)
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallResolved, CompactionBegun, RunFinished, TurnStarted
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    CancelBegun,
    ChannelSaid,
    ClientCallEnded,
    ClientCallOpened,
    InterruptBegun,
    OutsideHookFailed,
    Posted,
    PostsTaken,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
)
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.canvas import CanvasQuestion
from sessiontree.contracts.recorded.client_calls import ClientAnswer, ClientCall
from sessiontree.contracts.recorded.cron import JobAction, JobChange, JobRow
from sessiontree.contracts.recorded.questions import QuestionReply, QuestionRequest
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Sender, resolve_asker
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_config, read_fact, read_facts
from sessiontree.runtime.replay.tree_fork import Identity
from sessiontree.runtime.scheduling.live_session import build_session_report
from sessiontree.runtime.supervisor.canvas_viewers import format_action
from sessiontree.runtime.supervisor.controller.tree_controller import TreeController
from sessiontree.runtime.supervisor.outside_answers import (
    answer_call,
    answer_question,
    list_questions,
    list_waiting,
)
from sessiontree.runtime.supervisor.supervisor import SupervisorCore
from sessiontree.runtime.supervisor.timed_jobs import change_job
from sessiontree.runtime.transport.result_push import ResultListener
from sessiontree.runtime.transport.supervisor_api import (
    MAX_READ,
    MAX_READ_WAIT_S,
    ActorRow,
    CallReply,
    ClientCallArrived,
    InboxEvent,
    MessageSaid,
    QuestionClosed,
    QuestionOpened,
    Reply,
    RequestClosed,
    RequestOpened,
    SessionRecord,
    SupervisorApi,
)
from sessiontree.tree.report import ReceiptLine, find_question, receipt, show_request
from sessiontree.tree.state import protocol as tree_stimuli
from sessiontree.tree.state.state import TreeState

_NEW_WORK = (TurnStarted, CompactionBegun)
"""Facts that begin work of a session's next message."""


class SupervisorService(SupervisorApi):
    """One supervisor's interface. Errors are the tree's typed ones; nothing is retried.

    Args:
        supervisor: The supervisor.
        security: Looks up how its engine is protected; None = it runs on no engine.
    """

    def __init__(
        self, supervisor: SupervisorCore, security: Callable[[], Mapping[str, JsonValue]] | None = None
    ) -> None:
        self._supervisor = supervisor
        self._security = security

    async def create(self, config: TreeConfig, agents: Mapping[str, AgentConfig]) -> None:
        """Create a tree; durable when this returns."""
        await self._supervisor.create(config, agents)

    async def written(self, tree_id: str) -> None:
        """Wait until what was decided here on a tree is durable; a tree that was let go may have such facts.

        Raises:
            TreeNotFound: the journal has no tree of that id.
        """
        with suppress(JournalError):  # the journal is unusable: nothing more becomes durable
            _, done = self._supervisor.journal.append(tree_id, ())
            await done

    async def resume(self, tree_id: str, agents: Mapping[str, AgentConfig]) -> None:
        """Take up a tree from the journal; await :meth:`written` before.

        Raises:
            ConfigError: it is open.
            JournalError: it can't be read.
        """
        if tree_id in self._supervisor.trees:
            raise ConfigError(f"tree {tree_id} is open in this runtime; close it before you resume it")
        await self._supervisor.resume(tree_id, agents)

    async def fork(
        self, tree_id: str, at: int | None, new_tree_id: str, nonce: str, replaced: Mapping[str, str]
    ) -> None:
        """Write a new tree that shares the first facts of another one; durable when this returns."""
        new = Identity(new_tree_id, nonce, self._supervisor.clock.now_ms())
        await self._supervisor.fork(tree_id, at, new, replaced)

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration.

        Raises:
            TreeNotFound: the journal has none of that id.
        """
        return read_config(self._supervisor.journal.row0(tree_id))

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
        if again:
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
            ended = controller.waiters.results.wait(session)
            asked = tree_stimuli.StopAsked(controller.now_ms(), session, reason, status)
            await controller.settle(asked, f"stop:{session}")
            await ended
        await controller.departures.wait(session)
        return receipt(controller.state, session)

    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it stop what they do; returns the state of each afterwards.

        Returns once whatever ran there has stopped, or was left behind. The session lives on.
        """
        self._supervisor.check_session(tree_id, session)
        controller = self._supervisor.tree(tree_id)
        before = self._supervisor.journal.last_seq(tree_id)
        asked = tree_stimuli.InterruptAsked(self._supervisor.clock.now_ms(), session, reason)
        await controller.settle(asked, f"interrupt:{session}")
        await self._wait_until_at_rest(tree_id, session, before)
        return receipt(controller.state, session)

    async def _wait_until_at_rest(self, tree_id: str, head: str, after: int) -> None:
        """Wait until the sessions that an interruption after this fact concerns have stopped their work."""
        busy = _Busy(head)
        while True:
            records = await self._supervisor.read(tree_id, after, MAX_READ, MAX_READ_WAIT_S)
            for record in records:
                busy.take(record)
                after = record.seq
            if busy.is_over and len(records) < MAX_READ:
                return

    async def decide(
        self,
        tree_id: str,
        request_id: str,
        answer: ApprovalAnswer,
        by: str = "person",
        again: bool = False,
        surface: str = "program",
    ) -> None:
        """Answer an approval request; ``again`` as in :meth:`send`.

        Raises:
            AnswerTooLate: it was decided before, or is of no use any more: the session that asked was
                stopped before the yes was durable.
            PermissionDenied: whoever answered is not an owner; the request still waits.
        """
        controller = self._supervisor.tree(tree_id)
        asker = None
        if answer.sender is not None:
            asker = resolve_asker(answer.sender, controller.config.owners)
            by = asker.id
        decided = tree_stimuli.Decided(
            controller.now_ms(), request_id, answer.approve, answer.always, by, answer.reason, asker, surface
        )
        request = controller.state.requests.get(request_id)
        try:
            await self._supervisor.decide(tree_id, decided)
        except AnswerTooLate as closed:
            if not again or closed.state != ("approved" if answer.approve else "denied"):
                raise
        asker_node = None if request is None else controller.state.find_live_session(request.question.session)
        if answer.approve and request is not None and (asker_node is None or asker_node.stop is not None):
            raise AnswerTooLate("approval", request_id, "cancelled")

    async def lift_denial(self, tree_id: str, request_id: str, by: str = "person") -> None:
        """Lift a person's denial of a request.

        Raises:
            AnswerTooLate: no denial of this request holds.
        """
        asked = tree_stimuli.LiftAsked(self._supervisor.tree(tree_id).now_ms(), request_id, by)
        for instruction in await self._supervisor.tree(tree_id).settle(asked, f"lift:{request_id}"):
            if isinstance(instruction, tree_stimuli.RefuseDecision):
                raise instruction.error

    async def change_job(self, tree_id: str, job_id: str, action: JobAction, key: str) -> JobRow:
        """Change a timed job of a tree with the owner's rights; durable when this returns."""
        return await change_job(self._supervisor.tree(tree_id), JobChange(action, job_id), key)

    async def hook_failed(self, tree_id: str, session: str, hook: str, point: str, reason: str) -> None:
        """Record that a hook failed in the creating program; durable when this returns."""
        controller = self._supervisor.tree(tree_id)
        failed = tree_stimuli.HookFailedOutside(
            controller.now_ms(), OutsideHookFailed(session, hook, point, reason)
        )
        await controller.settle(failed, f"hook:{session}")

    async def answer(
        self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: str, again: bool = False
    ) -> None:
        """Answer a call of a client tool; ``again`` as in :meth:`send`.

        Raises:
            AnswerTooLate: it does not wait for an answer, or not in this tree.
            ValidationError: the answer can't be its result; it still waits.
        """
        controller = self._supervisor.tree(tree_id)
        await answer_call(controller, client_id, answer, answer_id, again=again)

    async def answer_question(
        self,
        tree_id: str,
        question_id: str,
        reply: QuestionReply,
        answer_id: str,
        by: str = "person",
        again: bool = False,
        surface: str = "program",
    ) -> None:
        """Answer a question for a person; ``again`` as in :meth:`send`.

        Raises:
            AnswerTooLate: it was answered before, expired, or its session stopped.
            PermissionDenied: whoever answered is not an owner; the question still waits.
            ValidationError: an answer does not fit its question, which still waits.
        """
        controller = self._supervisor.tree(tree_id)
        if reply.sender is not None:
            asker = resolve_asker(reply.sender, controller.config.owners)
            by = asker.id
            if not asker.is_owner:
                refused = tree_stimuli.Decided(
                    controller.now_ms(), question_id, False, False, by, "", asker, surface
                )
                await self._supervisor.decide(tree_id, refused)
        await answer_question(controller, question_id, reply, answer_id, (by, surface), again=again)

    async def act_on_canvas(
        self, tree_id: str, session: str, action: Mapping[str, JsonValue], action_id: str
    ) -> None:
        """Send the session an action of a frame that shows its canvas; durable when this returns."""
        self._supervisor.check_session(tree_id, session)
        text = format_action(session, action)
        controller = self._supervisor.tree(tree_id)
        came = tree_stimuli.CanvasActionSent(controller.now_ms(), session, action_id, text)
        for instruction in await controller.settle(came, f"canvas:{session}"):
            if isinstance(instruction, tree_stimuli.RefuseSay):
                raise instruction.error

    async def answer_canvas(self, tree_id: str, question_id: str, text: str) -> None:
        """Answer a question to a frame that shows a canvas."""
        self._supervisor.tree(tree_id)
        self._supervisor.canvas_viewers.answer(question_id, text)

    async def leave_canvas(self, tree_id: str, session: str, viewer: str) -> None:
        """Note that a frame no longer shows a session's canvas."""
        self._supervisor.canvas_viewers.leave(tree_id, session, viewer)

    async def await_canvas_question(
        self, tree_id: str, session: str, viewer: str, wait_s: float
    ) -> CanvasQuestion | None:
        """Wait for a question to a frame that shows a session's canvas."""
        self._supervisor.check_session(tree_id, session)
        return await self._supervisor.canvas_viewers.await_question(tree_id, session, viewer, wait_s)

    async def read(self, tree_id: str, after_seq: int, max_n: int, wait_s: float) -> list[JournalRecord]:
        """Return durable facts after a number, waiting for the first."""
        return await self._supervisor.read(tree_id, after_seq, max_n, wait_s)

    async def read_tree(self, tree_id: str, after_seq: int, wait_s: float) -> list[JournalRecord]:
        """Return the tree's own durable facts after a number, waiting for the first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            records = await self.read(tree_id, after_seq, MAX_READ, max(0.0, deadline - loop.time()))
            own = [record for record in records if not record.session]
            if own or not records:
                return own
            after_seq = records[-1].seq
            await asyncio.sleep(0)  # many facts exist already: let other tasks run

    async def read_inbox_events(
        self, tree_id: str, after_seq: int, wait_s: float
    ) -> tuple[int, list[InboxEvent]]:
        """Return the last fact's number, and what facts after a number mean to an inbox."""
        records = await self._supervisor.read_tree(tree_id, after_seq, wait_s)
        controller = self._supervisor.tree(tree_id)
        raised = list(controller.inbox_notifier.reports)
        controller.inbox_notifier.reports.clear()
        if not records:
            return after_seq, [*raised]
        return records[-1].seq, [*raised, *collect_inbox_events(records, controller.state)]

    async def actors(self) -> list[ActorRow]:
        """Return every process of the runtime, and the session it embodies."""
        return self._supervisor.actors()

    async def security(self) -> Mapping[str, JsonValue] | None:
        """Return how the engine of the runtime is protected; None = it runs without an engine.

        The lookup runs in a thread.
        """
        return None if self._security is None else await asyncio.to_thread(self._security)

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

    async def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        return self._supervisor.journal.last_seq(tree_id)

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

    async def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        state = self._supervisor.tree(tree_id).state
        requests = [show_request(state, request_id) for request_id, _ in state.requests.items()]
        return [request for request in requests if request is not None]

    async def list_pending_questions(self, tree_id: str) -> list[QuestionRequest]:
        """Return the questions that wait for a person, oldest first."""
        return list_questions(self._supervisor.tree(tree_id))

    async def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        return list_waiting(self._supervisor.tree(tree_id))

    async def shown(self, tree_id: str, request_id: str) -> ApprovalRequest | None:
        """Return a request that waits for a person; None = it does not wait, or not any more."""
        return show_request(self._supervisor.tree(tree_id).state, request_id)

    async def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree with its state."""
        return receipt(self._supervisor.tree(tree_id).state, "main")

    async def measure_waited_s(self, tree_id: str) -> float:
        """Return how long a tree did nothing but wait for hosts, rate limiters and retries, in seconds."""
        return self._supervisor.tree(tree_id).waits.measure_waited_s()

    async def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        return self._supervisor.tree(tree_id).state.sessions["main"].status.is_final

    async def is_ending(self, tree_id: str) -> bool:
        """Whether Main has ended, or was stopped and is about to end."""
        main = self._supervisor.tree(tree_id).state.sessions["main"]
        return main.status.is_final or main.stop is not None

    async def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open here."""
        return tree_id in self._supervisor.trees

    async def open_trees(self) -> list[str]:
        """Return the ids of all open trees, in the order they were opened."""
        return list(self._supervisor.trees)

    async def live_sessions(self) -> int:
        """Return how many sessions of all open trees have not ended."""
        return sum(controller.state.live for controller in self._supervisor.trees.values())

    def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        self._supervisor.let_go(tree_id)


def _is_live(controller: TreeController, session: str) -> bool:
    """Whether a session of a tree that can go on has not ended."""
    return controller.failure is None and controller.state.find_live_session(session) is not None


class _Busy:
    """The sessions of a subtree that were asked to stop or to end and have not done so yet."""

    def __init__(self, head: str) -> None:
        self._sessions: set[str] = set()
        self._owed: dict[str, set[str]] = {}
        """Posts that each of them has not taken in yet; a message sent before that is not its final one."""
        self._head = f"{head}/"
        self._kept: set[str] = set()
        self._interrupted: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether all of them have stopped."""
        return not self._sessions and not any(self._owed.values())

    def take(self, record: JournalRecord) -> None:
        """Take in one of the tree's facts."""
        if record.session:
            self._take_own(record.session, record.text)
            return
        for fact in read_facts(record.text):
            self._take_part(fact)

    def _take_part(self, fact: Any) -> None:
        match fact:
            case InterruptBegun(sessions=told):
                self._kept.update(self._select_below(told))
                self._sessions |= self._kept
            case CancelBegun(sessions=told):
                self._sessions.update(self._select_below(told))
            case SessionReactivated(session=name) if name in self._kept:
                self._sessions.add(name)  # it gets the result of a session below it
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
        if read_kind(text) == "interrupted":
            self._interrupted.add(session)
        elif session in self._interrupted and _has_new_work(text):
            # It got a new message since then; its present work is not what was interrupted.
            self._sessions.discard(session)
            self._kept.discard(session)
            self._owed.pop(session, None)

    def _select_below(self, told: tuple[str, ...]) -> list[str]:
        return [name for name in told if f"{name}/".startswith(self._head)]


def _has_new_work(text: str) -> bool:
    return any(isinstance(fact, _NEW_WORK) for fact in read_facts(text))


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


def collect_inbox_events(records: Iterable[JournalRecord], state: TreeState) -> list[InboxEvent]:
    """Return the inbox events of a tree's facts, in order, without requests that do not wait any more."""
    events: list[InboxEvent] = []
    for record in records:
        fact: Any = read_fact(record.text)
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = show_request(state, fact.request_id)
            if request is not None:
                events.append(RequestOpened(request))
        elif isinstance(fact, ApprovalDecided):
            events.append(RequestClosed(fact.request_id))
        elif isinstance(fact, ChannelSaid):
            events.append(MessageSaid(fact.channel, fact.text))
        elif isinstance(fact, ClientCallOpened) and fact.call.call_id in state.client_calls:
            question = find_question(state, fact.call.call_id)
            events.append(ClientCallArrived(fact.call) if question is None else QuestionOpened(question))
        elif isinstance(fact, ClientCallEnded):
            events.append(QuestionClosed(fact.client_id))
    return events
