"""Facts of a tree: its sessions, rights, approvals and usage. They contain no rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sessiontree.contracts.facts.rewind import ReplacedChild
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, Precedent
from sessiontree.contracts.recorded.child_workspaces import ChangedFile
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.codec import Recorded, declare_held, declare_sparse, register_kind
from sessiontree.contracts.recorded.cron import CronJob, JobTarget, SlotCause, SlotEnd
from sessiontree.contracts.recorded.results import ResultCause, SessionResult
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass


@register_kind("tree_created")
@dataclass(frozen=True, slots=True)
class TreeCreated:
    """The tree exists; its Main follows as ``session_spawned``."""

    config: TreeConfig


@register_kind("tree_forked")
@dataclass(frozen=True, slots=True)
class TreeForked:
    """The facts before this one are those of another tree; from here on the tree is one of its own.

    What the other tree waited for is closed, and follows again as new requests.
    """

    config: TreeConfig
    at_ms: int
    shift_ms: int
    """Time between the last shared fact and the fork; it is not counted: every deadline is later by it."""
    replaced: tuple[ReplacedChild, ...] = declare_sparse(())
    """Children that others with a new task replace; those follow."""


@register_kind("session_spawned")
@dataclass(frozen=True, slots=True)
class SessionSpawned:
    """A session exists. ``account`` is the session whose budget it uses (itself if it has its own)."""

    spec: SessionSpec
    account: str
    number: int
    """Its place among its parent's children of the same kind, from 1."""
    at_ms: int = 0
    """When."""


@register_kind("session_adopted")
@dataclass(frozen=True, slots=True)
class SessionAdopted:
    """A host adopted a session for the first time; its time to live has begun."""

    session: str
    at_ms: int
    expires_at_ms: int


@register_kind("spawn_denied")
@dataclass(frozen=True, slots=True)
class SpawnDenied:
    """A spawn was refused before anything started."""

    parent: str
    kind: SessionKind
    limit: str | None
    """Name of the limit that forbids it, or None for a rule."""
    used: float
    allowed: float
    reason: str


@register_kind("session_tainted")
@dataclass(frozen=True, slots=True)
class SessionTainted:
    """A session has read untrusted text; its children and its result are tainted from now on."""

    session: str
    source: str
    """Source of the text."""


@register_kind("session_reactivated")
@dataclass(frozen=True, slots=True)
class SessionReactivated:
    """A suspended session is active again; the result that it offered is withdrawn."""

    session: str


@register_kind("result_awaited")
@dataclass(frozen=True, slots=True)
class ResultAwaited:
    """The creating program waits for a session's result; it and those below it no longer stay open."""

    session: str


@register_kind("result_held")
@dataclass(frozen=True, slots=True)
class ResultHeld:
    """A session gave its final message but does not end yet: it is suspended.

    Part of its work is still pending, or it is Main, which never completes by itself.
    """

    session: str
    result: SessionResult[Any]
    quiet: bool = True
    """Whether no input was in transit to it; if there was any, only a new offer can end it."""


@register_kind("session_ended")
@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session reached a final state; its unspent budget returns to its parent's account."""

    session: str
    status: SessionStatus
    result: SessionResult[Any]
    at_ms: int
    forced: bool
    """Whether it was ended without wrapping up."""
    charged: UsageCharged | None = declare_held(before=True)
    """Its last charge, immediately before, in the journal."""
    report: Posted | None = declare_held()
    """Its result on the way to its parent, in the journal."""


@register_kind("leftovers_ended")
@dataclass(frozen=True, slots=True)
class LeftoversEnded:
    """Processes that a session's tools left running were ended when the session left its host.

    The fact may follow the session's end, and may occur more than once.
    """

    session: str
    count: int


@register_kind("approval_requested")
@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call needs an approval, and its request begins to climb."""

    question: ApprovalQuestion
    expires_at_ms: int
    at_ms: int = 0
    """When the approval was requested."""
    precedent: Precedent | None = None
    """What is known about the command that it runs; None = it runs no command."""


@register_kind("approval_step_recorded")
@dataclass(frozen=True, slots=True)
class ApprovalStepRecorded:
    """One session on the request's way up answered ``approve``, ``deny`` or ``escalate``."""

    request_id: str
    session: str
    answer: str
    by: str
    """``rule`` or ``function`` of that session, ``mode`` (the owner's smart rules at its channel), ``denial``
    (a person said no to the same call), ``always`` (the owner allowed the tool), ``approver error`` (the
    channel's approver failed; the answer is a no), or ``person``."""
    reason: str


@register_kind("approval_waiting")
@dataclass(frozen=True, slots=True)
class ApprovalWaiting:
    """The request waits at a session until its function (``consult``) or a person (``show``) answers."""

    request_id: str
    session: str
    how: str


