"""Facts of a tree: who exists, who may what, who is asked, what is spent. They hold no rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.approvals import Precedent
from sessiontree.contracts.codec import Recorded, added, recorded
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.contracts.usage import Usage


@recorded("tree_created")
@dataclass(frozen=True, slots=True)
class TreeCreated:
    """The tree exists; its Main follows as ``session_spawned``."""

    config: TreeConfig


@recorded("session_spawned")
@dataclass(frozen=True, slots=True)
class SessionSpawned:
    """A session exists. ``account`` is the session whose budget it draws on (itself where it has its own)."""

    spec: SessionSpec
    account: str
    number: int
    """Its place among its parent's children of the same kind, from 1."""
    at_ms: int = 0
    """When."""


@recorded("session_adopted")
@dataclass(frozen=True, slots=True)
class SessionAdopted:
    """A host embodied a session for the first time: its time to live has begun."""

    session: str
    at_ms: int
    expires_at_ms: int


@recorded("spawn_denied")
@dataclass(frozen=True, slots=True)
class SpawnDenied:
    """A spawn was refused before anything started."""

    parent: str
    kind: SessionKind
    limit: str | None
    """Name of the number that forbids it, or None for a rule."""
    used: float
    allowed: float
    reason: str


@recorded("session_tainted")
@dataclass(frozen=True, slots=True)
class SessionTainted:
    """A session has taken in untrusted text: its children and its result are tainted from now on."""

    session: str
    source: str
    """Where it came from."""


@recorded("session_stirred")
@dataclass(frozen=True, slots=True)
class SessionStirred:
    """A suspended session is active again; the result it had offered is withdrawn."""

    session: str


@recorded("result_awaited")
@dataclass(frozen=True, slots=True)
class ResultAwaited:
    """The creating program waits for a session's result: it stays open no longer, nor does what is below."""

    session: str


@recorded("result_held")
@dataclass(frozen=True, slots=True)
class ResultHeld:
    """A session said its last word but does not end yet: it is suspended.

    Something of its own is still pending, or it is Main, which never completes by itself.
    """

    session: str
    result: SessionResult[Any]
    quiet: bool = True
    """Whether no input was on its way to it; if some was, only a new offer can end it."""


@recorded("session_ended")
@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session reached a final state; what it had not spent goes back to its parent's account."""

    session: str
    status: SessionStatus
    result: SessionResult[Any]
    at_ms: int
    forced: bool
    """Whether it was ended without its own wrap-up."""


@recorded("leftovers_ended")
@dataclass(frozen=True, slots=True)
class LeftoversEnded:
    """Processes that a session's tools had left running were ended when it left its host.

    It may come after the session's end, and more than once.
    """

    session: str
    count: int


