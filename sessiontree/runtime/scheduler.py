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
from sessiontree.runtime.live_session import LiveSession

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
    wanting: OrderedDict[LiveSession, None] = field(default_factory=OrderedDict)
    restful: OrderedDict[LiveSession, None] = field(default_factory=OrderedDict)
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
    """Assigns sessions to hosts. A host embodies one session, which stays while nobody else needs the host.

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

    def want(self, live: LiveSession) -> None:
        """Bring what waits to a session, on a host it has or will get."""
        if live.over:
            return
        pool = self._pool(live)
        if live.link is not None:
            self._send_waiting(live)
        elif not live.dedicated:
            pool.wanting[live] = None
            self._match(pool)
        elif not live.commits:
            self._seat_on(pool, live, self._keep)

    def settle(self, live: LiveSession) -> None:
        """Note whether a session could be passivated now."""
        pool = self._pool(live)
        if live.link is not None and not live.over and live.restful and not live.dedicated:
            pool.restful[live] = None
            pool.restful.move_to_end(live)
            if pool.wanting:
                self._match(pool)
        else:
            pool.restful.pop(live, None)

    def vacate(self, live: LiveSession, *, force: bool) -> None:
        """Take a session that is over off its host."""
        pool = self._pool(live)
        pool.wanting.pop(live, None)
        pool.restful.pop(live, None)
        link = live.link
        if link is not None:
            frame = Kill if force else Release
            self._let_go(link, live, frame(live.session, live.epoch))
            if live.dedicated or link.stained:
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
        if isinstance(link.occupant, LiveSession):
            link.occupant.controller.embodied(link.occupant)
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
        live = link.occupant
        if isinstance(live, LiveSession):
            live.controller.leaves(live.session)
            self._grants.revoke(live)
            live.link = None
            link.occupant = None
            live.waiting.extendleft(reversed(live.sent))
            live.sent.clear()
            live.recovered = True
            pool.restful.pop(live, None)
            live.losses += lost.served
            if lost.to_blame or (not lost.served and pool.false_starts > MOST_FALSE_STARTS):
                live.controller.on_crash(live, lost.reason)
            elif live.losses > self._most_losses:
                reason = f"lost {live.losses} hosts in a row at the same step, the last: {lost.reason}"
                live.controller.on_crash(live, reason)
            else:
                self.want(live)
        self._match(pool)

    def _count_false_start(self, pool: Pool, lost: HostLost) -> None:
        """Where no host can be started, those who wait for one end instead of waiting for ever."""
        pool.false_starts += 1
        if pool.false_starts > MOST_FALSE_STARTS and pool.starting >= pool.links - pool.kept:
            reason = f"none of {pool.false_starts} hosts could be started, the last: {lost.reason}"
            for live in list(pool.wanting):
                live.controller.on_crash(live, reason)

    def _pool(self, live: LiveSession) -> Pool:
        return self._pools[self._pool_of(live.kind)]

    def _match(self, pool: Pool) -> None:
        """Place as many waiting sessions as there are hosts for."""
        while pool.wanting:
            live = next(iter(pool.wanting))
            if live.commits:
                # Its facts must be readable before another host gets them; its controller asks again then.
                del pool.wanting[live]
                continue
            if not self._seat_on(pool, live, self._find_link):
                return

    def _seat_on(
        self, pool: Pool, live: LiveSession, find: Callable[[Pool, LiveSession], HostLink | None]
    ) -> bool:
        """Place a session on a host; False where there is none now.

        One that can't be seated ends, typed, and only it: whoever wanted it may be anybody.
        """
        link = None
        try:
            link = find(pool, live)
            if link is None:
                return False
            pool.wanting.pop(live, None)
            self._place(live, link)
        except Exception as error:  # noqa: BLE001 - a journal that can't be read, a process that can't be made
            pool.wanting.pop(live, None)
            self._grants.revoke(live)
            if link is not None:
                self._end(pool, link)
            live.controller.on_crash(live, f"can't be embodied: {words_of(error)}")
        return True

    def _find_link(self, pool: Pool, live: LiveSession) -> HostLink | None:
        while pool.free:
            free = pool.free.pop()
            if not free.stained and free.born > live.misfit_until:
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
                if not link.stained and link.born > live.misfit_until:
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

    def _keep(self, pool: Pool, live: LiveSession) -> HostLink:
        """Start a host for a session alone, which waits for it there."""
        link = self._begin(pool)
        pool.kept.add(link)
        return link

    @staticmethod
    def _end(pool: Pool, link: HostLink) -> None:
        pool.forget(link)
        link.end()

    @staticmethod
    def left(live: object, ended: int) -> None:
        """A session has left a host, and so many processes that it had left there were ended."""
        if isinstance(live, LiveSession):
            live.controller.left(live.session, ended)

    def _let_go(self, link: HostLink, live: LiveSession, frame: Release | Kill) -> None:
        link.let_go(live, frame)
        live.controller.leaves(live.session)
        self._grants.revoke(live)
        live.link = None
        live.idle = True
        link.occupant = None

    def _place(self, live: LiveSession, link: HostLink) -> None:
        self._epochs += 1
        live.epoch = self._epochs
        live.taken = 0
        self._grants.issue(live, live.kind)
        adopt = live.controller.adoption(live)
        if live.recovered and live.answers:
            live.bring_again()
        live.idle = False
        live.recovered = False
        live.link = link
        link.occupant = live
        link.patience_s = adopt.limits.tool_timeout_s + GRACE_S
        link.send(adopt)
        if link not in self._pool(live).starting:
            live.controller.embodied(live)
        self._send_waiting(live)

    def _send_waiting(self, live: LiveSession) -> None:
        if not live.waiting:
            return
        link = live.link
        assert link is not None  # noqa: S101 - asked by the callers
        self._pool(live).restful.pop(live, None)
        live.idle = False
        inputs = tuple(live.waiting)
        live.waiting.clear()
        live.sent.extend(inputs)
        causes = tuple(each.cause for each in inputs)
        link.send(Feed(live.session, live.epoch, causes, tuple(each.stimulus for each in inputs)))
