"""Stimuli: everything that can happen to one session, as values.

Each carries ``at_ms``. Those that outlive a process (posted by the tree machine) are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.contracts.client_call import ClientAnswer
from sessiontree.contracts.codec import Outcome, added, recorded
from sessiontree.contracts.fast_init import quickly_made
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import AssistantMessage, Origin, ToolResultMessage
from sessiontree.contracts.results import Artifact
from sessiontree.contracts.senders import Principal

SendMode: TypeAlias = Literal["follow_up", "steer"]


@dataclass(frozen=True, slots=True)
class ToolCard:
    """What the prompt says about one tool."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """A host has taken the session; these tools survived its rights."""

    at_ms: int
    tools: tuple[ToolCard, ...]
    model: str
    prompt: str
    """The agent's part of the system prompt."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The host that held the session is gone, or the tree was resumed: do again what is owed."""

    at_ms: int


@recorded("incoming")
@dataclass(frozen=True, slots=True)
class Incoming:
    """Somebody says something to the session."""

    at_ms: int
    message_id: str
    text: str
    mode: SendMode
    origin: Origin
    asked_by: tuple[Principal, ...] = added(())
    """Whom the message speaks for; empty = the creating program."""
    taint: str = added("")
    """Where untrusted text in it comes from; empty = there is none known."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model replied to a turn."""

    at_ms: int
    turn: int
    message: AssistantMessage


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model could not reply."""

    at_ms: int
    turn: int
    reason: str
    said: str = ""
    """The text of its reply so far, where it failed half-way."""


@dataclass(frozen=True, slots=True)
class CallPrepared:
    """A call's arguments fit and the policy lets it pass, maybe after an approval."""

    at_ms: int
    key: str
    tool: str
    """Canonical name."""
    arguments: Mapping[str, JsonValue]
    """Final arguments."""
    tier: int
    digest: str
    """Empty for a call that needs neither intent nor approval."""
    needs_approval: bool
    repeatable: bool
    """Whether running it twice changes nothing more."""


@dataclass(frozen=True, slots=True)
class CallRejected:
    """A call's arguments do not fit."""

    at_ms: int
    key: str
    tool: str
    message: str
    field: str | None
    digest: str
    """Of the arguments as the model sent them."""
    schema: Mapping[str, JsonValue]


@quickly_made
@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call has its result, whether it ran or was stopped before."""

    at_ms: int
    key: str
    outcome: Outcome
    message: ToolResultMessage
    artifacts: tuple[Artifact, ...] = ()
    answer_id: str = ""
    """Of the program's answer it was made from; empty = of none."""
    untrusted: bool = False
    """Whether its text comes from outside."""


@dataclass(frozen=True, slots=True)
class CallHandedOver:
    """A call that may run is the creating program's to answer."""

    at_ms: int
    key: str
    client_id: str
    """Names it to the program."""
    tool: str
    arguments: Mapping[str, JsonValue]
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """The creating program answered a call; nothing of it is journaled before the session has taken it."""

    at_ms: int
    client_id: str
    answer_id: str
    """Names this answer, so that whoever gave it hears what became of it."""
    answer: ClientAnswer


@dataclass(frozen=True, slots=True)
class HookErrorReported:
    """A hook failed in this session's host."""

    at_ms: int
    key: str
    hook: str
    point: str
    reason: str


@dataclass(frozen=True, slots=True)
class IntentsCommitted:
    """The intents of these calls are durable: they may run."""

    at_ms: int
    keys: tuple[str, ...]


@recorded("approval_answered")
@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """An approval request reached its end."""

    at_ms: int
    request_id: str
    decision: str
    """``approved``, ``denied``, ``expired`` or ``cancelled``."""
    by: str
    """Who or what answered."""
    reason: str
    intended: bool = added(False)
    """Whether the call's intent is durable with the answer, so that it runs without another commit."""


@dataclass(frozen=True, slots=True)
class CallAsked:
    """The creating program wants one tool call made in the session, outside the transcript."""

    at_ms: int
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue]


@recorded("child_troubled")
@dataclass(frozen=True, slots=True)
class ChildTroubled:
    """A child's model could not make a valid call and gave a tool up."""

    at_ms: int
    post_id: str
    child: str
    tool: str
    attempts: int
    field: str | None
    message: str
    taint: str = added("")
    """Where untrusted text in it comes from; empty = there is none known."""


@recorded("approver_asked")
@dataclass(frozen=True, slots=True)
class ApproverAsked:
    """This session's approver function is wanted."""

    at_ms: int
    request_id: str
    requester: str
    tool: str
    arguments: Mapping[str, JsonValue]
    tier: str
    asked_by: tuple[Principal, ...] = added(())
    """Whom the call is for; empty = the creating program."""


@dataclass(frozen=True, slots=True)
class ApproverAnswered:
    """This session's approver function returned."""

    at_ms: int
    request_id: str
    answer: str
    reason: str


@recorded("cancel_asked")
@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The session is to stop and wrap up."""

    at_ms: int
    reason: str
    status: Literal["completed", "cancelled", "expired", "failed"]


@recorded("work_interrupted")
@dataclass(frozen=True, slots=True)
class WorkInterrupted:
    """The session is to drop what it does, and to wait for the next message."""

    at_ms: int
    post_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rang:
    """A time the session asked to be woken at has come."""

    at_ms: int


Stimulus: TypeAlias = (
    Adopted
    | Recovered
    | Incoming
    | ModelAnswered
    | ModelFailed
    | CallPrepared
    | CallRejected
    | CallFinished
    | CallHandedOver
    | ClientAnswered
    | HookErrorReported
    | IntentsCommitted
    | ApprovalAnswered
    | CallAsked
    | ChildTroubled
    | ApproverAsked
    | ApproverAnswered
    | CancelAsked
    | WorkInterrupted
    | Rang
)
