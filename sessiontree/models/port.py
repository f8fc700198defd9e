"""What a model is for the runtime: it replies to a conversation, in one message or in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.reports.events import ModelEvent
from sessiontree.contracts.settings.model_settings import NO_SETTINGS, ModelSettings
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, Message, ProviderForm, StopReason, Usage
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass


@dataclass(frozen=True, slots=True)
class ThinkingPiece:
    """A piece of the model's thoughts, or of the signature that follows them."""

    text: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a tool call: its beginning, some of its argument text, its end, or all of it.

    A piece belongs to the call with its ``index``, else with its ``id``, else to the last call. It begins a
    new call in these cases: it is the first; its id differs from the call's; or it has a name, and the
    call has a different name, has ended, or can't be distinguished by index or id.
    """

    arguments: str | Mapping[str, JsonValue] = ""
    """Some of the argument text; or the whole arguments, as an object."""
    index: int | None = None
    """Number of the call, as the provider counts."""
    id: str = ""
    """The provider's id; may come with any piece, and may be repeated or missing."""
    name: str = ""
    """The tool; may come with any piece and may be repeated."""
    ends: bool = False
    """Whether the call is complete; without such a piece it is complete when the reply is."""


@dataclass(frozen=True, slots=True)
class StopPiece:
    """Why the model stops. Without one the reason is ``stop``, or ``toolUse`` if there are calls."""

    reason: StopReason
    detail: str = ""
    """The provider's details, such as the reason for a refusal."""


@dataclass(frozen=True, slots=True)
class ModelPiece:
    """The name of the replying model, if it was not certain: a provider's default, or one of several."""

    name: str
    """As ``provider:name``."""


Piece: TypeAlias = str | ThinkingPiece | CallPiece | StopPiece | ModelPiece | ProviderForm | Usage
"""Plain text is a str. Usage, model and replay come as a whole, at any time; the last one counts."""


EmitEvent = Callable[[ModelEvent], None]
"""Reports a piece of a reply."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    """JSON Schema of an object."""


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The question of one turn."""

    session_id: str
    kind: SessionKind
    turn: int
    """Number of this question in its session, counted from 1 over all of the session's messages: it does not
    begin again with a new message."""
    system_prompt: str
    tools: Sequence[ToolSpec]
    messages: Sequence[Message]
    """The whole conversation, oldest first; read only, and valid only until the reply is given. Results come
    without their details."""
    result_schema: Mapping[str, JsonValue] | None
    """JSON Schema that the final message must fit, or None."""
    agent: str = "default"
    """Name of the agent that asks."""
    model: str = ""
    """Name of the model that should answer, as the tree's configuration gives it."""
    settings: ModelSettings = NO_SETTINGS
    """The merged settings of the agent, the session and the message."""
    summarises: bool = False
    """Whether the reply becomes the summary that replaces the older part of the conversation."""


class InProcessModel(Protocol):
    """A model that replies at once (below 1 ms), without waiting for anything; runs with the session.

    A fixed procedure used as a model may have the attribute ``reads_details = True``: its requests then
    include the details of results. They do not leave the session's process in that way.
    """

    name: str

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the reply to ``request``.

        Contract: must not block, and must depend only on the request and on constructor arguments: after a
        crash the same turn is asked again.
        """
        ...


class RemoteModel(Protocol):
    """A model whose reply takes time; asked through the model gateway."""

    name: str

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Return the reply to ``request``, and report pieces of it with ``emit`` as they arrive.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        ...


class StreamingModel(Protocol):
    """A model that replies in pieces; asked through the model gateway, which joins them to one reply."""

    name: str

    def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Yield the pieces of the reply to ``request``; an async generator, or a coroutine that returns one.

        Watchers see the pieces as they arrive. If the model fails half-way, the journal keeps the text so far
        with the failure; that text is not part of the conversation.

        Raises:
            ModelError: it failed; ``retryable`` says whether asking again may help.
        """
        ...


GatewayModel = RemoteModel | StreamingModel
"""Models that the model gateway asks."""
Model = InProcessModel | GatewayModel
"""Any model. A model that knows the size of its context has an attribute ``context_tokens``. One that
reads only text has ``reads_images = False``. A model that holds connections has an ``async def close()``,
which is called when a tree that it served is closed. One whose libraries take long to load names them in
``libraries``, each as ``module:name``; they may be loaded before its first question."""


def list_libraries(model: GatewayModel) -> tuple[str, ...]:
    """Return what a model loads before its first question, each as ``module:name``."""
    return tuple(getattr(model, "libraries", ()))


def make_summary_key(agent: str) -> str:
    """Return the key of an agent's compaction model where models are kept by agent."""
    return f"{agent}\0summary"


def make_image_key(agent: str) -> str:
    """Return the key of an agent's image model where models are kept by agent."""
    return f"{agent}\0image"


def get_model_name(model: object) -> str:
    """Return a model's name: its ``name``, or else its class; for a list, the name of its first model."""
    if isinstance(model, list | tuple) and model:
        return get_model_name(model[0])
    return model if isinstance(model, str) else str(getattr(model, "name", type(model).__name__))
