"""The routes of doors: who asks, how often, and the answers as JSON or as a stream of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeAlias

from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.doors.conversations import ConflictError, Conversation, Conversations, NotFoundError
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.responses import (
    AskedResponse,
    ResponseEvents,
    ResponseRequest,
    read_request,
    response_of,
)
from sessiontree.doors.tokens import DoorToken
from sessiontree.doors.turns import Turn
from sessiontree.runtime.clock import machine_ms
from sessiontree.serve.door_guard import CHALLENGE, DoorGuard, LimitError, read_bounded

PING_S: Final = 15

Answer: TypeAlias = Callable[[Request, DoorToken], Awaitable[Response]]


def refusal(status: int, message: str, code: str) -> Response:
    """Return an error as clients of the protocol know it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status, CHALLENGE if status == 401 else {})


class DoorRoutes:
    """What clients of protocols ask.

    Args:
        guard: Lets in whoever has a token.
        conversations: Their trees.
        agents: Names of the agents that the owner's configuration has.
    """

    prefixes: tuple[str, ...] = ("/v1/",)

    def __init__(self, guard: DoorGuard, conversations: Conversations, agents: Sequence[str]) -> None:
        self._guard = guard
        self._conversations = conversations
        self._agents = tuple(agents)

    async def close(self) -> None:
        """Close the trees of all conversations; they can be continued later."""
        await self._conversations.close()

    def routes(self) -> list[Route]:
        """Return the routes, all below ``/v1/``."""
        return [
            Route("/v1/models", self._guarded(self._list_models)),
            Route("/v1/responses", self._guarded(self._respond), methods=["POST"]),
            Route("/v1/responses/{turn_id}", self._guarded(self._show)),
            Route("/v1/responses/{turn_id}/cancel", self._guarded(self._cancel), methods=["POST"]),
        ]

    def _guarded(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers a request of a token, and refuses all others."""

        async def guarded(request: Request) -> Response:
            try:
                token = self._guard.find_token(request.headers)
            except ConfigError as error:
                return refusal(401, str(error), "invalid_api_key")
            try:
                self._guard.enter(token)
            except LimitError as error:
                return refusal(error.status, str(error), "rate_limit_exceeded")
            answered: Response | None = None
            try:
                answered = await answer(request, token)
                return answered
            except (NotFoundError, ConflictError, LimitError, SessionTreeError) as error:
                return _refused(error)
            finally:
                if not isinstance(answered, _TurnStream):  # a stream is open until it ends
                    self._guard.leave(token)

        return guarded

    async def _list_models(self, request: Request, token: DoorToken) -> Response:
        names = token.rights.agents or self._agents
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "sessiontree"} for name in names]
        return JSONResponse({"object": "list", "data": models})

    async def _respond(self, request: Request, token: DoorToken) -> Response:
        asked = read_request(await read_json(request))
        conversation = await self._find_conversation(asked, token.principal)
        with ExitStack() as held:
            held.enter_context(conversation)
            at_s, turn = machine_ms() // 1000, conversation.send(asked.text)
            if asked.stream:
                events = self._stream(asked, conversation, turn, at_s)
                held.callback(self._guard.leave, token)
                return _TurnStream(events, held.pop_all())
            ended = await turn.end()
            return JSONResponse(
                response_of(asked.asked, turn.turn_id, at_s, ended, conversation.tree.usage())
            )

    async def _find_conversation(self, asked: ResponseRequest, principal: DoorPrincipal) -> Conversation:
        """Return the conversation that a request begins, or the one that it continues."""
        previous = asked.previous_response_id
        if previous is None:
            return await self._conversations.begin(principal, asked.model)
        conversation = await self._conversations.find_by_turn(principal, previous)
        turn = await conversation.find_turn(previous)
        if next(reversed(await conversation.log.read())) != previous:
            raise ConflictError(f"{previous} is not the newest response of its conversation")
        if turn.ended is None:
            raise ConflictError(f"{previous} goes on; wait for its end, or cancel it")
        return conversation

    async def _stream(
        self, asked: ResponseRequest, conversation: Conversation, turn: Turn, at_s: int
    ) -> AsyncIterator[dict[str, str]]:
        events = ResponseEvents(asked.asked, turn.turn_id, at_s)
        for event in events.begin():
            yield _sent(event)
        with suppress(SessionTreeError):  # the end says it
            async for piece in turn.reply:
                for event in events.piece(piece):
                    yield _sent(event)
        for event in events.end(await turn.end(), conversation.tree.usage()):
            yield _sent(event)
        yield {"data": "[DONE]"}

    async def _show(self, request: Request, token: DoorToken) -> Response:
        turn_id = request.path_params["turn_id"]
        conversation = await self._conversations.find_by_turn(token.principal, turn_id)
        turn = await conversation.find_turn(turn_id)
        asked = AskedResponse(conversation.agent, turn.previous)
        return JSONResponse(response_of(asked, turn_id, turn.at_ms // 1000, turn.ended))

    async def _cancel(self, request: Request, token: DoorToken) -> Response:
        turn_id = request.path_params["turn_id"]
        conversation = await self._conversations.find_by_turn(token.principal, turn_id)
        if (await conversation.find_turn(turn_id)).ended is None:
            await conversation.interrupt()
        return await self._show(request, token)


class _TurnStream(EventSourceResponse):
    """The events of a turn.

    Args:
        events: The events.
        held: Closed when it is over, also if its client had gone before the first event.
    """

    def __init__(self, events: AsyncIterator[dict[str, str]], held: ExitStack) -> None:
        super().__init__(events, ping=PING_S)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


async def read_json(request: Request) -> Any:
    """Return the JSON of a request's body.

    Raises:
        ConfigError: it is not JSON.
        LimitError: it is too long, or takes too long.
    """
    try:
        return json.loads(await read_bounded(request))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the request is not JSON: {error}") from error


def _refused(error: Exception) -> Response:
    """Return what a client reads of an error."""
    if isinstance(error, LimitError):
        return refusal(error.status, str(error), "too_large")
    if isinstance(error, NotFoundError):
        return refusal(404, str(error), "not_found")
    if isinstance(error, ConflictError):
        return refusal(409, str(error), "conflict")
    if isinstance(error, ConfigError):
        return refusal(400, str(error), "invalid_request")
    return refusal(500, str(error), "server_error")


def _sent(event: dict[str, Any]) -> dict[str, str]:
    return {"event": event["type"], "data": dump_json(event)}
