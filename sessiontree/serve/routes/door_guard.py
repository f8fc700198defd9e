"""The guard of doors: which token a request comes with, how often its holder asks, and what it has open."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.doors.request_keys import RequestKey, read_key
from sessiontree.doors.tokens import DoorToken, TokenFile
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.server import TooLongError, read_body

MAX_BODY: Final = 2 * 2**20
"""Most bytes of a request's body."""
BODY_S: Final = 30.0
"""How long a client may take to send it."""
MINUTE_S: Final = 60.0
CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
"""Header of the answer to a request without a token that lets it in."""


class LimitError(Exception):
    """A token asks too often, or sends too much; the status says which."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DoorGuard:
    """Lets in requests that come with a token, and counts them; all doors of a server share one.

    Args:
        tokens: Who may come in.
    """

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens
        self._begun: dict[str, deque[float]] = {}
        self._open: dict[str, int] = {}

    def find_token(self, headers: Mapping[str, str]) -> DoorToken:
        """Return the token of a request.

        Args:
            headers: Its headers, by lower-case names.

        Raises:
            ConfigError: it has none, or one that lets nobody in.
        """
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise ConfigError("send the token as Authorization: Bearer …")
        return self._tokens.find(given.strip(), read_machine_ms())

    def enter(self, token: DoorToken, *, is_poll: bool = False) -> None:
        """Count a request that begins.

        Args:
            token: Its token.
            is_poll: Whether it asks again as often as its door said; such a request is only counted as open.

        Raises:
            LimitError: there are too many.
        """
        rights, now_s = token.rights, time.monotonic()
        begun = self._begun.setdefault(token.token_id, deque())
        while begun and begun[0] <= now_s - MINUTE_S:
            begun.popleft()
        if not is_poll and len(begun) >= rights.per_minute:
            raise LimitError(429, f"the token may begin {rights.per_minute} requests a minute")
        if self._open.get(token.token_id, 0) >= rights.max_open:
            raise LimitError(429, f"the token may have {rights.max_open} requests open")
        if not is_poll:
            begun.append(now_s)
        self._open[token.token_id] = self._open.get(token.token_id, 0) + 1

    def leave(self, token: DoorToken) -> None:
        """Count a request that has ended."""
        self._open[token.token_id] -= 1


async def read_bounded(request: Request) -> bytes:
    """Return a request's body.

    Raises:
        ConfigError: its client has gone.
        LimitError: it is too long, or takes too long.
    """
    try:
        async with asyncio.timeout(BODY_S):
            return await read_body(request, MAX_BODY)
    except TooLongError as error:
        raise LimitError(413, f"a request has at most {error}") from None
    except TimeoutError:
        raise LimitError(408, f"a request is sent within {BODY_S:g} s") from None
    except ClientDisconnect as error:
        raise ConfigError("the client has gone") from error


async def read_json(request: Request) -> Any:
    """Return the JSON of a request's body.

    Raises:
        ConfigError: it is not JSON, or its client has gone.
        LimitError: it is too long, or takes too long.
    """
    body = await read_bounded(request)
    try:
        value = parse_json(body)
        if b"\\u" in body:  # half a character can be neither kept nor sent back
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise ConfigError(f"the request is not JSON: {error}") from error
    return value


def find_key(request: Request, token: DoorToken, asked: Any) -> RequestKey | None:
    """Return the key of a request, by which it is known when it is sent again; None = it has none.

    Raises:
        ConfigError: it can't be a key, or there are several.
    """
    given = request.headers.getlist("idempotency-key")
    if len(given) > 1:
        raise ConfigError("Idempotency-Key: give one")
    return read_key(token.principal.principal_id, given[0] if given else None, asked)
