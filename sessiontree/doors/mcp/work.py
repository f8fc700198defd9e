"""Work: one turn of a conversation, as a client of MCP follows it; all of it is read from the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sessiontree.contracts.kinds import SessionStatus
from sessiontree.doors.conversations import ConflictError, Conversation, Conversations
from sessiontree.doors.mcp.forms import Waiting, list_waiting
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.turns import HeardTurn, Turn

WorkStatus: TypeAlias = Literal["working", "input_required", "completed", "cancelled", "failed"]
ENDED: tuple[WorkStatus, ...] = ("completed", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The state of some work."""

    status: WorkStatus
    created_ms: int
    """When it was asked for, in milliseconds since 1970."""
    changed_ms: int
    """When it changed last."""
    text: str = ""
    """The answer."""
    error: str = ""
    """Why it has no answer; empty = it has one, or goes on."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """What waits for an answer of the principal, by key."""
    waits_for_owner: bool = False
    """Whether something waits for the owner of the door, since the principal may not answer."""

    @property
    def shown_status(self) -> WorkStatus:
        """The status for who asks a tool: for them, work without an answer has failed.

        A task whose result is an error is completed, as its protocol says.
        """
        return "failed" if self.status == "completed" and self.error else self.status


@dataclass(frozen=True, slots=True)
class Work:
    """One turn of a conversation."""

    conversation: Conversation
    work_id: str

    async def until_durable(self) -> None:
        """Wait until the journal has it.

        Raises:
            ConflictError: the conversation takes no message any more.
        """
        if await self.conversation.log.until_heard(self.work_id) is None:
            raise ConflictError("the conversation has ended; begin another one")

    async def until_ended(self) -> None:
        """Wait until it has ended."""
        await self.conversation.log.until_ended(self.work_id)

    async def report(self) -> WorkReport:
        """Return its state.

        Raises:
            NotFoundError: the conversation has no such work.
        """
        turn = await self.conversation.find_turn(self.work_id)
        log = self.conversation.log
        if turn.ended is None:
            if await self.conversation.is_over():
                return await self._report_ended_tree(turn)
            return await self._report_unfinished(turn)
        status: WorkStatus = "cancelled" if turn.ended.was_interrupted else "completed"
        changed_ms = turn.end_ms or log.changed_ms
        return WorkReport(status, turn.at_ms, changed_ms, turn.ended.text, turn.ended.error or "")

    async def _report_unfinished(self, turn: HeardTurn) -> WorkReport:
        log = self.conversation.log
        turns = await log.read()
        is_first = next(each.turn_id for each in turns.values() if each.ended is None) == self.work_id
        waiting = list_waiting(self.conversation.tree) if is_first else {}
        if waiting and not self.conversation.principal.rights.approves:
            return WorkReport("working", turn.at_ms, log.changed_ms, waits_for_owner=True)
        status: WorkStatus = "input_required" if waiting else "working"
        return WorkReport(status, turn.at_ms, log.changed_ms, waiting=waiting)

    async def _report_ended_tree(self, turn: HeardTurn) -> WorkReport:
        """Return the state of a turn whose tree ended before it did."""
        result = await self.conversation.tree.main.result()
        changed_ms = self.conversation.log.changed_ms
        if result.status is SessionStatus.COMPLETED:
            return WorkReport("completed", turn.at_ms, changed_ms, result.summary)
        status: WorkStatus = "cancelled" if result.status is SessionStatus.CANCELLED else "failed"
        return WorkReport(status, turn.at_ms, changed_ms, error=result.summary or result.status.value)


def work_of(conversation: Conversation, turn: Turn) -> Work:
    """Return the work of a turn that was asked for just now."""
    return Work(conversation, turn.turn_id)


async def find_work(conversations: Conversations, principal: DoorPrincipal, work_id: str) -> Work:
    """Return work of a principal, whose tree is resumed if need be.

    Raises:
        NotFoundError: the principal has no such work.
        ConfigError: too many trees are open, or the tree can't be resumed.
    """
    conversation = await conversations.find_by_turn(principal, work_id)
    work = Work(conversation, work_id)
    await conversation.find_turn(work_id)
    return work
