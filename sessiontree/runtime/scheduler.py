"""Which session sits on which host: warm hosts, least recently used sessions give way under pressure."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sessiontree.contracts.errors import words_of
from sessiontree.contracts.kinds import SessionKind
from sessiontree.runtime.frames import Feed, Kill, Release
from sessiontree.runtime.grants import Grants
from sessiontree.runtime.host_link import HostLink, HostLost
from sessiontree.runtime.live_session import Seat

MOST_FALSE_STARTS = 4
"""How many hosts of a pool may fail to start in a row before those who wait for one end."""
GROW_AFTER_S = 0.5
"""How long somebody waits before a pool gets one host more than usual; about what its start takes."""
GRACE_S = 5.0
"""How long a call may go on past its time-out before its host counts as stuck."""


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many hosts a pool has."""

    most: int
    """At most, besides those that dedicated sessions keep for life."""
    usual: int
    """Started before anybody is passivated; more only where every session there is busy."""


@dataclass(slots=True)
class Pool:
    """Hosts of one sort of rights, and the sessions that want one."""

    name: str
    size: PoolSize
    links: set[HostLink] = field(default_factory=set)
    free: list[HostLink] = field(default_factory=list)
    wanting: OrderedDict[Seat, None] = field(default_factory=OrderedDict)
    restful: OrderedDict[Seat, None] = field(default_factory=OrderedDict)
    kept: set[HostLink] = field(default_factory=set)
    """Those of dedicated sessions: nobody else ever gets them."""
    starting: set[HostLink] = field(default_factory=set)
    """Hosts that do not serve yet."""
    false_starts: int = 0
    """Hosts in a row that never served."""
    growing: asyncio.TimerHandle | None = None
    """Rings when one more host is due for those who wait."""

    @property
    def shared(self) -> int:
        """How many hosts everybody may get, sooner or later."""
        return len(self.links) - len(self.kept)

    def forget(self, link: HostLink) -> None:
        """Strike out a host that is gone."""
        self.links.discard(link)
        self.kept.discard(link)
        self.starting.discard(link)


