"""Facts of one session: what happened, as journaled. They contain no rules.

Long because every fact of a session is one class here.

Each fact is stored with its session, cause and time; the fields here are the remaining data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from sessiontree.contracts.facts.rewind import Rewind
from sessiontree.contracts.handles.jobs import ExecHost, JobStatus
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall
from sessiontree.contracts.recorded.codec import Outcome, declare_held, declare_sparse, register_kind
from sessiontree.contracts.recorded.programs import ProgramCall, ProgramNote, ProgramSource
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.recorded.tool_inputs import AnsweredInput, ToolInput
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage
from sessiontree.contracts.values.quick_dataclass import dataclass


@register_kind("opened")
@dataclass(frozen=True, slots=True)
class Opened:
    """The session was adopted for the first time; its system prompt and tools are fixed.

    In the journal it holds the facts that follow at once, as some others do.
    """

    system_prompt: str
    tools: tuple[str, ...]
    model: str
    compaction_model: str = declare_sparse("")
    """Name of the model that writes its summaries; empty = ``model``."""
    task: MessageReceived | None = declare_held()
    """The message with its task."""
    turn: TurnStarted | None = declare_held()
    """The turn that takes that message."""


@register_kind("model_changed")
@dataclass(frozen=True, slots=True)
class ModelChanged:
    """The tree was resumed with other models, which answer and write summaries from now on."""

    model: str
    compaction_model: str = declare_sparse("")
    """Name of the model that writes its summaries; empty = ``model``."""


@register_kind("session_forked")
@dataclass(frozen=True, slots=True)
class SessionForked:
    """The facts before this one are those of a session of another tree; the ids of this tree count now."""

    at_ms: int
    shift_ms: int
    """Time between the last shared fact and the fork; deadlines are later by it."""
    rewind: Rewind | None = declare_sparse(None)
    """Where it goes on, if a child of it was replaced; None = where the shared facts end."""
    awaits: tuple[tuple[str, str], ...] = declare_sparse(())
    """Ids of the other tree by which children report, and keys of the calls that wait; empty = none does."""


@register_kind("message_received")
@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message waits for the next turn."""

    message_id: str
    message: UserMessage
    steer: bool
    wakes: bool
    """Whether it starts a turn by itself."""
    asked_by: tuple[Principal, ...] = ()
    """On whose behalf it was sent; empty = the creating program's."""
    settings: ModelSettings | None = declare_sparse(None)
    """Model settings from the turn that takes the message until the run ends; None = the usual ones."""
    turn: TurnStarted | None = declare_held()
    """The turn that it starts at once, in the journal."""


@register_kind("acts_for")
@dataclass(frozen=True, slots=True)
class ActsFor:
    """From the next turn on the session acts for these; before the first such fact, for the program."""

    askers: tuple[Principal, ...]


@register_kind("turn_started")
@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The model is asked; the first ``took`` waiting messages joined the transcript."""

    turn: int
    took: int
    fresh_run: bool
    """Whether a new message resets the count of turns."""


@register_kind("turn_replied")
@dataclass(frozen=True, slots=True)
class TurnReplied:
    """The model replied; its calls are keyed ``<turn>.<index>``."""

    turn: int
    message: AssistantMessage
    finished: RunFinished | None = declare_held()
    """The end of the run whose final message it is, in the journal."""
    context_tokens: int | None = declare_sparse(None)
    """Size of the model's context, if the results of several calls share what is left of it."""


@register_kind("reply_cut")
@dataclass(frozen=True, slots=True)
class ReplyCut:
    """The model's tokens were used up in its final message; this part is kept, and the model continues."""

    turn: int
    text: str


@register_kind("reply_empty")
@dataclass(frozen=True, slots=True)
class ReplyEmpty:
    """The model's final message says nothing; the model is asked once more."""

    turn: int


FailureCause: TypeAlias = Literal["", "provider", "price", "budget.tokens", "budget.cost_usd"]
"""Why a model could not reply, if the failure is not its own: its provider could not be reached, was too busy
or refused the key; a budget needs a price that is not known; too little of a budget is left."""


