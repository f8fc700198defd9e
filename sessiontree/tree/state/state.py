"""The state of a tree: sessions, accounts, open approvals and alarms, and indexes over them.

It holds no rules. Everything here is derived from facts by ``evolve``, and only ``evolve`` changes it. Code
on higher floors may read it but must not change what ``get`` returns. A decision is made on a layer over the
state: the layer includes the decision's own facts, and the state below does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, replace
from enum import IntEnum
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from sessiontree.contracts.facts.stimuli import (
    ApprovalAnswered,
    ApproverAsked,
    CancelAsked,
    ChildTroubled,
    Incoming,
    WorkInterrupted,
)
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.facts.tree_facts import ChangesKept, DigestDenied, VisionAnswered
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, Precedent
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.cron import CronJob
from sessiontree.contracts.recorded.results import ResultCause, SessionResult
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.tree.state.canvas_state import CanvasState
from sessiontree.tree.state.table import Groups, Table, TableLayer

SLACK = 64
"""Fewer alarms than this are not swept."""


class AlarmKind(IntEnum):
    """What becomes due; alarms of the same time ring in this order."""

    APPROVAL = 0
    """A request expires."""
    LIFE = 1
    """A session's time to live ends."""
    WALL = 2
    """A budget's wall time is used up."""
    FORCE = 3
    """A stopping session's grace ends."""


class Alarm(NamedTuple):
    """One alarm; alarms sort by time, then kind, then rank, then id."""

    at_ms: int
    kind: AlarmKind
    rank: int
    """Depth of the session for alarms that stop top-down; minus depth for those that force bottom-up."""
    ident: str
    """Id of the request or session."""


