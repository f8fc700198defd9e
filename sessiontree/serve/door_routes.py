"""The routes of doors: who asks, how often, and the answers as JSON or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from sse_starlette import EventSourceResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.messages import Usage
from sessiontree.contracts.session_facts import RunFinished
from sessiontree.doors.conversations import ConflictError, Conversations, NotFoundError, Turn
from sessiontree.doors.responses import ResponseEvents, ResponseRequest, read_request, response_of
from sessiontree.doors.tokens import DoorToken, TokenFile

MAX_BODY: Final = 2 * 2**20
"""Most bytes of a request's body."""
BODY_S: Final = 30.0
"""How long a client may take to send it."""
PING_S: Final = 15
MINUTE_S: Final = 60.0

Answer: TypeAlias = Callable[[Request, DoorToken], Awaitable[Response]]


class _LimitError(Exception):
    """A token asks too often, or sends too much; the status says which."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def refusal(status: int, message: str, code: str) -> Response:
    """Return an error as clients of the protocol know it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse({"error": error}, status, headers)


class _Rates:
    """How often each token has asked in the last minute, and what it has open."""

    def __init__(self) -> None:
        self._begun: dict[str, deque[float]] = {}
        self._open: dict[str, int] = {}

    def enter(self, token: DoorToken) -> None:
        """Count a request that begins.

        Raises:
            _LimitError: there are too many.
        """
        rights, now_s = token.rights, time.monotonic()
        begun = self._begun.setdefault(token.token_id, deque())
        while begun and begun[0] <= now_s - MINUTE_S:
            begun.popleft()
        if len(begun) >= rights.per_minute:
            raise _LimitError(429, f"the token may begin {rights.per_minute} requests a minute")
        if self._open.get(token.token_id, 0) >= rights.max_open:
            raise _LimitError(429, f"the token may have {rights.max_open} requests open")
        begun.append(now_s)
        self._open[token.token_id] = self._open.get(token.token_id, 0) + 1

    def leave(self, token: DoorToken) -> None:
        """Count a request that has ended."""
        self._open[token.token_id] -= 1


class DoorRoutes:
    """What clients of protocols ask.

    Args:
        tokens: Who may come in.
        conversations: Their trees.
        agents: Names of the agents that the owner's configuration has.
    """

    prefix = "/v1/"

    def __init__(self, tokens: TokenFile, conversations: Conversations, agents: Sequence[str]) -> None:
        self._tokens = tokens
        self._conversations = conversations
        self._agents = tuple(agents)
        self._rates = _Rates()

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
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            try:
                if scheme.lower() != "bearer":
                    raise ConfigError("send the token as Authorization: Bearer …")
                token = self._tokens.find(given.strip(), int(time.time() * 1000))
            except ConfigError as error:
                return refusal(401, str(error), "invalid_api_key")
            try:
                self._rates.enter(token)
            except _LimitError as error:
                return refusal(error.status, str(error), "rate_limit_exceeded")
            answered: Response | None = None
            try:
                answered = await answer(request, token)
                return answered
            except (NotFoundError, ConflictError, _LimitError, SessionTreeError) as error:
                return _refused(error)
            finally:
                if not isinstance(answered, EventSourceResponse):  # a stream is open until it ends
                    self._rates.leave(token)

        return guarded

    async def _list_models(self, request: Request, token: DoorToken) -> Response:
        names = token.rights.agents or self._agents
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "sessiontree"} for name in names]
        return JSONResponse({"object": "list", "data": models})

    async def _respond(self, request: Request, token: DoorToken) -> Response:
        asked = read_request(await read_json(request))
        if asked.previous_response_id is None:
            turn = await self._conversations.begin(token, asked.model, asked.text)
        else:
            turn = await self._conversations.go_on(token, asked.previous_response_id, asked.text)
        at_s = int(time.time())
        self._conversations.hold(turn)
        if asked.stream:
            return EventSourceResponse(self._stream(asked, token, turn, at_s), ping=PING_S)
        try:
            ended = await self._end_of(token, turn)
        finally:
            self._conversations.release(turn)
        return JSONResponse(response_of(asked, turn.turn_id, at_s, ended, self._used(turn)))

    async def _stream(
        self, asked: ResponseRequest, token: DoorToken, turn: Turn, at_s: int
    ) -> AsyncIterator[dict[str, str]]:
        events = ResponseEvents(asked, turn.turn_id, at_s)
        try:
            for event in events.begin():
                yield _sent(event)
            ended = RunFinished("", (), None, None, has_result=False)
            try:
                async for piece in turn.reply:
                    for event in events.piece(piece):
                        yield _sent(event)
                ended = RunFinished(await turn.reply, (), None, None, has_result=False)
            except SessionTreeError as error:
                ended = RunFinished("", (), str(error), None, has_result=False)
            for event in events.end(ended, self._used(turn)):
                yield _sent(event)
            yield {"data": "[DONE]"}
        finally:
            self._conversations.release(turn)
            self._rates.leave(token)

    async def _end_of(self, token: DoorToken, turn: Turn) -> RunFinished:
        try:
            return RunFinished(await turn.reply, (), None, None, has_result=False)
        except SessionTreeError as error:
            return RunFinished("", (), str(error), None, has_result=False)

    def _used(self, turn: Turn) -> Usage:
        return turn.tree.usage()

    async def _show(self, request: Request, token: DoorToken) -> Response:
        turn_id = request.path_params["turn_id"]
        ended = await self._conversations.answer_of(token, turn_id)
        asked = ResponseRequest(model="default", input="-")
        return JSONResponse(response_of(asked, turn_id, int(time.time()), ended))

    async def _cancel(self, request: Request, token: DoorToken) -> Response:
        await self._conversations.cancel(token, request.path_params["turn_id"])
        return await self._show(request, token)


async def read_json(request: Request) -> Any:
    """Return the JSON of a request's body.

    Raises:
        ConfigError: it is not JSON.
        _LimitError: it is too long, or takes too long.
    """
    parts: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                length += len(part)
                if length > MAX_BODY:
                    raise _LimitError(413, f"a request has at most {MAX_BODY:,} bytes")
                parts.append(part)
        return json.loads(b"".join(parts))
    except TimeoutError:
        raise _LimitError(408, f"a request is sent within {BODY_S:g} s") from None
    except ClientDisconnect as error:
        raise ConfigError("the client has gone") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the request is not JSON: {error}") from error


def _refused(error: Exception) -> Response:
    """Return what a client reads of an error."""
    if isinstance(error, _LimitError):
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