class Scheduler:
    """Gives seats to hosts. A host embodies one session; a session stays while nobody else needs the host.

    Args:
        make_link: Starts a host of a pool.
        pools: How many hosts each pool has.
        pool_of: Which pool a kind of session is embodied in.
        grants: Where adoptions get their grants.
        most_losses: How many hosts a session may lose in a row, nothing done in between, before it ends.
    """

    # A host that starts takes half a second of a processor: sessions go on through those that serve, and one
    # more than usual is begun only after somebody has waited for about as long as that.

    def __init__(
        self,
        make_link: Callable[[str], HostLink],
        pools: Mapping[str, PoolSize],
        pool_of: Callable[[SessionKind], str],
        grants: Grants,
        most_losses: float,
    ) -> None:
        """Begin without hosts."""
        self._make_link = make_link
        self._pools = {name: Pool(name, size) for name, size in pools.items()}
        self._pool_of = pool_of
        self._grants = grants
        self._most_losses = most_losses
        self._epochs = 0
        self.passivations = 0

    @property
    def links(self) -> tuple[HostLink, ...]:
        """All hosts."""
        return tuple(link for pool in self._pools.values() for link in pool.links)

    def waiting(self) -> dict[str, int]:
        """Return how many sessions of each pool wait for a host."""
        return {pool.name: len(pool.wanting) for pool in self._pools.values()}

    def warm(self, pool_name: str) -> None:
        """Start a host of a pool before anybody wants it."""
        pool = self._pools[pool_name]
        if pool.shared < pool.size.most:
            link = self._start(pool)
            if link is not None:
                pool.free.append(link)

    def close(self) -> None:
        """Start nothing more."""
        for pool in self._pools.values():
            if pool.growing is not None:
                pool.growing.cancel()

    def want(self, seat: Seat) -> None:
        """Bring what waits to a session, on a host it has or will get."""
        if seat.over:
            return
        pool = self._pool(seat)
        if seat.link is not None:
            self._send_waiting(seat)
        elif not seat.dedicated:
            pool.wanting[seat] = None
            self._match(pool)
        elif not seat.commits:
            self._seat_on(pool, seat, self._keep)

    def settle(self, seat: Seat) -> None:
        """Note whether a session could be passivated now."""
        pool = self._pool(seat)
        if seat.link is not None and not seat.over and seat.restful and not seat.dedicated:
            pool.restful[seat] = None
            pool.restful.move_to_end(seat)
            if pool.wanting:
                self._match(pool)
        else:
            pool.restful.pop(seat, None)

    def vacate(self, seat: Seat, *, force: bool) -> None:
        """Take a session that is over off its host."""
        pool = self._pool(seat)
        pool.wanting.pop(seat, None)
        pool.restful.pop(seat, None)
        link = seat.link
        if link is not None:
            frame = Kill if force else Release
            self._let_go(link, seat, frame(seat.session, seat.epoch))
            if seat.dedicated or link.stained:
                self._end(pool, link)
            elif force:
                # What it runs may not stop: nobody else sits there before the host says that it let go.
                link.free_when_received()
            else:
                pool.free.append(link)
            self._match(pool)

    def freed(self, link: HostLink) -> None:
        """A host serves now, or has let go of the session it was to let go at once."""
        pool = self._pools[link.pool]
        if link in pool.starting:
            pool.starting.discard(link)
            pool.false_starts = 0
        if isinstance(link.seat, Seat):
            link.seat.keeper.embodied(link.seat)
            return  # it started for one session alone, which has it already
        if link.stained:
            self._end(pool, link)
        else:
            pool.free.append(link)
        self._match(pool)

    def lost(self, link: HostLink, lost: HostLost) -> None:
        """A host is gone: its session is adopted again elsewhere and does what it owes, or ends."""
        pool = self._pools[link.pool]
        pool.forget(link)
        if link in pool.free:
            pool.free.remove(link)
        if not lost.served:
            self._count_false_start(pool, lost)
        seat = link.seat
        if isinstance(seat, Seat):
            seat.keeper.leaves(seat.session)
            self._grants.revoke(seat)
            seat.link = None
            link.seat = None
            seat.waiting.extendleft(reversed(seat.sent))
            seat.sent.clear()
            seat.recovered = True
            pool.restful.pop(seat, None)
            seat.losses += lost.served
            if lost.to_blame or (not lost.served and pool.false_starts > MOST_FALSE_STARTS):
                seat.keeper.on_crash(seat, lost.reason)
            elif seat.losses > self._most_losses:
                reason = f"lost {seat.losses} hosts in a row at the same step, the last: {lost.reason}"
                seat.keeper.on_crash(seat, reason)
            else:
                self.want(seat)
        self._match(pool)

    def _count_false_start(self, pool: Pool, lost: HostLost) -> None:
        """Where no host can be started, those who wait for one end instead of waiting for ever."""
        pool.false_starts += 1
        if pool.false_starts > MOST_FALSE_STARTS and pool.starting >= pool.links - pool.kept:
            reason = f"none of {pool.false_starts} hosts could be started, the last: {lost.reason}"
            for seat in list(pool.wanting):
                seat.keeper.on_crash(seat, reason)

    def _pool(self, seat: Seat) -> Pool:
        return self._pools[self._pool_of(seat.kind)]

    def _match(self, pool: Pool) -> None:
        """Seat as many wanting sessions as there are hosts for."""
        while pool.wanting:
            seat = next(iter(pool.wanting))
            if seat.commits:
                # Its facts must be readable before another host gets them; its keeper asks again then.
                del pool.wanting[seat]
                continue
            if not self._seat_on(pool, seat, self._find_link):
                return

    def _seat_on(self, pool: Pool, seat: Seat, find: Callable[[Pool, Seat], HostLink | None]) -> bool:
        """Seat a session on the host that is found for it; False where there is none now.

        One that can't be seated ends, typed, and only it: whoever wanted it may be anybody.
        """
        link = None
        try:
            link = find(pool, seat)
            if link is None:
                return False
            pool.wanting.pop(seat, None)
            self._seat(seat, link)
        except Exception as error:  # noqa: BLE001 - a journal that can't be read, a process that can't be made
            pool.wanting.pop(seat, None)
            self._grants.revoke(seat)
            if link is not None:
                self._end(pool, link)
            seat.keeper.on_crash(seat, f"can't be embodied: {words_of(error)}")
        return True

    def _find_link(self, pool: Pool, seat: Seat) -> HostLink | None:
        while pool.free:
            free = pool.free.pop()
            if not free.stained and free.born > seat.misfit_until:
                return free
            self._end(pool, free)
        if pool.shared < pool.size.usual and len(pool.starting) < len(pool.wanting):
            started = self._start(pool)
            if started is not None:
                return started
        while pool.restful:
            rested, _ = pool.restful.popitem(last=False)
            link = rested.link
            if link is not None and rested.restful:
                self._let_go(link, rested, Release(rested.session, rested.epoch))
                self.passivations += 1
                if not link.stained and link.born > seat.misfit_until:
                    return link
                self._end(pool, link)
        if pool.shared < pool.size.most and not pool.starting and pool.growing is None:
            pool.growing = asyncio.get_running_loop().call_later(GROW_AFTER_S, self._grow, pool)
        return None

    def _grow(self, pool: Pool) -> None:
        pool.growing = None
        if pool.wanting and not pool.starting and pool.shared < pool.size.most:
            self.warm(pool.name)
        self._match(pool)

    def _start(self, pool: Pool) -> HostLink | None:
        """Start a host; returns it only where it serves at once."""
        link = self._begin(pool)
        return link if link.transport.is_ready else None

    def _begin(self, pool: Pool) -> HostLink:
        link = self._make_link(pool.name)
        link.pool = pool.name
        pool.links.add(link)
        if not link.transport.is_ready:
            pool.starting.add(link)
        return link

    def _keep(self, pool: Pool, seat: Seat) -> HostLink:
        """Start a host for a session alone, which waits for it there."""
        link = self._begin(pool)
        pool.kept.add(link)
        return link

    @staticmethod
    def _end(pool: Pool, link: HostLink) -> None:
        pool.forget(link)
        link.end()

    @staticmethod
    def left(seat: object, ended: int) -> None:
        """A session has left a host, and so many processes that it had left there were ended."""
        if isinstance(seat, Seat):
            seat.keeper.left(seat.session, ended)

    def _let_go(self, link: HostLink, seat: Seat, frame: Release | Kill) -> None:
        link.let_go(seat, frame)
        seat.keeper.leaves(seat.session)
        self._grants.revoke(seat)
        seat.link = None
        seat.idle = True
        link.seat = None

    def _seat(self, seat: Seat, link: HostLink) -> None:
        self._epochs += 1
        seat.epoch = self._epochs
        seat.taken = 0
        self._grants.issue(seat, seat.kind)
        adopt = seat.keeper.adoption(seat)
        if seat.recovered and seat.answers:
            seat.bring_again()
        seat.idle = False
        seat.recovered = False
        seat.link = link
        link.seat = seat
        link.patience_s = adopt.limits.tool_timeout_s + GRACE_S
        link.send(adopt)
        if link not in self._pool(seat).starting:
            seat.keeper.embodied(seat)
        self._send_waiting(seat)

    def _send_waiting(self, seat: Seat) -> None:
        if not seat.waiting:
            return
        link = seat.link
        assert link is not None  # noqa: S101 - asked by the callers
        self._pool(seat).restful.pop(seat, None)
        seat.idle = False
        inputs = tuple(seat.waiting)
        seat.waiting.clear()
        seat.sent.extend(inputs)
        causes = tuple(each.cause for each in inputs)
        link.send(Feed(seat.session, seat.epoch, causes, tuple(each.stimulus for each in inputs)))
