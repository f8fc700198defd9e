"""The hosts of one pool: which is free, at which one more session may wait, and when the pool grows."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field

from sessiontree.contracts.handles.runtime_control import PoolStatus
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.scheduling.fair_queue import FairQueue
from sessiontree.runtime.scheduling.live_session import LiveSession
from sessiontree.runtime.transport.link import HostLink

GROW_AFTER_S = 0.5
"""How long a session waits before a pool gets one host more than usual; about as long as a start takes."""
STANDSTILL_S = 2.0
"""How long a pool places no session before it grows even if the supervisor is busy."""
BUSY = 0.4
"""With this share of its time taken, the supervisor itself is what sessions wait for."""


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many hosts a pool has."""

    most: int
    """Most hosts, not counting those of dedicated sessions."""
    usual: int
    """Hosts that are started before a session is passivated; beyond that, only if all sessions are busy."""
    ahead: int = 16
    """How many sessions may wait at a host for their turn."""


@dataclass(slots=True)
class Pool:
    """Hosts with the same confinement, and the sessions that wait for one."""

    # The start of a host takes half a second of a processor. Sessions therefore share the hosts that are
    # ready. One more is started only if a session has waited for about that long, fewer hosts than usual are
    # without a long call, and the supervisor is not busy: otherwise the calls are long because they wait for
    # its answers, and more hosts would only take its time.

    name: str
    size: PoolSize
    make_link: Callable[[str], HostLink]
    """Starts a host of a pool."""
    links: set[HostLink] = field(default_factory=set)
    free: list[HostLink] = field(default_factory=list)
    wanting: FairQueue = field(default_factory=FairQueue)
    restful: OrderedDict[LiveSession, None] = field(default_factory=OrderedDict)
    dedicated: set[HostLink] = field(default_factory=set)
    """Hosts of dedicated sessions; no other session gets them."""
    starting: set[HostLink] = field(default_factory=set)
    """Hosts that are not ready yet."""
    false_starts: int = 0
    """How many hosts in a row failed to start."""
    growing: asyncio.TimerHandle | None = None
    """Fires when one more host is due for the sessions that wait."""
    busy_ns: int = 0
    """What :func:`measure_busy_time` was when the timer was set."""
    placed_at: float = 0.0
    """When a session was placed last, by the clock of the event loop."""

    @property
    def shared(self) -> int:
        """How many hosts are not reserved for a dedicated session."""
        return len(self.links) - len(self.dedicated)

    def describe(self) -> PoolStatus:
        """Return the state of the pool."""
        return PoolStatus(
            self.name,
            self.size.most,
            len(self.links),
            sum(bool(link.leases) for link in self.links),
            len(self.wanting),
            sum(link.retiring for link in self.links),
        )

    def begin(self) -> HostLink:
        """Start a host."""
        link = self.make_link(self.name)
        link.pool = self.name
        self.links.add(link)
        if not link.transport.is_ready:
            self.starting.add(link)
        return link

    def start(self) -> HostLink | None:
        """Start a host; return it if it is ready at once, else None."""
        link = self.begin()
        return link if link.transport.is_ready else None

    def begin_dedicated(self) -> HostLink:
        """Start a host for one session, which is placed there at once."""
        link = self.begin()
        self.dedicated.add(link)
        return link

    def warm(self) -> None:
        """Start a host before a session needs it, if the pool may have one more."""
        if self.shared < self.size.most:
            link = self.start()
            if link is not None:
                self.free.append(link)

    def forget(self, link: HostLink) -> None:
        """Remove a host that is lost."""
        self.links.discard(link)
        self.dedicated.discard(link)
        self.starting.discard(link)

    def prefer(self, keeper: HostLink | None) -> None:
        """Make a host that kept a session's state the one that is taken next, if it is free."""
        if keeper in self.free:
            self.free.remove(keeper)
            self.free.append(keeper)

    def find_queue(self, live: LiveSession, keeper: HostLink | None, take_back_s: float) -> HostLink | None:
        """Return the host with the fewest sessions at which another one may wait, or None.

        Args:
            live: The session that would wait there.
            keeper: The host that kept its state; it is taken if it may be.
            take_back_s: How long the first session of a host may have run there.
        """
        if not self.size.ahead or live.alone:
            return None
        found, fewest = None, self.size.ahead + 1
        now = asyncio.get_running_loop().time()
        for link in self.links:
            first = link.running
            if not isinstance(first, LiveSession) or link in self.dedicated or link in self.starting:
                continue
            fits = not link.takes_nobody and link.born > live.unfit_until
            if not fits or first.alone or now - link.since > take_back_s:
                continue
            if len(link.leases) <= self.size.ahead and link is keeper:
                return link
            if len(link.leases) < fewest:
                found, fewest = link, len(link.leases)
        return found

    def grow_later(self, grow: Callable[[Pool], None]) -> None:
        """Have the pool grow after a time if it may, and nothing else makes it grow before."""
        if self.shared < self.size.most and not self.starting and self.growing is None:
            self.busy_ns = measure_busy_time()
            self.growing = asyncio.get_running_loop().call_later(GROW_AFTER_S, grow, self)

    def can_grow(self, take_back_s: float) -> bool:
        """Whether one more host would help the sessions that wait, now that the time is over."""
        # Race: while the timer ran, a host may have been freed or started; only what is true now counts.
        now = asyncio.get_running_loop().time()
        is_due = bool(self.wanting) and not self.starting and self.shared < self.size.most
        return is_due and self.is_short(now, take_back_s)

    def is_short(self, now: float, take_back_s: float) -> bool:
        """Whether the hosts are held by long calls, while the supervisor has time for one more."""
        held = sum(
            bool(link.leases) and now - link.since > take_back_s for link in self.links - self.dedicated
        )
        if self.shared - held >= self.size.usual:
            return False
        is_busy = measure_busy_time() - self.busy_ns > BUSY * GROW_AFTER_S * 1e9
        return not is_busy or now - self.placed_at > STANDSTILL_S


def measure_busy_time() -> int:
    """Return how long this thread has run, or could have run and waited for a core, in nanoseconds.

    Source: /proc/thread-self/schedstat; where the kernel does not keep it, the time that the thread has run.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123 - a Path takes longer than the reading
            ran, waited, _ = file.read().split()
        return int(ran) + int(waited)
    except (OSError, ValueError):
        return time.thread_time_ns()
