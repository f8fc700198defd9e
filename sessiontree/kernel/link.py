"""The supervisor's end of the way to one host: numbered frames out, numbered outcomes in.

Either direction may lose, repeat, delay or reorder: frames are sent again until known to be received,
outcomes are taken in order and once. A host that is gone is told to whoever holds the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from sessiontree.kernel.errors import HostLost
from sessiontree.kernel.frames import Frame, Outcome, PollReply

RESEND_AFTER_S = 0.5
POLL_WAIT_S = 20.0


class Transport(Protocol):
    """Carries frames to a host and its answers back; may lose, repeat and delay."""

    def submit(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Send frames without waiting."""
        ...

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return outcomes after a number, waiting up to ``wait_s`` for one.

        Raises:
            HostLost: the host is gone for good.
            TimeoutError: this poll or its answer was lost; ask again.
        """
        ...

    def close(self) -> None:
        """End the host."""
        ...


class HostLink:
    """One host, as the supervisor sees it."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        on_outcome: Callable[[HostLink, Outcome], None],
        on_lost: Callable[[HostLink], None],
        *,
        resend_after_s: float = RESEND_AFTER_S,
    ) -> None:
        """Bind the transport and begin to poll."""
        self.name = name
        self.seat: object | None = None
        """Who uses the host now; the scheduler's."""
        self._transport = transport
        self._on_outcome = on_outcome
        self._on_lost = on_lost
        self._resend_after_s = resend_after_s
        self._number = 0
        self._unknown: dict[int, Frame] = {}
        self._after = 0
        self._resend: asyncio.TimerHandle | None = None
        self._closed = False
        self._task = asyncio.create_task(self._listen(), name=f"link-{name}")

    def send(self, frame: Frame) -> None:
        """Send a frame; it arrives in order with the others, or the host is lost."""
        self._number += 1
        self._unknown[self._number] = frame
        self._transport.submit(((self._number, frame),))
        if self._resend is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._resend = loop.call_later(self._resend_after_s, self._send_again)

    async def close(self) -> None:
        """End host and link."""
        self._closed = True
        if self._resend is not None:
            self._resend.cancel()
        self._transport.close()
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise

    def _send_again(self) -> None:
        self._resend = None
        if self._unknown and not self._closed:
            self._transport.submit(tuple(self._unknown.items()))
            loop = asyncio.get_running_loop()
            self._resend = loop.call_later(self._resend_after_s, self._send_again)

    async def _listen(self) -> None:
        while not self._closed:
            try:
                reply = await self._transport.poll(self._after, POLL_WAIT_S)
            except TimeoutError:
                continue
            except HostLost:
                self._closed = True
                if self._resend is not None:
                    self._resend.cancel()
                self._on_lost(self)
                return
            self._take(reply)

    def _take(self, reply: PollReply) -> None:
        unknown = self._unknown
        while unknown:
            first = next(iter(unknown))
            if first > reply.received:
                break
            del unknown[first]
        for number, outcome in reply.outcomes:
            if number == self._after + 1:
                self._after = number
                self._on_outcome(self, outcome)
