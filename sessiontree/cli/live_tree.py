"""A live tree: its sessions and approvals, kept up to date from its facts and events.

It is pure: nothing here waits, reads a clock or draws. A fact costs O(depth of its session), never the size
of the tree or of the fact; choosing what is shown costs O(what is shown).
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.codec import current_versions
from sessiontree.contracts.events import (
    Event,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    display_of,
)
from sessiontree.contracts.jsonable import dump_readable, to_json_value
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.messages import Usage
from sessiontree.contracts.session_facts import TurnStarted
from sessiontree.contracts.tree_facts import UsageCharged
from sessiontree.journal.record import JournalRecord, kind_in
from sessiontree.journal.replay import read_fact, read_facts

MAX_NAME_CHARS = 80
"""Longest step and label, before invisible characters are made visible."""
MAX_CALL_CHARS = 160
"""Longest description of a call, before invisible characters are made visible."""


@dataclass(slots=True)
class SessionPanel:
    """One session, living or ended, and the counts of all below it."""

    session_id: str
    kind: SessionKind
    label: str
    parent: str | None
    status: SessionStatus = SessionStatus.ACTIVE
    is_ended: bool = False
    is_stopping: bool = False
    live_children: dict[str, SessionPanel] = field(default_factory=dict, repr=False)
    """In the order they were spawned."""
    live_below: int = 0
    ended_below: int = 0
    done: int = 0
    """Count of finished work here and below."""
    turns: int = 0
    usage: Usage = Usage()
    """What it used itself; not what sessions below it used."""
    is_asking: bool = False
    """Whether the model was asked and has not replied."""
    pending: dict[str, str] = field(default_factory=dict)
    """Open approval requests: what each wants to call."""
    running: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Calls that events say are running: tool and arguments by the provider's id."""
    asked: dict[str, str] = field(default_factory=dict)
    """Facts of calls the program asked for, by key, without a result."""
    reply: str = field(default="", repr=False)
    """The fact of the last reply; looked into when it is shown."""
    result: str = field(default="", repr=False)
    """The fact of the last call that has a result; looked into when it is shown."""
    settled: set[str] = field(default_factory=set)
    """Keys of its calls that have a result or no longer wait for one."""
    _calls: list[tuple[str, str]] | None = None
    """Calls of the reply, key and description, once they were looked at."""
    _running_texts: dict[str, str] = field(default_factory=dict)
    """Descriptions of running calls that were looked at."""
    _name: str = ""

    @property
    def name(self) -> str:
        """The last step of its path and its label, safe to be shown."""
        if not self._name:
            step = self.session_id.rpartition("/")[2]
            self._name = make_visible(f"{step[:MAX_NAME_CHARS]} {self.label[:MAX_NAME_CHARS]}".rstrip())
        return self._name

    def began(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> None:
        """Note that a call is running; O(1)."""
        self.running[call_id] = (tool, arguments)
        self._running_texts.pop(call_id, None)

    def tried(self, call_id: str, attempt: int, attempts: int) -> None:
        """Note that an attempt at a running call failed, and the next follows."""
        if call_id in self.running:
            text = call_text(*self.running[call_id])
            self._running_texts[call_id] = f"attempt {attempt + 1} of {attempts}: {text}"

    def call_over(self, call_id: str) -> None:
        """Note that a call no longer runs."""
        self.running.pop(call_id, None)
        self._running_texts.pop(call_id, None)

    def replied(self, text: str) -> None:
        """Process the fact of a reply; O(1)."""
        self.is_asking = False
        self.reply = text
        self.settled.clear()
        self._calls = None

    def end(self, status: SessionStatus) -> None:
        """Set the final state and drop data that only a live session needs."""
        self.status = status
        self.is_ended = True
        self.is_asking = False
        self.replied("")
        self.result = ""
        self.pending.clear()
        self.running.clear()
        self._running_texts.clear()
        self.asked.clear()

    def calls(self) -> list[str]:
        """Return what calls are under way, as short descriptions, those that wait for an approval first."""
        found = list(self.pending.values())
        found += [self._running_text(call_id) for call_id in self.running]
        if not found:
            found += [_asked_text(text) for text in self.asked.values()]
            found += [shown for key, shown in self._reply_calls() if key not in self.settled]
        return found

    def last_display(self) -> str:
        """Return what the tool whose call ended last said to people, safe to be shown; empty for nothing."""
        if not self.result:
            return ""
        message = read_fact(self.result).message
        display = display_of(message)
        return "" if display is None else make_visible(f"{message.tool_name}: {display}"[:MAX_CALL_CHARS])

    def state(self) -> str:
        """Return its state, in words: a final status, or what it is waiting for."""
        if self.is_ended:
            return self.status.value
        if self.pending:
            return "waiting for approval"
        if self.is_stopping:
            return "stopping"
        if self.running or self.asked:
            return "calling"
        if self.is_asking:
            return "waiting for model"
        if self.status is SessionStatus.SUSPENDED:
            return "waiting for children" if self.live_children else "suspended"
        return "calling" if self.calls() else "active"

    def _running_text(self, call_id: str) -> str:
        text = self._running_texts.get(call_id)
        if text is None:
            text = self._running_texts[call_id] = call_text(*self.running[call_id])
        return text

    def _reply_calls(self) -> list[tuple[str, str]]:
        if self._calls is None:
            self._calls = []
            if self.reply:
                fact = read_fact(self.reply)
                for index, call in enumerate(fact.message.tool_calls):
                    self._calls.append((f"{fact.turn}.{index}", call_text(call.name, call.arguments)))
        return self._calls


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in few words, safe to be shown: its name and the beginning of its arguments."""
    try:
        given = dump_readable(to_json_value(arguments))
    except (ValueError, TypeError, RecursionError):
        given = "(arguments that have no JSON form)"
    text = f"{tool} {given}"
    return make_visible(text if len(text) <= MAX_CALL_CHARS else f"{text[: MAX_CALL_CHARS - 1]}…")


def _asked_text(text: str) -> str:
    fact = read_fact(text)
    return call_text(fact.tool, fact.arguments)


_VALUE = r'("[^"\\]*(?:\\.[^"\\]*)*"|-?\d+)'
_DEEPER = {"message.tool_call_id": '"message":{"role":"toolResult","toolCallId":'}
"""What is before a value that is deeper than the fact's own members."""

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "session_reactivated": ("session",),
    "result_held": ("session",),
    "session_ended": ("session", "status"),
    "approval_decided": ("request_id",),
    "turn_started": ("turn",),
    "compaction_begun": ("turn",),
    "turn_replied": ("turn",),
    "call_parked": ("key",),
    "call_resolved": ("key", "outcome", "message.tool_call_id"),
}
"""By kind, its first members in order; those of other kinds are not reported from the beginning."""


