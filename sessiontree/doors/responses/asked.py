"""What a client asks, whatever protocol it speaks, and the conversation that it asks it of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import field

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.client_tools import check_repeated
from sessiontree.doors.conversations import NotFoundError
from sessiontree.doors.exchanges import Begun, DoorExchange, DoorExchanges
from sessiontree.doors.histories import Utterance, compute_history_digest
from sessiontree.doors.live_response import LiveResponse
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.request_keys import RequestKey
from sessiontree.doors.response_log import LoggedResponse


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """What a client asks."""

    agent: str
    text: str
    """The message; empty = it gives outputs."""
    outputs: Mapping[str, str]
    """Outputs of calls that the client hosts, by the id of their call."""
    previous: str | None = None
    """Id of the response that it continues; None = the history says it, or it begins a conversation."""
    history: tuple[Utterance, ...] = ()
    """What was said before the message, oldest first."""
    instructions: str = ""
    """What the client asks of the agent beyond the message."""
    images: tuple[ImageContent, ...] = ()
    declared: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """What the client declares of the tools that it hosts, by name."""
    settings: ModelSettings | None = None
    is_kept: bool = True
    """Whether it wants the response to be found by its id later."""
    key: RequestKey | None = None
    """Names the request, so that its message is heard once if it is sent again."""


@dataclass(frozen=True, slots=True)
class OpenedResponse:
    """A response that a request began, now or when it was sent before."""

    begun: Begun
    live: LiveResponse
    previous: str | None
    """Id of the response that it continues."""


async def open_response(
    exchanges: DoorExchanges,
    principal: DoorPrincipal,
    asked: ClientRequest,
    held: ExitStack,
    *,
    listens: bool,
) -> OpenedResponse:
    """Begin the response to a request, or return the one that it began before.

    Args:
        exchanges: The conversations.
        principal: Who asks.
        asked: What it asks.
        held: Lets go of the response when it is closed.
        listens: Whether the response is followed while the model writes.

    Raises:
        NotFoundError: the principal has no such response.
        ConflictError: the response can't be continued, or another request has the key.
        ConfigError: the request does not fit its conversation, or can't be used.
    """
    key = asked.key if asked.text else None  # an output is accepted once whatever its request is called
    async with nullcontext() if key is None else exchanges.lock_for(key):
        exchange, previous = await find_exchange(exchanges, principal, asked, held)
        repeated = None if key is None else await exchange.find_repeated(key)
        # What the model wrote before can't be heard any more; a repeated request gets it with the items.
        live = LiveResponse(exchange, listens=listens and repeated is None)
        held.callback(live.close)
        if repeated is not None:
            return OpenedResponse(Begun(exchange, repeated, None), live, previous)
        begun = await begin_response(exchange, previous, asked)
        # Under the lock of the key until the journal has the turn: the same request, sent again, finds it
        # there.
        if key is not None and begun.turn is not None:
            await exchange.wait_until_heard(begun.turn)
        return OpenedResponse(begun, live, previous)


async def find_exchange(
    exchanges: DoorExchanges, principal: DoorPrincipal, asked: ClientRequest, held: ExitStack
) -> tuple[DoorExchange, str | None]:
    """Return the conversation that a request begins or continues, and the response that it continues.

    A response that others follow is continued in a fork. ``held`` lets the conversation go.

    Raises:
        NotFoundError: the principal has no such response.
        ConflictError: the response can't be continued.
        ConfigError: the request does not fit its conversation; or none can be begun.
    """
    previous = asked.previous or _find_known_response(exchanges, principal, asked)
    if previous is not None:
        is_named = asked.previous is not None
        with ExitStack() as looking:
            try:
                exchange = await exchanges.find(principal, previous, looking, is_named=is_named)
            except NotFoundError:
                if is_named:
                    raise
            else:
                check_repeated(exchange.conversation.config, asked.declared)
                if not asked.outputs:
                    exchange = await exchanges.at(exchange, previous, asked.key)
                held.enter_context(exchange.conversation)
                return exchange, previous
    if asked.outputs:
        raise ConfigError("no such call waits for an output")
    begin = exchanges.begin
    exchange = await begin(principal, asked.agent, asked.declared, is_kept=asked.is_kept, key=asked.key)
    held.enter_context(exchange.conversation)
    if asked.key is not None and await exchange.find_repeated(asked.key) is None:
        check_repeated(exchange.conversation.config, asked.declared)
    return exchange, None


async def begin_response(exchange: DoorExchange, previous: str | None, asked: ClientRequest) -> Begun:
    """Give a conversation what a client asks, and return the response that begins.

    Raises:
        ConflictError: it waits for something else.
        ConfigError: a text, an image or an output can't be used.
    """
    if asked.outputs:
        return Begun(exchange, (await exchange.answer(asked.outputs)).response_id, None)
    text = exchange.add_instructions(asked.instructions, _build_text(previous, asked))
    turn_id = None if asked.key is None else asked.key.turn_id(exchange.conversation.conversation_id)
    turn = await exchange.send(previous, text, asked.images, asked.settings, turn_id)
    return Begun(exchange, turn.turn_id, turn)


def note_end(
    exchanges: DoorExchanges, exchange: DoorExchange, asked: ClientRequest, ended: LoggedResponse
) -> None:
    """Note by which history a client continues a response that has ended, and which calls belong to it.

    Raises:
        ConfigError: the file of histories can't be written.
    """
    waiting = () if ended.ended is None else ended.ended.waiting
    digests = [f"call:{each.call_id}" for each in waiting]
    if asked.previous is None:
        now = () if not asked.text else (Utterance("user", asked.text),)
        texts = [Utterance("assistant", each) for each in exchange.log.fold.list_texts(ended)]
        digests.append(
            compute_history_digest(asked.agent, asked.instructions, (*asked.history, *now, *texts))
        )
    principal_id = exchange.conversation.principal.principal_id
    exchanges.histories.keep(principal_id, ended.response_id, digests)


def _find_known_response(
    exchanges: DoorExchanges, principal: DoorPrincipal, asked: ClientRequest
) -> str | None:
    for call_id in asked.outputs:
        found = exchanges.histories.find(principal.principal_id, f"call:{call_id}")
        if found is not None:
            return found
    if asked.outputs or all(each.speaker == "user" for each in asked.history):
        return None
    digest = compute_history_digest(asked.agent, asked.instructions, asked.history)
    return exchanges.histories.find(principal.principal_id, digest)


def _build_text(previous: str | None, asked: ClientRequest) -> str:
    """Return the message, with the history before it if nobody here has heard it."""
    if previous is not None or not asked.history:
        return asked.text
    said = "\n\n".join(f"{each.speaker}: {each.text}" for each in asked.history)
    return (
        "The client sends a conversation that took place elsewhere. All of it is text of the client.\n\n"
        f"{said}\n\nHere the message begins.\n\n{asked.text}"
    )
