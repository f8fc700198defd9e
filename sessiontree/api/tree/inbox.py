"""The inbox of one tree: shows requests and questions on the channels that own them, takes answers by id.

It reads the tree's facts like any other reader; requests and answers are written to the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from sessiontree.api.options.options import get_channel_members
from sessiontree.api.runtime.backend import READ_WAIT_S, Backend, follow_facts
from sessiontree.api.runtime.runtime import show_in_waiting_cell
from sessiontree.api.tree.client_calls import ClientCalls
from sessiontree.api.tree.questions import (
    PendingQuestion,
    Questions,
    ask_on_channel,
    can_ask_questions,
    make_answer_id,
)
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.program_channels import BelowListener, DisplayListener
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import (
    AnswerTooLate,
    ConfigError,
    EngineLost,
    PermissionDenied,
    SessionTreeError,
    WrongLoop,
    describe_error,
)
from sessiontree.contracts.facts.session_facts import RunFinished, TurnStarted
from sessiontree.contracts.recorded.approvals import APPROVER_ERROR, ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import (
    SURFACES,
    QuestionReply,
    QuestionRequest,
    Surface,
)
from sessiontree.contracts.recorded.senders import Sender, resolve_sender
from sessiontree.contracts.reports.events import display_of
from sessiontree.contracts.tools.author_errors import report_error, report_frames
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.journal.record import read_kind
from sessiontree.journal.replay import read_fact, read_facts
from sessiontree.runtime.transport.supervisor_api import (
    CodeRaised,
    InboxEvent,
    MessageSaid,
    QuestionClosed,
    QuestionOpened,
    RequestClosed,
    RequestOpened,
)

UNHEEDED_S = 1.0
"""Seconds that a request waits in the tree before a warning that nothing handles it; once per tree."""
_LOG = logging.getLogger("sessiontree")
MAX_STRANGERS = 16
"""Maximum times a request is asked on a channel if people who are not owners answer; then it waits."""


MAX_LINES_BELOW = 20
"""Maximum display lines of sessions below that a channel gets within one turn of its session."""
_BORDERS = (TurnStarted, RunFinished)


class DisplayLimit:
    """Admits a bounded number of lines within each turn, and counts the others."""

    def __init__(self) -> None:
        self._seen = 0

    def admit(self) -> bool:
        """Return whether one more line is shown in this turn."""
        self._seen += 1
        return self._seen <= MAX_LINES_BELOW

    def begin_turn(self) -> int:
        """Begin a turn; return how many lines the last one did not admit."""
        omitted, self._seen = max(0, self._seen - MAX_LINES_BELOW), 0
        return omitted


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One request that waits for a person."""

    request: ApprovalRequest
    _desk: HumanInbox

    async def approve(
        self,
        *,
        always: bool = False,
        reason: str = "",
        sender: Sender | str | None = None,
        surface: Surface = "program",
    ) -> None:
        """Approve this call, or every later call of the tool in this tree too.

        Args:
            always: Whether later calls are approved too.
            reason: The reason, for the journal.
            sender: Who approves, if the program has several users; None = the program itself.
            surface: Where the person approved, for the journal.

        Raises:
            AnswerTooLate: the request was decided in the meantime, or the session was asked to stop before
                the approval was durable, so that the call did not run or was stopped as it began.
            PermissionDenied: the sender does not own the tree; the request still waits.
        """
        answer = ApprovalAnswer(True, reason, always, resolve_sender(sender))
        await self._desk.answer(self.request.request_id, answer, surface)

    async def deny(
        self, reason: str = "", *, sender: Sender | str | None = None, surface: Surface = "program"
    ) -> None:
        """Deny the call, with a ``reason``; the same call stays denied on this path until the tree ends.

        The other arguments are those of :meth:`approve`, ``surface`` too.

        Raises:
            AnswerTooLate: the request was decided in the meantime.
            PermissionDenied: the sender does not own the tree; the request still waits.
        """
        answer = ApprovalAnswer(False, reason, sender=resolve_sender(sender))
        await self._desk.answer(self.request.request_id, answer, surface)


class Approvals:
    """The requests of a tree that wait for a person."""

    def __init__(self, desk: HumanInbox) -> None:
        self._desk = desk

    def pending(self) -> list[PendingApproval]:
        """Return the requests that wait for a person, oldest first."""
        self._desk.is_heeded = True
        return self._desk.pending()

    async def forget(self, request_id: str) -> None:
        """Lift a person's denial of ``request_id``, so that the same call is asked about again.

        Raises:
            AnswerTooLate: no denial of this request holds.
        """
        await self._desk.lift(request_id)


