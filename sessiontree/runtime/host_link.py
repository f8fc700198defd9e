"""What goes wrong between supervisor and host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sessiontree.runtime.frames import Kill, Left, PollReply, Release
from sessiontree.runtime.progress import Progress


class HostLost(Exception):
    """The host is gone for good; its session is embodied elsewhere, or ends where it is to blame.

    Args:
        reason: What is known of its end.
        to_blame: Whether the session's own work brought it about, so that trying again would too.
        served: Whether it ever was ready to serve.
    """

    def __init__(self, reason: str, to_blame: bool = False, served: bool = True) -> None:
        super().__init__(reason, to_blame, served)
        self.reason = reason
        self.to_blame = to_blame
        self.served = served

    def __str__(self) -> str:
        """Return the reason alone."""
        return self.reason


RESEND_AFTER_S = 0.5
POLL_WAIT_S = 20.0
LET_GO_S = 2.0
"""How long a host may be deaf after it was told to let its session go, before it is ended."""


class Transport(Protocol):
    """Carries frames to a host and its answers back; may lose, repeat and delay."""

    pid: int
    """The host's process; 0 while it starts."""
    level: str
    """Confinement in force at the host, such as ``structural``."""
    is_ready: bool
    """Whether the host serves already."""

    async def ready(self) -> None:
        """Wait until the host serves.

        Raises:
            HostLost: it never will.
        """
        ...

    def submit(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Send frames without waiting."""
        ...

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return outcomes after a number, waiting up to ``wait_s`` for one.

        Raises:
            HostLost: the host is gone for good.
            TimeoutError: this poll or its answer was lost; ask again.
        """
        ...

    async def lag_s(self) -> float:
        """Return for how many seconds the host has done nothing but one thing, deaf to everything else.

        Raises:
            HostLost: the host is gone for good.
        """
        ...

    def close(self) -> None:
        """End the host."""
        ...

    async def ended(self) -> int:
        """Wait, for a limited time, until nothing is left of a host that was closed or is gone.

        Returns:
            How many processes had outlived it and were ended.
        """
        ...


@dataclass(slots=True)
class _Leaving:
    """A session that was told to leave the host, and what it is known to have left there."""

    occupant: object
    frame: Release | Kill | None
    """What it was told; None = the host is gone."""
    number: int
    """Of that frame."""
    ended: int = 0


class HostLink:
    """One host, as the supervisor sees it.

    Args:
        name: What logs and listings call it.
        transport: The way to it.
        on_outcome: Told of each outcome, in order and once.
        on_lost: Told once, when the host is gone.
        on_free: Told when the host can take a session: once it serves, and when one that had to be let go at
            once is known to be.
        on_progress: Told what watched trees do.
        on_left: Told of each session that has left the host, for good or for now, or with it, and how many
            processes it had left there; they have ended.
        resend_after_s: When frames not known to be received are sent again.
    """

    def __init__(  # noqa: PLR0913 - each thing that it tells goes somewhere, by name
        self,
        name: str,
        transport: Transport,
        *,
        on_outcome: Callable[[HostLink, Any], None],
        on_lost: Callable[[HostLink, HostLost], None],
        on_free: Callable[[HostLink], None],
        on_progress: Callable[[Progress], None],
        on_left: Callable[[object, int], None] = lambda occupant, ended: None,
        resend_after_s: float = RESEND_AFTER_S,
    ) -> None:
        """Bind the transport and begin to poll."""
        self.name = name
        self.transport = transport
        self.occupant: object | None = None
        """Who uses the host now; the scheduler's."""
        self.born = asyncio.get_running_loop().time()
        self.pool = ""
        """Where it belongs; the scheduler's."""
        self.stained = False
        """Whether work that could not be stopped may still run there."""
        self.patience_s = float("inf")
        """How long its session may keep the host deaf."""
        self._on_outcome = on_outcome
        self._on_lost = on_lost
        self._on_free = on_free
        self._on_progress = on_progress
        self._on_left = on_left
        self._leaving: list[_Leaving] = []
        self.ending: asyncio.Task[None] | None = None
        """Runs from the host's end until nothing is left of it."""
        self._resend_after_s = resend_after_s
        self._number = 0
        self._unknown: dict[int, Any] = {}
        self._after = 0
        self._free_at: int | None = None
        self._resend: asyncio.TimerHandle | None = None
        self._closed = False
        self._checking: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._listen(), name=f"link-{name}")

    def send(self, frame: Any) -> None:
        """Send a frame; it arrives in order with the others, or the host is lost."""
        self._number += 1
        self._unknown[self._number] = frame
        self.transport.submit(((self._number, frame),))
        if self._resend is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._resend = loop.call_later(self._resend_after_s, self._send_again)

    def let_go(self, occupant: object, frame: Release | Kill) -> None:
        """Send the frame that tells a session to leave; ``on_left`` hears when it has."""
        self.send(frame)
        self._leaving.append(_Leaving(occupant, frame, self._number))

    def free_when_received(self) -> None:
        """Tell ``on_free`` once everything sent so far is known to be received."""
        self._free_at = self._number

    def condemn(self, reason: str, *, to_blame: bool) -> None:
        """End the host, for what its session does or for what it is."""
        self._dead(HostLost(reason, to_blame))

    def end(self) -> None:
        """End host and link without waiting; nobody is told, but ``on_left`` once nothing is left."""
        self._closed = True
        if self._resend is not None:
            self._resend.cancel()
        self.transport.close()
        self._task.cancel()
        if self._checking is not None:
            self._checking.cancel()
        if self.ending is None:
            self.ending = asyncio.create_task(self._see_off(), name=f"end-{self.name}")

    async def close(self) -> None:
        """End host and link, and wait until nothing is left of the host."""
        self.end()
        await asyncio.wait({task for task in (self._task, self._checking, self.ending) if task is not None})

    async def _see_off(self) -> None:
        ended = await self.transport.ended()
        leaving, self._leaving = self._leaving, []
        if leaving:
            leaving[-1].ended += ended
        for each in leaving:
            self._on_left(each.occupant, each.ended)

    def _send_again(self) -> None:
        self._resend = None
        if self._unknown and not self._closed:
            self.transport.submit(tuple(self._unknown.items()))
            self._check_soon()
            loop = asyncio.get_running_loop()
            self._resend = loop.call_later(self._resend_after_s, self._send_again)

    def _check_soon(self) -> None:
        if self._checking is None:
            self._checking = asyncio.create_task(self._check(), name=f"check-{self.name}")

    async def _check(self) -> None:
        """End a host that has been deaf for longer than its session may."""
        try:
            lag_s = await self.transport.lag_s()
        except HostLost as lost:
            self._dead(lost)
            return
        finally:
            self._checking = None
        if self._free_at is not None and lag_s > LET_GO_S:
            self._dead(HostLost(f"{self.name} did not let its session go for {lag_s:.1f} s"))
        elif lag_s > self.patience_s:
            reason = f"a tool kept {self.name} from doing anything else for {lag_s:.1f} s"
            self._dead(HostLost(reason, to_blame=True))

    def _dead(self, lost: HostLost) -> None:
        if self._closed:
            return
        if self.occupant is not None:
            self._leaving.append(_Leaving(self.occupant, None, self._number))
        self.end()
        self._on_lost(self, lost)

    async def _listen(self) -> None:
        try:
            if not self.transport.is_ready:
                await self.transport.ready()
                self._on_free(self)
        except HostLost as lost:
            self._dead(lost)
        while not self._closed:
            try:
                reply = await self.transport.poll(self._after, POLL_WAIT_S)
            except TimeoutError:
                self._check_soon()
                continue
            except HostLost as lost:
                self._dead(lost)
                return
            self._take(reply)

    def _take(self, reply: PollReply) -> None:
        unknown = self._unknown
        while unknown:
            first = next(iter(unknown))
            if first > reply.received:
                break
            del unknown[first]
        self.stained = reply.stained
        for progress in reply.progress:
            self._on_progress(progress)
        for number, outcome in reply.outcomes:
            if number == self._after + 1:
                self._after = number
                if isinstance(outcome, Left):
                    self._note_left(outcome)
                else:
                    self._on_outcome(self, outcome)
        while self._leaving and self._leaving[0].number <= reply.received and not self._closed:
            gone = self._leaving.pop(0)
            self._on_left(gone.occupant, gone.ended)
        if self._free_at is not None and reply.received >= self._free_at:
            self._free_at = None
            self._on_free(self)

    def _note_left(self, left: Left) -> None:
        for each in self._leaving:
            frame = each.frame
            if frame is not None and (frame.session, frame.epoch) == (left.session, left.epoch):
                each.ended += left.ended
