"""Prompts on the channels of one tree: what sessions ask people there, and what they show.

A channel is the user's code: its failure counts as a denial, and never stops the inbox. Not here: who is
asked, which the tree machine decides; or what a program answers by itself (``inbox``).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sessiontree.api.options.options import get_channel_members
from sessiontree.api.runtime.backend import Backend, follow_facts
from sessiontree.api.runtime.runtime import show_in_waiting_cell
from sessiontree.api.tree.questions import ask_on_channel, can_ask_questions, make_answer_id
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.program_channels import BelowListener, DisplayListener
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import (
    AnswerTooLate,
    EngineLost,
    PermissionDenied,
    SessionTreeError,
    describe_error,
)
from sessiontree.contracts.facts.session_facts import RunFinished, TurnStarted
from sessiontree.contracts.recorded.approvals import APPROVER_ERROR, ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import SURFACES, QuestionReply, QuestionRequest, Surface
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.reports.events import get_display
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.journal.record import read_kind
from sessiontree.journal.replay import read_fact, read_facts

if TYPE_CHECKING:
    from sessiontree.journal.record import JournalRecord

_LOG = logging.getLogger("sessiontree")
UNHEEDED_S = 1.0
"""Seconds that a request waits in the tree before a warning that nothing handles it; once per tree."""
MAX_STRANGERS = 16
"""Maximum times a request is asked on a channel if people who are not owners answer; then it waits."""
MAX_LINES_BELOW = 20
"""Maximum display lines of sessions below that a channel gets within one turn of its session."""
_BORDERS = (TurnStarted, RunFinished)
FactFeed: TypeAlias = Callable[[int], AsyncIterator["JournalRecord"]]
"""Yields the facts of a tree after a number."""


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


class UnheededWarning:
    """Warns once if a program keeps requests in its tree and never looks at them.

    Args:
        tree_id: The tree.
        list_waiting: Returns the ids of what waits for a person now.
    """

    def __init__(self, tree_id: str, list_waiting: Callable[[], set[str]]) -> None:
        self._tree_id = tree_id
        self._list_waiting = list_waiting
        self._timer: asyncio.TimerHandle | None = None
        self.is_heeded = False
        """Whether the program ever checked for requests, or was informed of one."""

    def watch(self, channel: HumanChannel, waiting_id: str, what: str, where: str) -> None:
        """Warn after a while if the program only keeps requests and never looks at them."""
        is_left = getattr(channel, "leaves_requests", False)
        if is_left and not self.is_heeded and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(UNHEEDED_S, self._warn, waiting_id, what, where)

    def _warn(self, waiting_id: str, what: str, where: str) -> None:
        """Warn once that a request waits unhandled; if it no longer waits, the next request may warn."""
        self._timer = None
        if self.is_heeded or waiting_id not in self._list_waiting():
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

    def cancel(self) -> None:
        """Warn of nothing any more."""
        if self._timer is not None:
            self._timer.cancel()


class ChannelPrompts:
    """Asks people on the channels of a tree's sessions, and gives their answers to the supervisor."""

    def __init__(self, backend: Backend, tree_id: str) -> None:
        self._backend = backend
        self._tree_id = tree_id
        self._channels: dict[str, HumanChannel] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        """The tasks that ask, by the id of the request or question."""
        self._showing: list[asyncio.Task[None]] = []
        self.warning = UnheededWarning(tree_id, self._list_waiting)

    def attach(self, session: str, channel: HumanChannel) -> None:
        """Send a session's requests and messages to a channel from now on."""
        self._channels[session] = channel

    def open(self, after: int) -> None:
        """Show what waits, and begin to show the display lines of tools.

        Args:
            after: The number of the tree's last fact; 0 = it is new, and nothing waits yet.
        """
        for session, channel in self._channels.items():
            if after:
                self.show_waiting(session)
            members = get_channel_members(channel)
            if (show := members.get("show")) is not None:
                self._showing.append(asyncio.create_task(show_displays(self._feed, session, show, after)))
            if (show_below := members.get("show_below")) is not None:
                self._showing.append(
                    asyncio.create_task(show_lines_below(self._feed, session, show_below, after))
                )

    def close(self) -> list[asyncio.Task[None]]:
        """Forget what is asked; return the tasks that ask and show, which the caller cancels."""
        tasks = [*self._asking.values(), *self._showing]
        self._asking.clear()
        self.warning.cancel()
        return tasks

    def _feed(self, after: int) -> AsyncIterator[JournalRecord]:
        return follow_facts(self._backend.supervisor, self._tree_id, after)

    def _list_requests(self) -> list[ApprovalRequest]:
        return self._backend.ask_now(lambda supervisor: supervisor.pending(self._tree_id))

    def _list_questions(self) -> list[QuestionRequest]:
        return self._backend.ask_now(lambda supervisor: supervisor.list_pending_questions(self._tree_id))

    def _list_waiting(self) -> set[str]:
        waiting = {request.request_id for request in self._list_requests()}
        return waiting | {question.question_id for question in self._list_questions()}

    def show_waiting(self, session: str) -> None:
        """Show a session's channel what waits there already."""
        for request in self._list_requests():
            if request.asked == session:
                self.show(request)
        for question in self._list_questions():
            if self._find_channel(question.asked)[0] == session:
                self.show_question(question)

    def show(self, request: ApprovalRequest) -> None:
        """Ask the channel of the session that a request has climbed to, unless it is being asked."""
        channel = self._channels.get(request.asked)
        if channel is not None and request.request_id not in self._asking:
            task = asyncio.create_task(self._ask(channel, request))
            self._asking[request.request_id] = task
            what = (
                f"{request.session_id} wants to call {request.tool} ({request.tier}) and waits for a person"
            )
            self.warning.watch(channel, request.request_id, what, "approvals")

    def show_question(self, question: QuestionRequest) -> None:
        """Ask the nearest channel at or above a session that takes questions, unless it is being asked."""
        channel = self._find_channel(question.asked)[1] or self._channels.get(question.asked)
        if channel is not None and question.question_id not in self._asking:
            self._asking[question.question_id] = asyncio.create_task(self._put(channel, question))
            what = f"{question.session_id} asks a question and waits for a person"
            self.warning.watch(channel, question.question_id, what, "questions")

    def _find_channel(self, session: str) -> tuple[str, HumanChannel | None]:
        """Return the nearest channel at or above a session that asks questions, and the session it is of."""
        while session:
            channel = self._channels.get(session)
            if channel is not None and can_ask_questions(channel):
                return session, channel
            session = session.rpartition("/")[0]
        return "", None

    def take_off(self, request_id: str) -> None:
        """Withdraw a request or a question from its channel."""
        task = self._asking.pop(request_id, None)
        if task is not None:
            task.cancel()

    def take_all_off(self) -> None:
        """Withdraw everything from the channels."""
        for request_id in list(self._asking):
            self.take_off(request_id)

    async def say(self, session: str, text: str) -> None:
        """Send a message to a session's channel; if that only answers requests, to the next one above."""
        while session:
            channel = self._channels.get(session)
            if channel is not None and getattr(channel, "hears", True):
                await _hand_over(session, channel.send, text)
                return
            session = session.rpartition("/")[0]

    async def submit(self, question_id: str, reply: QuestionReply, surface: Surface) -> None:
        """Give the answer to a question to the supervisor."""
        await self._backend.supervisor.answer_question(
            self._tree_id, question_id, reply, make_answer_id(), "person", surface=surface
        )

    async def _put(self, channel: HumanChannel, question: QuestionRequest) -> None:
        try:
            submit = partial(self.submit, question.question_id, surface=get_surface(channel))
            await ask_on_channel(channel, question, submit, self.say)
        except SessionTreeError:
            if self._backend.is_open(self._tree_id):
                raise
        finally:
            self._asking.pop(question.question_id, None)

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
            # Race: the inbox may read that the request is closed before this task's own call returns, and
            # would cancel the task. A stranger's answer leaves the request open, so it stays listed.
            self._asking.pop(request.request_id, None)
        try:
            await self._backend.supervisor.decide(
                self._tree_id, request.request_id, answer, by, surface=get_surface(channel)
            )
        except PermissionDenied:
            return True
        except AnswerTooLate as closed:
            if answer.approve and closed.state != "approved":
                told = f"the approval of {request.tool} in {request.session_id} came too late: {closed}"
                await self.say(request.asked, told)
            return False
        except EngineLost:
            return False
        except SessionTreeError:
            if self._backend.is_open(self._tree_id):
                raise
        return False


