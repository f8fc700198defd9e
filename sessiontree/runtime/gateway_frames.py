"""What supervisor and model gateway say to each other, where the gateway is a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sessiontree.contracts.events import ModelEvent
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.runtime.frames import AskModel, Watch


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the tree's model for a session."""

    tree_id: str
    session: str
    ticket: int
    """Names this question; its answer carries it."""
    kind: SessionKind
    question: AskModel
    equipment: str
    """Names the model the tree was opened with."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop a session's question, and its conversation too unless it goes on."""

    tree_id: str
    session: str
    keep_conversation: bool


GatewayFrame: TypeAlias = Ask | Forget | Watch


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model said to a question."""

    ticket: int
    message: AssistantMessage


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """Why there is no answer."""

    ticket: int
    reason: str
    said: str
    """The text of the answer so far."""


@dataclass(frozen=True, slots=True)
class AskWhole:
    """The gateway does not hold the conversation; ask again with all of it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of an answer on its way."""

    tree_id: str
    session: str
    event: ModelEvent


GatewayAnswer: TypeAlias = Answered | NotAnswered | AskWhole | Said
