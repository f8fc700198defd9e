"""Turns of a conversation: which messages Main heard, and how each was answered, as the journal says it.

A turn's id is the id of its message in Main's journal: a turn that is asked for again after a loss runs once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from sessiontree.api.backend import READ_AT_ONCE, READ_WAIT_S
from sessiontree.api.pending_reply import PendingReply
from sessiontree.contracts.errors import SessionFailed, SessionTreeError
from sessiontree.contracts.session_facts import MessageReceived, RunFinished
from sessiontree.contracts.session_ids import MAIN
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.supervisor_api import SupervisorApi


def new_turn_id(tree_id: str) -> str:
    """Return an id that nobody can guess, and that says which tree has the turn."""
    return f"{tree_id}_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended."""

    text: str
    """The answer; empty if it failed."""
    error: str | None = None
    """Why it failed."""
    was_interrupted: bool = False
    """Whether it failed because somebody interrupted it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that was asked for just now."""

    turn_id: str
    reply: PendingReply = field(repr=False)

    async def end(self) -> TurnEnd:
        """Wait for its end."""
        try:
            return TurnEnd(await self.reply)
        except SessionTreeError as error:
            return TurnEnd("", str(error), isinstance(error, SessionFailed) and error.cause == "interrupted")


@dataclass(slots=True)
class HeardTurn:
    """A turn in the journal."""

    turn_id: str
    previous: str | None
    """Id of the turn before it."""
    seq: int
    """Number of the fact with its message."""
    at_ms: int
    """When it was heard, in milliseconds since 1970."""
    ended: TurnEnd | None = None
    """How it ended; None = it goes on."""
    end_seq: int | None = None
    """Number of the fact with its end."""
    end_ms: int | None = None
    """When it ended, in milliseconds since 1970."""


class TurnLog:
    """The turns of one tree, by id, oldest first.

    Args:
        supervisor: Serves the tree.
        tree_id: The tree.
    """

    def __init__(self, supervisor: SupervisorApi, tree_id: str) -> None:
        self.supervisor = supervisor
        self._tree_id = tree_id
        self._turns: dict[str, HeardTurn] = {}
        self._unfinished: dict[str, HeardTurn] = {}
        self._after = 0
        self._changed_ms = 0
        self._reading = asyncio.Lock()  # of two readers each fact goes to one

    @property
    def cursor(self) -> int:
        """Number of the newest fact of the tree that was read."""
        return self._after

    @property
    def changed_ms(self) -> int:
        """When that fact was recorded, in milliseconds since 1970; 0 = none was read."""
        return self._changed_ms

    @property
    def unfinished(self) -> Mapping[str, HeardTurn]:
        """The turns without an end, as far as facts were read, oldest first."""
        return self._unfinished

    async def read(self) -> dict[str, HeardTurn]:
        """Return all turns until now; facts that were read before are not read again.

        Raises:
            JournalError: the journal can't be read.
        """
        async with self._reading:
            while records := await self.supervisor.read(self._tree_id, self._after, READ_AT_ONCE, 0.0):
                for record in records:
                    if record.session == MAIN:
                        self._take(record)
                self._after, self._changed_ms = records[-1].seq, records[-1].at_ms
        return self._turns

    async def last_seq(self) -> int:
        """Return the number of the tree's newest fact.

        Raises:
            JournalError: the journal can't be read.
        """
        return await self.supervisor.last_seq(self._tree_id)

    async def list_records(self) -> list[JournalRecord]:
        """Return all that the journal has, oldest first.

        Raises:
            JournalError: the journal can't be read.
        """
        found: list[JournalRecord] = []
        while records := await self.supervisor.read(
            self._tree_id, found[-1].seq if found else 0, READ_AT_ONCE, 0.0
        ):
            found += records
        return found

    async def is_over(self) -> bool:
        """Return whether the tree has ended."""
        return await self.supervisor.is_over(self._tree_id)

    async def until_heard(self, turn_id: str) -> HeardTurn | None:
        """Wait until a turn is durable, and return it; None = the tree ended first.

        Raises:
            JournalError: the journal can't be read.
        """
        return await self._until(turn_id, is_end=False)

    async def until_ended(self, turn_id: str) -> HeardTurn | None:
        """Wait until a turn has ended, and return it; it goes on only if the tree ended first.

        Returns:
            None = the tree ended, and has no such turn.

        Raises:
            JournalError: the journal can't be read.
        """
        return await self._until(turn_id, is_end=True)

    async def _until(self, turn_id: str, *, is_end: bool) -> HeardTurn | None:
        while True:
            is_over = await self.supervisor.is_over(self._tree_id)  # before its last facts are read
            turn = (await self.read()).get(turn_id)
            if is_over or (turn is not None and (turn.ended is not None or not is_end)):
                return turn
            await self.supervisor.read(self._tree_id, self._after, 1, READ_WAIT_S)

    def _take(self, record: JournalRecord) -> None:
        for fact in record.facts:
            if isinstance(fact, MessageReceived) and fact.message.origin == "user":
                previous = next(reversed(self._turns), None)
                turn = HeardTurn(fact.message_id, previous, record.seq, record.at_ms)
                self._turns[fact.message_id] = self._unfinished[fact.message_id] = turn
            elif isinstance(fact, RunFinished):
                end = TurnEnd(fact.text if fact.error is None else "", fact.error, fact.interrupted)
                for turn_id in fact.answers:
                    if (answered := self._unfinished.pop(turn_id, None)) is not None:
                        answered.ended, answered.end_seq, answered.end_ms = end, record.seq, record.at_ms