@register_kind("turn_failed")
@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The model could not reply."""

    turn: int
    reason: str
    said: str = ""
    """The text of an incomplete reply; not part of the conversation."""
    retry_at_ms: int | None = declare_sparse(None)
    """When the request is retried; None = not at all."""
    overflow: bool = declare_sparse(False)
    """Whether the request was longer than the model's context."""
    cause: FailureCause = declare_sparse("")
    account: str = declare_sparse("")
    """The session whose budget the cause names; empty = it names none."""
    is_final: bool = declare_sparse(False)
    """Whether the provider refuses for good: another question has no other answer."""
    raised: str = declare_sparse("")
    """Where the model's own code raised it: lines of ``path:line in function: source``."""


@register_kind("turn_retried")
@dataclass(frozen=True, slots=True)
class TurnRetried:
    """The model is asked again for its reply to a failed turn."""

    turn: int


@register_kind("turn_cut")
@dataclass(frozen=True, slots=True)
class TurnCut:
    """The session no longer waits for the model; a later reply to this turn is ignored."""

    turn: int
    reason: str


@register_kind("context_filled")
@dataclass(frozen=True, slots=True)
class ContextFilled:
    """A question used most of the model's context: the conversation is compacted before the next turn."""

    input_tokens: int
    context_tokens: int


@register_kind("compaction_begun")
@dataclass(frozen=True, slots=True)
class CompactionBegun:
    """The model is asked for a summary of the older part of the conversation.

    Indices count the messages that the model sees at this time, from 0.
    """

    turn: int
    """Number of this question; the next turn has the next number."""
    upto: int
    """Index after the older part."""
    kept: tuple[int, ...]
    """Messages of the older part, besides the first, that the summary does not replace."""
    model: str = declare_sparse("")
    """Name of the compaction model, if it is asked; empty = the session's model is asked."""


@register_kind("context_compacted")
@dataclass(frozen=True, slots=True)
class ContextCompacted:
    """From now on the model sees the first message, the summary, the kept messages, and those after them."""

    turn: int
    upto: int
    kept: tuple[int, ...]
    summary: UserMessage
    usage: Usage
    """What the summary used."""
    model: str = declare_sparse("")
    """Name of the model that wrote the summary, if it is not the session's only one; empty = it is."""


@register_kind("compaction_failed")
@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """No summary was written; the conversation stays as it is, until the session's model has written one."""

    turn: int
    reason: str
    usage: Usage | None
    """What the model's reply used; None = it did not reply."""
    summary_limit: int | None = None
    """Index after the older part of the next attempt at most, because this question was too long."""
    model: str = declare_sparse("")
    """Name of the compaction model, if it failed: the session's model is asked next. Empty = that failed."""


@register_kind("messages_shortened")
@dataclass(frozen=True, slots=True)
class MessagesShortened:
    """From now on the model sees these messages cut; the journal keeps them whole."""

    at: tuple[int, ...] = ()
    """Indices of messages of the conversation, as the model sees it."""
    chars: tuple[int, ...] = ()
    """To how many characters each of them is cut."""
    images: tuple[int, ...] = ()
    """Indices of messages whose images become a line of text."""


@register_kind("call_opened")
@dataclass(frozen=True, slots=True)
class CallOpened:
    """The creating program requested a call outside the transcript."""

    key: str
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue]


@register_kind("call_held")
@dataclass(frozen=True, slots=True)
class CallHeld:
    """A call outside the transcript that changes things waits for the end of the turn, or waits no longer."""

    key: str
    held: bool


@register_kind("call_intended")
@dataclass(frozen=True, slots=True)
class CallIntended:
    """A call above ReadOnly is about to run; without a result it may or may not have run."""

    call: CheckedCall


@register_kind("approval_wanted")
@dataclass(frozen=True, slots=True)
class ApprovalWanted:
    """A call waits for an approval."""

    request_id: str
    call: CheckedCall
    at_ms: int


@register_kind("approval_settled")
@dataclass(frozen=True, slots=True)
class ApprovalSettled:
    """The answer to an approval reached the session."""

    key: str
    request_id: str
    decision: str
    by: str
    reason: str


