"""How a session gets onto a host and off it: grants, epochs, frames, and what its next host must repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sessiontree.contracts.facts.stimuli import ApprovalAnswered
from sessiontree.contracts.kinds import SessionKind
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import Input, LiveSession
from sessiontree.runtime.scheduling.pool import Pool
from sessiontree.runtime.transport.frames import Feed, Kill, Release, SessionReturned
from sessiontree.runtime.transport.link import HostLink

TAKE_BACK_S = 0.1
"""How long a session may run before those that wait at its host are taken back, and none joins them."""
GRACE_S = 5.0
"""How long after the time-out of a call its host counts as stuck."""


class SessionPlacement:
    """Puts sessions on hosts and takes them off; which session gets which host, the scheduler decides.

    Args:
        pool_of: The pool whose hosts run the sessions of each kind.
        grants: Issues a grant for each adoption.
        want: Called with a session that was taken off its host and needs another one.
    """

    def __init__(
        self, pool_of: Mapping[SessionKind, Pool], grants: Grants, want: Callable[[LiveSession], None]
    ) -> None:
        self._pool_of = pool_of
        self._grants = grants
        self._want = want
        self._epochs = 0
        self.take_back_s = TAKE_BACK_S

    def get_pool(self, live: LiveSession) -> Pool:
        """Return the pool whose hosts run a session."""
        return self._pool_of[live.kind]

    # Onto a host.

    def place(self, live: LiveSession, link: HostLink) -> None:
        """Put a session on a host: send what rebuilds it there, then what waits for it."""
        # Race: a report of an earlier adoption may still be on its way. Its epoch is another one, so nobody
        # takes it for a report of this adoption.
        self._epochs += 1
        live.epoch = self._epochs
        live.taken = 0
        keeps = live.kept is not None and live.kept[0].shelf is link.shelf and not live.recovered
        live.resumes = live.kept[1] if live.kept is not None and keeps else 0
        if not keeps:
            forget_kept_state(live)
        stale = tuple(link.stale)
        link.stale.clear()
        self._grants.issue(live, live.kind)
        adopt = live.controller.adoptions.build(live, stale)
        if live.recovered and live.answers:
            live.requeue_answers()
        live.idle = False
        live.controller.waits.on_stirred(live.session)
        live.repeats, live.recovered = live.recovered, False
        live.prompt_owed = False
        live.link = link
        link.leases[live.epoch] = live
        self.get_pool(live).placed_at = asyncio.get_running_loop().time()
        link.send(adopt)
        if len(link.leases) == 1:
            self.note_begin(link)
        elif link.looking is None:
            link.looking = asyncio.get_running_loop().call_later(self.take_back_s, self._look, link)
        self.send_waiting(live)

    def send_waiting(self, live: LiveSession) -> None:
        """Send what waits for a session to the host that it is on."""
        if not live.waiting:
            return
        link = live.link
        assert link is not None  # noqa: S101 - asked by the callers
        self.get_pool(live).restful.pop(live, None)
        live.idle = False
        live.controller.waits.on_stirred(live.session)
        inputs = tuple(live.waiting)
        live.waiting.clear()
        live.sent.extend(inputs)
        causes = tuple(each.cause for each in inputs)
        link.send(Feed(live.session, live.epoch, causes, tuple(each.stimulus for each in inputs)))

    def note_begin(self, link: HostLink) -> None:
        """Note that the first session at a host begins, as far as is known here."""
        live = link.running
        assert isinstance(live, LiveSession)  # noqa: S101 - asked by the callers
        link.since = asyncio.get_running_loop().time()
        link.patience_s = live.controller.config.limits.tool_timeout_s + GRACE_S
        if link not in self.get_pool(live).starting:
            live.controller.waits.release(live.session, "host")
            live.controller.adoptions.on_embodied(live)

    # Off a host.

    def passivate(self, link: HostLink, rested: LiveSession) -> None:
        """Let a session that is at rest go; its host may keep its state."""
        keep = not rested.recovered
        self.let_go(link, rested, Release(rested.session, rested.epoch, keep))
        rested.kept = (link, rested.epoch) if keep else None

    def let_go(self, link: HostLink, live: LiveSession, frame: Release | Kill) -> None:
        """Ask a session to leave its host; it counts as gone from the host's sessions at once."""
        link.let_go(live, frame)
        live.controller.departures.begin(live.session)
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
            self.note_begin(link)

    def on_returned(self, link: HostLink, live: LiveSession, left: SessionReturned) -> None:
        """Note that a host let a session go by itself; what it had not taken is kept for its next host."""
        live.controller.departures.begin(live.session)
        self._leave(link, live)
        live.kept = (link, live.epoch) if left.kept else None
        # Race: what was sent may have crossed the host's report. If it brought an approval whose intent is
        # durable, or asked for the whole conversation, the next host begins from the facts.
        if live.prompt_owed or any(has_intent(each) for each in live.sent):
            live.recovered = True
        self.keep_inputs(live)
        live.controller.departures.end(live.session, left.ended)

    def on_lost(self, link: HostLink, live: LiveSession) -> None:
        """Note that the host of a session is lost: its next one must repeat the work that is owed."""
        live.controller.departures.begin(live.session)
        self._grants.revoke(live)
        live.link = None
        self.keep_inputs(live)
        live.recovered = True
        self.get_pool(live).restful.pop(live, None)

    @staticmethod
    def keep_inputs(live: LiveSession) -> None:
        """Keep for a session's next host what the last one had not taken, and that it must repeat work."""
        live.waiting[:0] = live.sent
        live.sent.clear()
        live.recovered = live.recovered or live.repeats

    def _look(self, link: HostLink) -> None:
        """Take back the sessions that wait at a host if the one that runs there takes long."""
        link.looking = None
        if len(link.leases) > 1:
            late_s = link.since + self.take_back_s - asyncio.get_running_loop().time()
            if late_s > 0:
                link.looking = asyncio.get_running_loop().call_later(late_s, self._look, link)
            else:
                self.take_back(link)

    def take_back(self, link: HostLink) -> None:
        """Take back the sessions that wait at a host; they get others, or wait for one."""
        _, *waiting = link.leases.values()
        for live in waiting:
            # Race: an approval whose intent is durable is on its way there, and only one host may take it.
            if not isinstance(live, LiveSession) or any(has_intent(each) for each in live.sent):
                continue
            self.let_go(link, live, Release(live.session, live.epoch))
            self.keep_inputs(live)
            self._want(live)

    def end_host(self, link: HostLink) -> None:
        """End a host; whoever still waits at it gets another one."""
        lives = [live for live in link.leases.values() if isinstance(live, LiveSession)]
        for live in lives:
            self.let_go(link, live, Release(live.session, live.epoch))
            self.keep_inputs(live)
            live.recovered = True
        link.end()
        for live in lives:
            self._want(live)


def forget_kept_state(live: LiveSession) -> None:
    """Note that the state of a session that a host keeps is not needed there any more.

    The host hears of it with its next adoption: a frame of its own would cost as much as what it saves.
    """
    if live.kept is not None:
        link, epoch = live.kept
        link.stale.append((live.session, epoch))
        live.kept = None


def has_intent(given: Input) -> bool:
    """Whether a stimulus brings an approval whose intent is journaled: only one host may take it."""
    return isinstance(given.stimulus, ApprovalAnswered) and given.stimulus.intended


def is_at_rest(live: LiveSession) -> bool:
    """Whether a session could leave its host now: nothing runs, nothing is on its way."""
    return live.idle and not live.waiting and not live.sent and live.commits == 0