class HumanInbox:
    """Shows requests and messages on channels while it is open."""

    def __init__(self, backend: Backend, tree_id: str) -> None:
        self.approvals = Approvals(self)
        self.questions = Questions(self)
        self._backend = backend
        self._tree_id = tree_id
        self._channels: dict[str, HumanChannel] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._showing: list[asyncio.Task[None]] = []
        self.is_heeded = False
        """Whether the program ever checked for requests, or was informed of one."""
        self._unheeded: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def check_loop(self) -> None:
        """Check that the event loop on which the tree was opened is still open.

        Raises:
            WrongLoop: the loop is closed, and the tree's tasks ended with it.
        """
        if self._loop is not None and self._loop.is_closed():
            raise WrongLoop(
                f"tree {self._tree_id}",
                "the event loop it was opened on is closed, such as by the end of an earlier asyncio.run; "
                f"close it, and take it up on this one: await SessionTree.resume({self._tree_id!r}, …)",
            )

    def attach(self, session: str, channel: HumanChannel) -> None:
        """Send a session's requests and messages to a channel, including those that already wait."""
        self._channels[session] = channel
        if self._reader is not None:
            self._show_waiting(session)

    def open(self, after: int) -> None:
        """Show the waiting requests, then follow the tree's facts.

        Args:
            after: The number of the tree's last fact; 0 = it is new, and nothing waits yet.
        """
        self._loop = asyncio.get_running_loop()
        for session, channel in self._channels.items():
            if after:
                self._show_waiting(session)
            members = get_channel_members(channel)
            if (show := members.get("show")) is not None:
                self._showing.append(asyncio.create_task(self._show_displays(session, show, after)))
            if (show_below := members.get("show_below")) is not None:
                self._showing.append(asyncio.create_task(self._show_below(session, show_below, after)))
        self._reader = asyncio.create_task(self._follow(after))

    async def close(self) -> None:
        """Withdraw everything from the channels."""
        tasks = [*self._asking.values(), *self._showing]
        if self._reader is not None:
            tasks.append(self._reader)
        self._asking.clear()
        if self._unheeded is not None:
            self._unheeded.cancel()
        for task in tasks:
            task.cancel()
        # Finished tasks may belong to a loop that is closed by now.
        if running := [task for task in tasks if not task.done()]:
            await asyncio.wait(running)

    def client_calls(self, table: ToolTable) -> ClientCalls:
        """Return the calls that wait for the program, of the tools in a table."""
        return ClientCalls(self._backend, self._tree_id, table)

    def pending(self) -> list[PendingApproval]:
        """Return the requests that wait for a person, oldest first."""
        return [
            PendingApproval(request, self)
            for request in self._backend.ask_now(lambda supervisor: supervisor.pending(self._tree_id))
        ]

    def list_pending_questions(self) -> list[PendingQuestion]:
        """Return the questions that wait for a person, oldest first."""
        return [
            PendingQuestion(question, self)
            for question in self._backend.ask_now(
                lambda supervisor: supervisor.list_pending_questions(self._tree_id)
            )
        ]

    async def answer(self, request_id: str, answer: ApprovalAnswer, surface: Surface = "program") -> None:
        """Answer a request by its id.

        Raises:
            AnswerTooLate: the request was already decided.
            ConfigError: the surface is unknown.
            PermissionDenied: the sender does not own the tree.
        """
        self.check_loop()
        _check_surface(surface)
        await self._backend.supervisor.decide(self._tree_id, request_id, answer, "person", surface=surface)
        self._take_off(request_id)  # a request decided here is withdrawn at once

    async def answer_question(self, question_id: str, reply: QuestionReply, surface: Surface) -> None:
        """Answer a question by its id; raises as :meth:`PendingQuestion.answer`."""
        self.check_loop()
        _check_surface(surface)
        await self._submit(question_id, reply, surface)
        self._take_off(question_id)

    async def _submit(self, question_id: str, reply: QuestionReply, surface: Surface) -> None:
        await self._backend.supervisor.answer_question(
            self._tree_id, question_id, reply, make_answer_id(), "person", surface=surface
        )

    async def _follow(self, after: int) -> None:
        try:
            while True:
                after, events = await self._backend.supervisor.read_inbox_events(
                    self._tree_id, after, READ_WAIT_S
                )
                for event in events:
                    await self._note(event)
                await asyncio.sleep(0)  # an immediate answer is handled before the next question
        except SessionTreeError:  # the tree's user gets the error too; nothing can take an answer
            for request_id in list(self._asking):
                self._take_off(request_id)

    async def _note(self, event: InboxEvent) -> None:
        if isinstance(event, RequestOpened):
            self._show(event.request)
        elif isinstance(event, RequestClosed):
            self._take_off(event.request_id)
        elif isinstance(event, QuestionOpened):
            self._show_question(event.question)
        elif isinstance(event, QuestionClosed):
            self._take_off(event.question_id)
        elif isinstance(event, MessageSaid):
            await self._say(event.channel, event.text)
        elif isinstance(event, CodeRaised):
            report_frames(event.what, event.frames)

    def _take_off(self, request_id: str) -> None:
        task = self._asking.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def _show_displays(self, session: str, show: DisplayListener, after: int) -> None:
        """Show the display lines of a session's tools on its channel, as their results become durable."""
        with contextlib.suppress(SessionTreeError):  # the tree's user gets the error too
            async for record in follow_facts(self._backend.supervisor, self._tree_id, after):
                if record.session != session or read_kind(record.text) != "call_resolved":
                    continue
                message: ToolResultMessage = read_fact(record.text).message
                display = display_of(message)
                if display is not None:
                    await _hand_over(session, show, message.tool_name, display)

    async def _show_below(self, session: str, show: BelowListener, after: int) -> None:
        """Show the lines of the sessions below, within the bound."""
        beneath, lines = f"{session}/", DisplayLimit()
        with contextlib.suppress(SessionTreeError):
            async for record in follow_facts(self._backend.supervisor, self._tree_id, after):
                if record.session == session:
                    is_border = any(isinstance(fact, _BORDERS) for fact in read_facts(record.text))
                    if is_border and (omitted := lines.begin_turn()):
                        await _hand_over(
                            session, show, session, "", f"{omitted} more lines of sessions below"
                        )
                elif read_kind(record.text) == "call_resolved" and record.session.startswith(beneath):
                    message: ToolResultMessage = read_fact(record.text).message
                    display = display_of(message)
                    if display is not None and lines.admit():
                        display = make_visible(display)
                        await _hand_over(session, show, record.session, message.tool_name, display)

    async def _say(self, session: str, text: str) -> None:
        """Send a message to a session's channel; if that only answers requests, to the next one above."""
        while session:
            channel = self._channels.get(session)
            if channel is not None and getattr(channel, "hears", True):
                await _hand_over(session, channel.send, text)
                return
            session = session.rpartition("/")[0]

    def _show_waiting(self, session: str) -> None:
        for pending in self.pending():
            if pending.request.asked == session:
                self._show(pending.request)
        for waiting in self.list_pending_questions():
            if self._find_channel(waiting.question.asked)[0] == session:
                self._show_question(waiting.question)

    def _find_channel(self, session: str) -> tuple[str, HumanChannel | None]:
        """Return the nearest channel at or above a session that asks questions, and the session it is of."""
        while session:
            channel = self._channels.get(session)
            if channel is not None and can_ask_questions(channel):
                return session, channel
            session = session.rpartition("/")[0]
        return "", None

    def _show_question(self, question: QuestionRequest) -> None:
        channel = self._find_channel(question.asked)[1] or self._channels.get(question.asked)
        if channel is not None and question.question_id not in self._asking:
            self._asking[question.question_id] = asyncio.create_task(self._put(channel, question))
            what = f"{question.session_id} asks a question and waits for a person"
            self._watch_heed(channel, question.question_id, what, "questions")

    async def _put(self, channel: HumanChannel, question: QuestionRequest) -> None:
        try:
            submit = partial(self._submit, question.question_id, surface=get_surface(channel))
            await ask_on_channel(channel, question, submit, self._say)
        except SessionTreeError:
            if self._backend.is_open(self._tree_id):
                raise
        finally:
            self._asking.pop(question.question_id, None)

    def _show(self, request: ApprovalRequest) -> None:
        channel = self._channels.get(request.asked)
        if channel is not None and request.request_id not in self._asking:
            task = asyncio.create_task(self._ask(channel, request))
            self._asking[request.request_id] = task
            what = (
                f"{request.session_id} wants to call {request.tool} ({request.tier}) and waits for a person"
            )
            self._watch_heed(channel, request.request_id, what, "approvals")

    def _watch_heed(self, channel: HumanChannel, waiting_id: str, what: str, where: str) -> None:
        """Warn after a while if the program only keeps requests and never looks at them."""
        is_left = getattr(channel, "leaves_requests", False)
        if is_left and not self.is_heeded and self._unheeded is None:
            loop = asyncio.get_running_loop()
            self._unheeded = loop.call_later(UNHEEDED_S, self._warn_unheeded, waiting_id, what, where)

    def _warn_unheeded(self, waiting_id: str, what: str, where: str) -> None:
        """Warn once that a request waits unhandled; if it no longer waits, the next request may warn."""
        self._unheeded = None
        waiting = {each.request.request_id for each in self.pending()}
        waiting.update(each.question.question_id for each in self.list_pending_questions())
        if self.is_heeded or waiting_id not in waiting:
            return
        if show_in_waiting_cell(self._tree_id):
            return  # a later request may show it again, in the cell that waits then
        self.is_heeded = True
        instead = "an approver or a channel, such as approver=lambda request: True"
        _LOG.warning(
            "tree %s: %s; this program does not listen; answer with tree.%s.pending() or `sessiontree "
            "approvals`, or give the tree %s",
            self._tree_id,
            what,
            where,
            instead if where == "approvals" else "a channel that answers questions",
        )

    async def lift(self, request_id: str) -> None:
        """Lift a person's denial; see :meth:`Approvals.forget`."""
        await self._backend.supervisor.lift_denial(self._tree_id, request_id, "program")

    async def _ask(self, channel: HumanChannel, request: ApprovalRequest) -> None:
        try:
            for _ in range(MAX_STRANGERS):
                if not await self._ask_once(channel, request):
                    return
        finally:
            self._asking.pop(request.request_id, None)

    async def _ask_once(self, channel: HumanChannel, request: ApprovalRequest) -> bool:
        """Ask and submit the answer; return True if it came from a person who is not an owner."""
        answer, by = await _answer_of(channel, request)
        if answer is None:
            return False
        if answer.sender is None:
            self._asking.pop(request.request_id, None)  # an answered request is not withdrawn in the meantime
        try:
            await self._backend.supervisor.decide(
                self._tree_id, request.request_id, answer, by, surface=get_surface(channel)
            )
        except PermissionDenied:
            return True
        except AnswerTooLate as closed:
            if answer.approve and closed.state != "approved":
                told = f"the approval of {request.tool} in {request.session_id} came too late: {closed}"
                await self._say(request.asked, told)
            return False
        except EngineLost:
            return False
        except SessionTreeError:
            if self._backend.is_open(self._tree_id):
                raise
        return False


