"""What supervisor and host say to each other. Frames are numbered per link; both sides drop repeats.

A host hears ``Adopt``, ``Feed``, ``Release``, ``Kill``, ``Reask``, ``Proceed`` and ``Watch``; it answers with
``Outcome``, ``Unfit`` and ``Left``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.messages import Message
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.contracts.usage import Usage
from sessiontree.journal.record import Packed
from sessiontree.models.port import ToolSpec
from sessiontree.runtime.progress import Progress
from sessiontree.session.instructions import SessionInstruction


@dataclass(frozen=True, slots=True)
class Adopt:
    """Embody a session: rebuild it from its facts, then take what is fed."""

    tree_id: str
    session: str
    epoch: int
    spec: SessionSpec
    limits: Limits
    config: AgentConfig
    workspace: str
    model: str
    facts: tuple[str, ...]
    """All its journaled facts as JSON texts, oldest first."""
    recovered: bool
    """Whether the last host was lost, so that what it owed must be done again."""
    metered: bool = False
    """Whether a budget counts its replies: then an instant model is asked after what was used is charged."""
    grant: str = ""
    """What the session's handles show to the supervisor."""
    watched: bool = False
    """Whether somebody watches the tree's progress."""
    equipment: str = ""
    """Names the tools and model the tree was opened with here."""
    id_key: str = ""
    """What the ids it gives away are made with; empty in a tree of an earlier release."""
    clock_offset_ms: int | None = None
    """Sets the host's clock by its tree's; None = the host has its own."""
    has_channel: bool = True
    """Whether the session or one above it has a channel."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Take these stimuli in, in order; each is counted as taken once its facts are reported."""

    session: str
    epoch: int
    causes: tuple[str, ...]
    stimuli: tuple[Stimulus, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of an idle session."""

    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Let go of a session whatever it is doing; its work is stopped, nothing more of it is reported."""

    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Reask:
    """Ask the model again, with the whole conversation: the gateway does not hold it."""

    session: str
    epoch: int
    turn: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """Everything used so far is charged: ask the instant model of this turn."""

    session: str
    epoch: int
    turn: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Report a tree's progress from now on, or no more."""

    tree_id: str
    watched: bool


Frame: TypeAlias = Adopt | Feed | Release | Kill | Reask | Proceed | Watch


@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """The part of a question that stays the same from turn to turn."""

    system_prompt: str
    tools: tuple[ToolSpec, ...]
    result_schema: Mapping[str, JsonValue] | None


@dataclass(frozen=True, slots=True)
class AskModel:
    """A question for the gateway: the messages after the first ``base`` ones, which it holds already."""

    turn: int
    base: int
    messages: tuple[Message, ...]
    prompt: ModelPrompt | None
    """Given with ``base`` 0."""
    unseen: bool = False
    """Whether nobody is shown the reply while it is made: hooks have the first look at it."""


@dataclass(frozen=True, slots=True)
class MeterTurn:
    """Charge what was used so far, then answer Proceed, if the budget lets the session live."""

    turn: int


HostInstruction: TypeAlias = SessionInstruction | AskModel | MeterTurn


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a session's step, or of a part of it."""

    session: str
    epoch: int
    taken: int
    """Stimuli fed in this epoch whose facts are all reported by now."""
    facts: tuple[Packed, ...]
    instructions: tuple[HostInstruction, ...]
    idle: bool
    """Nothing of the session runs on the host: it could be released."""
    usage: Usage | None
    """Used since the last outcome."""
    crash: str | None
    """Why the session cannot go on, when its code failed; facts not yet reported are lost with it."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """The host can't embody the session, though a later one may: it was confined too early."""

    session: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """A session has left the host, and what its tools had left running was ended."""

    session: str
    epoch: int
    ended: int
    """Processes that were ended, at least one."""


@dataclass(frozen=True, slots=True)
class PollReply:
    """What a host answers to a poll."""

    received: int
    """Number of the last frame taken, all earlier ones included."""
    outcomes: tuple[tuple[int, Any], ...]
    """Outcomes after the number asked for, in order, each with its number."""
    progress: tuple[Progress, ...] = ()
    """What was seen since the last poll of trees that are watched; lossy."""
    stained: bool = False
    """Whether work that could not be stopped may still run there: the host serves no other session."""
