"""Which sessions of a subtree that was interrupted, or is ending, have not stopped their work yet."""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.facts.session_facts import CompactionBegun, TurnStarted
from sessiontree.contracts.facts.tree_facts import (
    CancelBegun,
    InterruptBegun,
    Posted,
    PostsTaken,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
)
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_facts

_NEW_WORK = (TurnStarted, CompactionBegun)
"""Facts that begin work of a session's next message."""


class Interruption:
    """The sessions of a subtree that were asked to stop or to end and have not done so yet."""

    def __init__(self, head: str) -> None:
        self._sessions: set[str] = set()
        self._owed: dict[str, set[str]] = {}
        """Posts that each of them has not taken in yet; a message sent before that is not its final one."""
        self._head = f"{head}/"
        self._kept: set[str] = set()
        self._interrupted: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether all of them have stopped."""
        return not self._sessions and not any(self._owed.values())

    def take(self, record: JournalRecord) -> None:
        """Take in one of the tree's facts."""
        if record.session:
            self._take_own(record.session, record.text)
            return
        for fact in read_facts(record.text):
            self._take_part(fact)

    def _take_part(self, fact: Any) -> None:
        match fact:
            case InterruptBegun(sessions=named):
                self._kept.update(self._select_below(named))
                self._sessions |= self._kept
            case CancelBegun(sessions=named):
                self._sessions.update(self._select_below(named))
            case SessionReactivated(session=name) if name in self._kept:
                self._sessions.add(name)  # it gets the result of a session below it
            case Posted(session=name, post_id=post) if name in self._kept:
                self._owed.setdefault(name, set()).add(post)
            case PostsTaken(session=name, post_ids=posts):
                self._owed.get(name, set()).difference_update(posts)
            case ResultHeld(session=name):
                self._sessions.discard(name)
            case SessionEnded(session=name):
                self._sessions.discard(name)
                self._owed.pop(name, None)

    def _take_own(self, session: str, text: str) -> None:
        if read_kind(text) == "interrupted":
            self._interrupted.add(session)
        elif session in self._interrupted and _has_new_work(text):
            # It got a new message since then; its present work is not what was interrupted.
            self._sessions.discard(session)
            self._kept.discard(session)
            self._owed.pop(session, None)

    def _select_below(self, named: tuple[str, ...]) -> list[str]:
        return [name for name in named if f"{name}/".startswith(self._head)]


def _has_new_work(text: str) -> bool:
    return any(isinstance(fact, _NEW_WORK) for fact in read_facts(text))
