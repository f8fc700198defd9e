"""Work: one turn of a conversation, as a client of MCP follows it; all of it is read from the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.tools.program_tool import SavedText
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.doors.conversations import ConflictError, Conversation, Conversations, NotFoundError
from sessiontree.doors.mcp.forms import Waiting, list_waiting
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.turns import HeardTurn, Turn, make_turn_id

WorkStatus: TypeAlias = Literal["working", "input_required", "completed", "cancelled", "failed"]
FIRST_FACTS: Final = 64
"""Among so many of a tree's first facts is the start of its program."""
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


class Work(Protocol):
    """What a client began, and follows."""

    @property
    def conversation(self) -> Conversation:
        """Where it goes on."""

    @property
    def work_id(self) -> str:
        """Its id."""

    async def until_durable(self) -> None:
        """Wait until the journal has it."""

    async def wait_until_ended(self) -> None:
        """Wait until it has ended."""

    async def report(self) -> WorkReport:
        """Return its state."""

    async def cancel(self) -> None:
        """Stop it."""


@dataclass(frozen=True, slots=True)
class TurnWork:
    """One turn of a conversation."""

    conversation: Conversation
    work_id: str

    async def until_durable(self) -> None:
        """Wait until the journal has it.

        Raises:
            ConflictError: the conversation takes no message any more.
        """
        if await self.conversation.log.wait_until_heard(self.work_id) is None:
            raise ConflictError("the conversation has ended; begin another one")

    async def wait_until_ended(self) -> None:
        """Wait until it has ended."""
        await self.conversation.log.wait_until_ended(self.work_id)

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

    async def cancel(self) -> None:
        """Interrupt it, and what its children do."""
        await self.conversation.interrupt()

    async def _report_unfinished(self, turn: HeardTurn) -> WorkReport:
        log = self.conversation.log
        await log.read()
        # Turns run one after the other, so what waits belongs to the first that has not ended.
        is_first = next(iter(log.unfinished), None) == self.work_id
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


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """One run of a saved program: a Branch of a tree of its own."""

    conversation: Conversation
    work_id: str
    session_id: str
    created_ms: int

    async def until_durable(self) -> None:
        """Return at once: it was begun when the journal had it."""

    async def wait_until_ended(self) -> None:
        """Wait until it has ended."""
        await self.conversation.tree.session(self.session_id).result()

    async def report(self) -> WorkReport:
        """Return its state; the answer is the program's value as JSON."""
        tree, log = self.conversation.tree, self.conversation.log
        await log.read()
        lines = {line.session_id: line.status for line in tree.receipt()}
        if not lines[self.session_id].is_final:
            waiting = list_waiting(tree)
            if waiting and not self.conversation.principal.rights.approves:
                return WorkReport("working", self.created_ms, log.changed_ms, waits_for_owner=True)
            status: WorkStatus = "input_required" if waiting else "working"
            return WorkReport(status, self.created_ms, log.changed_ms, waiting=waiting)
        result = await tree.session(self.session_id).result()
        if result.status is SessionStatus.COMPLETED:
            text = result.output if isinstance(result.output, str) else dump_readable(result.output)
            return WorkReport("completed", self.created_ms, log.changed_ms, text)
        ended: WorkStatus = "cancelled" if result.status is SessionStatus.CANCELLED else "completed"
        return WorkReport(ended, self.created_ms, log.changed_ms, error=result.summary or result.status.value)

    async def cancel(self) -> None:
        """End it, and everything below it."""
        name = self.conversation.principal.name
        await self.conversation.tree.session(self.session_id).cancel(f"cancelled by {name}")


def make_work(conversation: Conversation, turn: Turn) -> Work:
    """Return the work of a turn that was asked for just now."""
    return TurnWork(conversation, turn.turn_id)


async def begin_program(conversation: Conversation, saved: SavedText, inputs: Mapping[str, Any]) -> Work:
    """Begin a saved program in a new tree; durable when this returns.

    Raises:
        SpawnRefused, LimitExceeded: a rule or a limit forbids it.
    """
    work_id = make_turn_id(conversation.conversation_id)
    await conversation.tree.main.spawn(
        "branch",
        f"Run {saved.name}.",
        program=saved.name,
        inputs=dict(inputs),
        budget=saved.budget,
        label=_label_in(work_id),
        stays_open=False,
    )
    return await _find_program(conversation, work_id)


async def find_work(conversations: Conversations, principal: DoorPrincipal, work_id: str) -> Work:
    """Return work of a principal, whose tree is resumed if need be.

    Raises:
        NotFoundError: the principal has no such work.
        ConfigError: too many trees are open, or the tree can't be resumed.
    """
    conversation = await conversations.find_by_turn(principal, work_id)
    with conversation:  # a request that needs room must not close it meanwhile
        if await conversation.log.read():
            await conversation.find_turn(work_id)
            return TurnWork(conversation, work_id)
        return await _find_program(conversation, work_id)


async def find_newest(conversation: Conversation) -> Work | None:
    """Return the work that goes on longest, else the newest one; None = the conversation has none yet."""
    turns = await conversation.log.read()
    if turns:
        unfinished = [each.turn_id for each in turns.values() if each.ended is None]
        return TurnWork(conversation, unfinished[0] if unfinished else next(reversed(turns)))
    found = await _list_programs(conversation)
    return found[0] if found else None


async def _find_program(conversation: Conversation, work_id: str) -> Work:
    for each in await _list_programs(conversation):
        if each.work_id == work_id:
            return each
    raise NotFoundError(f"nothing is called {work_id[:100]!r}")


async def _list_programs(conversation: Conversation) -> list[ProgramWork]:
    log, tree_id = conversation.log, conversation.conversation_id
    first = await log.supervisor.read(tree_id, 0, FIRST_FACTS, 0.0)
    return [
        ProgramWork(conversation, f"{tree_id}_{fact.spec.label}", fact.spec.session_id, record.at_ms)
        for record in first
        for fact in record.facts
        if isinstance(fact, SessionSpawned) and fact.spec.parent == MAIN and fact.spec.label is not None
    ]


def _label_in(work_id: str) -> str:
    return work_id.rpartition("_")[2]
