"""Which session is on which host. Some hosts are started early; idle sessions leave when hosts are short.

A host runs one session. Others may wait at it for their turn, so that it need not wait for the next one: it
lets an idle session go by itself then. Sessions that wait behind a long call are taken back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.handles.runtime_control import PoolStatus, RestartReport
from sessiontree.contracts.kinds import SessionKind
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import LiveSession
from sessiontree.runtime.scheduling.pool import Pool, PoolSize
from sessiontree.runtime.scheduling.session_placement import SessionPlacement, forget_kept_state, is_at_rest
from sessiontree.runtime.transport.frames import HostUnsuitable, Kill, Outcome, Release, SessionReturned
from sessiontree.runtime.transport.link import HostLink, HostLost

MAX_FALSE_STARTS = 4
"""How many hosts of a pool may fail to start in a row before the sessions that wait for one end."""


class Scheduler:
    """Assigns sessions to hosts. A host embodies one session, which stays until another one needs the host.

    Args:
        make_link: Starts a host of a pool.
        pools: How many hosts each pool has.
        pool_of: The pool whose hosts run the sessions of each kind.
        grants: Issues a grant for each adoption.
        most_losses: How many hosts a session may lose in a row without progress before it ends.
    """

    def __init__(
        self,
        make_link: Callable[[str], HostLink],
        pools: Mapping[str, PoolSize],
        pool_of: Mapping[SessionKind, str],
        grants: Grants,
        most_losses: float,
    ) -> None:
        self._pools = {name: Pool(name, size, make_link) for name, size in pools.items()}
        self._to_warm: deque[Pool] = deque()
        self._most_losses = most_losses
        self._grants = grants
        self.placement = SessionPlacement(
            {kind: self._pools[name] for kind, name in pool_of.items()}, grants, self.want
        )

    @property
    def links(self) -> tuple[HostLink, ...]:
        """All hosts."""
        return tuple(link for pool in self._pools.values() for link in pool.links)

    def waiting(self) -> dict[str, int]:
        """Return how many sessions of each pool wait for a host."""
        return {pool.name: len(pool.wanting) for pool in self._pools.values()}

    def warm(self, pool_names: Sequence[str]) -> None:
        """Start a host of each of these pools before a session needs it, each one when the last is ready.

        So the first session's host does not share the processors with one that nobody waits for.
        """
        self._to_warm.extend(self._pools[name] for name in pool_names)
        self._warm_next()

    def _warm_next(self) -> None:
        while self._to_warm:
            pool = self._to_warm.popleft()
            pool.warm()
            if pool.starting:
                return

    def list_pools(self) -> tuple[PoolStatus, ...]:
        """Return the state of each pool."""
        return tuple(pool.describe() for pool in self._pools.values())

    def replace_hosts(self) -> RestartReport:
        """End hosts that do not work now, and each other one once its session is at rest.

        A session that leaves is adopted again by a new host when something happens to it; nothing of it is
        cut short, so nothing runs twice. Hosts that start, and those of dedicated sessions, stay.
        """
        ended = retiring = dedicated = 0
        for pool in self._pools.values():
            dedicated += len(pool.dedicated)
            old = sorted(pool.links - pool.dedicated - pool.starting, key=lambda link: link.born)
            for link in old:
                # Race: a session that leaves one of them could get the next one, which is to end as well.
                link.retiring = True
            before = ended
            for link in old:
                first = link.running
                if isinstance(first, LiveSession) and first in pool.restful and is_at_rest(first):
                    self.settle(first)
                elif not link.leases and link in pool.free:
                    pool.free.remove(link)
                    self._end(pool, link)
                elif len(link.leases) > 1:
                    self.placement.take_back(link)
                ended += link not in pool.links
                retiring += link in pool.links
            if ended > before and not pool.starting:
                pool.warm()
            self._match(pool)
        return RestartReport(ended, retiring, dedicated)

    def close(self) -> None:
        """Start no more hosts."""
        self._to_warm.clear()
        for pool in self._pools.values():
            if pool.growing is not None:
                pool.growing.cancel()

    def want(self, live: LiveSession) -> None:
        """Send a session what waits for it, on the host that it has or will get."""
        if live.over:
            return
        pool = self.placement.get_pool(live)
        if live.link is not None:
            self.placement.send_waiting(live)
        elif not live.dedicated:
            pool.wanting.add(live)
            self._match(pool)
        elif not live.commits:
            self._try_place(pool, live, pool.begin_dedicated)
        link = live.link
        if link is None or link.running is not live or link in pool.starting:
            live.controller.waits.hold(live.session, "host")

    def settle(self, live: LiveSession) -> None:
        """Note whether a session can be passivated now."""
        pool = self.placement.get_pool(live)
        if live.link is not None and not live.over and not live.dedicated and is_at_rest(live):
            link = live.link
            if len(link.leases) > 1 or link.retiring:
                pool.restful.pop(live, None)
                self.placement.passivate(link, live)  # for example it waits for a person
                if not link.leases:
                    self._put_free(pool, link)  # it ends: another one takes its place
                    self._match(pool)
                return
            pool.restful[live] = None
            pool.restful.move_to_end(live)
            if pool.wanting:
                self._match(pool)
        else:
            pool.restful.pop(live, None)

    def evict(self, live: LiveSession, *, force: bool) -> None:
        """Remove a session that has ended from its host; ``force`` stops its work."""
        pool = self.placement.get_pool(live)
        pool.wanting.discard(live)
        pool.restful.pop(live, None)
        forget_kept_state(live)
        link = live.link
        if link is None:
            return
        was_running = link.running is live
        if was_running and force:
            link.since = float("-inf")
            self.placement.take_back(link)  # they must not wait for work that may not stop
        self.placement.let_go(
            link, live, Kill(live.session, live.epoch) if force else Release(live.session, live.epoch)
        )
        if live.dedicated or link.takes_nobody:
            self._end(pool, link)
        elif force and was_running:
            # Race: its work may not stop. The host takes no other session before it is known to have let go.
            link.free_when_received()
        elif not link.leases:
            self._put_free(pool, link)
        self._match(pool)

    def on_freed(self, link: HostLink) -> None:
        """Note that a host is ready, or that it released a session that had to leave at once."""
        pool = self._pools[link.pool]
        if link in pool.starting:
            pool.starting.discard(link)
            pool.false_starts = 0
            self._warm_next()
        if link.leases:
            self.placement.note_begin(link)
            return  # it was started for this session alone
        self._put_free(pool, link)
        self._match(pool)

    def reported(self, link: HostLink, outcome: Outcome | HostUnsuitable | SessionReturned) -> None:
        """Pass a host's report to the controller of its session; ignore one of an earlier adoption."""
        # Race: the session may have left the host while the report was on its way, and may be at another one.
        live = link.leases.get(outcome.epoch)
        if not isinstance(live, LiveSession) or live.session != outcome.session:
            return
        if isinstance(outcome, HostUnsuitable):
            # Started before the workspace was there: a host started now sees it, or nobody does.
            live.unfit_until = asyncio.get_running_loop().time()
            link.declare_lost(outcome.reason, to_blame=False)
        elif isinstance(outcome, SessionReturned):
            self._on_returned(link, live, outcome)
        else:
            live.controller.on_outcome(live, outcome)

    def _on_returned(self, link: HostLink, live: LiveSession, left: SessionReturned) -> None:
        """Note that a host let a session go by itself, and find another one if the session has work."""
        pool = self.placement.get_pool(live)
        pool.restful.pop(live, None)
        self.placement.on_returned(link, live, left)
        if not link.leases:
            self._put_free(pool, link)
        if live.waiting or live.recovered or not left.has_begun:
            self.want(live)
        self._match(pool)

    def lost(self, link: HostLink, lost: HostLost) -> None:
        """Note that a host is lost: its session is adopted by another one and repeats owed work, or ends."""
        pool = self._pools[link.pool]
        pool.forget(link)
        if link in pool.free:
            pool.free.remove(link)
        if not lost.served and lost.counts:
            self._count_false_start(pool, lost)
        lives = [live for live in link.leases.values() if isinstance(live, LiveSession)]
        for live in lives:
            self.placement.on_lost(link, live)
        link.leases.clear()
        for live in lives:
            if len(lives) > 1 and live is not link.blamed:
                # Nobody knows whose work ended the host, so each goes on by itself until it gets further.
                live.alone = link.blamed is None
                self.want(live)
                continue
            live.losses += lost.served
            if lost.to_blame or (not lost.served and pool.false_starts > MAX_FALSE_STARTS):
                live.controller.on_crash(live, lost.reason)
            elif live.losses > self._most_losses:
                reason = (
                    f"{live.session} lost {live.losses} hosts in a row at the same step, the limit is "
                    f"{self._most_losses:g}; the last was lost because: {lost.reason}"
                )
                live.controller.on_crash(live, reason)
            else:
                self.want(live)
        self._match(pool)

    def _count_false_start(self, pool: Pool, lost: HostLost) -> None:
        """Count a host that failed to start; after too many, end the sessions that wait for one."""
        pool.false_starts += 1
        if pool.false_starts > MAX_FALSE_STARTS and pool.starting >= pool.links - pool.dedicated:
            reason = (
                f"none of {pool.false_starts} hosts could be started; the last failed because: {lost.reason}"
            )
            for live in list(pool.wanting):
                live.controller.on_crash(live, reason)

    def _match(self, pool: Pool) -> None:
        """Place waiting sessions as long as there are hosts."""
        while pool.wanting:
            live = pool.wanting.first()
            if live.commits:
                # Race: another host would read its facts before they are durable. Once they are, the
                # controller asks again.
                pool.wanting.discard(live)
                continue
            if not self._try_place(pool, live, partial(self._find_link, pool, live)):
                return

    def _try_place(self, pool: Pool, live: LiveSession, find: Callable[[], HostLink | None]) -> bool:
        """Place a session on a host; return False if none is free now.

        A session that can't be placed ends with an error. The error does not reach the caller, who may have
        acted for another session.
        """
        link = None
        try:
            link = find()
            if link is None:
                return False
            pool.wanting.take(live)
            self.placement.place(live, link)
        except Exception as error:  # noqa: BLE001 - a journal that can't be read, a process that can't be made
            pool.wanting.discard(live)
            self._grants.revoke(live)
            if link is not None and not link.leases:
                self._end(pool, link)
            live.controller.on_crash(live, f"can't be embodied: {describe_error(error)}")
        return True

    def _put_free(self, pool: Pool, link: HostLink) -> None:
        """Let a host that nobody is at serve others, or end it if it can't."""
        if link.takes_nobody:
            self._end(pool, link)
        elif link not in pool.free:
            pool.free.append(link)

    def _find_link(self, pool: Pool, live: LiveSession) -> HostLink | None:
        keeper = None if live.kept is None or live.recovered else live.kept[0]
        pool.prefer(keeper)
        while pool.free:
            free = pool.free.pop()
            if not free.takes_nobody and free.born > live.unfit_until:
                return free
            self._end(pool, free)
        if pool.shared < pool.size.usual and len(pool.starting) < len(pool.wanting):
            started = pool.start()
            if started is not None:
                return started
        while pool.restful:
            rested, _ = pool.restful.popitem(last=False)
            link = rested.link
            if link is not None and is_at_rest(rested):
                self.placement.passivate(link, rested)
                if not link.takes_nobody and link.born > live.unfit_until:
                    return link
                self._end(pool, link)
        link = pool.find_queue(live, keeper, self.placement.take_back_s)
        if link is None:
            pool.grow_later(self._grow)
        return link

    def _grow(self, pool: Pool) -> None:
        pool.growing = None
        if pool.can_grow(self.placement.take_back_s):
            pool.warm()
        self._match(pool)

    def _end(self, pool: Pool, link: HostLink) -> None:
        """End a host; whoever still waits at it gets another one."""
        pool.forget(link)
        self.placement.end_host(link)

    @staticmethod
    def on_session_left(live: object, ended: int) -> None:
        """Note that a session has left a host, where ``ended`` of its processes were ended."""
        if isinstance(live, LiveSession):
            live.controller.departures.end(live.session, ended)