async def show_displays(feed: FactFeed, session: str, show: DisplayListener, after: int) -> None:
    """Show the display lines of a session's tools on its channel, as their results become durable."""
    with contextlib.suppress(SessionTreeError):  # the tree's user gets the error too
        async for record in feed(after):
            if record.session != session or read_kind(record.text) != "call_resolved":
                continue
            message: ToolResultMessage = read_fact(record.text).message
            display = get_display(message)
            if display is not None:
                await _hand_over(session, show, message.tool_name, display)


async def show_lines_below(feed: FactFeed, session: str, show: BelowListener, after: int) -> None:
    """Show the lines of the sessions below, within the bound."""
    beneath, lines = f"{session}/", DisplayLimit()
    with contextlib.suppress(SessionTreeError):
        async for record in feed(after):
            if record.session == session:
                is_border = any(isinstance(fact, _BORDERS) for fact in read_facts(record.text))
                if is_border and (omitted := lines.begin_turn()):
                    await _hand_over(session, show, session, "", f"{omitted} more lines of sessions below")
            elif read_kind(record.text) == "call_resolved" and record.session.startswith(beneath):
                message: ToolResultMessage = read_fact(record.text).message
                display = get_display(message)
                if display is not None and lines.admit():
                    display = make_visible(display)
                    await _hand_over(session, show, record.session, message.tool_name, display)


def get_surface(channel: HumanChannel) -> Surface:
    """Return where people of a channel answer; a channel that does not say so is the program's own."""
    named = getattr(channel, "surface", SURFACES[0])
    return named if named in SURFACES else SURFACES[0]


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
