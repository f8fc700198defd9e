"""The interface of a supervisor, for the program, for other processes and for Ray, and its values.

Every argument and every answer is a plain value. A method that peers of the control socket may call says so
with ``for_peers``; the others are for the creating program alone. To add a question, declare it here in the
interface of its subject, and implement it in the file of that subject in ``runtime/supervisor/answers``. Then
every port serves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final, Protocol, TypeAlias

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, Timeout, ToolError, ValidationError
from sessiontree.contracts.facts.session_facts import RunFailure
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import PermissionTier, SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.canvas import CanvasQuestion
from sessiontree.contracts.recorded.client_calls import ClientAnswer, ClientCall
from sessiontree.contracts.recorded.cron import JobAction, JobRow
from sessiontree.contracts.recorded.questions import PEER_SURFACES, QuestionReply, QuestionRequest
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.tools.author_errors import find_cause, read_frames
from sessiontree.contracts.values.jsonable import JsonValue, parse_json
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolReply, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.rpc import (
    Count,
    PeerDefault,
    PeerName,
    ProgramOnly,
    Without,
    Words,
    allow,
    limit,
    rpc,
)
from sessiontree.tree.report import ReceiptLine
from sessiontree.tree.state.protocol import SpawnAsked

MAX_READ: Final = 512
"""Most facts that one read returns to a peer of the control socket."""
MAX_READ_WAIT_S: Final = 20.0
"""Longest time that one read of a peer waits for the first fact."""
Again = Annotated[bool, ProgramOnly]
"""True: this call may have been carried out already, by a supervisor that was lost before it answered."""
WaitSeconds = Annotated[float, limit(MAX_READ_WAIT_S)]
PersonsAnswer = Annotated[ApprovalAnswer, Without(("sender",))]
"""A peer answers as itself: it can't name somebody else as who answered."""
PersonsReply = Annotated[QuestionReply, Without(("sender",))]
"""As for an approval: a peer answers a question as itself."""
AnsweredAt = Annotated[str, allow(*PEER_SURFACES), PeerDefault(PEER_SURFACES[0])]
"""Where a person answered; the program's own answers are given in the program."""
PersonsEnding = Annotated[SessionStatus, allow(SessionStatus.CANCELLED, SessionStatus.COMPLETED)]
PersonsChange = Annotated[JobAction, allow("pause", "resume", "run", "remove")]
"""What can be done to a timed job as it is; its text and its times are the model's and the program's."""


@dataclass(frozen=True, slots=True)
class ActorRow:
    """One process of a runtime, and the session that it embodies now."""

    name: str
    role: str
    """``supervisor``, ``gateway``, or the pool a host belongs to."""
    pid: int
    """0 while it starts."""
    confinement: str
    tree_id: str | None = None
    """None = it embodies no session."""
    session: str | None = None
    epoch: int = 0
    node: str = ""
    """Name of its node; empty = the supervisor's."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The final message that answers a message, or why it is missing."""

    text: str
    error: str | None
    interrupted: bool = False
    """Whether the answer is missing because the session was interrupted."""
    failure: RunFailure = ""


@dataclass(frozen=True, slots=True)
class CallReply:
    """The result of a call that a session made outside its transcript."""

    outcome: str
    message: ToolResultMessage


def unwrap_reply(reply: CallReply) -> ToolReply:
    """Return the result of a successful call.

    Raises:
        ValidationError, PermissionDenied, Timeout, ExecutionError: the call failed with this error.
    """
    message = reply.message
    if not message.is_error:
        text = message.text
        # The first block is the output; other texts are about images.
        said = next((block.text for block in message.content if isinstance(block, TextContent)), "")
        try:
            output = parse_json(said)
        except ValueError:
            output = said
        return ToolReply(output, text, message.details, message.content)
    error = _make_error(reply.outcome, message)
    cause = find_cause(str(error))
    if cause is None and (frames := read_frames(message)):  # it was raised in another process
        error.add_note("\n  ".join(("raised in the author's code:", *frames)))
    raise error from cause


