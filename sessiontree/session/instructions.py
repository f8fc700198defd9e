"""Instructions of the session machine: what a host, or the supervisor behind it, carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.client_call import ClientAnswer
from sessiontree.contracts.codec import Outcome
from sessiontree.contracts.fast_init import quickly_made
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ToolCall, ToolResultMessage
from sessiontree.contracts.results import SessionResult
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.session_facts import CallIntended


@quickly_made
@dataclass(frozen=True, slots=True)
class PrepareCall:
    """Check a call; answer with CallPrepared, CallRejected or CallFinished.

    A ReadOnly call that needs no approval leaves no trace outside: where ``run_unless`` is given, it runs at
    once without being asked about again, unless its tool is named there.
    """

    key: str
    call: ToolCall
    run_unless: tuple[str, ...] | None = None
    """Tools given up by the model, or None: always answer."""
    asked_by: tuple[Principal, ...] = ()
    """Whom it is made for: what they may not have called is refused. Empty = the creating program."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ExecuteCall:
    """Run a checked call; answer with CallFinished. ``digest`` is empty for calls nobody had to allow.

    May come again for a call that runs on this host: then it runs on, and is not begun a second time.
    """

    key: str
    call_id: str
    """Names the call to its tool, and wherever the tool gives it away."""
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str


@dataclass(frozen=True, slots=True)
class AbortCalls:
    """Stop these calls; each one not running answers CallFinished(skipped) at once."""

    keys: tuple[str, ...]
    reason: str


@quickly_made
@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model; the state's transcript is the prompt."""

    turn: int


@dataclass(frozen=True, slots=True)
class WithdrawQuestion:
    """The model's reply to this turn is waited for no more."""

    turn: int


@dataclass(frozen=True, slots=True)
class AwaitCommit:
    """Answer IntentsCommitted once the facts given with this are durable."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Let a request climb; answer ApprovalAnswered.

    Where it is answered while the session is embodied, ``intent`` may be made durable with the answer, which
    then says so. None = it depends on what the session does then.
    """

    request_id: str
    key: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    tier: int
    intent: CallIntended | None = None
    asked_by: tuple[Principal, ...] = ()
    """Whom the call is for."""


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Owe a call to the creating program, by this id."""

    client_id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class WithdrawCall:
    """The program owes no answer to this call any more."""

    client_id: str
    how: Outcome
    answer_id: str
    """Of the answer that was taken; empty where none was."""


@dataclass(frozen=True, slots=True)
class TakeAnswer:
    """Make a call's result of the program's answer; answer CallFinished, or refuse it with SettleAnswer."""

    key: str
    answer_id: str
    answer: ClientAnswer


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    """Tell who answered a call what became of the answer."""

    answer_id: str
    taken: bool
    refusal: str = ""
    """Why it can't be the call's result, which still waits for one; empty = it came too late."""
    field: str | None = None
    """Where it does not fit."""


@dataclass(frozen=True, slots=True)
class RunApprover:
    """Run this session's approver function; answer ApproverAnswered."""

    request_id: str
    requester: str
    tool: str
    arguments: Mapping[str, JsonValue]
    tier: str
    asked_by: tuple[Principal, ...] = ()


@dataclass(frozen=True, slots=True)
class ReturnAnswer:
    """This session's approver function answered a request."""

    request_id: str
    answer: str
    reason: str


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call asked from outside has its result."""

    call_id: str
    outcome: Outcome
    message: ToolResultMessage


@dataclass(frozen=True, slots=True)
class AnswerMessages:
    """The last word for these messages."""

    message_ids: tuple[str, ...]
    text: str
    error: str | None
    interrupted: bool = False
    """Whether there is none because somebody interrupted the session."""


@dataclass(frozen=True, slots=True)
class ReportTrouble:
    """The parent is to know that the model gave a tool up."""

    tool: str
    attempts: int
    field: str | None
    message: str


@dataclass(frozen=True, slots=True)
class ReportTaint:
    """The session has taken in untrusted text: the tree is to know, for its children and its result."""

    source: str


@dataclass(frozen=True, slots=True)
class OfferResult:
    """The session has nothing more to do; whether it ends is the tree's to say."""

    result: SessionResult[Any]
    stays: bool = False
    """Whether it was interrupted, and therefore does not end by this."""


@dataclass(frozen=True, slots=True)
class WakeSessionAt:
    """Ring at this time."""

    at_ms: int


SessionInstruction: TypeAlias = (
    PrepareCall
    | ExecuteCall
    | AbortCalls
    | CallModel
    | WithdrawQuestion
    | AwaitCommit
    | AskApproval
    | DelegateCall
    | WithdrawCall
    | TakeAnswer
    | SettleAnswer
    | RunApprover
    | ReturnAnswer
    | AnswerCall
    | AnswerMessages
    | ReportTrouble
    | ReportTaint
    | OfferResult
    | WakeSessionAt
)
