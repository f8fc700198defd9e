"""A server at an address: its streams, and the stored tokens that its requests carry."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from sessiontree.mcp.inside.token_files import TokenPlace

MAX_EVENT_BYTES: Final = 32 * 2**20
EARLY_S: Final = 30.0
"""Tokens are refreshed this long before they expire."""


class StoredTokens(httpx2.Auth):
    """Sends stored tokens, and refreshes them; it never opens a page, and never asks anybody.

    Args:
        place: Where the tokens are.
    """

    def __init__(self, place: TokenPlace) -> None:
        self._place = place
        self.needs_login = False
        """Whether the server refused what is stored."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the tokens; refresh them once if they are refused."""
        stored = await asyncio.to_thread(self._place.read)
        used = _get_token(stored)
        # Refreshed in advance, which saves a request that the server would refuse.
        if stored is not None and _is_old(stored):
            refreshing = self._refresh(used)
            answer: httpx2.Response | None = None
            while (asked := await _step(refreshing, answer)) is not None:
                answer = yield asked
            used = _get_token(await asyncio.to_thread(self._place.read))
        if used:
            request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code != 401:
            return
        refreshing, answer = self._refresh(used), None
        while (asked := await _step(refreshing, answer)) is not None:
            answer = yield asked
        now = _get_token(await asyncio.to_thread(self._place.read))
        # The refresh gave nothing new, so a second attempt would be refused as well.
        if not now or now == used:
            self.needs_login = True
            return
        request.headers["Authorization"] = f"Bearer {now}"
        response = yield request
        self.needs_login = response.status_code == 401

    async def _refresh(self, used: str) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Refresh the tokens, unless another process of this machine has done it meanwhile.

        A refusal keeps the registration and the tokens: a person's next login uses the registration again.
        """
        lock = self._place.locked()
        # In a thread, because another process may hold the lock for as long as its server takes to answer.
        await asyncio.to_thread(lock.__enter__)
        try:
            stored = await asyncio.to_thread(self._place.read)
            tokens = {} if stored is None else stored.get("tokens") or {}
            # Many servers accept a refresh token once: a second use of it would end the login of both
            # processes.
            if stored is None or _get_token(stored) != used or not tokens.get("refresh_token"):
                return
            response = yield _refresh_request(stored, tokens["refresh_token"])
            if response.status_code != 200:
                return
            given = json.loads(await response.aread())
            if isinstance(given, dict) and isinstance(given.get("access_token"), str):
                # The earlier members stay, since a server need not send the refresh token again.
                renewed = {**tokens, **given}
                expires = _compute_expiry(renewed)
                await asyncio.to_thread(
                    self._place.write, {**stored, "tokens": renewed, "expires_at": expires}
                )
        finally:
            lock.__exit__(None, None, None)


async def _step(
    asking: AsyncGenerator[httpx2.Request, httpx2.Response], answer: httpx2.Response | None
) -> httpx2.Request | None:
    try:
        return await (anext(asking) if answer is None else asking.asend(answer))
    except StopAsyncIteration:
        return None


def _get_token(stored: Mapping[str, Any] | None) -> str:
    tokens = None if stored is None else stored.get("tokens")
    token = tokens.get("access_token") if isinstance(tokens, dict) else None
    return token if isinstance(token, str) else ""


def _is_old(stored: Mapping[str, Any]) -> bool:
    expires_at = stored.get("expires_at")
    return isinstance(expires_at, int | float) and expires_at - EARLY_S <= time.time()


def _compute_expiry(tokens: Mapping[str, Any]) -> float | None:
    seconds = tokens.get("expires_in")
    return time.time() + seconds if isinstance(seconds, int | float) else None


def _refresh_request(stored: Mapping[str, Any], refresh_token: str) -> httpx2.Request:
    client = stored.get("client") or {}
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    form["client_id"] = str(client.get("client_id", ""))
    if stored.get("resource"):
        form["resource"] = str(stored["resource"])
    auth: dict[str, str] = {}
    secret = client.get("client_secret")
    if secret and client.get("token_endpoint_auth_method") == "client_secret_basic":
        made = httpx2.BasicAuth(form["client_id"], secret)
        request = httpx2.Request("POST", str(stored["token_url"]))
        auth["Authorization"] = next(made.auth_flow(request)).headers["Authorization"]
    elif secret:
        form["client_secret"] = str(secret)
    return httpx2.Request("POST", str(stored["token_url"]), data=form, headers=auth)


class HttpStreams:
    """The streams of a server at an address.

    Args:
        url: Its address.
        headers: Headers of every request.
        tokens: The folder of stored tokens; empty = none are used.
    """

    def __init__(self, url: str, headers: Mapping[str, str], tokens: str) -> None:
        self._url = url
        self._headers = dict(headers)
        is_own = any(name.lower() == "authorization" for name in headers)
        # An owner who gives the header decides alone what is sent; stored tokens would replace it.
        self._auth = None if is_own or not tokens else StoredTokens(TokenPlace(tokens, url))

    @property
    def needs_login(self) -> bool:
        """Whether the server refused the stored tokens, or wants some and none are stored."""
        return self._auth is not None and self._auth.needs_login

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[Any, Any], None]:
        """Give the streams of its messages."""
        timeout = httpx2.Timeout(30.0, read=3_600.0)
        async with (
            httpx2.AsyncClient(headers=self._headers, auth=self._auth, timeout=timeout) as client,
            streamable_http_client(
                self._url, http_client=client, max_sse_event_size=MAX_EVENT_BYTES
            ) as streams,
        ):
            yield streams
