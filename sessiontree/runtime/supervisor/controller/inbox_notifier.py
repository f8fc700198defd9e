"""Wakes the readers of a tree's inbox: at once for what is new, a little later for what was only removed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    ChannelSaid,
    ClientCallEnded,
    ClientCallOpened,
    SessionEnded,
    TreeFact,
)
from sessiontree.runtime.transport.supervisor_api import CodeRaised

LATER_S: Final = 0.05
"""How long an inbox may still show a request that was decided elsewhere, in seconds."""
MAX_REPORTS: Final = 64
"""Most reports of raised exceptions that wait for a reader; the oldest are dropped."""


class InboxNotifier:
    """Wakes inboxes: knows which requests are shown, and the newest fact on which an inbox acts.

    Args:
        shown: Ids of the requests that wait for a person already.
    """

    def __init__(self, shown: Iterable[str]) -> None:
        self.notified_seq = 0
        """Number of the newest fact that an inbox acts on."""
        self.holds_news = False
        """Whether there may be a fact that an inbox shows; else it only learns that the tree has ended."""
        self.reports: deque[CodeRaised] = deque(maxlen=MAX_REPORTS)
        """What code of the program's author raised; the next reader takes it."""
        self._shown = set(shown)
        self._rang = asyncio.Event()
        self._is_urgent = False
        self._later: asyncio.TimerHandle | None = None

    def take_facts(self, facts: Iterable[TreeFact]) -> bool:
        """Take facts in, each once and in order; return whether an inbox acts on any."""
        found = [self._take_fact(fact) for fact in facts]
        return any(found)

    def _take_fact(self, fact: TreeFact) -> bool:
        if isinstance(fact, SessionEnded):
            is_last = fact.session == "main"  # the reader then learns that the tree has ended
            self._is_urgent = self._is_urgent or is_last
            return is_last
        acts = self._is_shown(fact)
        self.holds_news = self.holds_news or acts
        return acts

    def _is_shown(self, fact: TreeFact) -> bool:
        if isinstance(fact, ApprovalWaiting) and fact.how == "show":
            self._shown.add(fact.request_id)
            self._is_urgent = True
            return True
        if isinstance(fact, ApprovalDecided) and fact.request_id in self._shown:
            self._shown.remove(fact.request_id)
            return True
        if isinstance(fact, ClientCallEnded):
            return True
        told = isinstance(fact, ChannelSaid | ClientCallOpened)
        self._is_urgent = self._is_urgent or told
        return told

    def ring(self, seq: int) -> None:
        """Wake all waiters: facts up to a number are durable.

        Without anything new to show, wake them a little later: the removal of a decided request must not
        take the processor from the call that was approved.
        """
        self.notified_seq = max(self.notified_seq, seq)
        if self._is_urgent:
            self._is_urgent = False
            self._rang.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._ring_later)

    def report(self, raised: CodeRaised) -> None:
        """Pass on what code of the program's author raised."""
        self.reports.append(raised)
        self._rang.set()

    def close(self) -> None:
        """Wake all waiters for the last time."""
        if self._later is not None:
            self._later.cancel()
        self._rang.set()

    def _ring_later(self) -> None:
        self._later = None
        self._rang.set()

    async def wait(self) -> None:
        """Wait for the next wake-up. Compare ``notified_seq`` first, without an ``await`` in between."""
        # Race: a wake-up between the comparison and the clearing would be lost; without an await none can
        # come.
        self._rang.clear()
        await self._rang.wait()
