"""The messages between supervisor and host. They are numbered per link; both sides drop repeats.

A host receives ``Adopt``, ``Feed``, ``Release``, ``Kill``, ``ResendPrompt``, ``ContinueTurn`` and ``Watch``.
It sends ``Outcome``, ``HostUnsuitable``, ``SessionReturned`` and ``SessionLeft``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.settings.model_settings import NO_SETTINGS, ModelSettings
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Message, Usage
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass
from sessiontree.journal.record import Packed
from sessiontree.models.port import ToolSpec
from sessiontree.runtime.transport.progress import Progress
from sessiontree.session.instructions import SessionInstruction


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Adopt:
    """Embody a session: rebuild it from its facts, then take the stimuli that ``Feed`` brings."""

    tree_id: str
    session: str
    epoch: int
    spec: SessionSpec
    limits: Limits
    config: AgentConfig
    workspace: str
    model: str
    facts: tuple[str, ...]
    """All facts of the session in the journal, as JSON texts, oldest first."""
    recovered: bool
    """Whether its last host was lost: this host repeats the work that the lost one had begun."""
    metered: bool = False
    """Whether a budget counts its replies; an instant model is then asked only after the charge."""
    grant: str = ""
    """The token by which the supervisor identifies the session's handles."""
    watched: bool = False
    """Whether somebody watches the tree's progress."""
    equipment: str = ""
    """Names the tools and model the tree was opened with here."""
    id_key: str = ""
    """The key from which the session derives ids."""
    clock_offset_ms: int | None = None
    """Offset of the tree's clock, which the session uses; None = it uses the host's own clock."""
    has_channel: bool = True
    """Whether the session or one above it has a channel."""
    guidance: str = ""
    """What the system prompt of a new session says of the workspace, if the session may read files."""
    kept: int = 0
    """The epoch at whose end the host kept the session's state, which is current: no facts are sent then. A
    host that does not have it lets the session go. 0 = the facts are the state."""
    denied_in: str = ""
    """Where it is said that its System calls are refused, as an error says it; empty = nowhere."""
    stale: tuple[tuple[str, int], ...] = ()
    """States of sessions, each with the epoch at whose end the host kept it, that nobody will ask for."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Feed:
    """Process these stimuli in order. A stimulus counts as taken once its facts are reported."""

    session: str
    epoch: int
    causes: tuple[str, ...]
    stimuli: tuple[Stimulus, ...]


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Release:
    """Release an idle session, or one that waits at the host for its turn."""

    session: str
    epoch: int
    keep: bool = False
    """Whether the host may keep the session's state: it will be adopted again."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Kill:
    """Stop a session at once: its work is cancelled and nothing more of it is reported."""

    session: str
    epoch: int


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ResendPrompt:
    """Ask the model again with the whole conversation, because the gateway does not hold it."""

    session: str
    epoch: int
    turn: int


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ContinueTurn:
    """All usage so far is charged: ask the instant model of this turn."""

    session: str
    epoch: int
    turn: int


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Watch:
    """Start or stop to report a tree's progress."""

    tree_id: str
    watched: bool


SessionFrame: TypeAlias = Feed | Release | Kill | ResendPrompt | ContinueTurn
Frame: TypeAlias = Adopt | SessionFrame | Watch


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """The part of a question that stays the same from turn to turn."""

    system_prompt: str
    tools: tuple[ToolSpec, ...]
    result_schema: Mapping[str, JsonValue] | None


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class AskModel:
    """A request to the gateway: the messages after the first ``base`` ones, which the gateway holds."""

    turn: int
    base: int
    messages: tuple[Message, ...]
    prompt: ModelPrompt | None
    """None if ``base`` is greater than 0."""
    unseen: bool = False
    """Whether nobody is shown the reply while it is made, because hooks judge it first."""
    settings: ModelSettings = NO_SETTINGS
    summarises: bool = False
    """Whether it asks for a summary of the conversation, which fits no result schema."""
    by_compaction_model: bool = False
    """Whether the agent's compaction model is asked, and not its model."""
    by_image_model: bool = False
    """Whether the agent's image model is asked, and not its model."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ChargeTurn:
    """Charge the usage so far; if the budget allows the session to go on, answer with ``ContinueTurn``."""

    turn: int


HostInstruction: TypeAlias = SessionInstruction | AskModel | ChargeTurn


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a session's step, or of a part of it."""

    session: str
    epoch: int
    taken: int
    """How many stimuli of this epoch have all their facts reported by now."""
    facts: tuple[Packed, ...]
    instructions: tuple[HostInstruction, ...]
    idle: bool
    """Whether nothing of the session runs on the host, so that it can be released."""
    usage: Usage | None
    """Usage since the last outcome."""
    crash: str | None
    """Why the session cannot go on after a failure in its code; facts not yet reported are lost."""
    jobs: tuple[str, ...] = ()
    """The commands that go on in the background, which keep the session on its host."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class HostUnsuitable:
    """The host can't embody the session because it was confined too early; a host started later may."""

    session: str
    epoch: int
    reason: str


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class SessionReturned:
    """The host has let a session go by itself: an idle one, because others wait there, or one that waited."""

    session: str
    epoch: int
    ended: int
    """How many processes that its tools left running were ended."""
    kept: bool
    """Whether the host keeps its state, which includes every fact that was reported before."""
    has_begun: bool = True
    """Whether it ran there; one that only waited still has to."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class SessionLeft:
    """A session has left the host, and processes that its tools left running were ended."""

    session: str
    epoch: int
    ended: int
    """How many processes were ended; at least 1."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class PollReply:
    """A host's answer to a poll."""

    received: int
    """Number of the last frame accepted; all earlier ones were accepted too."""
    outcomes: tuple[tuple[int, Any], ...]
    """Outcomes after the number asked for, in order, each with its number."""
    progress: tuple[Progress, ...] = ()
    """Progress of watched trees since the last poll; some may be missing."""
    unusable: bool = False
    """Whether work that could not be stopped may still run there; the host then serves no other session."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a host: it can serve, or says why it can't."""

    pid: int
    level: str
    """Confinement in force, such as ``structural`` or ``landlock-7+seccomp``."""
    failure: str | None = None
    """Why it can't serve; None = it can."""
    reaper: int = 0
    """Id of the process that ends what the host leaves behind; 0 = no process does."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class HostHealth:
    """A host's current state."""

    pid: int
    lag_s: float
    """For how many seconds one piece of work has blocked the host's loop."""
    embodied: tuple[str, int] | None
    """The session embodied and its epoch."""
    resident_bytes: int
