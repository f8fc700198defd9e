"""A person's login at a server: an address to open, and the answer that comes back to this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

from sessiontree.mcp.inside.token_files import TokenPlace

WAIT_S: Final = 600.0
"""How long a person may take."""
_PAGE: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou may close this page.\n"
)
Show = Callable[[str], Awaitable[None]]


class _Login:
    """What is stored and what comes back during one login.

    Args:
        stored: What was stored before; its registration is used again.
    """

    def __init__(self, stored: dict[str, Any] | None) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if stored is not None and stored.get("client"):
            with suppress(ValueError):
                self.client = OAuthClientInformationFull.model_validate(stored["client"])
        self.returned: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def get_tokens(self) -> OAuthToken | None:
        """Return nothing: a login gets new tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registration."""
        self.client = client_info

    async def wait(self) -> AuthorizationCodeResult:
        """Return what came back."""
        async with asyncio.timeout(WAIT_S):
            return await self.returned

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the page that the person's browser comes back with."""
        with suppress(OSError, EOFError, ValueError):
            async with asyncio.timeout(10):
                line = (await reader.readuntil(b"\n")).decode("ascii", "replace").split()
            given = parse_qs(urlsplit(line[1]).query) if len(line) > 1 else {}
            writer.write(_PAGE)
            await writer.drain()
            # Any page can make a browser call this port; the first answer counts, and the library checks its
            # state.
            if "code" in given and not self.returned.done():
                values = {key: given[key][0] for key in ("code", "state", "iss") if key in given}
                self.returned.set_result(AuthorizationCodeResult(**values))
            elif "error" in given and not self.returned.done():
                self.returned.set_exception(
                    PermissionError(f"the login was refused: {given['error'][0][:200]}")
                )
        writer.close()


async def log_in(url: str, tokens: str, show: Show) -> None:
    """Have a person log in at a server, and store the tokens.

    Args:
        url: The server's address.
        tokens: The folder of stored tokens.
        show: Shows the address to open; nothing is opened here.

    Raises:
        Exception: the login failed; what was stored before is kept.
    """
    place = TokenPlace(tokens, url)
    stored = await asyncio.to_thread(place.read)
    login = _Login(stored)
    server = await asyncio.start_server(login.serve, "127.0.0.1", _get_port(login.client))
    async with server:
        port = server.sockets[0].getsockname()[1]
        redirect = f"http://127.0.0.1:{port}/callback"
        if login.client is not None and redirect not in map(str, login.client.redirect_uris or ()):
            login.client = None  # its port is taken: the server must know another one
        provider = OAuthClientProvider(
            url,
            OAuthClientMetadata(
                client_name="sessiontree",
                redirect_uris=[redirect],  # type: ignore[list-item]
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                token_endpoint_auth_method="none",  # noqa: S106 - a method
            ),
            login,
            redirect_handler=show,
            callback_handler=login.wait,
        )
        async with (
            httpx2.AsyncClient(auth=provider, timeout=httpx2.Timeout(30.0, read=WAIT_S + 60)) as client,
            Client(streamable_http_client(url, http_client=client), read_timeout_seconds=WAIT_S),
        ):
            pass
    if login.tokens is None:
        return  # the server wants no login
    context = provider.context
    metadata = context.oauth_metadata
    fallback = f"{context.get_authorization_base_url(url)}/token"
    value = {
        "issuer": context.auth_server_url or context.get_authorization_base_url(url),
        "resource": context.get_resource_url() if context.should_include_resource_param() else "",
        "token_url": fallback if metadata is None else str(metadata.token_endpoint),
        "client": None if login.client is None else login.client.model_dump(mode="json", exclude_none=True),
        "tokens": login.tokens.model_dump(mode="json", exclude_none=True),
        "expires_at": None if login.tokens.expires_in is None else time.time() + login.tokens.expires_in,
    }
    # A connection of another process may refresh the earlier tokens at this moment.
    with place.locked():
        place.write(value)


def _get_port(client: OAuthClientInformationFull | None) -> int:
    """Return the port that a registration names; 0 = any."""
    for each in (client.redirect_uris or ()) if client is not None else ():
        if each.port is not None:
            return each.port
    return 0
