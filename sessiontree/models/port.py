"""What a model is to the runtime: something that replies to a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sessiontree.contracts.events import ModelEvent
from sessiontree.contracts.fast_init import quickly_made
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage, Message
from sessiontree.models.deltas import Piece

EmitEvent = Callable[[ModelEvent], None]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    """JSON Schema of an object."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One turn's question."""

    session_id: str
    kind: SessionKind
    turn: int
    """From 1."""
    system_prompt: str
    tools: Sequence[ToolSpec]
    messages: Sequence[Message]
    """The whole conversation, oldest first; read only, and valid only until the reply is given. Results come
    without their details."""
    result_schema: Mapping[str, JsonValue] | None
    """JSON Schema the last word must fit, or None."""


class InstantModel(Protocol):
    """A model that replies at once, without waiting for anything (below 1 ms); runs with the session.

    A fixed procedure in a model's place may have the attribute ``reads_details = True``: its requests then
    hold the details of results too. Nothing it is told leaves the session's process that way.
    """

    name: str

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the reply.

        Contract: must not block, and must depend on nothing but the request and what was given at its making:
        after a crash the same turn is asked again.
        """
        ...


class WaitingModel(Protocol):
    """A model whose reply takes time; asked through the model gateway."""

    name: str

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Return the reply, reporting pieces of it as they come.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        ...


class StreamingModel(Protocol):
    """A model that gives its reply in pieces; asked through the model gateway, which makes them one reply."""

    name: str

    def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Yield the reply's pieces as they come; an async generator, or a coroutine that returns one.

        What watchers see is told as the pieces come. If it fails half-way, the text so far is kept in the
        journal with the failure and is no part of the conversation.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        ...


GatewayModel = WaitingModel | StreamingModel
"""What the model gateway asks."""
Model = InstantModel | GatewayModel
"""Any model. One that knows how large its context is says so in an attribute ``context_tokens``."""


def name_of(model: object) -> str:
    """Return how a model is called: by its ``name``, or by its class where it says none."""
    return str(getattr(model, "name", type(model).__name__))
