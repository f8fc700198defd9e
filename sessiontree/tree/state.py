"""The state of a tree: sessions, accounts and open approvals, and indexes over them. It holds no rules.

Everything here is derived from facts by ``evolve``, which alone changes it. Reading is open to everyone
on the floors above; what ``get`` returns must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from sessiontree.contracts.approvals import Precedent
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.stimuli import (
    ApprovalAnswered,
    ApproverAsked,
    CancelAsked,
    ChildTroubled,
    Incoming,
    WorkInterrupted,
)
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.contracts.usage import Usage
from sessiontree.tree.accounts import Account
from sessiontree.tree.table import Groups, Table
from sessiontree.tree.timers import Alarm, AlarmKind, Alarms

Mail: TypeAlias = Incoming | ApprovalAnswered | ApproverAsked | CancelAsked | ChildTroubled | WorkInterrupted
"""The stimuli this machine posts to sessions."""


class Stop(NamedTuple):
    """How a session was told to stop."""

    status: SessionStatus
    """How it will have ended."""
    reason: str
    force_at_ms: int


class Post(NamedTuple):
    """Something owed to a session."""

    session: str
    mail: Mail


@dataclass(slots=True)
class Session:
    """One session, living or ended."""

    spec: SessionSpec
    account: str
    """The session whose budget it draws on."""
    spawned_at_ms: int
    status: SessionStatus = SessionStatus.ACTIVE
    live_children: int = 0
    live_below: int = 0
    """Live sessions anywhere below it."""
    branches: int = 0
    """Branches it ever had; the next one's number is one more."""
    workers: int = 0
    posted: int = 0
    """Posts it was ever sent."""
    owed: int = 0
    """Posts it has not taken yet."""
    pending: int = 0
    """Its own approval requests without a decision."""
    delegated: int = 0
    """Its own calls that the creating program has not answered."""
    held: SessionResult[Any] | None = None
    """Its last word, kept until nothing of its own is pending."""
    is_quiet: bool = False
    """Whether no input was on its way when it gave its last word."""
    is_awaited: bool = False
    """Whether the creating program waits for its result."""
    stop: Stop | None = None
    result: SessionResult[Any] | None = None
    """How it ended."""
    was_forced: bool = False
    leftovers: int = 0
    """Processes that its tools left running and that were ended."""
    expires_at_ms: int | None = None
    """When its time to live ends; None = it has none, or waits for its first host."""
    ended_at_ms: int | None = None
    usage: Usage = Usage()
    """What it was charged for."""
    taint: str = ""
    """Where untrusted text came from that it has taken in; empty = it has taken in none."""
    said_at_ms: tuple[int, ...] = ()
    """When it sent its messages of the last minute, oldest first; kept where their number is bounded."""

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.result is None

    def copy(self) -> Session:
        """Return a copy."""
        return Session(*_SESSION_VALUES(self))


_SESSION_VALUES = attrgetter(*(member.name for member in fields(Session)))


@dataclass(slots=True)
class Request:
    """One approval request without a decision."""

    request_id: str
    session: str
    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    tier: int
    expires_at_ms: int
    rests_at: str | None = None
    """The session it waits at."""
    how: str | None = None
    """``consult``: that session's function is asked; ``show``: a person is."""
    precedent: Precedent | None = None
    """What is known of the command it runs."""
    asked_by: tuple[Principal, ...] = ()
    """Whom the call is for; empty = the creating program."""

    def copy(self) -> Request:
        """Return a copy."""
        return Request(*_REQUEST_VALUES(self))


_REQUEST_VALUES = attrgetter(*(member.name for member in fields(Request)))


class OpenCall(NamedTuple):
    """A call that waits for the creating program."""

    session: str
    tool: str
    arguments: Mapping[str, JsonValue]
    expires_at_ms: int


class ClosedCall(NamedTuple):
    """How such a call ended."""

    how: str
    answer_id: str
    """Of the answer that was taken; empty where none was."""


