"""Stimuli: everything that can happen to one session, and the events that a session sends to its tree.

Each stimulus has ``at_ms``; the tree's controller adds session and time to an event. Stimuli that must
survive a process (those posted by the tree machine) are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from sessiontree.contracts.facts.rewind import Rewind
from sessiontree.contracts.facts.session_facts import (
    ApproverReplied,
    FailureCause,
    HookFailed,
    JobEnded,
    JobStarted,
    ToolGivenUp,
)
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall, RejectedCall
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.codec import Outcome, declare_sparse, register_kind
from sessiontree.contracts.recorded.programs import ProgramCall, ProgramNote, ProgramSource
from sessiontree.contracts.recorded.results import Artifact, SessionResult
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.recorded.tool_inputs import ToolInput
from sessiontree.contracts.settings.model_settings import ModelSettings, OnLength
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ImageContent, Origin, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass

SendMode: TypeAlias = Literal["follow_up", "steer"]
"""``follow_up`` is read with the next turn of the receiver; ``steer`` cuts its present turn."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A host has adopted the session; these tools are within its rights."""

    at_ms: int
    tools: tuple[str, ...]
    model: str
    prompt: str
    """The agent's part of the system prompt."""
    further: str = ""
    """What the system prompt says of the session's skills and workspace."""
    compaction_model: str = ""
    """Name of the model that writes its summaries; empty = ``model``."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The session's host is gone, or the tree was resumed: repeat the unfinished work."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Forked:
    """The session is one of a new tree, which shares the facts up to now with another one."""

    at_ms: int
    shift_ms: int
    """Time since the last shared fact."""
    rewind: Rewind | None = None
    """Where the session goes on, if a child of it is replaced."""
    awaits: tuple[tuple[str, str], ...] = ()
    """Ids by which children of its programs report, and keys of the calls that wait; empty = none does."""


@register_kind("incoming")
@dataclass(frozen=True, slots=True)
class Incoming:
    """A message to the session."""

    at_ms: int
    message_id: str
    text: str
    mode: SendMode
    origin: Origin
    asked_by: tuple[Principal, ...] = ()
    """On whose behalf it was sent; empty = the creating program's."""
    taint: str = ""
    """Source of untrusted text in it; empty = none known."""
    settings: ModelSettings | None = declare_sparse(None)
    """Model settings for it; None = the usual ones."""
    images: tuple[ImageContent, ...] = declare_sparse(())
    """Images that belong to it."""
    followed: bool = declare_sparse(False)
    """Whether the next report of a child is already there: no turn begins before that is taken in too."""
    joins: bool = declare_sparse(False)
    """Whether it starts no turn by itself, because results of other children are still to come."""
    answers: str = declare_sparse("")
    """Id of the call that started the reporting child; empty = this is not such a report."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model replied to a turn."""

    at_ms: int
    turn: int
    message: AssistantMessage
    on_length: OnLength = "fail"
    """What happens if its tokens were used up."""
    context_tokens: int | None = None
    """Size of the model's context; None = not known."""


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model could not reply."""

    at_ms: int
    turn: int
    reason: str
    said: str = ""
    """The text of an incomplete reply."""
    retryable: bool = False
    """Whether a retry may help."""
    retry_after_s: float | None = None
    """Seconds that the provider asks to wait before a retry; None = it does not say."""
    overflow: bool = False
    """Whether the question is longer than the model's context."""
    cause: FailureCause = ""
    account: str = ""
    """The session whose budget the cause names."""
    raised: str = ""
    """Where the model's own code raised it: lines of ``path:line in function: source``."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class CallPrepared:
    """A call's arguments are valid and the policy allows it, possibly after an approval."""

    at_ms: int
    call: CheckedCall
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class CallRejected:
    """A call's arguments are not valid."""

    at_ms: int
    call: RejectedCall


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call has its result, whether or not it ran."""

    at_ms: int
    key: str
    outcome: Outcome
    message: ToolResultMessage
    artifacts: tuple[Artifact, ...] = ()
    answer_id: str = ""
    """Id of the answer that it was made from; empty = none."""
    untrusted: bool = False
    """Whether its text comes from outside."""
    by: str = ""
    """Who gave the answer."""
    surface: str = ""
    """Where the answer was given."""
    is_json: bool = False
    """Whether its text is the JSON text of the tool's output."""


@dataclass(frozen=True, slots=True)
class CallHandedOver:
    """The creating program, or a person, must answer a call that may run."""

    at_ms: int
    client_id: str
    """The call's id for whoever answers it."""
    call: CheckedCall
    expires_at_ms: int
    to_person: bool = False
    """Whether a person answers it."""
    input: ToolInput | None = None
    """What the call asks while it runs; None = the answer is its result."""


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """A call was answered; the answer is journaled only once the session takes it."""

    at_ms: int
    client_id: str
    answer_id: str
    """Identifies this answer, so that its outcome can be reported to the program."""
    answer: ClientAnswer


@dataclass(frozen=True, slots=True)
class HookErrorReported:
    """A hook failed in this session's host."""

    at_ms: int
    failed: HookFailed


@dataclass(frozen=True, slots=True)
class IntentsCommitted:
    """The intents of these calls are durable: they may run."""

    at_ms: int
    keys: tuple[str, ...]


