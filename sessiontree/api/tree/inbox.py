"""The inbox of one tree: shows requests and questions on the channels that own them, takes answers by id.

It reads the tree's facts like any other reader; requests and answers are written to the journal.
"""

from __future__ import annotations

import asyncio

from sessiontree.api.runtime.backend import READ_WAIT_S, Backend
from sessiontree.api.tree.channel_prompts import ChannelPrompts
from sessiontree.api.tree.client_calls import ClientCalls
from sessiontree.api.tree.questions import PendingQuestion, Questions
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import ConfigError, SessionTreeError, WrongLoop
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import SURFACES, QuestionReply, Surface
from sessiontree.contracts.recorded.senders import Sender, resolve_sender
from sessiontree.contracts.tools.author_errors import report_frames
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.runtime.transport.supervisor_api import (
    CodeRaised,
    InboxEvent,
    MessageSaid,
    QuestionClosed,
    QuestionOpened,
    RequestClosed,
    RequestOpened,
)


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
        self._desk.note_heeded()
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
        self._prompts = ChannelPrompts(backend, tree_id)
        self._reader: asyncio.Task[None] | None = None
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
        self._prompts.attach(session, channel)
        if self._reader is not None:
            self._prompts.show_waiting(session)

    def note_heeded(self) -> None:
        """Note that the program looks at what waits, so that nobody need be warned."""
        self._prompts.warning.is_heeded = True

    def open(self, after: int) -> None:
        """Show the waiting requests, then follow the tree's facts.

        Args:
            after: The number of the tree's last fact; 0 = it is new, and nothing waits yet.
        """
        self._loop = asyncio.get_running_loop()
        self._prompts.open(after)
        self._reader = asyncio.create_task(self._follow(after))

    async def close(self) -> None:
        """Withdraw everything from the channels."""
        tasks = self._prompts.close()
        if self._reader is not None:
            tasks.append(self._reader)
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
        self._prompts.take_off(request_id)  # a request decided here is withdrawn at once

    async def answer_question(self, question_id: str, reply: QuestionReply, surface: Surface) -> None:
        """Answer a question by its id; raises as :meth:`PendingQuestion.answer`."""
        self.check_loop()
        _check_surface(surface)
        await self._prompts.submit(question_id, reply, surface)
        self._prompts.take_off(question_id)

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
            self._prompts.take_all_off()

    async def _note(self, event: InboxEvent) -> None:
        if isinstance(event, RequestOpened):
            self._prompts.show(event.request)
        elif isinstance(event, RequestClosed):
            self._prompts.take_off(event.request_id)
        elif isinstance(event, QuestionOpened):
            self._prompts.show_question(event.question)
        elif isinstance(event, QuestionClosed):
            self._prompts.take_off(event.question_id)
        elif isinstance(event, MessageSaid):
            await self._prompts.say(event.channel, event.text)
        elif isinstance(event, CodeRaised):
            report_frames(event.what, event.frames)

    async def lift(self, request_id: str) -> None:
        """Lift a person's denial; see :meth:`Approvals.forget`."""
        await self._backend.supervisor.lift_denial(self._tree_id, request_id, "program")


def _check_surface(surface: str) -> None:
    if surface not in SURFACES:
        raise ConfigError(f"surface {surface!r} is not one of {', '.join(SURFACES)}")