@register_kind("call_delegated")
@dataclass(frozen=True, slots=True)
class CallDelegated:
    """The creating program, or a person, must answer a call by this id."""

    client_id: str
    call: CheckedCall
    at_ms: int
    expires_at_ms: int
    """When an unanswered call times out."""
    to_person: bool = declare_sparse(False)
    """Whether a person answers it."""
    input: ToolInput | None = declare_sparse(None)
    """What the call asks while it runs; None = the answer is its result."""


@register_kind("input_given")
@dataclass(frozen=True, slots=True)
class InputGiven:
    """A person gave what a running call asked for; the call runs again with it."""

    key: str
    input: AnsweredInput
    by: str
    """Who answered."""
    surface: str
    """Where the answer was given."""


@register_kind("call_parked")
@dataclass(frozen=True, slots=True)
class CallParked:
    """The model continues: the pending envelope is the call's result, and a notice reports the outcome."""

    key: str
    message: ToolResultMessage


@register_kind("arguments_rejected")
@dataclass(frozen=True, slots=True)
class ArgumentsRejected:
    """A call's arguments were not valid."""

    key: str
    tool: str
    attempt: int
    """1 to 3; failures of one tool within one reply share an attempt."""
    field: str | None
    reason: str
    digest: str
    final: bool
    """Whether the tool is refused until the next incoming message."""


@register_kind("call_resolved")
@dataclass(frozen=True, slots=True)
class CallResolved:
    """A call has its result."""

    key: str
    outcome: Outcome
    message: ToolResultMessage
    artifacts: tuple[Artifact, ...] = ()
    resets: str | None = None
    """Name of the tool whose attempts are reset to zero."""
    is_json: bool = declare_sparse(False)
    """Whether the text of a program's answer is the JSON text of the tool's output."""
    untrusted: bool = declare_sparse(False)
    """Whether a program's answer is text from outside."""
    turn: TurnStarted | None = declare_held()
    """The turn that starts because the reply's last call has its result, in the journal."""


@register_kind("program_started")
@dataclass(frozen=True, slots=True)
class ProgramStarted:
    """A call is a program; it runs from now on, and its calls have keys below the call's key."""

    call: CheckedCall
    at_ms: int
    """The time that the program reads from its clock."""
    source: ProgramSource | None = declare_sparse(None)
    """The text of a saved program; None = the call's argument ``code`` is the text."""


@register_kind("program_advanced")
@dataclass(frozen=True, slots=True)
class ProgramAdvanced:
    """A program was given all answers so far, and asks for further calls, or shows something."""

    key: str
    calls: tuple[ProgramCall, ...] = ()
    """Their numbers follow each other."""
    notes: tuple[ProgramNote, ...] = declare_sparse(())
    first: int = declare_sparse(0)
    """Number of the first of these calls."""
    withdrawn: tuple[int, ...] = declare_sparse(())
    """Numbers of calls that it has given up."""
    at_ms: int = declare_sparse(0)
    """When the time of these calls begins; 0 = none has a bound."""


@register_kind("child_awaited")
@dataclass(frozen=True, slots=True)
class ChildAwaited:
    """A program's call has started a child; the child's report is its answer."""

    key: str
    message: ToolResultMessage


@register_kind("child_reported")
@dataclass(frozen=True, slots=True)
class ChildReported:
    """A child that a program started has reported; the report goes to the program, not to the model."""

    key: str
    message_id: str
    text: str = declare_sparse("")
    """The report, if it came before the call's own result; otherwise the call's result has it."""
    answers: str = declare_sparse("")
    """Id of a call that a program which runs again has not asked for yet; ``key`` is then the program's."""


@register_kind("tainted")
@dataclass(frozen=True, slots=True)
class Tainted:
    """The session has read untrusted text for the first time; it stays tainted for life."""

    source: str
    """Source of the text: a tool's name, a child, its parent."""


@register_kind("hook_failed")
@dataclass(frozen=True, slots=True)
class HookFailed:
    """A hook failed in the session's host; the facts of the affected work record the consequence."""

    key: str
    """Key of the call whose hooks or spawn failed; for text ``message:<id>``, ``model:<turn>`` or
    ``channel``."""
    hook: str
    """Its name."""
    point: str
    """The hook point, such as ``before_tool_call``."""
    reason: str


