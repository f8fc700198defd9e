"""What a program acts on (requests, messages, its own calls), and waking whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.client_call import ClientCall
from sessiontree.contracts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    ChannelSaid,
    ClientCallOpened,
    SessionEnded,
    TreeFact,
)
from sessiontree.journal.record import Record
from sessiontree.runtime.replay import fact_of
from sessiontree.tree.receipt import request_of
from sessiontree.tree.state import TreeState


@dataclass(frozen=True, slots=True)
class RequestOpened:
    """A request waits for a person."""

    request: ApprovalRequest


@dataclass(frozen=True, slots=True)
class RequestClosed:
    """A request waits no more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class MessageSaid:
    """Something was said on a session's channel."""

    channel: str
    text: str


@dataclass(frozen=True, slots=True)
class ClientCallArrived:
    """A call waits for the program."""

    call: ClientCall


InboxEvent: TypeAlias = RequestOpened | RequestClosed | MessageSaid | ClientCallArrived


def inbox_events_in(records: Iterable[Record], state: TreeState) -> list[InboxEvent]:
    """Return what of a tree's facts concerns a desk, in their order; what waits no more is not told."""
    tidings: list[InboxEvent] = []
    for record in records:
        fact: Any = fact_of(record.text)
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            request = request_of(state, fact.request_id)
            if request is not None:
                tidings.append(RequestOpened(request))
        elif isinstance(fact, ApprovalDecided):
            tidings.append(RequestClosed(fact.request_id))
        elif isinstance(fact, ChannelSaid):
            tidings.append(MessageSaid(fact.channel, fact.text))
        elif isinstance(fact, ClientCallOpened) and fact.client_id in state.client_calls:
            call = ClientCall(fact.client_id, fact.session, fact.tool, fact.arguments, fact.expires_at_ms)
            tidings.append(ClientCallArrived(call))
    return tidings


LATER_S = 0.05
"""How long a desk may go on showing what was decided elsewhere."""


class InboxNotifier:
    """Knows which requests are shown and up to which fact was told.

    Args:
        shown: Ids of the requests that wait for a person already.
    """

    def __init__(self, shown: Iterable[str]) -> None:
        self.told_seq = 0
        """Number of the newest fact a desk acts on."""
        self._shown = set(shown)
        self._rang = asyncio.Event()
        self._is_urgent = False
        self._later: asyncio.TimerHandle | None = None

    def concerns(self, facts: Iterable[TreeFact]) -> bool:
        """Take facts in, each once and in order; returns whether a desk acts on any."""
        found = [self._concerns(fact) for fact in facts]
        return any(found)

    def _concerns(self, fact: TreeFact) -> bool:
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            self._shown.add(fact.request_id)
            self._is_urgent = True
            return True
        if isinstance(fact, ApprovalDecided) and fact.request_id in self._shown:
            self._shown.remove(fact.request_id)
            return True
        is_last = (
            isinstance(fact, SessionEnded) and fact.session == "main"
        )  # who reads on learns that it is over
        told = is_last or isinstance(fact, ChannelSaid | ClientCallOpened)
        self._is_urgent = self._is_urgent or told
        return told

    def ring(self, seq: int) -> None:
        """Wake everybody, soon: facts up to a number are durable.

        Not at once where nothing new is to be shown: what is only taken away must not keep processors from
        the call that the decision lets run.
        """
        self.told_seq = max(self.told_seq, seq)
        if self._is_urgent:
            self._is_urgent = False
            self._rang.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._ring_later)

    def close(self) -> None:
        """Wake everybody for the last time."""
        if self._later is not None:
            self._later.cancel()
        self._rang.set()

    def _ring_later(self) -> None:
        self._later = None
        self._rang.set()

    async def wait(self) -> None:
        """Wait for the next ring; whoever asks looks at ``told_seq`` first, without waiting in between."""
        self._rang.clear()
        await self._rang.wait()
