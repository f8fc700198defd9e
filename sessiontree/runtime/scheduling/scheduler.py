"""Which session is on which host. Some hosts are started early; idle sessions leave when hosts are short.

A host runs one session. Others may wait at it for their turn, so that it need not wait for the next one: it
lets an idle session go by itself then. Sessions that wait behind a long call are taken back.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.facts.stimuli import ApprovalAnswered
from sessiontree.contracts.handles.runtime_control import PoolStatus, RestartReport
from sessiontree.contracts.kinds import SessionKind
from sessiontree.runtime.scheduling.fair_queue import FairQueue
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import Input, LiveSession
from sessiontree.runtime.transport.frames import Feed, Kill, LetGo, Outcome, Release, Unfit
from sessiontree.runtime.transport.link import HostLink, HostLost

MAX_FALSE_STARTS = 4
"""How many hosts of a pool may fail to start in a row before the sessions that wait for one end."""
GROW_AFTER_S = 0.5
"""How long a session waits before a pool gets one host more than usual; about as long as a start takes."""
TAKE_BACK_S = 0.1
"""How long a session may run before those that wait at its host are taken back, and none joins them."""
GRACE_S = 5.0
"""How long after the time-out of a call its host counts as stuck."""
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


@dataclass(slots=True)
class Pool:
    """Hosts with the same confinement, and the sessions that wait for one."""

    name: str
    size: PoolSize
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

    def forget(self, link: HostLink) -> None:
        """Remove a host that is lost."""
        self.links.discard(link)
        self.dedicated.discard(link)
        self.starting.discard(link)


class Scheduler:
    """Assigns sessions to hosts. A host embodies one session, which stays until another one needs the host.

    Args:
        make_link: Starts a host of a pool.
        pools: How many hosts each pool has.
        pool_of: The pool whose hosts run the sessions of each kind.
        grants: Issues a grant for each adoption.
        most_losses: How many hosts a session may lose in a row without progress before it ends.
    """

    # The start of a host takes half a second of a processor. Sessions therefore share the hosts that are
    # ready. One more is started only if a session has waited for about that long, fewer hosts than usual are
    # without a long call, and the supervisor is not busy: otherwise the calls are long because they wait for
    # its answers, and more hosts would only take its time.

    def __init__(
        self,
        make_link: Callable[[str], HostLink],
        pools: Mapping[str, PoolSize],
        pool_of: Mapping[SessionKind, str],
        grants: Grants,
        most_losses: float,
    ) -> None:
        self._make_link = make_link
        self._pools = {name: Pool(name, size) for name, size in pools.items()}
        self._pool_of = {kind: self._pools[name] for kind, name in pool_of.items()}
        self._grants = grants
        self._most_losses = most_losses
        self._epochs = 0
        self.passivations = 0
        self.take_back_s = TAKE_BACK_S

    @property
    def links(self) -> tuple[HostLink, ...]:
        """All hosts."""
        return tuple(link for pool in self._pools.values() for link in pool.links)

    def waiting(self) -> dict[str, int]:
        """Return how many sessions of each pool wait for a host."""
        return {pool.name: len(pool.wanting) for pool in self._pools.values()}

    def warm(self, pool_name: str) -> None:
        """Start a host of a pool before a session needs it."""
        pool = self._pools[pool_name]
        if pool.shared < pool.size.most:
            link = self._start(pool)
            if link is not None:
                pool.free.append(link)

    def list_pools(self) -> tuple[PoolStatus, ...]:
        """Return the state of each pool."""
        return tuple(
            PoolStatus(
                pool.name,
                pool.size.most,
                len(pool.links),
                sum(bool(link.leases) for link in pool.links),
                len(pool.wanting),
                sum(link.retiring for link in pool.links),
            )
            for pool in self._pools.values()
        )

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
                link.retiring = True  # all of them, before a session that waits could get the next one
            before = ended
            for link in old:
                first = link.running
                if isinstance(first, LiveSession) and first in pool.restful and _is_at_rest(first):
                    self.settle(first)
                elif not link.leases and link in pool.free:
                    pool.free.remove(link)
                    self._end(pool, link)
                elif len(link.leases) > 1:
                    self._take_back(link)
                ended += link not in pool.links
                retiring += link in pool.links
            if ended > before and not pool.starting:
                self.warm(pool.name)
            self._match(pool)
        return RestartReport(ended, retiring, dedicated)

    def close(self) -> None:
        """Start no more hosts."""
        for pool in self._pools.values():
            if pool.growing is not None:
                pool.growing.cancel()

    def want(self, live: LiveSession) -> None:
        """Send a session what waits for it, on the host that it has or will get."""
        if live.over:
            return
        pool = self._pool(live)
        if live.link is not None:
            self._send_waiting(live)
        elif not live.dedicated:
            pool.wanting.add(live)
            self._match(pool)
        elif not live.commits:
            self._try_place(pool, live, self._start_dedicated)
        link = live.link
        if link is None or link.running is not live or link in pool.starting:
            live.controller.waits.hold(live.session, "host")

    def settle(self, live: LiveSession) -> None:
        """Note whether a session can be passivated now."""
        pool = self._pool(live)
        if live.link is not None and not live.over and not live.dedicated and _is_at_rest(live):
            link = live.link
            if len(link.leases) > 1 or link.retiring:
                pool.restful.pop(live, None)
                self._passivate(link, live)  # for example it waits for a person
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
        pool = self._pool(live)
        pool.wanting.discard(live)
        pool.restful.pop(live, None)
        link = live.link
        if link is None:
            return
        was_running = link.running is live
        if was_running and force:
            link.since = float("-inf")
            self._take_back(link)  # they must not wait for work that may not stop
        self._let_go(
            link, live, Kill(live.session, live.epoch) if force else Release(live.session, live.epoch)
        )
        if live.dedicated or link.takes_nobody:
            self._end(pool, link)
        elif force and was_running:
            # Its work may not stop: the host takes no other session before it reports that it let go.
            link.free_when_received()
        elif not link.leases:
            self._put_free(pool, link)
        self._match(pool)

    def on_freed(self, link: HostLink) -> None:
        """Note that a host is ready, or has let go of a session that had to leave at once."""
        pool = self._pools[link.pool]
        if link in pool.starting:
            pool.starting.discard(link)
            pool.false_starts = 0
        if link.leases:
            self._note_begin(link)
            return  # it was started for this session alone
        self._put_free(pool, link)
        self._match(pool)

    def reported(self, link: HostLink, outcome: Outcome | Unfit | LetGo) -> None:
        """Pass a host's report to the controller of its session; ignore one of an earlier adoption."""
        live = link.leases.get(outcome.epoch)
        if not isinstance(live, LiveSession) or live.session != outcome.session:
            return
        if isinstance(outcome, Unfit):
            # Started before the workspace was there: a host started now sees it, or nobody does.
            live.unfit_until = asyncio.get_running_loop().time()
            link.declare_lost(outcome.reason, to_blame=False)
        elif isinstance(outcome, LetGo):
            self._was_let_go(link, live, outcome)
        else:
            live.controller.on_outcome(live, outcome)

    def _was_let_go(self, link: HostLink, live: LiveSession, left: LetGo) -> None:
        """Note that a host let a session go by itself; what it had not taken is sent to its next host."""
        pool = self._pool(live)
        live.controller.on_session_leaving(live.session)
        pool.restful.pop(live, None)
        self._leave(link, live)
        live.kept = (link, live.epoch) if left.kept else None
        if live.prompt_owed or any(_is_intended(each) for each in live.sent):
            live.recovered = True
        self._keep_inputs(live)
        live.controller.on_session_left(live.session, left.ended)
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
            live.controller.on_session_leaving(live.session)
            self._grants.revoke(live)
            live.link = None
            self._keep_inputs(live)
            live.recovered = True
            pool.restful.pop(live, None)
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

    def _pool(self, live: LiveSession) -> Pool:
        return self._pool_of[live.kind]

    def _match(self, pool: Pool) -> None:
        """Place waiting sessions as long as there are hosts."""
        while pool.wanting:
            live = pool.wanting.first()
            if live.commits:
                # Its facts must be durable before another host reads them. The controller asks again then.
                pool.wanting.discard(live)
                continue
            if not self._try_place(pool, live, self._find_link):
                return

    def _try_place(
        self, pool: Pool, live: LiveSession, find: Callable[[Pool, LiveSession], HostLink | None]
    ) -> bool:
        """Place a session on a host; return False if none is free now.

        A session that can't be placed ends with an error. The error does not reach the caller, who may have
        acted for another session.
        """
        link = None
        try:
            link = find(pool, live)
            if link is None:
                return False
            pool.wanting.take(live)
            self._place(live, link)
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
        if keeper in pool.free:
            pool.free.remove(keeper)
            pool.free.append(keeper)
        while pool.free:
            free = pool.free.pop()
            if not free.takes_nobody and free.born > live.unfit_until:
                return free
            self._end(pool, free)
        if pool.shared < pool.size.usual and len(pool.starting) < len(pool.wanting):
            started = self._start(pool)
            if started is not None:
                return started
        while pool.restful:
            rested, _ = pool.restful.popitem(last=False)
            link = rested.link
            if link is not None and _is_at_rest(rested):
                self._passivate(link, rested)
                if not link.takes_nobody and link.born > live.unfit_until:
                    return link
                self._end(pool, link)
        link = self._find_queue(pool, live, keeper)
        if link is None and pool.shared < pool.size.most and not pool.starting and pool.growing is None:
            pool.busy_ns = measure_busy_time()
            pool.growing = asyncio.get_running_loop().call_later(GROW_AFTER_S, self._grow, pool)
        return link

    def _find_queue(self, pool: Pool, live: LiveSession, keeper: HostLink | None) -> HostLink | None:
        """Return the host with the fewest sessions at which another one may wait, or None."""
        if not pool.size.ahead or live.alone:
            return None
        found, fewest = None, pool.size.ahead + 1
        now = asyncio.get_running_loop().time()
        for link in pool.links:
            first = link.running
            if not isinstance(first, LiveSession) or link in pool.dedicated or link in pool.starting:
                continue
            fits = not link.takes_nobody and link.born > live.unfit_until
            if not fits or first.alone or now - link.since > self.take_back_s:
                continue
            if len(link.leases) <= pool.size.ahead and link is keeper:
                return link
            if len(link.leases) < fewest:
                found, fewest = link, len(link.leases)
        return found

    def _passivate(self, link: HostLink, rested: LiveSession) -> None:
        """Let a session that is at rest go; its host may keep its state."""
        keep = not rested.recovered
        self._let_go(link, rested, Release(rested.session, rested.epoch, keep))
        rested.kept = (link, rested.epoch) if keep else None
        self.passivations += 1

    def _look(self, link: HostLink) -> None:
        """Take back the sessions that wait at a host if the one that runs there takes long."""
        link.looking = None
        if len(link.leases) > 1:
            late_s = link.since + self.take_back_s - asyncio.get_running_loop().time()
            if late_s > 0:
                link.looking = asyncio.get_running_loop().call_later(late_s, self._look, link)
            else:
                self._take_back(link)

    def _take_back(self, link: HostLink) -> None:
        """Take back the sessions that wait at a host; they get others, or wait for one."""
        _, *waiting = link.leases.values()
        for live in waiting:
            if not isinstance(live, LiveSession) or any(_is_intended(each) for each in live.sent):
                continue
            self._let_go(link, live, Release(live.session, live.epoch))
            self._keep_inputs(live)
            self.want(live)

    def _grow(self, pool: Pool) -> None:
        pool.growing = None
        now = asyncio.get_running_loop().time()
        if pool.wanting and not pool.starting and pool.shared < pool.size.most and self._is_short(pool, now):
            self.warm(pool.name)
        self._match(pool)

    def _is_short(self, pool: Pool, now: float) -> bool:
        """Whether one more host would help the sessions that wait."""
        held = sum(
            bool(link.leases) and now - link.since > self.take_back_s for link in pool.links - pool.dedicated
        )
        if pool.shared - held >= pool.size.usual:
            return False
        is_busy = measure_busy_time() - pool.busy_ns > BUSY * GROW_AFTER_S * 1e9
        return not is_busy or now - pool.placed_at > STANDSTILL_S

    def _start(self, pool: Pool) -> HostLink | None:
        """Start a host; return it if it is ready at once, else None."""
        link = self._begin(pool)
        return link if link.transport.is_ready else None

    def _begin(self, pool: Pool) -> HostLink:
        link = self._make_link(pool.name)
        link.pool = pool.name
        pool.links.add(link)
        if not link.transport.is_ready:
            pool.starting.add(link)
        return link

    def _start_dedicated(self, pool: Pool, live: LiveSession) -> HostLink:
        """Start a host for one session, which is placed there at once."""
        link = self._begin(pool)
        pool.dedicated.add(link)
        return link

    def _end(self, pool: Pool, link: HostLink) -> None:
        """End a host; whoever still waits at it gets another one."""
        pool.forget(link)
        lives = [live for live in link.leases.values() if isinstance(live, LiveSession)]
        for live in lives:
            self._let_go(link, live, Release(live.session, live.epoch))
            self._keep_inputs(live)
            live.recovered = True
        link.end()
        for live in lives:
            self.want(live)

    @staticmethod
    def on_session_left(live: object, ended: int) -> None:
        """Note that a session has left a host, where ``ended`` of its processes were ended."""
        if isinstance(live, LiveSession):
            live.controller.on_session_left(live.session, ended)

    def _let_go(self, link: HostLink, live: LiveSession, frame: Release | Kill) -> None:
        link.let_go(live, frame)
        live.controller.on_session_leaving(live.session)
        self._leave(link, live)

    def _leave(self, link: HostLink, live: LiveSession) -> None:
        """Remove a session from its host's sessions; the next one begins."""
        self._grants.revoke(live)
        was_running = link.running is live
        del link.leases[live.epoch]
        live.link = None
        live.idle = True
        live.controller.waits.on_stirred(live.session)
        if was_running and link.leases:
            self._note_begin(link)

    @staticmethod
    def _keep_inputs(live: LiveSession) -> None:
        """Keep for a session's next host what the last one had not taken, and that it must repeat work."""
        live.waiting[:0] = live.sent
        live.sent.clear()
        live.recovered = live.recovered or live.repeats

    def _place(self, live: LiveSession, link: HostLink) -> None:
        self._epochs += 1
        live.epoch = self._epochs
        live.taken = 0
        keeps = live.kept is not None and live.kept[0] is link and not live.recovered
        live.resumes = live.kept[1] if live.kept is not None and keeps else 0
        if not keeps:
            live.kept = None
        self._grants.issue(live, live.kind)
        adopt = live.controller.build_adoption(live)
        if live.recovered and live.answers:
            live.requeue_answers()
        live.idle = False
        live.controller.waits.on_stirred(live.session)
        live.repeats, live.recovered = live.recovered, False
        live.prompt_owed = False
        live.link = link
        link.leases[live.epoch] = live
        self._pool(live).placed_at = asyncio.get_running_loop().time()
        link.send(adopt)
        if len(link.leases) == 1:
            self._note_begin(link)
        elif link.looking is None:
            link.looking = asyncio.get_running_loop().call_later(self.take_back_s, self._look, link)
        self._send_waiting(live)

    def _note_begin(self, link: HostLink) -> None:
        """Note that the first session at a host begins, as far as is known here."""
        live = link.running
        assert isinstance(live, LiveSession)  # noqa: S101 - asked by the callers
        link.since = asyncio.get_running_loop().time()
        link.patience_s = live.controller.config.limits.tool_timeout_s + GRACE_S
        if link not in self._pool(live).starting:
            live.controller.waits.release(live.session, "host")
            live.controller.embodied(live)

    def _send_waiting(self, live: LiveSession) -> None:
        if not live.waiting:
            return
        link = live.link
        assert link is not None  # noqa: S101 - asked by the callers
        self._pool(live).restful.pop(live, None)
        live.idle = False
        live.controller.waits.on_stirred(live.session)
        inputs = tuple(live.waiting)
        live.waiting.clear()
        live.sent.extend(inputs)
        causes = tuple(each.cause for each in inputs)
        link.send(Feed(live.session, live.epoch, causes, tuple(each.stimulus for each in inputs)))


def _is_intended(given: Input) -> bool:
    """Whether a stimulus brings an approval whose intent is journaled: only one host may take it."""
    return isinstance(given.stimulus, ApprovalAnswered) and given.stimulus.intended


def _is_at_rest(live: LiveSession) -> bool:
    """Whether a session could leave its host now: nothing runs, nothing is on its way."""
    return live.idle and not live.waiting and not live.sent and live.commits == 0