@dataclass(frozen=True, slots=True)
class _Head:
    pattern: re.Pattern[str]
    members: Callable[[Any], Any]
    """Gives the same of the whole fact."""
    count: int


def _head(kind: str, members: tuple[str, ...]) -> _Head:
    before = [_DEEPER.get(name, f'"{name}":') for name in members]
    values = "".join(f",{re.escape(text)}{_VALUE}" for text in before)
    pattern = rf'\{{"kind":"{kind}","v":{current_versions()[kind]}{values}[,}}]'
    return _Head(re.compile(pattern), attrgetter(*members), len(members))


_HEADS = {kind: _head(kind, members) for kind, members in _MEMBERS.items()}


def first_members(kind: str, text: str) -> tuple[Any, ...]:
    """Return the first members of a fact; O(their length) where this release wrote it.

    Args:
        kind: Its kind, one this room tells the beginning of.
        text: The fact as journaled.

    Raises:
        KeyError: nothing is known of the kind.
        JournalTooNew, JournalCorrupt: the text is not a fact of this release.
    """
    head = _HEADS[kind]
    found = head.pattern.match(text)
    if found is not None:
        return tuple(json.loads(group) for group in found.groups())
    members = head.members(read_fact(text))
    return members if head.count > 1 else (members,)


_TURN_AT_END = re.compile(
    rf'"turn":\{{"kind":"turn_started","v":{current_versions()["turn_started"]},"turn":(\d+),"took":\d+,'
    r'"fresh_run":(?:true|false)\}\}\Z'
)
"""The start of a turn in the fact before it, whose last member it is."""
MAX_TURN_CHARS = 120
"""How long the start of a turn is at most, as journaled."""


def turn_in(text: str) -> int | None:
    """Return the turn whose start a fact holds, or None; what this release wrote is not parsed for it."""
    found = _TURN_AT_END.search(text, max(0, len(text) - MAX_TURN_CHARS))
    if found is not None or "turn_started" not in text:
        return None if found is None else int(found[1])
    return next((fact.turn for fact in reversed(read_facts(text)) if isinstance(fact, TurnStarted)), None)


_MAIN = "main"