def get_surface(channel: HumanChannel) -> Surface:
    """Return where people of a channel answer; a channel that does not say so is the program's own."""
    named = getattr(channel, "surface", SURFACES[0])
    return named if named in SURFACES else SURFACES[0]


def _check_surface(surface: str) -> None:
    if surface not in SURFACES:
        raise ConfigError(f"surface {surface!r} is not one of {', '.join(SURFACES)}")


async def _hand_over(session: str, heard: Callable[..., Awaitable[None] | None], *said: str) -> None:
    """Pass something to a channel. Channels are the user's code; their failure must not stop the inbox."""
    try:
        heeded = heard(*said)
        if inspect.isawaitable(heeded):
            await heeded
    except Exception as error:  # noqa: BLE001 - see above
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the channel of {session} failed", "exception": error}
        )


async def _answer_of(channel: HumanChannel, request: ApprovalRequest) -> tuple[ApprovalAnswer | None, str]:
    """Return a channel's answer, and by whom; a failure or an invalid answer counts as a denial."""
    try:
        answer = await channel.ask(request)
    except KeyboardInterrupt:
        _LOG.exception("what asks a person raised KeyboardInterrupt; that ends the event loop it runs on")
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        reason = f"the approver failed: {describe_error(error)}"
        report_error(
            f"the approver, asked for {request.tool} of session {request.session_id},", error, reason
        )
        return ApprovalAnswer(False, reason), APPROVER_ERROR
    if answer is None or _is_answer(answer):
        return answer, "person"
    reason = f"the approver returned a {type(answer).__name__} that is not a valid ApprovalAnswer"
    return ApprovalAnswer(False, reason), APPROVER_ERROR


def _is_answer(answer: object) -> bool:
    """Return whether an answer is valid; channels are the user's code."""
    return (
        isinstance(answer, ApprovalAnswer)
        and isinstance(answer.approve, bool)
        and isinstance(answer.always, bool)
        and isinstance(answer.reason, str)
        and isinstance(answer.sender, Sender | None)
    )