@register_kind("approval_decided")
@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """The final decision: ``approved``, ``denied``, ``expired`` or ``cancelled``."""

    request_id: str
    decision: str
    by: str
    """As in the step that settled it, with a person's name instead of ``person``; else ``nobody`` (no session
    above could answer), ``time`` (it expired) or ``stop`` (its session stops or has ended)."""
    reason: str
    surface: str = declare_sparse("")
    """Where a person or the program decided: ``program``, ``terminal``, ``notebook``, ``browser``, ``editor``
    or ``socket`` (another process that does not say more); empty = nobody was asked."""


@register_kind("digest_denied")
@dataclass(frozen=True, slots=True)
class DigestDenied:
    """A person denied a call; it stays denied for these sessions and all that climb through them."""

    digest: str
    sessions: tuple[str, ...]
    request_id: str = declare_sparse("")
    """The request that was denied."""


@register_kind("denial_lifted")
@dataclass(frozen=True, slots=True)
class DenialLifted:
    """An owner lifted a person's denial: the same call is asked about again."""

    request_id: str
    """The request that was denied."""
    by: str
    """Who lifted it."""


@register_kind("decision_refused")
@dataclass(frozen=True, slots=True)
class DecisionRefused:
    """A person who does not own the tree answered a request or a question, which still waits."""

    request_id: str
    """The request, or the question."""
    by: Principal
    approve: bool
    """Whether it approved; false for a question."""
    surface: str = declare_sparse("")
    """As in ``approval_decided``."""


@register_kind("tool_always_allowed")
@dataclass(frozen=True, slots=True)
class ToolAlwaysAllowed:
    """The owner allowed later calls of a tool in this tree."""

    tool: str
    covers: tuple[str, ...] | None = None
    """Shapes of the commands that are allowed; None = every call."""


@register_kind("client_call_opened")
@dataclass(frozen=True, slots=True)
class ClientCallOpened:
    """A session's call waits for the creating program, or for a person if it is a question."""

    call: ClientCall


@register_kind("client_call_ended")
@dataclass(frozen=True, slots=True)
class ClientCallEnded:
    """A session's call no longer waits for the creating program or for a person."""

    client_id: str
    how: str
    """The call's outcome, or ``cancelled`` if its session stopped or ended."""
    answer_id: str
    """Id of the accepted answer; empty if none was accepted."""
    by: str = declare_sparse("")
    """Who gave it; empty = the creating program, or nobody."""
    surface: str = declare_sparse("")
    """Where it was given, as in ``approval_decided``; empty if none was accepted."""


@register_kind("posted")
@dataclass(frozen=True, slots=True)
class Posted:
    """A stimulus waits for a session until the session takes it."""

    post_id: str
    session: str
    stimulus: Recorded


@register_kind("posts_taken")
@dataclass(frozen=True, slots=True)
class PostsTaken:
    """The session took these stimuli."""

    session: str
    post_ids: tuple[str, ...]


@register_kind("usage_charged")
@dataclass(frozen=True, slots=True)
class UsageCharged:
    """A session's usage is charged to its account."""

    session: str
    account: str
    usage: Usage


@register_kind("budget_spent")
@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """An account reached its cap; the sessions that use it stop."""

    account: str
    limit: str
    used: float
    allowed: float


@register_kind("channel_said")
@dataclass(frozen=True, slots=True)
class ChannelSaid:
    """A session sent a message on a channel: its own or the nearest above it."""

    session: str
    channel: str
    """The session that owns the channel."""
    text: str
    at_ms: int = 0
    """When."""


@register_kind("message_passed")
@dataclass(frozen=True, slots=True)
class MessagePassed:
    """A session sent a message to a session below it or to its parent; it follows as ``posted``."""

    session: str
    to: str
    key: str
    """Identifies the message among those of its sender."""
    mode: str
    """``follow_up`` or ``steer``."""
    at_ms: int


@register_kind("canvas_changed")
@dataclass(frozen=True, slots=True)
class CanvasChanged:
    """A session changed its canvas."""

    session: str
    key: str
    """Identifies the call; a repeat of it changes nothing."""
    action: str
    """``present``, ``hide``, ``navigate``, ``a2ui_push`` or ``a2ui_reset``."""
    content: Mapping[str, JsonValue]
    """A page, or ``{ops}`` on surfaces in the form that all versions of A2UI share."""
    at_ms: int


@register_kind("canvas_acted")
@dataclass(frozen=True, slots=True)
class CanvasActed:
    """Somebody acted on a session's canvas; the action follows as ``posted``, as text from outside."""

    session: str
    key: str
    """Identifies the action; a repeat of it is not posted."""
    at_ms: int