def _make_error(outcome: str, message: ToolResultMessage) -> ToolError:
    envelope = _read_envelope(message.text)
    text = envelope.get("error") or envelope.get("reason") or message.text
    code = message.details.get("code") if isinstance(message.details, dict) else None
    if outcome == "invalid" or code == ValidationError.code:
        return ValidationError(text, envelope.get("field"))
    if outcome in {"denied", "blocked"} or code == PermissionDenied.code:
        named = [tier for tier in PermissionTier if tier.label == envelope.get("tier")]
        return PermissionDenied(named[0] if named else PermissionTier.ELEVATED, text)
    if (outcome == "timeout" or code == Timeout.code) and isinstance(message.details, dict):
        return Timeout(_to_seconds(message.details.get("elapsed")), message.tool_name)
    return ExecutionError(text)


def _read_envelope(text: str) -> dict[str, str]:
    """Return the texts of an error's envelope; empty if a hook has replaced it."""
    try:
        envelope = parse_json(text)
    except ValueError:
        return {}
    if not isinstance(envelope, dict):
        return {}
    return {name: value for name, value in envelope.items() if isinstance(value, str)}


def _to_seconds(elapsed: object) -> float:
    return float(elapsed) if isinstance(elapsed, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class RequestOpened:
    """A request waits for a person."""

    request: ApprovalRequest


@dataclass(frozen=True, slots=True)
class RequestClosed:
    """A request does not wait any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class MessageSaid:
    """A message was sent to a session's channel."""

    channel: str
    text: str


@dataclass(frozen=True, slots=True)
class ClientCallArrived:
    """A call waits for the program."""

    call: ClientCall


@dataclass(frozen=True, slots=True)
class CodeRaised:
    """A tool or a model of the program raised an unexpected exception. It is reported once, to one reader."""

    what: str
    """What raised it, in which session."""
    frames: tuple[str, ...]
    """Lines of ``path:line in function: source``, outermost first."""


@dataclass(frozen=True, slots=True)
class QuestionOpened:
    """A question waits for a person."""

    question: QuestionRequest


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question does not wait any more."""

    question_id: str


InboxEvent: TypeAlias = (
    RequestOpened
    | RequestClosed
    | QuestionOpened
    | QuestionClosed
    | MessageSaid
    | ClientCallArrived
    | CodeRaised
)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session's own durable facts, and what they are read with."""

    spec: SessionSpec
    limits: Limits
    facts: tuple[str, ...] = field(metadata={"streamed": True})
    """JSON texts, oldest first."""
    next_seq: int = 0
    """The number to continue reading after; 0 = these are the newest."""


class SessionApi(Protocol):
    """What is done with one session, and what it reports."""

    @rpc(for_peers=True, in_order=True)
    async def send(  # noqa: PLR0913 - what a message is, in the order of the wire
        self,
        tree_id: str,
        session: str,
        text: Words,
        mode: SendMode,
        message_id: Words,
        sender: Annotated[Sender | None, ProgramOnly] = None,
        settings: Annotated[ModelSettings | None, ProgramOnly] = None,
        images: Annotated[tuple[ImageContent, ...], ProgramOnly] = (),
        again: Again = False,
    ) -> Reply:
        """Send a message to a session; returns the session's reply to it.

        The supervisor looks up whether the sender owns the tree; None = the creating program itself speaks.
        """
        ...

    @rpc(for_peers=True, in_order=True)
    async def call(
        self,
        tree_id: str,
        session: str,
        call_id: Words,
        tool: Words,
        arguments: Mapping[str, JsonValue],
        again: Again = False,
    ) -> CallReply:
        """Have a session make one call outside its transcript."""
        ...

    @rpc(in_order=True)
    async def spawn(self, tree_id: str, asked: SpawnAsked) -> str:
        """Spawn a session; returns its id once it is durable."""
        ...

    @rpc(for_peers=True, urgent=True)
    async def stop(
        self, tree_id: str, session: str, reason: str, status: PersonsEnding = SessionStatus.CANCELLED
    ) -> tuple[ReceiptLine, ...]:
        """End a session and everything below it; returns how each of them ended."""
        ...

    @rpc(for_peers=True, in_order=True, urgent=True)
    async def interrupt(self, tree_id: str, session: str, reason: str) -> tuple[ReceiptLine, ...]:
        """Have a session and everything below it stop what they do; returns the state of each afterwards.

        Returns once whatever ran there has stopped or was abandoned. The session lives on.
        """
        ...

    @rpc(for_peers=True, waits=True)
    async def result(self, tree_id: str, session: str) -> SessionResult[Any]:
        """Return a session's result, waiting for its end; a peer gets its output as plain JSON."""
        ...

    @rpc(for_peers=True)
    async def record_of(
        self, tree_id: str, session: str, after_seq: Count = 0, max_n: Count = 0
    ) -> SessionRecord:
        """Return at most ``max_n`` of a session's durable facts after a number; 0 = all of them.

        Raises:
            SessionNotFound: the session does not exist.
        """
        ...

    @rpc(for_peers=True)
    async def report(self, tree_id: str, session: str) -> SessionReport:
        """Return a session's state.

        Raises:
            SessionNotFound: the session does not exist.
        """
        ...

    @rpc(for_peers=True)
    async def room(self, tree_id: str, session: str) -> int:
        """Return how many more children a session may have now."""
        ...


class PersonApi(Protocol):
    """What waits for a person or for the creating program, and their answers."""

    @rpc(for_peers=True, urgent=True)
    async def decide(
        self,
        tree_id: str,
        request_id: str,
        answer: PersonsAnswer,
        by: Annotated[str, PeerName] = "person",
        again: Again = False,
        surface: AnsweredAt = "program",
    ) -> None:
        """Answer an approval request. The journal names ``by``, or the sender of the answer, as who answered.

        It also names the ``surface`` where it was answered.

        Raises:
            AnswerTooLate: it was decided before, or is of no use any more: the session that asked was
                stopped before the yes was durable.
            PermissionDenied: whoever answered is not an owner; the request still waits.
        """
        ...

    @rpc(for_peers=True, urgent=True)
    async def lift_denial(
        self, tree_id: str, request_id: str, by: Annotated[str, PeerName] = "person"
    ) -> None:
        """Lift a person's denial of a request: the same call is asked about again. The journal names ``by``.

        Raises:
            AnswerTooLate: no denial of this request holds.
        """
        ...

    @rpc(for_peers=True, urgent=True)
    async def answer_question(
        self,
        tree_id: str,
        question_id: str,
        reply: PersonsReply,
        answer_id: Words,
        by: Annotated[str, PeerName] = "person",
        again: Again = False,
        surface: AnsweredAt = "program",
    ) -> None:
        """Answer a question for a person; durable when this returns. ``by`` and ``surface`` as for decisions.

        Raises:
            AnswerTooLate: it was answered before, expired, or its session stopped.
            PermissionDenied: whoever answered is not an owner; the question still waits.
            ValidationError: an answer does not fit its question, which still waits.
        """
        ...

    @rpc(for_peers=True, urgent=True)
    async def answer(
        self, tree_id: str, client_id: str, answer: ClientAnswer, answer_id: Words, again: Again = False
    ) -> None:
        """Answer a call of a client tool.

        Raises:
            AnswerTooLate: it does not wait for an answer, or not in this tree.
            ValidationError: the answer can't be its result; it still waits.
        """
        ...

    @rpc(for_peers=True)
    async def pending(self, tree_id: str) -> list[ApprovalRequest]:
        """Return the requests that wait for a person, oldest first."""
        ...

    @rpc(for_peers=True)
    async def shown(self, tree_id: str, request_id: str) -> ApprovalRequest | None:
        """Return a request that waits for a person; None = it does not wait, or not any more."""
        ...

    @rpc(for_peers=True)
    async def list_pending_questions(self, tree_id: str) -> list[QuestionRequest]:
        """Return the questions that wait for a person, oldest first."""
        ...

    @rpc(for_peers=True)
    async def client_calls(self, tree_id: str) -> list[ClientCall]:
        """Return the calls that wait for the creating program, in the order they were handed over."""
        ...


class CanvasApi(Protocol):
    """What frames that show a session's canvas send, and what they are asked."""

    @rpc(for_peers=True, urgent=True)
    async def act_on_canvas(
        self, tree_id: str, session: str, action: Mapping[str, JsonValue], action_id: Words
    ) -> None:
        """Send the session an action of a frame that shows its canvas, as text from outside.

        Durable when this returns; a repeat with the same id sends nothing.

        Raises:
            ExecutionError: the session shows no canvas, reads no more, or has too much to read.
            ConfigError: the action is too long.
        """
        ...

    @rpc(for_peers=True, urgent=True)
    async def answer_canvas(self, tree_id: str, question_id: str, text: str) -> None:
        """Answer a question to a frame, as JSON text; nothing happens if nobody waits for it any more."""
        ...

    @rpc(for_peers=True, urgent=True)
    async def leave_canvas(self, tree_id: str, session: str, viewer: str) -> None:
        """Note that a frame no longer shows a session's canvas."""
        ...

    @rpc(for_peers=True, waits=True)
    async def await_canvas_question(
        self, tree_id: str, session: str, viewer: Words, wait_s: WaitSeconds
    ) -> CanvasQuestion | None:
        """Wait for a question to a frame that shows a session's canvas; None = none came."""
        ...


class FactApi(Protocol):
    """Durable facts, as they come."""

    @rpc(for_peers=True, waits=True)
    async def read(
        self, tree_id: str, after_seq: Count, max_n: Annotated[int, limit(MAX_READ)], wait_s: WaitSeconds
    ) -> list[JournalRecord]:
        """Return durable facts after a number, waiting for the first."""
        ...

    @rpc(for_peers=True, waits=True)
    async def read_tree(self, tree_id: str, after_seq: Count, wait_s: WaitSeconds) -> list[JournalRecord]:
        """Return the tree's own durable facts after a number, waiting for the first.

        Any number of readers may wait, and each of them gets all of the facts.
        """
        ...

    @rpc(waits=True)
    async def read_inbox_events(
        self, tree_id: str, after_seq: int, wait_s: float
    ) -> tuple[int, list[InboxEvent]]:
        """Return the last fact's number, and what the facts after a number mean to an inbox."""
        ...

    @rpc(for_peers=True)
    async def last_seq(self, tree_id: str) -> int:
        """Return the number of a tree's newest fact."""
        ...


class TreeApi(Protocol):
    """Whole trees."""

    @rpc(in_order=True)
    async def fork(
        self, tree_id: str, at: int | None, new_tree_id: str, nonce: str, replaced: Mapping[str, str]
    ) -> None:
        """Write a new tree that shares the first facts of another one; durable when this returns.

        A repeat with the same new id changes nothing. ``at`` is the last shared fact; None = the newest.

        Raises:
            ConfigError: no tree can be forked there.
        """
        ...

    @rpc()
    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration.

        Raises:
            TreeNotFound: the journal has no tree of that id.
        """
        ...

    @rpc(for_peers=True, in_order=True, urgent=True)
    async def change_job(self, tree_id: str, job_id: Words, action: PersonsChange, key: Words) -> JobRow:
        """Change a timed job of a tree with the owner's rights; durable when this returns.

        A repeat with the same key changes nothing. Returns the job afterwards, or as it was when removed.

        Raises:
            ExecutionError: no job has the id, or it can't be done to it now.
        """
        ...

    @rpc(urgent=True)
    async def hook_failed(self, tree_id: str, session: str, hook: str, point: str, reason: str) -> None:
        """Record that a hook failed in the creating program; durable when this returns."""
        ...

    @rpc(for_peers=True)
    async def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree with its state."""
        ...

    @rpc()
    async def measure_waited_s(self, tree_id: str) -> float:
        """Return how long a tree did nothing but wait for hosts, rate limiters and retries, in seconds.

        Counted since this supervisor holds the tree.
        """
        ...

    @rpc(for_peers=True)
    async def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        ...

    @rpc()
    async def is_ending(self, tree_id: str) -> bool:
        """Whether Main has ended, or was stopped and is about to end."""
        ...


class RuntimeApi(Protocol):
    """The runtime: its open trees, its processes, and its protection."""

    @rpc(for_peers=True)
    async def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open here."""
        ...

    @rpc(for_peers=True)
    async def open_trees(self) -> list[str]:
        """Return the ids of all open trees, in the order they were opened."""
        ...

    @rpc(urgent=True)
    async def live_sessions(self) -> int:
        """Return how many sessions of all open trees have not ended."""
        ...

    @rpc(for_peers=True)
    async def actors(self) -> list[ActorRow]:
        """Return every process of the runtime, and the session that it embodies."""
        ...

    @rpc(for_peers=True)
    async def security(self) -> Mapping[str, JsonValue] | None:
        """Return what protects the engine that the runtime runs on; None = it runs without an engine.

        It is looked up for each question, in a thread.
        """
        ...


class SupervisorApi(SessionApi, PersonApi, CanvasApi, FactApi, TreeApi, RuntimeApi, Protocol):
    """Questions about open trees, and what can be done to them. Errors are the tree's typed ones."""