@register_kind("approval_answered")
@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """An approval request reached its end."""

    at_ms: int
    request_id: str
    decision: str
    """``approved``, ``denied``, ``expired`` or ``cancelled``."""
    by: str
    """The person or rule that answered."""
    reason: str
    intended: bool = False
    """Whether the call's intent is durable with the answer, so that no further commit is needed to run it."""


@dataclass(frozen=True, slots=True)
class CallAsked:
    """The creating program requests one tool call in the session, outside the transcript."""

    at_ms: int
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue]


@register_kind("child_troubled")
@dataclass(frozen=True, slots=True)
class ChildTroubled:
    """A child's model could not make a valid call and gave up on the tool."""

    at_ms: int
    post_id: str
    child: str
    trouble: ToolGivenUp
    taint: str = ""
    """Source of untrusted text in it; empty = none known."""


@register_kind("approver_asked")
@dataclass(frozen=True, slots=True)
class ApproverAsked:
    """This session's approver function must answer."""

    at_ms: int
    question: ApprovalQuestion


@dataclass(frozen=True, slots=True)
class ApproverAnswered:
    """This session's approver function returned."""

    at_ms: int
    reply: ApproverReplied


@register_kind("cancel_asked")
@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The session must stop and wrap up."""

    at_ms: int
    reason: str
    status: Literal["completed", "cancelled", "expired", "failed"]


@register_kind("work_interrupted")
@dataclass(frozen=True, slots=True)
class WorkInterrupted:
    """The session must stop its work and wait for the next message."""

    at_ms: int
    post_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobBegan:
    """A command of the session goes on in the background."""

    at_ms: int
    started: JobStarted


@dataclass(frozen=True, slots=True)
class JobOver:
    """A job has ended; what the session reads about that comes as a message."""

    at_ms: int
    ended: JobEnded


@dataclass(frozen=True, slots=True)
class Rang:
    """A timer of the session has fired."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class ProgramBegan:
    """A checked call is a program, and may run now."""

    at_ms: int
    call: CheckedCall
    source: ProgramSource | None = None
    """The text of a saved program; None = the call holds the text."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ProgramSaid:
    """A program has taken all answers that were given; it asks for further calls, or shows something."""

    at_ms: int
    key: str
    first: int
    """Number of the first of these calls."""
    calls: tuple[ProgramCall, ...] = ()
    noted: int = 0
    """How many notes came before these."""
    notes: tuple[ProgramNote, ...] = ()
    withdrawn: tuple[int, ...] = ()
    """Numbers of calls that it gives up."""


Stimulus: TypeAlias = (
    Adopted
    | Recovered
    | Forked
    | Incoming
    | ModelAnswered
    | ModelFailed
    | CallPrepared
    | CallRejected
    | CallFinished
    | CallHandedOver
    | ProgramBegan
    | ProgramSaid
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
    | JobBegan
    | JobOver
    | Rang
)


@dataclass(frozen=True, slots=True)
class ResultOffered:
    """The session gave its final message; the tree decides whether it ends.

    A session that receives input and becomes idle again offers its result again.
    """

    result: SessionResult[Any]
    stays: bool = False
    """Whether it was interrupted and therefore stays open."""


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A call needs an approval; the session expects ApprovalAnswered."""

    request_id: str
    """Id made by the session from its own id and the call's key."""
    call: CheckedCall
    asked_by: tuple[Principal, ...] = ()
    """On whose behalf the call is made; empty = the creating program's."""
    runs_at_once: bool = False
    """Whether the call runs as soon as it is allowed. If so, its intent may become durable with the answer,
    which then reports this. False = it depends on the session's state at that time."""


@dataclass(frozen=True, slots=True)
class ApproverReturned:
    """The session's approver function answered a request."""

    reply: ApproverReplied


@dataclass(frozen=True, slots=True)
class ClientCallDelegated:
    """The creating program, or a person, must answer a call."""

    client_id: str
    """The call's id for whoever answers it, made by the session's host."""
    call: CheckedCall
    expires_at_ms: int
    to_person: bool = False
    """Whether a person answers it."""
    questions: Mapping[str, JsonValue] | None = None
    """What a person is asked; None = the arguments of the call say it."""


@dataclass(frozen=True, slots=True)
class ClientCallWithdrawn:
    """A delegated call has its result, with or without an answer; the program need not answer it."""

    ended: ClientCallEnded


@dataclass(frozen=True, slots=True)
class ApprovalWithdrawn:
    """The call of a request has ended without an answer, because its program has ended."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChildWithdrawn:
    """The call of a program that started a child, or was about to, waits for it no more."""

    key: str
    """Key of the child."""
    reason: str


@dataclass(frozen=True, slots=True)
class TroubleReported:
    """The session's model gave up on a tool; the parent must be informed."""

    trouble: ToolGivenUp


@dataclass(frozen=True, slots=True)
class TaintReported:
    """The session has read untrusted text; the tree must know this for its children and its result."""

    source: str
    """Source of the text."""


TreeEvent: TypeAlias = (
    ResultOffered
    | ApprovalAsked
    | ApproverReturned
    | ApprovalWithdrawn
    | ChildWithdrawn
    | ClientCallDelegated
    | ClientCallWithdrawn
    | TroubleReported
    | TaintReported
)
