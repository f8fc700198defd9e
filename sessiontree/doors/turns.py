"""Turns of a conversation: which messages Main heard, and how each was answered, as the journal says it.

A turn's id is the id of its message in Main's journal: a turn that is asked for again after a loss runs once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import field

from sessiontree.api.tree.pending_reply import PendingReply
from sessiontree.contracts.errors import SessionFailed, SessionTreeError
from sessiontree.contracts.facts.session_facts import MessageReceived, RunFinished
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.doors.journal_feed import JournalFeed
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.supervisor_api import SupervisorApi


def make_turn_id(tree_id: str) -> str:
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
        feed: Reads the journal of the tree.
    """

    def __init__(self, feed: JournalFeed) -> None:
        self.feed = feed
        self._turns: dict[str, HeardTurn] = {}
        self._unfinished: dict[str, HeardTurn] = {}

    @property
    def cursor(self) -> int:
        """Number of the newest fact of the tree that was read."""
        return self.feed.cursor

    @property
    def changed_ms(self) -> int:
        """When that fact was recorded, in milliseconds since 1970; 0 = none was read."""
        return self.feed.changed_ms

    @property
    def supervisor(self) -> SupervisorApi:
        """What serves the tree."""
        return self.feed.supervisor

    @property
    def unfinished(self) -> Mapping[str, HeardTurn]:
        """The turns without an end, as far as facts were read, oldest first."""
        return self._unfinished

    async def read(self) -> dict[str, HeardTurn]:
        """Return all turns until now; facts that were read before are not read again.

        Raises:
            JournalError: the journal can't be read.
        """
        await self.feed.read(self._take)
        return self._turns

    async def last_seq(self) -> int:
        """Return the number of the tree's newest fact.

        Raises:
            JournalError: the journal can't be read.
        """
        return await self.supervisor.last_seq(self.feed.tree_id)

    async def is_over(self) -> bool:
        """Return whether the tree has ended."""
        return await self.supervisor.is_over(self.feed.tree_id)

    async def wait_until_heard(self, turn_id: str) -> HeardTurn | None:
        """Wait until a turn is durable, and return it; None = the tree ended first.

        Raises:
            JournalError: the journal can't be read.
        """
        return await self._wait_for_turn(turn_id, is_end=False)

    async def wait_until_ended(self, turn_id: str) -> HeardTurn | None:
        """Wait until a turn has ended, and return it; it goes on only if the tree ended first.

        Returns:
            None = the tree ended, and has no such turn.

        Raises:
            JournalError: the journal can't be read.
        """
        return await self._wait_for_turn(turn_id, is_end=True)

    async def _wait_for_turn(self, turn_id: str, *, is_end: bool) -> HeardTurn | None:
        # What a wait has read is looked at first: the tree may be closed as soon as its turn has ended.
        while not self._has_turn(turn_id, is_end=is_end):
            is_over = await self.is_over()  # before its last facts are read
            await self.read()
            if is_over:
                break
            if not self._has_turn(turn_id, is_end=is_end):
                await self.feed.wait()
        return self._turns.get(turn_id)

    def _has_turn(self, turn_id: str, *, is_end: bool) -> bool:
        turn = self._turns.get(turn_id)
        return turn is not None and (turn.ended is not None or not is_end)

    def _take(self, record: JournalRecord) -> None:
        if record.session != MAIN:
            return
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
