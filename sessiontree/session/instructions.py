"""Instructions of the session machine: what a host, or its supervisor, carries out."""

from __future__ import annotations

from typing import TypeAlias

from sessiontree.contracts.facts.session_facts import RunFailure
from sessiontree.contracts.facts.stimuli import TreeEvent
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.recorded.tool_inputs import AnsweredInput
from sessiontree.contracts.values.messages import ToolCall, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class PrepareCall:
    """Check a call; answer with CallPrepared, CallRejected or CallFinished.

    A ReadOnly call that needs no approval has no effect outside. If ``run_unless`` is given, such a call
    runs at once without an answer in between, unless ``run_unless`` contains its tool.
    """

    key: str
    call: ToolCall
    run_unless: tuple[str, ...] | None = None
    """Tools that the model gave up; None = always answer."""
    asked_by: tuple[Principal, ...] = ()
    """The principals it is made for; tools they may not use are refused. Empty = the creating program."""
    may_be_cut: bool = False
    """Whether the reply that it is in was cut off at its length limit, maybe within this call."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ExecuteCall:
    """Run a checked call; answer with CallFinished.

    It may be repeated for a call that already runs on this host: then the call continues and is not started
    again.
    """

    call_id: str
    """The call's id for its tool, and in everything the tool passes on."""
    call: CheckedCall
    answered: AnsweredInput | None = None
    """The input that a person gave it last; None = it asked for none."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class AdvanceProgram:
    """Give a program the answers that it has not been given; answer with ProgramSaid or CallFinished.

    It has no effect outside the interpreter, so it may be repeated.
    """

    key: str


@dataclass(frozen=True, slots=True)
class AbortCalls:
    """Stop these calls; each call that is not running answers CallFinished(skipped) at once."""

    keys: tuple[str, ...]
    reason: str


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model; the state's transcript is the prompt."""

    turn: int


@dataclass(frozen=True, slots=True)
class WithdrawQuestion:
    """The model's reply to this turn is no longer needed."""

    turn: int


@dataclass(frozen=True, slots=True)
class AwaitCommit:
    """Answer IntentsCommitted once the facts given with this instruction are durable."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToTree:
    """Send an event to the tree machine."""

    event: TreeEvent


@dataclass(frozen=True, slots=True)
class TakeAnswer:
    """Make a call's result from the program's answer; answer CallFinished, or refuse it with SettleAnswer."""

    key: str
    answer_id: str
    answer: ClientAnswer


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    """Tell the caller who answered a call whether the answer was accepted."""

    answer_id: str
    taken: bool
    refusal: str = ""
    """Why it can't be the result of the call, which still waits for one; empty = it came too late."""
    field: str | None = None
    """The field that does not fit."""


@dataclass(frozen=True, slots=True)
class RunApprover:
    """Run this session's approver function; answer ApproverAnswered."""

    question: ApprovalQuestion


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call made from outside has its result."""

    call_id: str
    outcome: Outcome
    message: ToolResultMessage


@dataclass(frozen=True, slots=True)
class AnswerMessages:
    """The final message for these messages."""

    message_ids: tuple[str, ...]
    text: str
    error: str | None
    interrupted: bool = False
    """Whether the final message is missing because the session was interrupted."""
    failure: RunFailure = ""


@dataclass(frozen=True, slots=True)
class ReportRaised:
    """Show the program what a tool or model of its author raised."""

    what: str
    """What raised it."""
    frames: tuple[str, ...]
    """Lines of ``path:line in function: source``, outermost first."""


@dataclass(frozen=True, slots=True)
class WakeSessionAt:
    """Ring at this time."""

    at_ms: int
    retries: bool = False
    """Whether the model is asked again then, and the session waits for nothing else."""


SessionInstruction: TypeAlias = (
    PrepareCall
    | ExecuteCall
    | AdvanceProgram
    | AbortCalls
    | CallModel
    | WithdrawQuestion
    | AwaitCommit
    | ToTree
    | TakeAnswer
    | ReportRaised
    | SettleAnswer
    | RunApprover
    | AnswerCall
    | AnswerMessages
    | WakeSessionAt
)