@register_kind("vision_answered")
@dataclass(frozen=True, slots=True)
class VisionAnswered:
    """An agent's image model answered a question of a call; its usage follows as ``usage_charged``."""

    session: str
    key: str
    """Identifies the call; a repeat of it gets this answer."""
    model: str
    text: str
    """Text from outside: the model has seen the images. Empty = it said nothing."""
    usage: Usage
    at_ms: int


@register_kind("outside_hook_failed")
@dataclass(frozen=True, slots=True)
class OutsideHookFailed:
    """A hook failed in the creating program: at a spawn, or at a session's start or end."""

    session: str
    hook: str
    """Its name."""
    point: str
    reason: str


@register_kind("cancel_begun")
@dataclass(frozen=True, slots=True)
class CancelBegun:
    """These sessions, deepest last, were asked to stop; at ``force_at_ms`` they are ended by force."""

    sessions: tuple[str, ...]
    reason: str
    """The reason; with status ``completed``, the final message set for them (empty = their own)."""
    status: SessionStatus
    """Their final status."""
    force_at_ms: int
    cause: ResultCause = declare_sparse("")


@register_kind("changes_kept")
@dataclass(frozen=True, slots=True)
class ChangesKept:
    """A session with a workspace of its own has ended, and what it changed there is kept for its parent.

    The copy is removed after this fact.
    """

    session: str
    files: tuple[ChangedFile, ...]
    """By path."""
    digest: str
    """SHA-256 of the patch in hexadecimal; empty = it has none."""
    patch_bytes: int
    lost: str = ""
    """Why the changes could not be kept; empty = they were."""


@register_kind("changes_settled")
@dataclass(frozen=True, slots=True)
class ChangesSettled:
    """A parent has merged a child's changes into its own workspace, or discarded them."""

    session: str
    """The child."""
    state: str
    """``merged`` or ``discarded``."""
    at_ms: int


@register_kind("interrupt_begun")
@dataclass(frozen=True, slots=True)
class InterruptBegun:
    """These sessions, parents first, were asked to stop their work; they stay open."""

    sessions: tuple[str, ...]
    reason: str


@register_kind("cron_job_saved")
@dataclass(frozen=True, slots=True)
class CronJobSaved:
    """A timed job is new, or another one than before."""

    job: CronJob
    since_ms: int
    """Its slots up to this time are settled."""
    change: str
    """``added``, ``updated``, ``paused``, ``resumed`` or ``over``."""
    key: str
    """Identifies the change; empty = it can't be repeated."""
    wall_ms: int
    """When, by the machine's clock."""


@register_kind("cron_job_removed")
@dataclass(frozen=True, slots=True)
class CronJobRemoved:
    """A timed job was removed."""

    job_id: str
    key: str
    """As in ``cron_job_saved``."""
    wall_ms: int


@register_kind("cron_slot_claimed")
@dataclass(frozen=True, slots=True)
class CronSlotClaimed:
    """A slot of a job runs, now and never again; what it starts follows in this commit."""

    job_id: str
    run_id: str
    """Identifies the run; the session that it starts has ``cron:`` and this as its key."""
    slot_ms: int
    """The slot; of a run that was asked for, when it was."""
    how: SlotCause
    target: JobTarget
    announces: bool
    post_id: str
    """The message to Main; empty = it starts a session."""
    key: str
    """Identifies the request for a run; empty = nobody asked."""
    wall_ms: int


@register_kind("cron_slots_skipped")
@dataclass(frozen=True, slots=True)
class CronSlotsSkipped:
    """Slots of a job did not run, and never will."""

    job_id: str
    first_ms: int
    last_ms: int
    count: int
    is_exact: bool
    """False: there were more than ``count``."""
    reason: SlotEnd
    detail: str
    wall_ms: int


TreeFact: TypeAlias = (
    TreeCreated
    | TreeForked
    | SessionSpawned
    | SessionAdopted
    | SpawnDenied
    | SessionReactivated
    | SessionTainted
    | ResultHeld
    | ResultAwaited
    | SessionEnded
    | LeftoversEnded
    | ApprovalRequested
    | ApprovalStepRecorded
    | ApprovalWaiting
    | ApprovalDecided
    | DenialLifted
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
    | MessagePassed
    | CanvasChanged
    | CanvasActed
    | VisionAnswered
    | OutsideHookFailed
    | ChangesKept
    | ChangesSettled
    | CancelBegun
    | InterruptBegun
    | CronJobSaved
    | CronJobRemoved
    | CronSlotClaimed
    | CronSlotsSkipped
)
"""What the journal records of a tree and of who is in it."""

Fact: TypeAlias = SessionFact | TreeFact
"""Everything that a journal records, by its class: dispatch on it with ``match``."""