class LiveTree:
    """Processes facts in order and events in any order; provides counts and the sessions to show."""

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
        self._asked_by: dict[str, str] = {}
        """Open approval requests and who asked."""
        self._roots: dict[str, SessionPanel] = {}
        """Live sessions below no session that is known."""
        self._books: Mapping[str, Callable[[str], None]] = {
            "session_spawned": self._spawned,
            "session_reactivated": self._stirred,
            "result_held": self._held,
            "session_ended": self._ended,
            "usage_charged": self._charged,
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

    def take(self, record: JournalRecord) -> None:
        """Take a fact in.

        Raises:
            JournalTooNew, JournalCorrupt: it is not a fact of this release.
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
        """Take an event in: calls that begin are reported by events before facts tell them."""
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

        Main comes first. Then each chosen session adds its next child in turn, so that a view of few lines
        covers many parts of the tree, some of them deeply.

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
        spec = read_fact(text).spec
        session = SessionPanel(spec.session_id, spec.kind, spec.label or "", spec.parent)
        self.sessions[spec.session_id] = session
        self.total += 1
        self.live += 1
        self._siblings_of(session)[spec.session_id] = session
        self._count_below(session, 1, 0)

    def _stirred(self, text: str) -> None:
        (session_id,) = first_members("session_reactivated", text)
        self._stand(session_id, SessionStatus.ACTIVE)

    def _held(self, text: str) -> None:
        (session_id,) = first_members("result_held", text)
        self._stand(session_id, SessionStatus.SUSPENDED)

    def _stand(self, session_id: str, status: SessionStatus) -> None:
        session = self.sessions.get(session_id)
        if session is not None and not session.is_ended:
            session.status = status

    def _ended(self, text: str) -> None:
        if '"charged":' in text:
            for fact in read_facts(text):
                if isinstance(fact, UsageCharged):
                    self._charge(fact)
        session_id, status = first_members("session_ended", text)
        session = self.sessions.get(session_id)
        if session is None or session.is_ended:
            return
        session.end(SessionStatus(status))
        self.live -= 1
        self.ended[session.status] += 1
        self._siblings_of(session).pop(session_id, None)
        self._count_below(session, -1, 1)

    def _charged(self, text: str) -> None:
        self._charge(read_fact(text))

    def _charge(self, fact: UsageCharged) -> None:
        self.usage += fact.usage
        session = self.sessions.get(fact.session)
        if session is not None:
            session.usage += fact.usage

    def _stopping(self, text: str) -> None:
        for session_id in read_fact(text).sessions:
            session = self.sessions.get(session_id)
            if session is not None:
                session.is_stopping = True

    def _requested(self, text: str) -> None:
        question = read_fact(text).question
        self._asked_by[question.request_id] = question.session
        session = self.sessions.get(question.session)
        if session is not None:
            session.pending[question.request_id] = call_text(question.call.tool, question.call.arguments)

    def _decided(self, text: str) -> None:
        (request_id,) = first_members("approval_decided", text)
        session = self.sessions.get(self._asked_by.pop(request_id, ""))
        if session is not None:
            session.pending.pop(request_id, None)


def _turn_started(session: SessionPanel, text: str) -> None:
    _begin_turn(session, *first_members("turn_started", text))


def _may_start_turn(session: SessionPanel, text: str) -> None:
    turn = turn_in(text)
    if turn is not None:
        _begin_turn(session, turn)


def _begin_turn(session: SessionPanel, turn: int) -> None:
    session.turns = turn
    session.replied("")
    session.is_asking = True


def _compaction_begun(session: SessionPanel, text: str) -> None:
    (session.turns,) = first_members("compaction_begun", text)
    session.is_asking = True


def _no_longer_asking(session: SessionPanel, text: str) -> None:
    session.is_asking = False


def _call_asked(session: SessionPanel, text: str) -> None:
    session.asked[read_fact(text).key] = text


def _call_parked(session: SessionPanel, text: str) -> None:
    session.settled.update(first_members("call_parked", text))


def _call_resolved(session: SessionPanel, text: str) -> None:
    key, _, call_id = first_members("call_resolved", text)
    session.settled.add(key)
    session.asked.pop(key, None)
    session.call_over(call_id)
    session.result = text
    _may_start_turn(session, text)


def _told_to_stop(session: SessionPanel, text: str) -> None:
    session.is_asking = False
    session.is_stopping = True


_OF_SESSION: Mapping[str, Callable[[SessionPanel, str], Any]] = {
    "opened": _may_start_turn,
    "message_received": _may_start_turn,
    "turn_started": _turn_started,
    "turn_replied": SessionPanel.replied,
    "turn_failed": _no_longer_asking,
    "compaction_begun": _compaction_begun,
    "context_compacted": _no_longer_asking,
    "compaction_failed": _no_longer_asking,
    "call_opened": _call_asked,
    "call_parked": _call_parked,
    "call_resolved": _call_resolved,
    "stopping": _told_to_stop,
}