class Alarms:
    """A heap of alarms."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Alarm] = []

    def __len__(self) -> int:
        """Return the number of alarms, including those that are no longer valid."""
        return len(self._heap)

    def __iter__(self) -> Iterator[Alarm]:
        """Yield all alarms in no particular order."""
        return iter(self._heap)

    def set(self, alarm: Alarm) -> None:
        """Add an alarm. O(log n)."""
        heappush(self._heap, alarm)

    def list_due(self, now_ms: int) -> list[Alarm]:
        """Return the alarms at or before a time, sorted, without removing them. O(number returned)."""
        if not self._heap or self._heap[0].at_ms > now_ms:
            return []
        found, _ = self._split(now_ms)
        found.sort()
        return found

    def find_next_after(self, now_ms: int) -> int | None:
        """Return the earliest time set after a time, or None. O(number due)."""
        _, later = self._split(now_ms)
        return min(later, default=None)

    def sweep(self, is_set: Callable[[Alarm], bool], at_most: int) -> None:
        """Drop invalid alarms from the top of the heap, or all invalid alarms if there are many.

        Args:
            is_set: Whether an alarm is still valid.
            at_most: How many alarms can be valid now.
        """
        heap = self._heap
        while heap and not is_set(heap[0]):
            heappop(heap)
        if len(heap) > SLACK + 2 * at_most:
            self._heap = [alarm for alarm in heap if is_set(alarm)]
            heapify(self._heap)

    def _split(self, now_ms: int) -> tuple[list[Alarm], list[int]]:
        # The due alarms form a connected piece at the top of the heap; beyond it, only its edge is visited.
        heap = self._heap
        found: list[Alarm] = []
        later: list[int] = []
        places = [0]
        while places:
            place = places.pop()
            if place >= len(heap):
                continue
            alarm = heap[place]
            if alarm.at_ms <= now_ms:
                found.append(alarm)
                places += (2 * place + 1, 2 * place + 2)
            else:
                later.append(alarm.at_ms)
        return found, later


Mail: TypeAlias = Incoming | ApprovalAnswered | ApproverAsked | CancelAsked | ChildTroubled | WorkInterrupted
"""The stimuli that this machine posts to sessions."""


class Stop(NamedTuple):
    """How a session was asked to stop."""

    status: SessionStatus
    """The status it will end with."""
    reason: str
    force_at_ms: int
    cause: ResultCause = ""


class Post(NamedTuple):
    """Something posted to a session that it has not taken."""

    session: str
    mail: Mail


@dataclass(slots=True)
class Session:
    """One session, live or ended."""

    spec: SessionSpec
    account: str
    """The session whose budget it uses."""
    spawned_at_ms: int
    status: SessionStatus = SessionStatus.ACTIVE
    live_children: int = 0
    live_below: int = 0
    """Live sessions anywhere below it."""
    branches: int = 0
    """Number of Branches it ever had; the next one's number is one more."""
    workers: int = 0
    posted: int = 0
    """Number of posts it was ever sent."""
    owed: int = 0
    """Number of posts it has not taken yet."""
    pending: int = 0
    """Number of its own undecided approval requests."""
    delegated: int = 0
    """Number of its own calls that the creating program has not answered."""
    held: SessionResult[Any] | None = None
    """Its final message, kept until nothing of its own is pending."""
    is_quiet: bool = False
    """Whether no input was on its way when it gave its final message."""
    is_awaited: bool = False
    """Whether the creating program waits for its result."""
    stop: Stop | None = None
    result: SessionResult[Any] | None = None
    """How it ended."""
    was_forced: bool = False
    leftovers: int = 0
    """Number of processes its tools left running, which were ended."""
    expires_at_ms: int | None = None
    """When its time to live ends; None = it has none, or waits for its first host."""
    ended_at_ms: int | None = None
    usage: Usage = Usage()
    """What it was charged for."""
    taint: str = ""
    """Source of the first untrusted text that it has taken in; empty = it took in none."""
    batch: int = 0
    """Number of final messages it gave: the children that it starts between two of them are one batch."""
    joined: int = 0
    """The batch of its parent's that it belongs to."""
    reporting: dict[int, int] = field(default_factory=dict)
    """Live children that report to it, by batch; only batches with any."""
    said_at_ms: tuple[int, ...] = ()
    """When it sent its messages of the last minute, oldest first; kept only if their number is limited."""

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.result is None

    def copy(self) -> Session:
        """Return a copy."""
        found = Session(*_SESSION_VALUES(self))
        found.reporting = dict(self.reporting)
        return found


_SESSION_VALUES = attrgetter(*(member.name for member in fields(Session)))


@dataclass(slots=True)
class Account:
    """What one session, and those that use its account, may spend."""

    session: str
    """The session that owns the account."""
    above: str | None
    """The account of its parent; None for Main's."""
    caps: Mapping[str, int]
    """The members that it caps itself."""
    payers: Mapping[str, str]
    """Every member that is capped here or above, with the account that caps it."""
    used: dict[str, int]
    """Spent amounts, and amounts reserved for a live account below, by the members it caps."""
    wall_at_ms: int | None
    """When its wall time is used up."""
    is_closed: bool = False
    """Whether its session has ended: what is charged later counts above as well."""

    def copy(self) -> Account:
        """Return a copy with its own counts."""
        copy = Account(*_ACCOUNT_VALUES(self))
        copy.used = dict(self.used)
        return copy


_ACCOUNT_VALUES = attrgetter(*(field.name for field in fields(Account)))


@dataclass(slots=True)
class Request:
    """One undecided approval request."""

    question: ApprovalQuestion
    expires_at_ms: int
    rests_at: str | None = None
    """The session at which it waits."""
    how: str | None = None
    """``consult``: that session's function is asked; ``show``: a person is asked."""
    precedent: Precedent | None = None
    """What is known about the command it runs."""

    def copy(self) -> Request:
        """Return a copy."""
        return Request(*_REQUEST_VALUES(self))


_REQUEST_VALUES = attrgetter(*(member.name for member in fields(Request)))


