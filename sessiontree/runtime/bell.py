"""Waking whoever waits at a desk: only for facts that a desk acts on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sessiontree.contracts.tree_facts import (
    ApprovalDecided,
    ApprovalWaiting,
    ChannelSaid,
    ClientCallOpened,
    SessionEnded,
    TreeFact,
)

LATER_S = 0.05
"""How long a desk may go on showing what was decided elsewhere."""


class Bell:
    """Knows which requests are shown and up to which fact was told.

    Args:
        shown: Ids of the requests that wait for a person already.
    """

    def __init__(self, shown: Iterable[str]) -> None:
        """Begin with nothing told."""
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
