"""The sessions of a live tree: which there are, what they used, which changed, and which are shown.

It is pure, and a fact costs O(depth of its session). Not here: what waits for a person (``live_tree``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from sessiontree.contracts.facts.tree_facts import UsageCharged
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.values.messages import Usage
from sessiontree.journal.replay import read_fact, read_facts
from sessiontree.view.fact_heads import read_first_members
from sessiontree.view.session_panel import SessionPanel

_MAIN = "main"


class LiveSessions:
    """Counts sessions and chooses those to show; :class:`LiveTree` takes the facts in."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionPanel] = {}
        """In spawn order; ended ones stay."""
        self.total = 0
        self.live = 0
        self.ended: Counter[SessionStatus] = Counter()
        """Number of ended sessions by final status."""
        self.done = 0
        """What was counted."""
        self.expected: int | None = None
        """How much there is to count; None where that is not known."""
        self.usage = Usage()
        """What all sessions used."""
        self.last_seq = 0
        self.last_at_ms = 0
        """When the newest fact was made."""
        self.revision = 0
        """Grows with every change of a session or of the requests."""
        self._rows: list[SessionPanel] = []
        self._changed: dict[int, int] = {}
        """By row its newest revision, in order of change."""
        self._roots: dict[str, SessionPanel] = {}
        """Live sessions below no session that is known."""

    @property
    def is_over(self) -> bool:
        """Whether Main has ended: nothing more will happen."""
        main = self.sessions.get(_MAIN)
        return main is not None and main.is_ended

    def rows(self) -> Sequence[SessionPanel]:
        """Return all sessions by their row number, in spawn order."""
        return self._rows

    def list_rows_since(self, revision: int) -> list[SessionPanel]:
        """Return the sessions that changed after a revision, newest change first; O(their number)."""
        found = []
        # Newest first, so that a viewer that is nearly up to date costs only what it lacks.
        for number, changed in reversed(self._changed.items()):
            if changed <= revision:
                break
            found.append(self._rows[number])
        return found

    def count(self, session_id: str, amount: int) -> None:
        """Count something done by a session; it counts for all above it too."""
        self.done += amount
        session = self.sessions.get(session_id)
        while session is not None:
            session.done += amount
            session = self._find_parent(session)

    def chosen(self, most: int) -> dict[str, list[SessionPanel]]:
        """Choose at most so many live sessions to show; an ended Main is shown too.

        Main comes first. Then each chosen session adds its next child in turn, so that a view of few lines
        covers many parts of the tree, some of them deeply.

        Returns:
            By parent (empty = below none) its children to show, in spawn order.
        """
        found: dict[str, list[SessionPanel]] = {"": []}
        turns: deque[tuple[str, Iterator[SessionPanel]]] = deque([("", self._list_tops())])
        while turns and most > 0:
            parent, children = turns.popleft()
            child = next(children, None)
            if child is None:
                continue
            most -= 1
            found[parent].append(child)
            found[child.session_id] = []
            # Behind all others, so that one session with thousands of children does not take every line.
            turns.append((parent, children))
            turns.append((child.session_id, iter(child.live_children.values())))
        return found

    def _touch(self, session: SessionPanel) -> None:
        """Note that a session changed; its revision becomes the newest one."""
        self.revision += 1
        self._changed.pop(session.number, None)  # else it would keep its place in the order
        self._changed[session.number] = self.revision

    def _list_tops(self) -> Iterator[SessionPanel]:
        main = self.sessions.get(_MAIN)
        if main is not None and main.is_ended:
            yield main
        yield from self._roots.values()

    def _find_parent(self, session: SessionPanel) -> SessionPanel | None:
        return None if session.parent is None else self.sessions.get(session.parent)

    def _find_siblings(self, session: SessionPanel) -> dict[str, SessionPanel]:
        parent = self._find_parent(session)
        return self._roots if parent is None else parent.live_children

    def _count_below(self, session: SessionPanel, live: int, ended: int) -> None:
        above = self._find_parent(session)
        while above is not None:
            above.live_below += live
            above.ended_below += ended
            above = self._find_parent(above)

    def _on_spawned(self, text: str) -> None:
        fact = read_fact(text)
        spec = fact.spec
        session = SessionPanel(spec.session_id, spec.kind, spec.label or "", spec.parent)
        session.number = len(self._rows)
        session.spawned_seq = self.last_seq
        session.began_ms = fact.at_ms or self.last_at_ms
        # A budget of its own names the session itself, which is not in the table yet.
        session.account = self.sessions.get(fact.account, session)
        session.budget = spec.budget
        self._rows.append(session)
        self.sessions[spec.session_id] = session
        self._touch(session)
        above = self._find_parent(session)
        if above is not None:
            session.parent_number = above.number
            self._touch(above)
        self.total += 1
        self.live += 1
        self._find_siblings(session)[spec.session_id] = session
        self._count_below(session, 1, 0)

    def _on_stirred(self, text: str) -> None:
        (session_id,) = read_first_members("session_reactivated", text)
        self._stand(session_id, SessionStatus.ACTIVE)

    def _on_held(self, text: str) -> None:
        (session_id,) = read_first_members("result_held", text)
        self._stand(session_id, SessionStatus.SUSPENDED)

    def _stand(self, session_id: str, status: SessionStatus) -> None:
        session = self.sessions.get(session_id)
        if session is not None and not session.is_ended:
            session.status = status
            self._touch(session)

    def _on_ended(self, text: str) -> None:
        # Searched as text, because most ends charge nothing and would be parsed in vain.
        if '"charged":' in text:
            for fact in read_facts(text):
                if isinstance(fact, UsageCharged):
                    self._charge(fact)
        session_id, status = read_first_members("session_ended", text)
        session = self.sessions.get(session_id)
        if session is None or session.is_ended:
            return
        session.end(SessionStatus(status))
        if status == SessionStatus.FAILED and '"cause":' in text:
            session.cause = read_fact(text).result.cause
        session.ended_ms = self.last_at_ms
        self._touch(session)
        above = self._find_parent(session)
        if above is not None:
            self._touch(above)
        self.live -= 1
        self.ended[session.status] += 1
        self._find_siblings(session).pop(session_id, None)
        self._count_below(session, -1, 1)

    def _on_charged(self, text: str) -> None:
        self._charge(read_fact(text))

    def _charge(self, fact: UsageCharged) -> None:
        self.usage += fact.usage
        session = self.sessions.get(fact.session)
        if session is not None:
            session.usage += fact.usage
            self._touch(session)
        account = self.sessions.get(fact.account)
        if account is not None:
            account.charged += fact.usage
            self._touch(account)

    def _on_stopping(self, text: str) -> None:
        for session_id in read_fact(text).sessions:
            session = self.sessions.get(session_id)
            if session is not None:
                session.is_stopping = True
                self._touch(session)
