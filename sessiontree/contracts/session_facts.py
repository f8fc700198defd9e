"""Facts of one session: what happened, as journaled. They hold no rules.

Facts are stored with their session, their cause and their time; the fields here are the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sessiontree.contracts.codec import Outcome, added, recorded
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import AssistantMessage, ToolResultMessage, UserMessage
from sessiontree.contracts.results import Artifact
from sessiontree.contracts.senders import Principal


@recorded("opened")
@dataclass(frozen=True, slots=True)
class Opened:
    """The session was adopted for the first time: its system prompt and tools stand from now on."""

    system_prompt: str
    tools: tuple[str, ...]
    model: str


@recorded("heard")
@dataclass(frozen=True, slots=True)
class Heard:
    """A message waits for the next turn."""

    message_id: str
    message: UserMessage
    steer: bool
    wakes: bool
    """Whether it starts a turn by itself."""
    asked_by: tuple[Principal, ...] = added(())
    """Whom it speaks for; empty = the creating program."""


@recorded("acts_for")
@dataclass(frozen=True, slots=True)
class ActsFor:
    """From the next turn on the session acts for these; before the first such fact for the program alone."""

    askers: tuple[Principal, ...]


@recorded("turn_started")
@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The model is asked; the first ``took`` waiting messages joined the transcript."""

    turn: int
    took: int
    fresh_run: bool
    """Whether a new message begins a new count of turns."""


@recorded("turn_replied")
@dataclass(frozen=True, slots=True)
class TurnReplied:
    """The model replied; its calls are keyed ``<turn>.<index>``."""

    turn: int
    message: AssistantMessage


@recorded("turn_failed")
@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The model could not reply."""

    turn: int
    reason: str
    said: str = added("")
    """The text of its reply so far, where it failed half-way; no part of the conversation."""


@recorded("turn_cut")
@dataclass(frozen=True, slots=True)
class TurnCut:
    """The model is waited for no more; what it may still reply to this turn counts for nothing."""

    turn: int
    reason: str


@recorded("call_asked")
@dataclass(frozen=True, slots=True)
class CallOpened:
    """The creating program asked for a call outside the transcript."""

    key: str
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue]


@recorded("call_held")
@dataclass(frozen=True, slots=True)
class CallHeld:
    """A call from outside that changes things waits for the end of the turn, or waits no longer."""

    key: str
    held: bool


@recorded("call_intended")
@dataclass(frozen=True, slots=True)
class CallIntended:
    """A call above ReadOnly is about to run; without a result it may or may not have run."""

    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    tier: int
    repeatable: bool


@recorded("approval_wanted")
@dataclass(frozen=True, slots=True)
class ApprovalWanted:
    """A call waits for an approval."""

    key: str
    request_id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    tier: int
    repeatable: bool
    at_ms: int


@recorded("approval_settled")
@dataclass(frozen=True, slots=True)
class ApprovalSettled:
    """The answer to an approval reached the session."""

    key: str
    request_id: str
    decision: str
    by: str
    reason: str


@recorded("call_delegated")
@dataclass(frozen=True, slots=True)
class CallDelegated:
    """A call is the creating program's to answer, by this id."""

    key: str
    client_id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    at_ms: int
    expires_at_ms: int
    """Unanswered then, it has timed out."""


@recorded("call_parked")
@dataclass(frozen=True, slots=True)
class CallParked:
    """The model goes on: the pending envelope is this call's one result, the outcome comes as a notice."""

    key: str
    message: ToolResultMessage


@recorded("arguments_rejected")
@dataclass(frozen=True, slots=True)
class ArgumentsRejected:
    """A call's arguments did not fit."""

    key: str
    tool: str
    attempt: int
    """1 to 3; failures of one tool within one reply share an attempt."""
    field: str | None
    reason: str
    digest: str
    final: bool
    """Whether the tool is refused from now until the next incoming message."""


@recorded("call_resolved")
@dataclass(frozen=True, slots=True)
class CallResolved:
    """A call has its result."""

    key: str
    outcome: Outcome
    message: ToolResultMessage
    artifacts: tuple[Artifact, ...] = ()
    resets: str | None = None
    """Name of the tool whose attempts start again at zero."""


@recorded("tainted")
@dataclass(frozen=True, slots=True)
class Tainted:
    """The session has taken in untrusted text for the first time; it stays so for life."""

    source: str
    """Where it came from: a tool's name, a child, its parent."""


@recorded("hook_failed")
@dataclass(frozen=True, slots=True)
class HookFailed:
    """A hook failed in the session's host; what came of it stands in the facts of what it stood around."""

    key: str
    """Of the call at whose hooks or spawn it failed; over words ``message:<id>``, ``model:<turn>`` or
    ``channel``."""
    hook: str
    """Its name."""
    point: str
    """Where, such as ``before_tool_call``."""
    reason: str


@recorded("tool_given_up")
@dataclass(frozen=True, slots=True)
class ToolGivenUp:
    """The model could not make a valid call; the parent is told."""

    tool: str
    attempts: int
    field: str | None
    reason: str


@recorded("child_trouble_noted")
@dataclass(frozen=True, slots=True)
class ChildTroubleNoted:
    """A child gave a tool up; this session was told."""

    child: str
    tool: str
    attempts: int
    field: str | None
    reason: str


@recorded("approver_consulted")
@dataclass(frozen=True, slots=True)
class ApproverConsulted:
    """This session's approver function was asked."""

    request_id: str
    requester: str
    tool: str
    arguments: Mapping[str, JsonValue]
    tier: str
    asked_by: tuple[Principal, ...] = added(())
    """Whom the call is for; empty = the creating program."""


@recorded("approver_answered")
@dataclass(frozen=True, slots=True)
class ApproverReplied:
    """This session's approver function answered ``approve``, ``deny`` or ``escalate``."""

    request_id: str
    answer: str
    reason: str


@recorded("result_rejected")
@dataclass(frozen=True, slots=True)
class ResultRejected:
    """The final text does not fit the type the parent asked for."""

    attempt: int
    field: str | None
    reason: str


@recorded("rested")
@dataclass(frozen=True, slots=True)
class Rested:
    """The model said its last word for now."""

    text: str
    answers: tuple[str, ...]
    """Ids of the messages this answers, in order."""
    error: str | None
    """Why the run stopped short, or None."""
    result: JsonValue
    """The validated value, where a type was asked for."""
    has_result: bool
    interrupted: bool = added(False)
    """Whether it stopped short because somebody interrupted the session."""


@recorded("interrupted")
@dataclass(frozen=True, slots=True)
class Interrupted:
    """Whatever the session did or waited for is over; it rests until somebody says something to it."""

    post_id: str
    reason: str


@recorded("stopping")
@dataclass(frozen=True, slots=True)
class Stopping:
    """The session was told to stop; it starts nothing more."""

    reason: str
    status: str


SessionFact: TypeAlias = (
    Opened
    | Heard
    | ActsFor
    | TurnStarted
    | TurnReplied
    | TurnFailed
    | TurnCut
    | CallOpened
    | CallHeld
    | CallIntended
    | ApprovalWanted
    | ApprovalSettled
    | CallDelegated
    | CallParked
    | ArgumentsRejected
    | CallResolved
    | Tainted
    | HookFailed
    | ToolGivenUp
    | ChildTroubleNoted
    | ApproverConsulted
    | ApproverReplied
    | ResultRejected
    | Rested
    | Interrupted
    | Stopping
)
