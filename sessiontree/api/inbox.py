"""The approval desk of one tree: shows requests on the channels that own them, and takes answers by id.

It reads the tree's facts like any other reader; what is shown and what is answered stands in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sessiontree.api.backend import Backend
from sessiontree.api.client_calls import ClientCalls
from sessiontree.api.event_feed import READ_WAIT_S, facts_after
from sessiontree.api.options import channel_show
from sessiontree.channels.callback import DisplayListener
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.queue import QueueChannel
from sessiontree.contracts.approvals import APPROVER_ERROR, ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.cancellation import is_cancelled
from sessiontree.contracts.errors import (
    ApprovalClosed,
    EngineLost,
    PermissionDenied,
    SessionTreeError,
    WrongLoop,
    words_of,
)
from sessiontree.contracts.event_display import display_of
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.contracts.senders import Sender, sender_of
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.journal.record import kind_in
from sessiontree.runtime.inbox_events import InboxEvent, MessageSaid, RequestClosed, RequestOpened
from sessiontree.runtime.replay import fact_of

UNHEEDED_S = 1.0
"""How long a request waits in the tree before it is told that nobody listens; once for each tree."""
_LOG = logging.getLogger("sessiontree")
MOST_STRANGERS = 16
"""How often a request is asked on a channel where others than owners answer; then it waits in the tree."""


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One request that waits for a person."""

    request: ApprovalRequest
    _desk: HumanInbox

    async def approve(
        self, *, always: bool = False, reason: str = "", sender: Sender | str | None = None
    ) -> None:
        """Say yes: once, or to every later call of the tool in this tree.

        Args:
            always: Whether later calls are allowed, too.
            reason: Why; stands in the journal.
            sender: Who says so, where the program hears several people; None = the program itself.

        Raises:
            ApprovalClosed: it was decided meanwhile; or the session that asked was told to stop before the
                yes was durable, so that nothing ran, or was stopped as it began.
            PermissionDenied: the sender does not own the tree; the request waits on.
        """
        answer = ApprovalAnswer(True, reason, always, sender_of(sender))
        await self._desk.answer(self.request.request_id, answer)

    async def deny(self, reason: str = "", *, sender: Sender | str | None = None) -> None:
        """Say no; the same call stays denied on this path until the tree ends.

        Raises:
            ApprovalClosed: it was decided meanwhile.
            PermissionDenied: the sender does not own the tree; the request waits on.
        """
        answer = ApprovalAnswer(False, reason, sender=sender_of(sender))
        await self._desk.answer(self.request.request_id, answer)


class Approvals:
    """The requests of a tree that wait for a person."""

    def __init__(self, desk: HumanInbox) -> None:
        """Bind the desk."""
        self._desk = desk

    def pending(self) -> list[PendingApproval]:
        """Return the requests that wait for a person, oldest first."""
        self._desk.is_heeded = True
        return self._desk.pending()


