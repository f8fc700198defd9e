"""Stimuli of the tree machine: everything that can happen to a tree, as values with their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.approvals import Precedent, Rule
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.limits import Budget
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.spec import Via
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.contracts.usage import Usage


@dataclass(frozen=True, slots=True)
class TreeOpened:
    """A new tree begins, with its Main."""

    at_ms: int
    config: TreeConfig


@dataclass(frozen=True, slots=True)
class SpawnAsked:
    """A session, or the creating program on its behalf, wants a child."""

    at_ms: int
    parent: str
    kind: SessionKind
    task: str
    via: Via
    label: str | None = None
    agent: str | None = None
    result_schema: Mapping[str, JsonValue] | None = None
    budget: Budget | None = None
    rules: tuple[Rule, ...] = ()
    approver: str | None = None
    owns_channel: bool = False
    key: str | None = None
    ttl_s: float | None = None
    """Time to live; None = the kind's default. May only shorten it for a spawn via a model."""
    dedicated: bool = False
    """Whether it is to have a host of its own for life; for spawns of the creating program alone."""
    asked_by: tuple[Principal, ...] = ()
    """Whom the parent acts for; empty = the creating program."""
    stays_open: bool = False
    """Whether it completes only once its result was asked for; for spawns of the creating program alone."""
    forbidden: str | None = None
    """Why the tree's hooks refuse it, where they do; they were asked where it was wanted."""


@dataclass(frozen=True, slots=True)
class SessionEmbodied:
    """A host embodies a session, maybe not for the first time."""

    at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class Stirred:
    """A session was given new input from outside the tree (a message, a call)."""

    at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class ResultAsked:
    """The creating program asks for a session's result, and waits for it."""

    at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class ResultOffered:
    """A session said its last word.

    ``quiet``: no input for it is on its way, judged when this is made and after what it took was reported.
    A session that takes something and then rests offers again.
    """

    at_ms: int
    session: str
    result: SessionResult[Any]
    quiet: bool


@dataclass(frozen=True, slots=True)
class SessionLost:
    """A session cannot go on: its code failed or its host was taken away."""

    at_ms: int
    session: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A call needs an approval. ``request_id`` was minted by the session."""

    at_ms: int
    session: str
    request_id: str
    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    tier: int
    precedent: Precedent | None = None
    """What is known of the command it runs; None = it runs none."""
    asked_by: tuple[Principal, ...] = ()
    """Whom the call is for; empty = the creating program."""


@dataclass(frozen=True, slots=True)
class ApproverReturned:
    """The approver function of a session on the way up answered."""

    at_ms: int
    session: str
    request_id: str
    answer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A person (or the program that stands for one) answered a shown request; or failed to, see ``by``."""

    at_ms: int
    request_id: str
    approve: bool
    always: bool
    by: str
    reason: str
    asker: Principal | None = None
    """Who, where a channel says it; None = an owner, such as the creating program."""


@dataclass(frozen=True, slots=True)
class ClientCallDelegated:
    """A session's call is the creating program's to answer. ``client_id`` was minted by the host."""

    at_ms: int
    session: str
    client_id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ClientCallWithdrawn:
    """A session's call has its result, by an answer or without one."""

    at_ms: int
    session: str
    client_id: str
    how: str
    answer_id: str


@dataclass(frozen=True, slots=True)
class TroubleReported:
    """A session's model gave a tool up; its parent is to know."""

    at_ms: int
    session: str
    tool: str
    attempts: int
    field: str | None
    message: str


@dataclass(frozen=True, slots=True)
class TaintReported:
    """A session has taken in untrusted text."""

    at_ms: int
    session: str
    source: str
    """Where it came from."""


@dataclass(frozen=True, slots=True)
class UsageReported:
    """A session used something up."""

    at_ms: int
    session: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class PostsConsumed:
    """A session took what was posted to it."""

    at_ms: int
    session: str
    post_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A session and everything below it is to end.

    With ``completed`` the session is finished by its owner: ``reason`` is its last word (empty: its own),
    and what still runs below it is cancelled.
    """

    at_ms: int
    session: str
    reason: str
    status: SessionStatus = SessionStatus.CANCELLED


@dataclass(frozen=True, slots=True)
class InterruptAsked:
    """A session and everything below it is to drop what it does, and the session is to go on living."""

    at_ms: int
    session: str
    reason: str


@dataclass(frozen=True, slots=True)
class SayAsked:
    """A session wants to say something on the nearest channel at or above it."""

    at_ms: int
    session: str
    text: str


@dataclass(frozen=True, slots=True)
class LeftoversFound:
    """A session has left a host, where processes of its tools still ran; they were ended."""

    at_ms: int
    session: str
    count: int


@dataclass(frozen=True, slots=True)
class HookFailedOutside:
    """A hook failed in the creating program."""

    at_ms: int
    session: str
    hook: str
    point: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClockRang:
    """A time the machine asked to be woken at has come."""

    at_ms: int


TreeStimulus: TypeAlias = (
    TreeOpened
    | SpawnAsked
    | SessionEmbodied
    | Stirred
    | ResultAsked
    | ResultOffered
    | SessionLost
    | ApprovalAsked
    | ApproverReturned
    | Decided
    | ClientCallDelegated
    | ClientCallWithdrawn
    | TroubleReported
    | TaintReported
    | UsageReported
    | PostsConsumed
    | StopAsked
    | InterruptAsked
    | SayAsked
    | HookFailedOutside
    | LeftoversFound
    | ClockRang
)
