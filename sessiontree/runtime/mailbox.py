"""The far end of a link: takes numbered frames in, in order and once each, and keeps what it answers.

Answers are numbered too and kept until the near end is known to have them, so that either direction may lose,
repeat, delay or reorder.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sessiontree.runtime.frames import PollReply
from sessiontree.runtime.host_link import HostLost

ACK_AFTER_S = 0.1
"""How long frames that were taken wait for an answer to ride with before a poll says so alone."""


class Mailbox:
    """Frames in, answers out.

    Args:
        take: Called with each frame, in order.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take
        self._received = 0
        self._told = 0
        self._early: dict[int, Any] = {}
        self._outbox: deque[tuple[int, Any]] = deque()
        self._sent = 0
        self._news = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.closed = False

    def receive(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Take frames in; repeats are dropped, early ones wait for those before them."""
        if self.closed:
            return
        for number, frame in frames:
            if number > self._received:
                self._early[number] = frame
            else:
                self._told = min(self._told, number - 1)  # sent again: what was told of it did not arrive
        while self._received + 1 in self._early:
            self._received += 1
            self._take(self._early.pop(self._received))
        if self._telling is None and self._received > self._told and not self.closed:
            # A poll may wait already, and what was taken may never have an answer.
            self._telling = asyncio.get_running_loop().call_later(ACK_AFTER_S, self._tell)

    def put(self, answer: Any) -> None:
        """Keep an answer for the next poll."""
        self._sent += 1
        self._outbox.append((self._sent, answer))
        self._news.set()

    def wake(self) -> None:
        """Let the poll that waits return."""
        self._news.set()

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return answers after a number, waiting for the first; those up to it are known and dropped.

        It waits ``wait_s`` at most, and may come back with none before.

        Raises:
            HostLost: the mailbox was closed.
        """
        outbox = self._outbox
        while outbox and outbox[0][0] <= after:
            outbox.popleft()
        if not outbox and not self.closed:
            self._news.clear()
            self._wait_at_most(wait_s)
            await self._news.wait()
        if self.closed:
            raise HostLost("the host was closed")
        self._told = self._received
        return PollReply(self._received, tuple(outbox))

    def close(self) -> None:
        """Take nothing more; whoever polls learns of it."""
        self.closed = True
        for timer in (self._telling, self._patience):
            if timer is not None:
                timer.cancel()
        self._news.set()

    def _wait_at_most(self, wait_s: float) -> None:
        """Let the poll that waits return by then; a bell that an earlier one has set may ring before.

        It outlives the polls, which have their news soon: one for each would cost more than all the rest.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        if self._patience is None or self._patience.when() > until:
            if self._patience is not None:
                self._patience.cancel()
            self._patience = loop.call_at(until, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        self._news.set()

    def _tell(self) -> None:
        self._telling = None
        if self._received > self._told:
            self._news.set()
