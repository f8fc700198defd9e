"""Live tree: how a tree stands, kept from its facts as they come, and from events where there are any.

It is pure: nothing here waits, reads a clock or draws. A fact costs O(depth of its session), never the size
of the tree or of the fact; choosing what is shown costs O(what is shown).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sessiontree.cli.live_facts import first_members
from sessiontree.cli.live_session import SessionPanel, call_text
from sessiontree.contracts.events import Event, ToolExecutionEnd, ToolExecutionRetry, ToolExecutionStart
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.journal.record import Record, kind_in
from sessiontree.runtime.replay import fact_of

_MAIN = "main"


class LiveTree:
    """Takes facts in, in order, and events in any; tells counts, and which sessions to show."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionPanel] = {}
        """In spawn order; ended ones stay."""
        self.total = 0
        self.live = 0
        self.ended: Counter[SessionStatus] = Counter()
        """How many ended how."""
        self.done = 0
        """What was counted."""
        self.expected: int | None = None
        """How much there is to count; None where that is not known."""
        self.last_seq = 0
        self.last_at_ms = 0
        """When the newest fact was made."""
        self._asked_by: dict[str, str] = {}
        """Open approval requests and who asked."""
        self._roots: dict[str, SessionPanel] = {}
        """Live sessions below no session that is known."""
        self._books: Mapping[str, Callable[[str], None]] = {
            "session_spawned": self._spawned,
            "session_stirred": self._stirred,
            "result_held": self._held,
            "session_ended": self._ended,
            "cancel_begun": self._stopping,
            "approval_requested": self._requested,
            "approval_decided": self._decided,
        }

    @property
    def open_requests(self) -> int:
        """Approval requests without a decision."""
        return len(self._asked_by)

    @property
    def is_over(self) -> bool:
        """Whether Main has ended: nothing more will happen."""
        main = self.sessions.get(_MAIN)
        return main is not None and main.is_ended

    def take(self, record: Record) -> None:
        """Take a fact in.

        Raises:
            JournalTooNew, JournalCorrupt: it is no fact of this release.
        """
        self.last_seq = record.seq
        self.last_at_ms = max(self.last_at_ms, record.at_ms)
        kind = kind_in(record.text)
        if not record.session:
            book = self._books.get(kind)
            if book is not None:
                book(record.text)
        elif kind in _OF_SESSION:
            session = self.sessions.get(record.session)
            if session is not None and not session.is_ended:
                _OF_SESSION[kind](session, record.text)

    def see(self, session_id: str, event: Event) -> None:
        """Take an event in: calls that begin are told by events before facts tell them."""
        session = self.sessions.get(session_id)
        if session is None or session.is_ended:
            return
        if isinstance(event, ToolExecutionStart):
            session.began(event.tool_call_id, event.tool_name, event.args)
        elif isinstance(event, ToolExecutionRetry):
            session.tried(event.tool_call_id, event.attempt, event.attempts)
        elif isinstance(event, ToolExecutionEnd):
            session.call_over(event.tool_call_id)

    def count(self, session_id: str, amount: int) -> None:
        """Count something done by a session; it counts for all above it too."""
        self.done += amount
        session = self.sessions.get(session_id)
        while session is not None:
            session.done += amount
            session = self._parent_of(session)

    def chosen(self, most: int) -> dict[str, list[SessionPanel]]:
        """Choose at most so many live sessions to show; an ended Main is shown too.

        Main comes first. Then every session chosen brings its next child in turn, so that a view of few
        lines tells of many places and looks deep into some.

        Returns:
            By parent (empty = below none) its children to show, in spawn order.
        """
        found: dict[str, list[SessionPanel]] = {"": []}
        turns: deque[tuple[str, Iterator[SessionPanel]]] = deque([("", self._tops())])
        while turns and most > 0:
            parent, children = turns.popleft()
            child = next(children, None)
            if child is None:
                continue
            most -= 1
            found[parent].append(child)
            found[child.session_id] = []
            turns.append((parent, children))
            turns.append((child.session_id, iter(child.live_children.values())))
        return found

    def _tops(self) -> Iterator[SessionPanel]:
        main = self.sessions.get(_MAIN)
        if main is not None and main.is_ended:
            yield main
        yield from self._roots.values()

    def _parent_of(self, session: SessionPanel) -> SessionPanel | None:
        return None if session.parent is None else self.sessions.get(session.parent)

    def _siblings_of(self, session: SessionPanel) -> dict[str, SessionPanel]:
        parent = self._parent_of(session)
        return self._roots if parent is None else parent.live_children

    def _count_below(self, session: SessionPanel, live: int, ended: int) -> None:
        above = self._parent_of(session)
        while above is not None:
            above.live_below += live
            above.ended_below += ended
            above = self._parent_of(above)

    def _spawned(self, text: str) -> None:
        spec = fact_of(text).spec
        session = SessionPanel(spec.session_id, spec.kind, spec.label or "", spec.parent)
        self.sessions[spec.session_id] = session
        self.total += 1
        self.live += 1
        self._siblings_of(session)[spec.session_id] = session
        self._count_below(session, 1, 0)

    def _stirred(self, text: str) -> None:
        (session_id,) = first_members("session_stirred", text)
        self._stand(session_id, SessionStatus.ACTIVE)

    def _held(self, text: str) -> None:
        (session_id,) = first_members("result_held", text)
        self._stand(session_id, SessionStatus.SUSPENDED)

    def _stand(self, session_id: str, status: SessionStatus) -> None:
        session = self.sessions.get(session_id)
        if session is not None and not session.is_ended:
            session.status = status

    def _ended(self, text: str) -> None:
        session_id, status = first_members("session_ended", text)
        session = self.sessions.get(session_id)
        if session is None or session.is_ended:
            return
        session.end(SessionStatus(status))
        self.live -= 1
        self.ended[session.status] += 1
        self._siblings_of(session).pop(session_id, None)
        self._count_below(session, -1, 1)

    def _stopping(self, text: str) -> None:
        for session_id in fact_of(text).sessions:
            session = self.sessions.get(session_id)
            if session is not None:
                session.is_stopping = True

    def _requested(self, text: str) -> None:
        fact = fact_of(text)
        self._asked_by[fact.request_id] = fact.session
        session = self.sessions.get(fact.session)
        if session is not None:
            session.pending[fact.request_id] = call_text(fact.tool, fact.arguments)

    def _decided(self, text: str) -> None:
        (request_id,) = first_members("approval_decided", text)
        session = self.sessions.get(self._asked_by.pop(request_id, ""))
        if session is not None:
            session.pending.pop(request_id, None)


def _turn_started(session: SessionPanel, text: str) -> None:
    (session.turns,) = first_members("turn_started", text)
    session.replied("")
    session.is_asking = True


def _turn_failed(session: SessionPanel, text: str) -> None:
    session.is_asking = False


def _call_asked(session: SessionPanel, text: str) -> None:
    session.asked[fact_of(text).key] = text


def _call_parked(session: SessionPanel, text: str) -> None:
    session.settled.update(first_members("call_parked", text))


def _call_resolved(session: SessionPanel, text: str) -> None:
    key, _, call_id = first_members("call_resolved", text)
    session.settled.add(key)
    session.asked.pop(key, None)
    session.call_over(call_id)
    session.result = text


def _told_to_stop(session: SessionPanel, text: str) -> None:
    session.is_asking = False
    session.is_stopping = True


_OF_SESSION: Mapping[str, Callable[[SessionPanel, str], Any]] = {
    "turn_started": _turn_started,
    "turn_replied": SessionPanel.replied,
    "turn_failed": _turn_failed,
    "call_asked": _call_asked,
    "call_parked": _call_parked,
    "call_resolved": _call_resolved,
    "stopping": _told_to_stop,
}
