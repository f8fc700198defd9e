"""The link between supervisor and host: a near end, a far end, and the transport between them.

Frames and answers are numbered and kept until the other end is known to have them. Either direction may
therefore lose, repeat, delay or reorder.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.transport.frames import Kill, PollReply, Release, SessionLeft, SessionReturned
from sessiontree.runtime.transport.progress import Progress


class HostLost(Exception):
    """The host has ended for good. Its session is embodied elsewhere, or ends if its own work is the cause.

    Args:
        reason: What is known about the end of the host.
        to_blame: Whether the session's own work ended the host, so that it would end the next one, too.
        served: Whether the host was ever ready.
        counts: Whether a host that was never ready says that the next one may not start either.
    """

    def __init__(self, reason: str, to_blame: bool = False, served: bool = True, counts: bool = True) -> None:
        super().__init__(reason, to_blame, served, counts)
        self.reason = reason
        self.to_blame = to_blame
        self.served = served
        self.counts = counts

    def __str__(self) -> str:
        """Return the reason alone."""
        return self.reason


RESEND_AFTER_S = 0.5
POLL_WAIT_S = 20.0
LET_GO_S = 2.0
"""How long a host that was asked to let its session go may stay blocked before it is ended."""


class Transport(Protocol):
    """Carries frames to a host and its answers back. It may lose, repeat and delay them."""

    pid: int
    """The host's process; 0 while it starts."""
    level: str
    """Confinement in force at the host, such as ``structural``."""
    node: str
    """Name of the host's node; empty = the supervisor's own, or not known yet."""
    is_ready: bool
    """Whether the host is ready."""
    embodied: tuple[str, int] | None
    """The session that ran there when its lag was last asked for, and its epoch; None = unknown."""

    async def ready(self) -> None:
        """Wait until the host is ready.

        Raises:
            HostLost: it will never be ready.
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
        """Return for how many seconds one piece of work has blocked the host's loop.

        Raises:
            HostLost: the host is gone for good.
        """
        ...

    def close(self) -> None:
        """End the host."""
        ...

    async def ended(self) -> int:
        """Wait for a limited time until all processes of a host that was closed or lost have ended.

        Returns:
            How many processes outlived the host and were ended.
        """
        ...


@dataclass(slots=True)
class _Leaving:
    """A session that was asked to leave the host, and how many of its processes were ended there."""

    occupant: object
    frame: Release | Kill | None
    """The frame that asked it to leave; None = the host is lost."""
    number: int
    """Of that frame."""
    ended: int = 0


class HostLink:
    """One host, as the supervisor sees it.

    Args:
        name: Its name in logs and listings.
        transport: Carries frames to it.
        on_outcome: Called with each outcome, in order and once.
        on_lost: Called once, when the host is lost.
        on_free: Called when the host can take a session: when it is ready, and when it is known to have let
            go of a session that had to leave at once.
        on_progress: Called with the progress of watched trees.
        on_left: Called with each session that has left the host or was lost with it, and with the number of
            its processes that were ended.
        resend_after_s: After this time, frames that are not known to be received are sent again.
    """

    def __init__(  # noqa: PLR0913 - one callback, by name, for each kind of report
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
        self.shelf: object = getattr(transport, "shelf", self)
        """Where its host keeps states; hosts of one process may share it."""
        self.leases: dict[int, object] = {}
        """The sessions at the host by epoch, set by the scheduler: the first one runs, the others wait."""
        self.born = self.since = asyncio.get_running_loop().time()
        """When it was started, and when the session that runs there came first in line."""
        self.looking: asyncio.TimerHandle | None = None
        """Fires when those that wait at the host may have waited for too long; set by the scheduler."""
        self.pool = ""
        """Name of its pool; set by the scheduler."""
        self.stale: list[tuple[str, int]] = []
        """The states that the host keeps in vain, for its next adoption to say; set by the scheduler."""
        self.blamed: object | None = None
        """The session whose work ended the host, if the host itself said so."""
        self.unusable = False
        """Whether work that could not be stopped may still run there; no other session gets the host then."""
        self.retiring = False
        """Whether another host is to take its place as soon as its session is at rest."""
        self.patience_s = float("inf")
        """How long its session may block the host's loop."""
        self._on_outcome = on_outcome
        self._on_lost = on_lost
        self._on_free = on_free
        self._on_progress = on_progress
        self._on_left = on_left
        self._leaving: list[_Leaving] = []
        self.ending: asyncio.Task[None] | None = None
        """Runs from the end of the host until all its processes have ended."""
        self._resend_after_s = resend_after_s
        self._number = 0
        self._unknown: dict[int, Any] = {}
        self._after = 0
        self._free_at: int | None = None
        self._resend: asyncio.TimerHandle | None = None
        self._closed = False
        self._checking: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._listen(), name=f"link-{name}")

    @property
    def takes_nobody(self) -> bool:
        """Whether no other session gets the host."""
        return self.unusable or self.retiring

    @property
    def running(self) -> object | None:
        """The session that runs on the host."""
        return next(iter(self.leases.values()), None)

    def send(self, frame: Any) -> None:
        """Send a frame. Frames arrive in order, or the host is lost."""
        self._number += 1
        self._unknown[self._number] = frame
        self.transport.submit(((self._number, frame),))
        if self._resend is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._resend = loop.call_later(self._resend_after_s, self._send_again)

    def let_go(self, occupant: object, frame: Release | Kill) -> None:
        """Send the frame that asks a session to leave; ``on_left`` is called when it has left."""
        self.send(frame)
        self._leaving.append(_Leaving(occupant, frame, self._number))

    def free_when_received(self) -> None:
        """Call ``on_free`` once everything sent so far is known to be received."""
        self._free_at = self._number

    def declare_lost(self, reason: str, *, to_blame: bool) -> None:
        """End the host and report it as lost; ``to_blame`` as for :class:`HostLost`."""
        self._on_dead(HostLost(reason, to_blame))

    def end(self) -> None:
        """End host and link without waiting. ``on_left`` is called later, when its processes have ended."""
        self._closed = True
        for timer in (self._resend, self.looking):
            if timer is not None:
                timer.cancel()
        self.transport.close()
        self._task.cancel()
        if self._checking is not None:
            self._checking.cancel()
        if self.ending is None:
            self.ending = asyncio.create_task(self._await_end(), name=f"end-{self.name}")

    async def close(self) -> None:
        """End host and link, and wait until all processes of the host have ended."""
        self.end()
        await asyncio.wait({task for task in (self._task, self._checking, self.ending) if task is not None})

    async def _await_end(self) -> None:
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
        """End a host whose loop was blocked for longer than its session may block it."""
        try:
            lag_s = await self.transport.lag_s()
        except HostLost as lost:
            self._on_dead(lost)
            return
        finally:
            self._checking = None
        if self._free_at is not None and lag_s > LET_GO_S:
            self._on_dead(HostLost(f"{self.name} did not let its session go within {lag_s:.1f} s"))
        elif lag_s > self.patience_s:
            reason = (
                f"a tool blocked {self.name} for {lag_s:.1f} s, the limit is {self.patience_s:.1f} s; "
                "let it wait with await, or run blocking work in a thread"
            )
            embodied = self.transport.embodied
            self._on_dead(
                HostLost(reason, to_blame=embodied is None or embodied[1] == next(iter(self.leases), 0))
            )

    def _on_dead(self, lost: HostLost) -> None:
        if self._closed:
            return  # Race: the poll, the check and the host's own words may each report the loss
        self._leaving += [_Leaving(each, None, self._number) for each in self.leases.values()]
        self.end()
        self._on_lost(self, lost)

    async def _listen(self) -> None:
        if not self.transport.is_ready:
            try:
                await self.transport.ready()
            except HostLost as lost:
                self._on_dead(lost)
            except Exception as error:  # noqa: BLE001 - without a report, sessions would wait for ever
                self._on_dead(
                    HostLost(f"{self.name} can't be started: {describe_error(error)}", served=False)
                )
            else:
                self._on_free(self)
        while not self._closed:
            try:
                reply = await self.transport.poll(self._after, POLL_WAIT_S)
            except TimeoutError:
                self._check_soon()
                continue
            except HostLost as lost:
                self._on_dead(lost)
                return
            self._take(reply)

    def _take(self, reply: PollReply) -> None:
        unknown = self._unknown
        while unknown:
            first = next(iter(unknown))
            if first > reply.received:
                break  # Race: it was sent after the host made this reply
            del unknown[first]
        self.unusable = reply.unusable
        for progress in reply.progress:
            self._on_progress(progress)
        for number, outcome in reply.outcomes:
            # Race: an answer may come twice, or after a later one; each outcome counts once, in order.
            if number == self._after + 1:
                self._after = number
                if isinstance(outcome, SessionLeft) or (
                    isinstance(outcome, SessionReturned) and outcome.epoch not in self.leases
                ):
                    self._note_left(outcome)
                else:
                    self._on_outcome(self, outcome)
        while self._leaving and self._leaving[0].number <= reply.received and not self._closed:
            gone = self._leaving.pop(0)
            self._on_left(gone.occupant, gone.ended)
        # Race: the answer may be from before the order to stop; only one that knows of it frees the host.
        if self._free_at is not None and reply.received >= self._free_at:
            self._free_at = None
            self._on_free(self)

    def _note_left(self, left: SessionLeft | SessionReturned) -> None:
        for each in self._leaving:
            frame = each.frame
            if frame is not None and (frame.session, frame.epoch) == (left.session, left.epoch):
                each.ended += left.ended


