"""The approval desk of one tree: shows requests on the channels that own them, and takes answers by id.

It reads the tree's facts like any other reader; what is shown and what is answered stands in the journal.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sessiontree.backend import Backend
from sessiontree.channels.port import HumanChannel
from sessiontree.client_calls import ClientCalls
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.cancelling import is_cancelled
from sessiontree.contracts.errors import ApprovalClosed, SessionTreeError, words_of
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.kernel.tidings import Decided, Said, Shown, Tiding

READ_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One request that waits for a person."""

    request: ApprovalRequest
    _desk: ApprovalDesk

    async def approve(self, *, always: bool = False, reason: str = "") -> None:
        """Say yes: once, or to every later call of the tool in this tree.

        Raises:
            ApprovalClosed: it was decided meanwhile.
        """
        await self._desk.answer(self.request.request_id, ApprovalAnswer(True, reason, always))

    async def deny(self, reason: str = "") -> None:
        """Say no; the same call stays denied on this path until the tree ends.

        Raises:
            ApprovalClosed: it was decided meanwhile.
        """
        await self._desk.answer(self.request.request_id, ApprovalAnswer(False, reason))


class Approvals:
    """The requests of a tree that wait for a person."""

    def __init__(self, desk: ApprovalDesk) -> None:
        """Bind the desk."""
        self.pending = desk.pending


class ApprovalDesk:
    """Shows requests and messages on channels while it is open."""

    def __init__(self, backend: Backend, tree_id: str) -> None:
        """Bind a tree."""
        self.approvals = Approvals(self)
        self._backend = backend
        self._tree_id = tree_id
        self._channels: dict[str, HumanChannel] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._reader: asyncio.Task[None] | None = None

    def attach(self, session: str, channel: HumanChannel) -> None:
        """Let a session's requests and messages go to a channel; what waits for it already is shown."""
        self._channels[session] = channel
        if self._reader is not None:
            self._show_waiting(session)

    def open(self) -> None:
        """Begin: show what waits already, then follow the tree's facts."""
        after = self._backend.owner.last_seq(self._tree_id)
        for session in self._channels:
            self._show_waiting(session)
        self._reader = asyncio.create_task(self._follow(after))

    async def close(self) -> None:
        """Take everything off the channels."""
        tasks = [*self._asking.values()]
        if self._reader is not None:
            tasks.append(self._reader)
        self._asking.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

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
        """
        await self._backend.owner.decide(self._tree_id, request_id, answer, by)
        self._take_off(request_id)  # what is decided here is asked nobody any more, not even for a moment

    async def _follow(self, after: int) -> None:
        while True:
            after, tidings = await self._backend.owner.tidings(self._tree_id, after, READ_WAIT_S)
            for tiding in tidings:
                await self._note(tiding)
            await asyncio.sleep(0)  # who answers at once is heard before the next question

    async def _note(self, tiding: Tiding) -> None:
        if isinstance(tiding, Shown):
            self._show(tiding.request)
        elif isinstance(tiding, Decided):
            self._take_off(tiding.request_id)
        elif isinstance(tiding, Said):
            await self._say(tiding.channel, tiding.text)

    def _take_off(self, request_id: str) -> None:
        task = self._asking.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def _say(self, session: str, text: str) -> None:
        channel = self._channels.get(session)
        if channel is not None:
            try:
                await channel.send(text)
            except Exception as error:  # noqa: BLE001 - a channel is the user's; its failure must not stop the desk
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"the channel of {session} failed", "exception": error}
                )

    def _show_waiting(self, session: str) -> None:
        for pending in self.pending():
            if pending.request.asked == session:
                self._show(pending.request)

    def _show(self, request: ApprovalRequest) -> None:
        channel = self._channels.get(request.asked)
        if channel is not None and request.request_id not in self._asking:
            task = asyncio.create_task(self._ask(channel, request))
            self._asking[request.request_id] = task

    async def _ask(self, channel: HumanChannel, request: ApprovalRequest) -> None:
        try:
            answer = await channel.ask(request)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an approver that fails has said no
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            answer = ApprovalAnswer(False, f"the approver failed: {words_of(error)}")
        finally:
            self._asking.pop(request.request_id, None)
        if answer is not None:
            if not _is_answer(answer):
                answer = ApprovalAnswer(False, "the approver answered something that is no ApprovalAnswer")
            try:
                await self.answer(request.request_id, answer)
            except ApprovalClosed:
                return
            except SessionTreeError:
                if self._backend.owner.is_open(self._tree_id):
                    raise


def _is_answer(answer: object) -> bool:
    """Whether a channel, which is the user's, kept to its contract."""
    return (
        isinstance(answer, ApprovalAnswer)
        and isinstance(answer.approve, bool)
        and isinstance(answer.always, bool)
        and isinstance(answer.reason, str)
    )