@recorded("approval_requested")
@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call wants an approval and begins to climb."""

    request_id: str
    session: str
    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    tier: int
    expires_at_ms: int
    at_ms: int = 0
    """When it was asked."""
    precedent: Precedent | None = added(None)  # noqa: RUF009 - a declaration
    """What is known of the command it runs; None = it runs none."""
    asked_by: tuple[Principal, ...] = added(())
    """Whom the call is for; empty = the creating program."""


@recorded("approval_hopped")
@dataclass(frozen=True, slots=True)
class ApprovalHopped:
    """One session on the way up answered ``approve``, ``deny`` or ``escalate``."""

    request_id: str
    session: str
    answer: str
    by: str
    """``rule`` or ``function`` of that session, ``mode`` (the owner's smart rules at its channel), ``denial``
    (a person said no to the same call), ``always`` (the owner allowed the tool), ``approver error`` (the
    channel's approver failed; the answer is a no), or ``person``."""
    reason: str


@recorded("approval_waiting")
@dataclass(frozen=True, slots=True)
class ApprovalWaiting:
    """The request rests at a session until its function (``consult``) or a person (``show``) answers."""

    request_id: str
    session: str
    how: str


@recorded("approval_decided")
@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """The one decision: ``approved``, ``denied``, ``expired`` or ``cancelled``. Final."""

    request_id: str
    decision: str
    by: str
    """As of the hop that settled it, a person's name instead of ``person``; else ``nobody`` (no session
    above could answer), ``time`` (it expired) or ``stop`` (its session stops or has ended)."""
    reason: str


@recorded("digest_denied")
@dataclass(frozen=True, slots=True)
class DigestDenied:
    """A person said no: the same call stays denied for these sessions and all that climb through them."""

    digest: str
    sessions: tuple[str, ...]


@recorded("decision_refused")
@dataclass(frozen=True, slots=True)
class DecisionRefused:
    """Somebody who does not own the tree answered a request that waits; it waits on."""

    request_id: str
    by: Principal
    approve: bool


@recorded("tool_always_allowed")
@dataclass(frozen=True, slots=True)
class ToolAlwaysAllowed:
    """The owner allowed later calls of a tool in this tree."""

    tool: str
    covers: tuple[str, ...] | None = added(None)
    """Shapes of the commands it is about; None = every call."""


@recorded("client_call_opened")
@dataclass(frozen=True, slots=True)
class ClientCallOpened:
    """A session's call waits for the creating program."""

    client_id: str
    session: str
    tool: str
    arguments: Mapping[str, JsonValue]
    expires_at_ms: int


@recorded("client_call_closed")
@dataclass(frozen=True, slots=True)
class ClientCallEnded:
    """It waits no more."""

    client_id: str
    how: str
    """The call's outcome, or ``cancelled`` where its session stopped or ended."""
    answer_id: str
    """Of the answer that was taken; empty where none was."""


@recorded("posted")
@dataclass(frozen=True, slots=True)
class Posted:
    """Something is owed to a session until it took it."""

    post_id: str
    session: str
    stimulus: Recorded


@recorded("posts_taken")
@dataclass(frozen=True, slots=True)
class PostsTaken:
    """The session took these; they are owed no more."""

    session: str
    post_ids: tuple[str, ...]


@recorded("usage_charged")
@dataclass(frozen=True, slots=True)
class UsageCharged:
    """A session used something up; it counts against its account."""

    session: str
    account: str
    usage: Usage


@recorded("budget_spent")
@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """An account reached its cap: the sessions drawing on it stop."""

    account: str
    limit: str
    used: float
    allowed: float


@recorded("channel_said")
@dataclass(frozen=True, slots=True)
class ChannelSaid:
    """A session said something on a channel: its own or the nearest above it."""

    session: str
    channel: str
    """The session that owns the channel."""
    text: str
    at_ms: int = added(0)
    """When; 0 in a tree of an earlier release."""


@recorded("outside_hook_failed")
@dataclass(frozen=True, slots=True)
class OutsideHookFailed:
    """A hook failed in the creating program, around a spawn, or a session that began or ended."""

    session: str
    hook: str
    """Its name."""
    point: str
    reason: str


@recorded("cancel_begun")
@dataclass(frozen=True, slots=True)
class CancelBegun:
    """These sessions, deepest last, were told to stop; at ``force_at_ms`` they are ended without asking."""

    sessions: tuple[str, ...]
    reason: str
    """Why; where the status is ``completed``, the last word given for them (empty: their own)."""
    status: SessionStatus
    """How they will have ended."""
    force_at_ms: int


@recorded("interrupt_begun")
@dataclass(frozen=True, slots=True)
class InterruptBegun:
    """These sessions, those above first, were told to drop what they do; they go on living."""

    sessions: tuple[str, ...]
    reason: str


TreeFact: TypeAlias = (
    TreeCreated
    | SessionSpawned
    | SessionAdopted
    | SpawnDenied
    | SessionStirred
    | SessionTainted
    | ResultHeld
    | ResultAwaited
    | SessionEnded
    | LeftoversEnded
    | ApprovalRequested
    | ApprovalHopped
    | ApprovalWaiting
    | ApprovalDecided
    | DigestDenied
    | DecisionRefused
    | ToolAlwaysAllowed
    | ClientCallOpened
    | ClientCallEnded
    | Posted
    | PostsTaken
    | UsageCharged
    | BudgetSpent
    | ChannelSaid
    | OutsideHookFailed
    | CancelBegun
    | InterruptBegun
)