MOST_ANSWERS = 128
"""How many answers a poll returns at most; the next one returns those that follow. What a poll returns is
held several times on its way: as values, packed, and in the buffers of a socket."""
ACK_AFTER_S = 0.1
"""How long the receipt of frames waits for an answer that carries it, before a poll returns without one."""


class Mailbox:
    """The host's end of the link: takes frames in and keeps answers until they are known to have arrived.

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
        """Take frames in. Repeats are dropped; early frames wait for those before them."""
        if self.closed:
            return
        for number, frame in frames:
            if number > self._received:
                self._early[number] = frame
            else:
                self._told = min(self._told, number - 1)  # sent again, so its receipt did not arrive
        while self._received + 1 in self._early:
            self._received += 1
            self._take(self._early.pop(self._received))
        if self._telling is None and self._received > self._told and not self.closed:
            # A poll may be waiting, and a frame may have no answer.
            self._telling = asyncio.get_running_loop().call_later(ACK_AFTER_S, self._tell)

    @property
    def is_empty(self) -> bool:
        """Whether every answer so far is known to have arrived."""
        return not self._outbox

    def put(self, answer: Any) -> None:
        """Keep an answer for the next poll."""
        self._sent += 1
        self._outbox.append((self._sent, answer))
        self._news.set()

    def wake(self) -> None:
        """Make a waiting poll return."""
        self._news.set()

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return the first answers after a number, and drop those up to it, because they have arrived.

        Without answers, wait for one. The wait ends after ``wait_s`` at most, possibly earlier and
        without an answer.

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
        return PollReply(self._received, tuple(islice(outbox, MOST_ANSWERS)))

    def close(self) -> None:
        """Take no more frames; a waiting poll raises."""
        self.closed = True
        for timer in (self._telling, self._patience):
            if timer is not None:
                timer.cancel()
        self._news.set()

    def _wait_at_most(self, wait_s: float) -> None:
        """Make the waiting poll return after ``wait_s`` at most; a timer of an earlier poll may fire first.

        The timer outlives its poll. Most polls return soon, and a timer for each would be the main cost.
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