class HumanInbox:
    """Shows requests and messages on channels while it is open."""

    def __init__(self, backend: Backend, tree_id: str) -> None:
        """Bind a tree."""
        self.approvals = Approvals(self)
        self._backend = backend
        self._tree_id = tree_id
        self._channels: dict[str, HumanChannel] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._showing: list[asyncio.Task[None]] = []
        self.is_heeded = False
        """Whether the program ever looked what waits, or was told that something does."""
        self._unheeded: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def check_loop(self) -> None:
        """Check that the loop goes on that the tree was opened on.

        Raises:
            WrongLoop: it is closed, and what the tree had there ended with it.
        """
        if self._loop is not None and self._loop.is_closed():
            raise WrongLoop(
                f"tree {self._tree_id}",
                "the event loop it was opened on is closed, such as by the end of an earlier asyncio.run; "
                f"close it, and take it up on this one: await SessionTree.resume({self._tree_id!r}, …)",
            )

    def attach(self, session: str, channel: HumanChannel) -> None:
        """Let a session's requests and messages go to a channel; what waits for it already is shown."""
        self._channels[session] = channel
        if self._reader is not None:
            self._show_waiting(session)

    def open(self) -> None:
        """Begin: show what waits already, then follow the tree's facts."""
        self._loop = asyncio.get_running_loop()
        after = self._backend.owner.last_seq(self._tree_id)
        for session, channel in self._channels.items():
            self._show_waiting(session)
            if (show := channel_show(channel)) is not None:
                self._showing.append(asyncio.create_task(self._show_displays(session, show, after)))
        self._reader = asyncio.create_task(self._follow(after))

    async def close(self) -> None:
        """Take everything off the channels."""
        tasks = [*self._asking.values(), *self._showing]
        if self._reader is not None:
            tasks.append(self._reader)
        self._asking.clear()
        if self._unheeded is not None:
            self._unheeded.cancel()
        for task in tasks:
            task.cancel()
        # Those that are done may be of a loop that is closed by now.
        if running := [task for task in tasks if not task.done()]:
            await asyncio.wait(running)

    def client_calls(self, table: ToolTable) -> ClientCalls:
        """Return the calls that wait for the program, of the tools in a table."""
        return ClientCalls(self._backend, self._tree_id, table)

    def pending(self) -> list[PendingApproval]:
        """Return the requests that wait for a person, oldest first."""
        return [PendingApproval(request, self) for request in self._backend.owner.pending(self._tree_id)]

    async def answer(self, request_id: str, answer: ApprovalAnswer, by: str = "person") -> None:
        """Answer a request by its id.

        Raises:
            ApprovalClosed: it was decided before.
            PermissionDenied: a sender is named who does not own the tree.
        """
        self.check_loop()
        await self._backend.owner.decide(self._tree_id, request_id, answer, by)
        self._take_off(request_id)  # what is decided here is asked nobody any more, not even for a moment

    async def _follow(self, after: int) -> None:
        try:
            while True:
                after, tidings = await self._backend.owner.tidings(self._tree_id, after, READ_WAIT_S)
                for tiding in tidings:
                    await self._note(tiding)
                await asyncio.sleep(0)  # who answers at once is heard before the next question
        except EngineLost:  # whoever uses the tree gets it, too; what is shown has nobody to answer to
            for request_id in list(self._asking):
                self._take_off(request_id)

    async def _note(self, tiding: InboxEvent) -> None:
        if isinstance(tiding, RequestOpened):
            self._show(tiding.request)
        elif isinstance(tiding, RequestClosed):
            self._take_off(tiding.request_id)
        elif isinstance(tiding, MessageSaid):
            await self._say(tiding.channel, tiding.text)

    def _take_off(self, request_id: str) -> None:
        task = self._asking.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def _show_displays(self, session: str, show: DisplayListener, after: int) -> None:
        """Tell a channel what the tools of its session say to people, as their results become durable."""
        with contextlib.suppress(EngineLost):  # whoever uses the tree gets it, too
            async for record in facts_after(self._backend.owner, self._tree_id, after):
                if record.session != session or kind_in(record.text) != "call_resolved":
                    continue
                message: ToolResultMessage = fact_of(record.text).message
                display = display_of(message)
                if display is not None:
                    await _hand_over(session, show, message.tool_name, display)

    async def _say(self, session: str, text: str) -> None:
        """Hand a message to a session's channel; past one that only answers requests, to the next above."""
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

    def _show(self, request: ApprovalRequest) -> None:
        channel = self._channels.get(request.asked)
        if channel is not None and request.request_id not in self._asking:
            task = asyncio.create_task(self._ask(channel, request))
            self._asking[request.request_id] = task
            if isinstance(channel, QueueChannel) and not self.is_heeded and self._unheeded is None:
                loop = asyncio.get_running_loop()
                self._unheeded = loop.call_later(UNHEEDED_S, self._warn_unheeded, request)

    def _warn_unheeded(self, request: ApprovalRequest) -> None:
        """Say once that a request waits and nobody looks; one that waits no more gives the next a turn."""
        self._unheeded = None
        if self.is_heeded or not any(
            each.request.request_id == request.request_id for each in self.pending()
        ):
            return
        self.is_heeded = True
        _LOG.warning(
            "tree %s: %s wants to call %s (%s) and waits for a person, and nobody listens; answer with "
            "tree.approvals.pending() or `sessiontree approvals`, or give the tree an approver or a channel, "
            "such as approver=lambda request: True",
            self._tree_id,
            request.session_id,
            request.tool,
            request.tier,
        )

    async def _ask(self, channel: HumanChannel, request: ApprovalRequest) -> None:
        try:
            for _ in range(MOST_STRANGERS):
                if not await self._ask_once(channel, request):
                    return
        finally:
            self._asking.pop(request.request_id, None)

    async def _ask_once(self, channel: HumanChannel, request: ApprovalRequest) -> bool:
        """Ask and hand the answer over; True where it was one of somebody who owns nothing."""
        answer, by = await _answer_of(channel, request)
        if answer is None:
            return False
        if answer.sender is None:
            self._asking.pop(request.request_id, None)  # what is answered is not taken off while it is told
        try:
            await self._backend.owner.decide(self._tree_id, request.request_id, answer, by)
        except PermissionDenied:
            return True
        except ApprovalClosed as closed:
            if answer.approve and closed.state != "approved":
                told = f"the yes to {request.tool} of {request.session_id} came too late: {closed}"
                await self._say(request.asked, told)
            return False
        except EngineLost:
            return False
        except SessionTreeError:
            if self._backend.owner.is_open(self._tree_id):
                raise
        return False


async def _hand_over(session: str, heard: Callable[..., Awaitable[None] | None], *said: str) -> None:
    """Hand something to a channel; its failure, for it is the user's, must not stop the desk."""
    try:
        heeded = heard(*said)
        if inspect.isawaitable(heeded):
            await heeded
    except Exception as error:  # noqa: BLE001 - see above
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the channel of {session} failed", "exception": error}
        )


async def _answer_of(channel: HumanChannel, request: ApprovalRequest) -> tuple[ApprovalAnswer | None, str]:
    """Return what a channel answers, and by whom; where it fails, or answers anything else, that is a no."""
    try:
        answer = await channel.ask(request)
    except KeyboardInterrupt:
        _LOG.exception("what asks a person raised KeyboardInterrupt; that ends the event loop it runs on")
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        return ApprovalAnswer(False, f"the approver failed: {words_of(error)}"), APPROVER_ERROR
    if answer is None or _is_answer(answer):
        return answer, "person"
    reason = f"the approver answered a {type(answer).__name__} that is no proper ApprovalAnswer"
    return ApprovalAnswer(False, reason), APPROVER_ERROR


def _is_answer(answer: object) -> bool:
    """Whether a channel, which is the user's, kept to its contract."""
    return (
        isinstance(answer, ApprovalAnswer)
        and isinstance(answer.approve, bool)
        and isinstance(answer.always, bool)
        and isinstance(answer.reason, str)
        and isinstance(answer.sender, Sender | None)
    )