@register_kind("tool_given_up")
@dataclass(frozen=True, slots=True)
class ToolGivenUp:
    """The model could not make a valid call; the parent is informed."""

    tool: str
    attempts: int
    field: str | None
    reason: str


@register_kind("child_trouble_noted")
@dataclass(frozen=True, slots=True)
class ChildTroubleNoted:
    """A child gave up on a tool; this session was informed."""

    child: str
    trouble: ToolGivenUp


@register_kind("approver_consulted")
@dataclass(frozen=True, slots=True)
class ApproverConsulted:
    """This session's approver function was asked."""

    question: ApprovalQuestion


@register_kind("approver_replied")
@dataclass(frozen=True, slots=True)
class ApproverReplied:
    """This session's approver function answered ``approve``, ``deny`` or ``escalate``."""

    request_id: str
    answer: str
    reason: str


@register_kind("job_started")
@dataclass(frozen=True, slots=True)
class JobStarted:
    """A command of the session goes on in the background, on the session's host."""

    job_id: str
    command: str
    """Its command line, maybe cut."""
    pid: int
    """The process that started it, on the host's machine; unique there with ``started``."""
    started: int
    """When that process started, in clock ticks since the machine's start."""
    host: ExecHost = declare_sparse("gateway")
    """Where it runs."""
    asked_by: tuple[Principal, ...] = declare_sparse(())
    """On whose behalf it was started; the session acts for them when it reads about its end."""


@register_kind("job_ended")
@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has ended, or its host was lost."""

    job_id: str
    status: JobStatus
    exit_code: int | None = None
    signal: int | None = None
    total_bytes: int = 0
    """How much output it had written; 0 if that is not known."""
    reason: str = declare_sparse("")
    """Why it failed or was lost."""


@register_kind("result_rejected")
@dataclass(frozen=True, slots=True)
class ResultRejected:
    """The final message does not fit the type that the parent asked for."""

    attempt: int
    field: str | None
    reason: str


RunFailure: TypeAlias = Literal["", "length", "refusal", "overflow"]
"""Why a run stopped short: the model's tokens were used up in its final message, it refused, or the
conversation does not fit its context. Empty = it did not stop short, or it stopped for another reason."""


@register_kind("run_finished")
@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run ended with the model's final message, or stopped short."""

    text: str
    answers: tuple[str, ...]
    """Ids of the messages that this answers, in order."""
    error: str | None
    """Why the run stopped short, or None."""
    result: JsonValue
    """The validated value, if a type was asked for."""
    has_result: bool
    interrupted: bool = False
    """Whether it stopped short because the session was interrupted."""
    failure: RunFailure = declare_sparse("")
    is_empty: bool = declare_sparse(False)
    """Whether the model said nothing."""


@register_kind("interrupted")
@dataclass(frozen=True, slots=True)
class Interrupted:
    """The session's work and waiting ended; it is idle until the next message."""

    post_id: str
    reason: str


@register_kind("stopping")
@dataclass(frozen=True, slots=True)
class Stopping:
    """The session was asked to stop; it starts no more work."""

    reason: str
    status: str


SessionFact: TypeAlias = (
    Opened
    | ModelChanged
    | SessionForked
    | MessageReceived
    | ActsFor
    | TurnStarted
    | TurnReplied
    | ReplyCut
    | ReplyEmpty
    | TurnFailed
    | TurnRetried
    | TurnCut
    | ContextFilled
    | CompactionBegun
    | ContextCompacted
    | CompactionFailed
    | MessagesShortened
    | CallOpened
    | CallHeld
    | CallIntended
    | ApprovalWanted
    | ApprovalSettled
    | CallDelegated
    | InputGiven
    | CallParked
    | ArgumentsRejected
    | CallResolved
    | ProgramStarted
    | ProgramAdvanced
    | ChildAwaited
    | ChildReported
    | Tainted
    | HookFailed
    | ToolGivenUp
    | ChildTroubleNoted
    | ApproverConsulted
    | ApproverReplied
    | JobStarted
    | JobEnded
    | ResultRejected
    | RunFinished
    | Interrupted
    | Stopping
)
"""What the journal records of one session."""
