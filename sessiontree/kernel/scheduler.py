"""Which session sits on which host: warm hosts, least recently used sessions give way under pressure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from sessiontree.kernel.frames import Feed, Kill, Release
from sessiontree.kernel.link import HostLink
from sessiontree.kernel.seat import Seat


class Scheduler:
    """Gives seats to hosts. A host embodies one session; a session stays while nobody else needs the host.

    Args:
        make_link: Starts a host.
        max_hosts: Most hosts at a time.
    """

    def __init__(self, make_link: Callable[[], HostLink], max_hosts: int) -> None:
        """Begin without hosts."""
        self._make_link = make_link
        self._max_hosts = max_hosts
        self._links: set[HostLink] = set()
        self._free: list[HostLink] = []
        self._wanting: OrderedDict[Seat, None] = OrderedDict()
        self._restful: OrderedDict[Seat, None] = OrderedDict()
        self.passivations = 0

    @property
    def links(self) -> tuple[HostLink, ...]:
        """All hosts."""
        return tuple(self._links)

    def want(self, seat: Seat) -> None:
        """Bring what waits to a session, on a host it has or will get."""
        if seat.over:
            return
        if seat.link is not None:
            self._send_waiting(seat)
        else:
            self._wanting[seat] = None
            self.match()

    def settle(self, seat: Seat) -> None:
        """Note whether a session could be passivated now."""
        if seat.link is not None and not seat.over and seat.restful:
            self._restful[seat] = None
            self._restful.move_to_end(seat)
            if self._wanting:
                self.match()
        else:
            self._restful.pop(seat, None)

    def vacate(self, seat: Seat, *, force: bool) -> None:
        """Take a session that is over off its host."""
        self._wanting.pop(seat, None)
        self._restful.pop(seat, None)
        link = seat.link
        if link is not None:
            frame = Kill(seat.session, seat.epoch) if force else Release(seat.session, seat.epoch)
            link.send(frame)
            self._unseat(seat, link)
            self.match()

    def lost(self, link: HostLink) -> None:
        """A host is gone: its session is adopted again elsewhere and does what it owes."""
        self._links.discard(link)
        if link in self._free:
            self._free.remove(link)
        seat = link.seat
        if isinstance(seat, Seat):
            seat.link = None
            link.seat = None
            seat.waiting.extendleft(reversed(seat.sent))
            seat.sent.clear()
            seat.recovered = True
            self._restful.pop(seat, None)
            self.want(seat)
        else:
            self.match()

    def match(self) -> None:
        """Seat as many wanting sessions as there are hosts for."""
        while self._wanting:
            seat = next(iter(self._wanting))
            if seat.commits:
                # Its facts must be readable before another host gets them; its keeper asks again then.
                del self._wanting[seat]
                continue
            link = self._find_link()
            if link is None:
                return
            del self._wanting[seat]
            self._seat(seat, link)

    def _find_link(self) -> HostLink | None:
        if self._free:
            return self._free.pop()
        if len(self._links) < self._max_hosts:
            link = self._make_link()
            self._links.add(link)
            return link
        while self._restful:
            seat, _ = self._restful.popitem(last=False)
            if seat.link is not None and seat.restful:
                link = seat.link
                link.send(Release(seat.session, seat.epoch))
                self._unseat(seat, link)
                self.passivations += 1
                return self._free.pop()
        return None

    def _unseat(self, seat: Seat, link: HostLink) -> None:
        seat.link = None
        seat.idle = True
        link.seat = None
        self._free.append(link)

    def _seat(self, seat: Seat, link: HostLink) -> None:
        seat.epoch += 1
        seat.taken = 0
        seat.idle = False
        adopt = seat.keeper.adoption(seat)
        seat.recovered = False
        seat.link = link
        link.seat = seat
        link.send(adopt)
        self._send_waiting(seat)

    def _send_waiting(self, seat: Seat) -> None:
        if not seat.waiting:
            return
        link = seat.link
        assert link is not None  # noqa: S101 - asked by the callers
        self._restful.pop(seat, None)
        seat.idle = False
        inputs = tuple(seat.waiting)
        seat.waiting.clear()
        seat.sent.extend(inputs)
        causes = tuple(each.cause for each in inputs)
        link.send(Feed(seat.session, seat.epoch, causes, tuple(each.stimulus for each in inputs)))