class RunNote(NamedTuple):
    """One run of a timed job, or slots that did not run."""

    slot_ms: int
    wall_ms: int
    how: str
    """A ``SlotCause``, or ``skipped``."""
    run_id: str = ""
    """Empty for slots that did not run."""
    post_id: str = ""
    """The message to Main; empty = it started a session."""
    reason: str = ""
    slots: int = 1
    is_exact: bool = True


@dataclass(slots=True)
class JobState:
    """One timed job."""

    job: CronJob
    since_ms: int
    """Its slots up to this time are settled."""
    runs: int = 0
    skipped: int = 0
    notes: tuple[RunNote, ...] = ()
    """The newest ones, oldest first."""

    def copy(self) -> JobState:
        """Return a copy."""
        return replace(self)


MAX_VISION_ANSWERS: Final = 32
"""How many of the newest answers are kept: a call is repeated soon after a crash, or never."""


class VisionAnswers(NamedTuple):
    """What image models answered a session."""

    answers: tuple[VisionAnswered, ...]
    """The newest ones, oldest first; empty after its end."""
    usage: Usage
    """What all of them used together."""


class ClosedCall(NamedTuple):
    """How a client call ended."""

    how: str
    answer_id: str
    """Id of the accepted answer; empty if none was accepted."""


@dataclass(slots=True)
class TreeState:
    """Everything the tree machine knows."""

    config: TreeConfig | None = None
    """None until the tree is created."""
    allowed: Mapping[tuple[str, SessionKind], frozenset[str]] = field(default_factory=dict)
    """Tools that sessions may hold at most, by agent and kind; derived from the configuration."""
    now_ms: int = 0
    """The latest time any fact carried."""
    live: int = 0
    total: int = 0
    open_requests: int = 0
    sessions: Table[str, Session] = field(default_factory=Table)
    """In spawn order, parents before their children; ended sessions stay."""
    accounts: Table[str, Account] = field(default_factory=Table)
    """By the session that owns the account."""
    requests: Table[str, Request] = field(default_factory=Table)
    """Undecided requests, in the order in which they were made."""
    decisions: Table[str, str] = field(default_factory=Table)
    """How every other request ended."""
    client_calls: Table[str, ClientCall] = field(default_factory=Table)
    """Calls that the creating program has not answered, in the order in which they were handed over."""
    client_ends: Table[str, ClosedCall] = field(default_factory=Table)
    """How every other such call ended."""
    posts: Table[str, Post] = field(default_factory=Table)
    """What live sessions have not taken yet."""
    labels: Table[tuple[str, str], str] = field(default_factory=Table)
    """The live child, by parent and label."""
    keys: Table[tuple[str, str], str] = field(default_factory=Table)
    """The child, live or ended, by parent and spawn key."""
    sent: Table[tuple[str, str], str] = field(default_factory=Table)
    """The receiver of each message between sessions, by sender and key."""
    canvases: Table[str, CanvasState] = field(default_factory=Table)
    """The canvas of each live session that has one."""
    visions: Table[str, VisionAnswers] = field(default_factory=Table)
    """What image models answered each session that asked one."""
    denied: Table[tuple[str, str], bool] = field(default_factory=Table)
    """Calls that a person denied permanently, by digest and session."""
    denials: Table[str, DigestDenied] = field(default_factory=Table)
    """Denials that hold, by the request that was denied."""
    always: Table[str, bool] = field(default_factory=Table)
    """What the owner allowed permanently: names of tools, and ``tool: shape`` for commands."""
    changes: Table[str, ChangesKept] = field(default_factory=Table)
    """What ended sessions changed in workspaces of their own, by session."""
    settled: Table[str, str] = field(default_factory=Table)
    """What became of these changes, by session: ``merged`` or ``discarded``."""
    jobs_made: int = 0
    """Number of timed jobs it ever had; the next one's number is one more."""
    jobs: Table[str, JobState] = field(default_factory=Table)
    """Timed jobs, in the order in which they were added."""
    job_keys: Table[str, tuple[str, str]] = field(default_factory=Table)
    """The job, and the run if one was asked for, by the key of the change."""
    job_runs: Table[str, bool] = field(default_factory=Table)
    """Whether Main gets the result of a timed session, by the session's key."""
    children: Groups = field(default_factory=Groups)
    """Live children by parent, in spawn order."""
    owed_to: Groups = field(default_factory=Groups)
    """Ids of posts by session, in the order in which they were posted."""
    requests_of: Groups = field(default_factory=Groups)
    """Open requests by the asking session."""
    requests_for: Groups = field(default_factory=Groups)
    """Open requests by tool."""
    requests_like: Groups = field(default_factory=Groups)
    """Open requests by digest."""
    alarms: Alarms = field(default_factory=Alarms)

    _below: TreeState | None = field(default=None, repr=False, compare=False)
    """The state that this layer covers; None = it is not a layer."""

    def make_layer(self) -> TreeState:
        """Return a layer that starts equal to this state and never changes it; it has its own alarms."""
        made = object.__new__(TreeState)
        made.config = self.config
        made.allowed = self.allowed
        made.now_ms = self.now_ms
        made.live = self.live
        made.total = self.total
        made.open_requests = self.open_requests
        made.jobs_made = self.jobs_made
        made.alarms = Alarms()
        made._below = self
        return made

    def __getattr__(self, name: str) -> Any:
        """Return a table or groups, made when they are first used: a tree and a decision use few of them."""
        if name not in _LAYERED:
            raise AttributeError(name)
        below = self._below
        if below is None:
            made = _LAYERED[name]()
        else:
            covered = getattr(below, name)
            made = Groups(covered) if type(covered) is Groups else TableLayer(covered)
        setattr(self, name, made)
        return made

    @property
    def charter(self) -> TreeConfig:
        """The tree's configuration.

        Raises:
            LookupError: the tree has not been created yet.
        """
        if self.config is None:
            raise LookupError("no tree was created yet")
        return self.config

    @property
    def limits(self) -> Limits:
        """The tree's limits; raises as :attr:`charter` does."""
        return self.charter.limits

    def find_live_session(self, session: str) -> Session | None:
        """Return a session that has not ended, or None."""
        found = self.sessions.get(session)
        return found if found is not None and found.is_live else None

    def find_parent(self, session: Session) -> Session | None:
        """Return a session's parent, or None for Main."""
        parent = session.spec.parent
        return None if parent is None else self.sessions.get(parent)

    def is_kept_open(self, session: Session) -> bool:
        """Whether a session stays open for the creating program, which has not requested its result yet.

        This applies to sessions below Main, and below sessions that are kept open themselves.
        """
        link = session
        while link.spec.stays_open and not link.is_awaited:
            parent = self.find_parent(link)
            if parent is None or parent.spec.kind is SessionKind.MAIN:
                return True
            link = parent
        return False

    def list_chain(self, session: str) -> Iterator[Session]:
        """Yield a session and its ancestors, Main last."""
        link = self.sessions.get(session)
        while link is not None:
            yield link
            link = self.find_parent(link)

    def is_still_valid(self, alarm: Alarm) -> bool:
        """Whether an alarm is still valid."""
        if alarm.kind is AlarmKind.APPROVAL:
            return alarm.ident in self.requests
        session = self.find_live_session(alarm.ident)
        return session is not None and (alarm.kind is AlarmKind.FORCE or session.stop is None)


_LAYERED: Final[Mapping[str, Callable[..., Any]]] = {
    each.name: each.default_factory
    for each in fields(TreeState)
    if each.default_factory is Table or each.default_factory is Groups
}
"""The tables and groups, by name."""


def make_initial_tree() -> TreeState:
    """Return the state before anything happened."""
    made = object.__new__(TreeState)
    for each in fields(TreeState):
        if each.name not in _LAYERED:
            setattr(made, each.name, make() if callable(make := each.default_factory) else each.default)
    return made
