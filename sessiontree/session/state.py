"""The state of one session: everything its rules look at, and nothing else.

Only ``evolve`` changes it. Members a call or a ledger entry has are the journal's words for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.messages import Message, ToolCall, UserMessage
from sessiontree.contracts.results import Artifact
from sessiontree.contracts.senders import Principal, joined
from sessiontree.contracts.session_ids import SessionIds
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.usage import Usage

CallPhase: TypeAlias = Literal["open", "held", "asking", "approved", "intended", "delegated"]


@dataclass(slots=True)
class CallState:
    """One tool call that has no final result yet."""

    key: str
    """``<turn>.<index>``, or ``call.<id>`` outside the transcript; unique in the session."""
    call: ToolCall
    phase: CallPhase = "open"
    outside: bool = False
    """Asked by the creating program; its result goes there and not into the transcript."""
    parked: bool = False
    """The model has a pending envelope as its result; the outcome comes as a notice."""
    tool: str = ""
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    digest: str = ""
    tier: int = 0
    repeatable: bool = False
    request_id: str = ""
    asked_at_ms: int = 0
    """When it began to wait for somebody: an approval, or the program's answer."""
    client_id: str = ""
    """Its id to the creating program, which is to answer it; empty = it is another's to run."""
    expires_at_ms: int = 0
    """When the program's time for it is over."""
    asked_by: tuple[Principal, ...] = ()
    """Whom it is made for; empty = the creating program."""
    cut: bool = False
    """Whether the session was interrupted since it began: it is begun no more, and its end wakes nobody."""


@dataclass(slots=True)
class Attempts:
    """The retry ledger's entry of one tool: failed attempts since its last valid call."""

    count: int
    turn: int
    digest: str
    refused: bool


@dataclass(slots=True)
class Waiting:
    """A message that waits for the next turn."""

    message_id: str
    message: UserMessage
    steer: bool
    wakes: bool
    asked_by: tuple[Principal, ...] = ()


@dataclass(slots=True)
class Consultation:
    """A request this session's approver function is asked about."""

    requester: str
    tool: str
    arguments: Mapping[str, JsonValue]
    tier: str
    asked_by: tuple[Principal, ...] = ()


@dataclass(slots=True)
class SessionState:
    """One session. ``calls`` holds the open reply's calls in reply order, and late and outside ones."""

    spec: SessionSpec
    limits: Limits
    ids: SessionIds
    """Makes the ids that leave the tree."""
    system_prompt: str | None = None
    tools: tuple[str, ...] = ()
    model: str = ""
    transcript: list[Message] = field(default_factory=list)
    inbox: list[Waiting] = field(default_factory=list)
    turn: int = 0
    """Model calls so far."""
    run_turns: int = 0
    """Model calls since the last new message."""
    asking: bool = False
    """Whether the model was asked and has not replied."""
    owes_turn: bool = False
    """Whether the transcript ends in something the model has not seen."""
    reply_keys: tuple[str, ...] = ()
    """Keys of the last reply's calls, until all of them have a result in the transcript."""
    results: dict[str, Message] = field(default_factory=dict)
    """Results of the open reply that wait for their place in the transcript."""
    calls: dict[str, CallState] = field(default_factory=dict)
    ledger: dict[str, Attempts] = field(default_factory=dict)
    result_attempts: int = 0
    unanswered: list[str] = field(default_factory=list)
    """Ids of messages the next last word answers."""
    heard: dict[str, None] = field(default_factory=dict)
    """Ids of messages and keys of outside calls taken, newest last; the oldest beyond a bound are gone."""
    consultations: dict[str, Consultation] = field(default_factory=dict)
    artifacts: list[Artifact] = field(default_factory=list)
    reported: Usage = Usage()
    """What the model said it used."""
    replies: int = 0
    calls_made: int = 0
    interrupted: bool = False
    """Whether it was interrupted and nobody has said anything to it since."""
    stopping: str | None = None
    """Status the session is to end with, once it was told to stop."""
    stop_reason: str = ""
    asked_by: tuple[Principal, ...] = ()
    """Whom the newest turn acts for; empty = the creating program."""
    taint: str = ""
    """Where untrusted text came from that it has taken in; empty = it has taken in none."""
    offer: tuple[str, str, JsonValue] | None = None
    """Last word that ends the session: status, summary, output; None while there is something to do."""

    @property
    def steered(self) -> bool:
        """Whether a steering message waits."""
        return any(waiting.steer for waiting in self.inbox)

    @property
    def usage(self) -> Usage:
        """What the session used so far."""
        used = self.reported
        return Usage(used.input_tokens, used.output_tokens, used.cost_usd, self.replies, self.calls_made)

    @property
    def in_turn(self) -> bool:
        """Whether the model is asked or its reply's calls are not all settled."""
        return self.asking or self.owes_turn or bool(self.reply_keys)

    @property
    def acting_for(self) -> tuple[Principal, ...]:
        """Everybody that work under way is done for, calls that wait included."""
        own = self.asked_by if self.in_turn else ()
        return joined(own, *(call.asked_by for call in self.calls.values()))


def initial(spec: SessionSpec, limits: Limits, id_key: str = "") -> SessionState:
    """Return the state of a session nothing has happened to; ``id_key`` as its tree's nonce gives it."""
    return SessionState(spec, limits, SessionIds(spec.session_id, id_key), taint=spec.taint)
