"""The routes of doors: who asks, how often, and what they are refused with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.doors.conversations import ConflictError, Conversations, NotFoundError, SpentError
from sessiontree.doors.exchanges import DoorExchanges
from sessiontree.doors.request_keys import KeyUsedError
from sessiontree.doors.tokens import DoorToken
from sessiontree.serve.routes.chat_routes import ChatRoutes
from sessiontree.serve.routes.door_guard import CHALLENGE, DoorGuard, LimitError
from sessiontree.serve.routes.door_stream import DoorStream
from sessiontree.serve.routes.response_routes import ResponseRoutes

Answer: TypeAlias = Callable[[Request, DoorToken], Awaitable[Response]]

_PASSING: Final = frozenset({408, 429})
"""Refusals of what may succeed later."""


def make_refusal(status: int, message: str, code: str) -> Response:
    """Return an error as clients of the protocol know it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    headers = dict(CHALLENGE) if status == 401 else {}
    if status not in _PASSING:
        headers["x-should-retry"] = "false"  # else clients try again by themselves, and a turn runs again
    return JSONResponse({"error": error}, status, headers)


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
        exchanges = DoorExchanges(self._conversations)
        responses, chats = ResponseRoutes(exchanges), ChatRoutes(exchanges)
        return [
            Route("/v1/models", self._require_token(self._list_models)),
            Route("/v1/chat/completions", self._require_token(chats.answer), methods=["POST"]),
            Route("/v1/responses", self._require_token(responses.answer), methods=["POST"]),
            Route("/v1/responses/{response_id}", self._require_token(responses.show)),
            Route(
                "/v1/responses/{response_id}/cancel", self._require_token(responses.cancel), methods=["POST"]
            ),
        ]

    def _require_token(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers a request of a token, and refuses all others."""

        async def answer_guarded(request: Request) -> Response:
            try:
                token = self._guard.find_token(request.headers)
            except ConfigError as error:
                return make_refusal(401, str(error), "invalid_api_key")
            try:
                self._guard.enter(token)
            except LimitError as error:
                return make_refusal(error.status, str(error), "rate_limit_exceeded")
            answered: Response | None = None
            try:
                answered = await answer(request, token)
                return answered
            except (NotFoundError, ConflictError, LimitError, SessionTreeError) as error:
                return _answer_error(error)
            finally:
                if isinstance(answered, DoorStream):  # it is open until it ends
                    answered.call_when_over(lambda: self._guard.leave(token))
                else:
                    self._guard.leave(token)

        return answer_guarded

    async def _list_models(self, request: Request, token: DoorToken) -> Response:
        names = token.rights.agents or self._agents
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "sessiontree"} for name in names]
        return JSONResponse({"object": "list", "data": models})


def _answer_error(error: Exception) -> Response:
    """Return what a client reads of an error."""
    if isinstance(error, LimitError):
        return make_refusal(error.status, str(error), "too_large")
    if isinstance(error, NotFoundError):
        return make_refusal(404, str(error), "not_found")
    if isinstance(error, SpentError):
        return make_refusal(429, str(error), "insufficient_quota")
    if isinstance(error, KeyUsedError):
        return make_refusal(422, str(error), "idempotency_key_used")
    if isinstance(error, ConflictError):
        return make_refusal(409, str(error), "conflict")
    if isinstance(error, ConfigError):
        return make_refusal(400, str(error), "invalid_request")
    return make_refusal(500, str(error), "server_error")
