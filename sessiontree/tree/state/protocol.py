"""The inputs and outputs of the tree machine: stimuli with their times, and instructions.

The controller carries out an instruction once the facts that led to it are durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.facts.rewind import ReplacedChild
from sessiontree.contracts.facts.stimuli import SendMode, Stimulus, TreeEvent
from sessiontree.contracts.facts.tree_config import TreeConfig, Via
from sessiontree.contracts.facts.tree_facts import (
    ChangesKept,
    ChangesSettled,
    OutsideHookFailed,
    VisionAnswered,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus, Wait, WorkspaceChoice
from sessiontree.contracts.recorded.approvals import Precedent, Rule
from sessiontree.contracts.recorded.child_workspaces import WorkspaceCopy
from sessiontree.contracts.recorded.cron import JobChange
from sessiontree.contracts.recorded.programs import ProgramCall
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TreeOpened:
    """A new tree begins, with its Main."""

    at_ms: int
    config: TreeConfig


@dataclass(frozen=True, slots=True)
class ForkAsked:
    """From now on the tree is one of its own; the facts before are those of another one."""

    at_ms: int
    config: TreeConfig
    shift_ms: int
    """Time since the last shared fact, in milliseconds; it is not counted."""
    replaced: tuple[ReplacedChild, ...] = ()
    """Children whose places new ones take, with another task."""


@dataclass(frozen=True, slots=True)
class SpawnAsked:
    """A session, or the creating program on its behalf, asks for a child."""

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
    """Time to live in seconds; None = the kind's default. A spawn via a model may only shorten it."""
    dedicated: bool = False
    """Whether it gets a host of its own for life; only for spawns by the creating program."""
    asked_by: tuple[Principal, ...] = ()
    """The principals the parent acts for; empty = the creating program."""
    stays_open: bool = False
    """Whether it completes only after its result is requested; only for spawns by the creating program."""
    settings: ModelSettings | None = None
    """Settings of its model; None = those of its agent."""
    skills: tuple[str, ...] | None = None
    """Names of the skills it may read, all of them its parent's; None = those that its agent names, too."""
    forbidden: str | None = None
    """Why the tree's hooks refuse the spawn; None = they do not. They run where the spawn is requested."""
    wait: Wait = ""
    """When the child's result makes its parent's model continue."""
    workspace: WorkspaceChoice | None = None
    """Where the child works; None = as its agent or the tree says."""
    copy: WorkspaceCopy | None = None
    """The copy that was made for it before, if it is to have one (``tree.spawn.needs_copy``)."""
    first_call: ProgramCall | None = None
    """The program that it runs instead of asking a model."""


@dataclass(frozen=True, slots=True)
class SessionEmbodied:
    """A host starts to run a session, possibly not for the first time."""

    at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class Stirred:
    """A session received new input from outside the tree (a message, a call)."""

    at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class ResultAsked:
    """The creating program requests a session's result and waits for it."""

    at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class FromSession:
    """A session sent an event; the controller sets session and time, not the sender."""

    at_ms: int
    session: str
    event: TreeEvent
    quiet: bool = True
    """For an offered result: whether no input for the session is on its way. It is set when this stimulus
    is made, after the session's consumed posts were reported."""
    precedent: Precedent | None = None
    """For a requested approval: what is known about the command the call runs; None = it runs no command."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """A session cannot continue: its code failed or its host was lost."""

    at_ms: int
    session: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A person (or the program in a person's place) answered a shown request, or failed to; see ``by``."""

    at_ms: int
    request_id: str
    approve: bool
    always: bool
    by: str
    reason: str
    asker: Principal | None = None
    """The person, if a channel identifies them; None = an owner, such as the creating program."""
    surface: str = ""
    """Where it was answered."""


@dataclass(frozen=True, slots=True)
class LiftAsked:
    """An owner lifts the denial of a request."""

    at_ms: int
    request_id: str
    by: str


@dataclass(frozen=True, slots=True)
class UsageReported:
    """A session used resources."""

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

    With ``completed``, its owner finishes the session: ``reason`` is its final message (empty: its own),
    and the sessions that still run below it are cancelled.
    """

    at_ms: int
    session: str
    reason: str
    status: SessionStatus = SessionStatus.CANCELLED
    by: str | None = None
    """The session whose tool asks; None = the creating program. A session stops only sessions below it, each
    by its id, or a live child by its label."""


@dataclass(frozen=True, slots=True)
class InterruptAsked:
    """A session and everything below it is to drop its current work; the session itself stays alive."""

    at_ms: int
    session: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChannelMessageAsked:
    """A session wants to send a message on the nearest channel at or above it."""

    at_ms: int
    session: str
    text: str


@dataclass(frozen=True, slots=True)
class SendAsked:
    """A session wants to send a message to a session below it or to its parent."""

    at_ms: int
    session: str
    to: str
    """Id of the session, label of a live child, or ``parent``."""
    text: str
    mode: SendMode
    key: str
    """Identifies the message; a repeat with the same key sends nothing."""
    asked_by: tuple[Principal, ...] = ()
    """The principals the session acts for; empty = the creating program."""


@dataclass(frozen=True, slots=True)
class CanvasAsked:
    """A session wants to change its canvas."""

    at_ms: int
    session: str
    key: str
    """Identifies the call; a repeat with the same key changes nothing."""
    action: str
    """As in the fact ``canvas_changed``."""
    content: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class CanvasActionSent:
    """A frame that shows a session's canvas sent an action."""

    at_ms: int
    session: str
    key: str
    """Identifies the action; a repeat with the same key posts nothing."""
    text: str
    """What the session reads: marked as text from outside."""


