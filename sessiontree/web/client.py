"""One page: connecting, following redirects by hand, and taking in a bounded body.

Every hop is a new connection to a newly judged address, and carries the same few headers and nothing else: no
cookie, credential, referrer or body exists here that could reach another origin. The environment's proxies
are not looked at.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

import httpcore

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.ports import Page
from sessiontree.version import VERSION
from sessiontree.web.address import WebAddress, denied, join_address
from sessiontree.web.body import ACCEPTED, Body
from sessiontree.web.network import JudgingBackend
from sessiontree.web.rules import AddressRules

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
MAX_HEADER_VALUE_CHARS: Final = 8192
"""Longest value of a header that is looked at."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long one page may take, and how far it may lead."""

    max_redirects: int
    connect_timeout_s: float
    read_timeout_s: float
    total_timeout_s: float


class WebClient:
    """Gets pages.

    Args:
        rules: Judge every place and address.
        network: Connects.
        bounds: Of every page.
        turns: Bounds how many are fetched at a time; a page's total time includes its wait.
        secured: Makes the certificates' context, once, with the first https address.
    """

    def __init__(
        self,
        rules: AddressRules,
        network: JudgingBackend,
        bounds: FetchLimits,
        turns: asyncio.Semaphore,
        secured: Callable[[], ssl.SSLContext],
    ) -> None:
        self._rules = rules
        self._network = network
        self._bounds = bounds
        self._turns = turns
        self._secured = secured

    async def get(self, address: WebAddress, *, max_bytes: int, accept: str) -> Page:
        """Return the page an address leads to, whatever its status.

        Raises:
            PermissionDenied: a place on the way may not be reached, or leaves https.
            ExecutionError: it can't be reached, takes too long, leads on too often, or is no valid answer.
        """
        limit_s = self._bounds.total_timeout_s
        try:
            async with asyncio.timeout(limit_s), self._turns:
                return await self._follow(address, max_bytes, accept)
        except TimeoutError as error:
            raise ExecutionError(
                f"{address.shown} took longer than {limit_s:g} s; it was given up"
            ) from error

    async def _follow(self, address: WebAddress, max_bytes: int, accept: str) -> Page:
        passed: list[str] = []
        while True:
            answer = await self._ask(address, max_bytes, accept, tuple(passed))
            if isinstance(answer, Page):
                return answer
            if len(passed) >= self._bounds.max_redirects:
                raise ExecutionError(
                    f"{address.shown} leads on to {answer.shown}: more than {len(passed)} redirects"
                )
            if address.scheme == "https" and answer.scheme == "http":
                raise denied(f"{address.shown} leads on to {answer.shown}, which is not encrypted")
            passed.append(str(address))
            address = answer

    async def _ask(
        self, address: WebAddress, max_bytes: int, accept: str, passed: tuple[str, ...]
    ) -> Page | WebAddress:
        """Return the page at one address, or where it leads on to."""
        self._rules.check_place(address)
        context = await asyncio.to_thread(self._secured) if address.scheme == "https" else None
        connection = httpcore.AsyncHTTPConnection(
            httpcore.Origin(address.scheme.encode(), address.host.encode(), address.port),
            ssl_context=context,
            network_backend=self._network,
        )
        try:
            response = await connection.handle_async_request(self._request(address, accept))
            headers = _headers(response.headers)
            location = headers.get("location")
            if response.status in REDIRECTS and location is not None:
                return _led_on(address, location)
            body = Body(headers.get("content-encoding", ""), max_bytes=max_bytes)
            async for piece in _pieces(response):
                if not body.take(piece):
                    break
            content_type, charset = _content_type(headers.get("content-type", ""))
            return Page(
                url=str(address),
                status=response.status,
                content_type=content_type,
                charset=charset,
                body=body.whole(),
                truncated=body.truncated,
                redirects=passed,
            )
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            why = f"{address.shown} can't be fetched: {_words_of(error)}"
            raise ExecutionError(why, retryable=True) from error
        finally:
            await connection.aclose()

    def _request(self, address: WebAddress, accept: str) -> httpcore.Request:
        wait_s = self._bounds.read_timeout_s
        return httpcore.Request(
            "GET",
            httpcore.URL(
                scheme=address.scheme, host=address.host, port=address.port, target=address.target.encode()
            ),
            headers={
                "Host": address.authority,
                "Accept": accept,
                "Accept-Encoding": ACCEPTED,
                "User-Agent": f"sessiontree/{VERSION}",
                "Connection": "close",
            },
            extensions={
                "timeout": {"connect": self._bounds.connect_timeout_s, "read": wait_s, "write": wait_s}
            },
        )


def _led_on(address: WebAddress, location: str) -> WebAddress:
    try:
        return join_address(address, location)
    except ValidationError as error:
        # The server's fault and not the caller's, and not to be told in the server's words.
        raise ExecutionError(f"{address.shown} leads on to something that is no web address") from error


def _pieces(response: httpcore.Response) -> AsyncIterable[bytes]:
    stream = response.stream
    assert isinstance(stream, AsyncIterable)  # noqa: S101 - an asynchronous connection's answer has no other
    return stream


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the first value of each header, by its name in small letters."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        if key not in found:
            if len(value) > MAX_HEADER_VALUE_CHARS:
                value = b""
            found[key] = value.decode("utf-8", errors="replace")
    return found


def _content_type(header: str) -> tuple[str, str | None]:
    """Return media type and charset, both in small letters; nothing for what is no media type."""
    media, *parameters = (part.strip() for part in header.lower().split(";"))
    if not _MEDIA_TYPE.fullmatch(media):
        media = ""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and (charset := value.strip(" \"'")):
            return media, charset
    return media, None


def _words_of(error: Exception) -> str:
    """Return what went wrong in words of this house: those of the protocol quote what the server sent."""
    if isinstance(error, httpcore.ProtocolError):
        return "its answer breaks off, or is no valid HTTP"
    words: dict[type[Exception], str] = {
        httpcore.ConnectTimeout: "it did not take the connection in time",
        httpcore.ReadTimeout: "it did not answer in time",
        httpcore.WriteTimeout: "it did not take the request in time",
        httpcore.ReadError: "it broke the connection off before its answer was whole",
        httpcore.WriteError: "it broke the connection off before it had the request",
    }
    return words.get(type(error)) or str(error) or type(error).__name__