@dataclass(slots=True)
class TreeState:
    """Everything the tree machine knows."""

    config: TreeConfig | None = None
    """None until the tree is created."""
    allowed: Mapping[tuple[str, SessionKind], frozenset[str]] = field(default_factory=dict)
    """Tools that sessions of an agent and kind may hold at most; made from the configuration."""
    now_ms: int = 0
    """The latest time any fact carried."""
    live: int = 0
    total: int = 0
    open_requests: int = 0
    sessions: Table[str, Session] = field(default_factory=Table)
    """In spawn order, parents before their children; ended ones stay."""
    accounts: Table[str, Account] = field(default_factory=Table)
    """By the session that has one."""
    requests: Table[str, Request] = field(default_factory=Table)
    """Those without a decision, in the order they were asked."""
    decisions: Table[str, str] = field(default_factory=Table)
    """How every other request ended."""
    client_calls: Table[str, OpenCall] = field(default_factory=Table)
    """Calls the creating program has not answered, in the order they were handed over."""
    client_ends: Table[str, ClosedCall] = field(default_factory=Table)
    """How every other such call ended."""
    posts: Table[str, Post] = field(default_factory=Table)
    """What live sessions have not taken yet."""
    labels: Table[tuple[str, str], str] = field(default_factory=Table)
    """Parent and label to the live child of that label."""
    keys: Table[tuple[str, str], str] = field(default_factory=Table)
    """Parent and spawn key to the child, living or ended."""
    denied: Table[tuple[str, str], bool] = field(default_factory=Table)
    """Digest and session where a person said no to that call for good."""
    always: Table[str, bool] = field(default_factory=Table)
    """What the owner allowed for good: names of tools, and ``tool: shape`` of commands."""
    children: Groups = field(default_factory=Groups)
    """Live children by parent, in spawn order."""
    owed_to: Groups = field(default_factory=Groups)
    """Ids of posts by session, in the order they were posted."""
    requests_of: Groups = field(default_factory=Groups)
    """Open requests by the session that asked."""
    requests_for: Groups = field(default_factory=Groups)
    """Open requests by tool."""
    requests_like: Groups = field(default_factory=Groups)
    """Open requests by digest."""
    alarms: Alarms = field(default_factory=Alarms)

    def layer(self) -> TreeState:
        """Return a state that starts out equal and leaves this one alone; its alarms are its own."""
        return TreeState(
            self.config,
            self.allowed,
            self.now_ms,
            self.live,
            self.total,
            self.open_requests,
            Table(self.sessions),
            Table(self.accounts),
            Table(self.requests),
            Table(self.decisions),
            Table(self.client_calls),
            Table(self.client_ends),
            Table(self.posts),
            Table(self.labels),
            Table(self.keys),
            Table(self.denied),
            Table(self.always),
            Groups(self.children),
            Groups(self.owed_to),
            Groups(self.requests_of),
            Groups(self.requests_for),
            Groups(self.requests_like),
        )

    @property
    def charter(self) -> TreeConfig:
        """The tree's configuration.

        Raises:
            LookupError: the tree was not created yet.
        """
        if self.config is None:
            raise LookupError("no tree was created yet")
        return self.config

    @property
    def limits(self) -> Limits:
        """The tree's bounds; raises as :attr:`charter` does."""
        return self.charter.limits

    def live_session(self, session: str) -> Session | None:
        """Return a session that has not ended, or None."""
        found = self.sessions.get(session)
        return found if found is not None and found.is_live else None

    def parent_of(self, session: Session) -> Session | None:
        """Return a session's parent, None for Main."""
        parent = session.spec.parent
        return None if parent is None else self.sessions.get(parent)

    def is_kept_open(self, session: Session) -> bool:
        """Whether a session stays open for the creating program, which has not asked for its result yet.

        That holds below Main, and below sessions that are kept open themselves.
        """
        link = session
        while link.spec.stays_open and not link.is_awaited:
            parent = self.parent_of(link)
            if parent is None or parent.spec.kind is SessionKind.MAIN:
                return True
            link = parent
        return False

    def chain(self, session: str) -> Iterator[Session]:
        """Yield a session and its ancestors, Main last."""
        link = self.sessions.get(session)
        while link is not None:
            yield link
            link = self.parent_of(link)

    def still_means(self, alarm: Alarm) -> bool:
        """Whether what an alarm was set for can still happen."""
        if alarm.kind is AlarmKind.APPROVAL:
            return alarm.ident in self.requests
        session = self.live_session(alarm.ident)
        return session is not None and (alarm.kind is AlarmKind.FORCE or session.stop is None)


def initial_tree() -> TreeState:
    """Return the state before anything happened."""
    return TreeState()
