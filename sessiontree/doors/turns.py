"""Turns of a conversation: which messages Main heard, and how each was answered, as the journal says it.

A turn's id is the id of its message in Main's journal: a turn that is asked for again after a loss runs once.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field

from sessiontree.api.backend import READ_AT_ONCE
from sessiontree.api.pending_reply import PendingReply
from sessiontree.contracts.errors import SessionTreeError
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
            return TurnEnd("", str(error))


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


class TurnLog:
    """The turns of one tree, by id, oldest first.

    Args:
        supervisor: Serves the tree.
        tree_id: The tree.
    """

    def __init__(self, supervisor: SupervisorApi, tree_id: str) -> None:
        self._supervisor = supervisor
        self._tree_id = tree_id
        self._turns: dict[str, HeardTurn] = {}
        self._after = 0
        self._reading = asyncio.Lock()  # of two readers each fact goes to one

    async def read(self) -> dict[str, HeardTurn]:
        """Return all turns until now; facts that were read before are not read again.

        Raises:
            JournalError: the journal can't be read.
        """
        async with self._reading:
            while records := await self._supervisor.read(self._tree_id, self._after, READ_AT_ONCE, 0.0):
                for record in records:
                    if record.session == MAIN:
                        self._take(record)
                self._after = records[-1].seq
        return self._turns

    def _take(self, record: JournalRecord) -> None:
        for fact in record.facts:
            if isinstance(fact, MessageReceived) and fact.message.origin == "user":
                previous = next(reversed(self._turns), None)
                turn = HeardTurn(fact.message_id, previous, record.seq, record.at_ms)
                self._turns[fact.message_id] = turn
            elif isinstance(fact, RunFinished):
                end = TurnEnd(fact.text if fact.error is None else "", fact.error)
                for turn_id in fact.answers:
                    if (answered := self._turns.get(turn_id)) is not None:
                        answered.ended, answered.end_seq = end, record.seq