@dataclass(frozen=True, slots=True)
class VisionReported:
    """An image model answered a question of a session."""

    at_ms: int
    answered: VisionAnswered


@dataclass(frozen=True, slots=True)
class LeftoversFound:
    """A session left a host on which processes of its tools still ran; those processes were ended."""

    at_ms: int
    session: str
    count: int


@dataclass(frozen=True, slots=True)
class HookFailedOutside:
    """A hook failed in the creating program."""

    at_ms: int
    failed: OutsideHookFailed


@dataclass(frozen=True, slots=True)
class ChangesFound:
    """What a session changed in a workspace of its own is kept."""

    at_ms: int
    kept: ChangesKept


@dataclass(frozen=True, slots=True)
class SettleAsked:
    """A parent has merged or discarded a child's changes."""

    at_ms: int
    settled: ChangesSettled


@dataclass(frozen=True, slots=True)
class ClockRang:
    """A time at which the machine asked to be woken has come."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class JobsRang:
    """A slot of a timed job may have come."""

    at_ms: int
    wall_ms: int
    """The machine's time. It may step back, and ahead; the tree's own time does not."""


@dataclass(frozen=True, slots=True)
class JobAsked:
    """Main, the creating program or a person asks for a change of timed jobs."""

    at_ms: int
    wall_ms: int
    change: JobChange
    key: str = ""
    """Identifies the change; a repeat with the same key changes nothing. Empty = it is not repeated."""
    asked_by: tuple[Principal, ...] = ()
    """Those for whom Main asks; empty = the creating program."""
    taint: str = ""
    """Source of the untrusted text that the asker has read; empty = none."""


TreeStimulus: TypeAlias = (
    TreeOpened
    | ForkAsked
    | SpawnAsked
    | SessionEmbodied
    | Stirred
    | ResultAsked
    | FromSession
    | SessionLost
    | Decided
    | LiftAsked
    | UsageReported
    | PostsConsumed
    | StopAsked
    | InterruptAsked
    | ChannelMessageAsked
    | SendAsked
    | CanvasAsked
    | CanvasActionSent
    | VisionReported
    | HookFailedOutside
    | LeftoversFound
    | ChangesFound
    | SettleAsked
    | ClockRang
    | JobsRang
    | JobAsked
)


@dataclass(frozen=True, slots=True)
class AcceptSpawn:
    """Tell the caller the child's id; ``started`` is False if the same key was used before."""

    session: str
    started: bool


@dataclass(frozen=True, slots=True)
class RefuseSpawn:
    """Tell the caller why the spawn is refused."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver a posted stimulus to a session; it stays posted until the session takes it."""

    session: str
    post_id: str
    stimulus: Stimulus


@dataclass(frozen=True, slots=True)
class RefuseDecision:
    """Tell the person who answered that the request is closed or unknown."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class RefuseChannelMessage:
    """Tell the caller why the message is not sent."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class AcceptSessionMessage:
    """Tell the session that asked which session its message goes to."""

    session: str


@dataclass(frozen=True, slots=True)
class RefuseStop:
    """Tell the session that asked why it can't stop another."""

    error: SessionTreeError


@dataclass(frozen=True, slots=True)
class ReleaseSession:
    """The session is over: free its host (``force``: even a busy one) and inform those who wait for it."""

    session: str
    result: SessionResult[Any]
    force: bool


@dataclass(frozen=True, slots=True)
class WakeTreeAt:
    """Ring at this time; earlier timers stay."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class WatchJobs:
    """Ring when the next slot of a timed job comes; times set before no longer count."""


@dataclass(frozen=True, slots=True)
class AcceptJob:
    """Tell the caller which job was changed, and which run was begun."""

    job_id: str
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class RefuseJob:
    """Tell the caller why no job was changed."""

    error: SessionTreeError


TreeInstruction: TypeAlias = (
    AcceptSpawn
    | RefuseSpawn
    | Deliver
    | RefuseDecision
    | RefuseChannelMessage
    | AcceptSessionMessage
    | RefuseStop
    | ReleaseSession
    | WakeTreeAt
    | WatchJobs
    | AcceptJob
    | RefuseJob
)
