"""The web for one process of a tree: pages, and search through SearXNG with a cache.

Source: SearXNG's documentation of its search API; ``format=json`` must be enabled there.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpcore

from sessiontree.contracts.errors import (
    ConfigError,
    ExecutionError,
    PermissionDenied,
    ToolError,
    ValidationError,
)
from sessiontree.contracts.handles.http_requests import MAX_SENT_BYTES, HttpRequest, HttpResponse
from sessiontree.contracts.handles.ports import Page, SearchHit, SearchQuery
from sessiontree.contracts.handles.speech import Speech, SpeechRequest
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.web.address import WebAddress, normalise_host, parse_address
from sessiontree.web.client import (
    AddressRules,
    FetchLimits,
    JudgingBackend,
    Resolve,
    WebClient,
    resolve_with_system,
)
from sessiontree.web.connection import WebConnection
from sessiontree.web.sent_requests import SentRequest, check_headers
from sessiontree.web.settings import WebSettings
from sessiontree.web.speech_service import SpeechService

MAX_ANSWER_BYTES: Final = 2 * 2**20
MAX_TITLE_CHARS: Final = 300
MAX_SNIPPET_CHARS: Final = 1000
MAX_URL_CHARS: Final = 2000


class SearchProvider(Protocol):
    """Finds pages."""

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits, best first, at most as many as the query wants.

        Raises:
            ToolError: the provider cannot be reached, or its answer is not valid.
        """
        ...


class Getter(Protocol):
    """Fetches a provider's answers."""

    async def get(self, address: WebAddress, *, max_bytes: int, accept: str) -> Page:
        """Return the page at an address."""
        ...


class Searxng:
    """The owner's SearXNG.

    Args:
        url: Its address, without ``/search``; a query in it is sent with each search.
        client: Fetches its answers; the client's rules allow the address.
    """

    def __init__(self, url: str, client: Getter) -> None:
        self._url = url
        self._client = client

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits, best first; the country is used only together with a language.

        Raises:
            ExecutionError: the provider refuses, fails, or sends an invalid answer.
        """
        place = urlsplit(self._url)
        asked = "&".join(part for part in (place.query, urlencode(_build_parameters(query))) if part)
        url = urlunsplit((place.scheme, place.netloc, f"{place.path.rstrip('/')}/search", asked, ""))
        address = replace(parse_address(url), is_secret=True)
        page = await self._client.get(address, max_bytes=MAX_ANSWER_BYTES, accept="application/json")
        if page.status == 403:
            raise ExecutionError(
                "the search provider refuses to answer in JSON; its owner must add json to search.formats in "
                "its settings.yml"
            )
        if page.status != 200:
            raise ExecutionError(f"the search provider answered with status {page.status}", page.may_pass)
        try:
            answer = json.loads(page.body)
        except (ValueError, RecursionError):
            answer = None
        rows = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(rows, list):
            raise ExecutionError("the search provider's answer is not a list of results")
        return tuple(islice(_read_hits(rows), query.count))


def _build_parameters(query: SearchQuery) -> dict[str, str]:
    language = query.language
    if language is not None and query.country is not None:
        language = f"{language}-{query.country.upper()}"
    asked = {"q": query.text, "format": "json", "language": language, "time_range": query.freshness}
    return {name: value for name, value in asked.items() if value is not None}


def _read_hits(rows: list[Any]) -> Iterator[SearchHit]:
    seen: set[str] = set()
    for row in rows:
        if not isinstance(row, dict):
            continue
        url = _to_line(row.get("url"), MAX_URL_CHARS)
        if url.startswith(("http://", "https://")) and url not in seen:
            seen.add(url)
            yield SearchHit(
                _to_line(row.get("title"), MAX_TITLE_CHARS),
                url,
                _to_line(row.get("content"), MAX_SNIPPET_CHARS),
            )


def _to_line(value: object, max_chars: int) -> str:
    """Return a text as one line."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


KEPT_S: Final = 15 * 60.0
KEPT_QUERIES: Final = 100


class SearchCache:
    """A provider with a cache.

    Args:
        provider: Answers queries that are not in the cache; its errors are not cached.
        now_s: A clock that never steps back, in seconds.
    """

    def __init__(self, provider: SearchProvider, now_s: Callable[[], float]) -> None:
        self._provider = provider
        self._now_s = now_s
        self._kept: OrderedDict[SearchQuery, tuple[float, tuple[SearchHit, ...]]] = OrderedDict()

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return the provider's hits, not older than 15 minutes."""
        kept = self._kept.get(query)
        if kept is not None and self._now_s() - kept[0] < KEPT_S:
            self._kept.move_to_end(query)
            return kept[1]
        hits = await self._provider.search(query)
        self._kept[query] = (self._now_s(), hits)
        # A query that was answered again after its time keeps its old place in the order otherwise.
        self._kept.move_to_end(query)
        while len(self._kept) > KEPT_QUERIES:
            self._kept.popitem(last=False)
        return hits


NO_PROVIDER = (
    "no search provider is configured; the owner of this tree can name a SearXNG: "
    "SessionTree(…, web=WebSettings(search_url='http://127.0.0.1:8888'))"
)


class OutboundWeb:
    """Reads pages, asks the search provider and sends requests: the web of a process.

    It is the process's :class:`~sessiontree.contracts.handles.ports.Web` and
    :class:`~sessiontree.contracts.handles.http_requests.HttpSender`.

    Use it from one event loop. No connection stays open between pages.

    Args:
        settings: The owner's settings.
        resolve: Returns a name's addresses; by default the system's resolver.
        connector: Makes connections to judged addresses; by default httpcore's.
        now_s: A clock that never steps back, in seconds.

    Raises:
        ConfigError: an allowed place or the search provider's address is not valid.
    """

    def __init__(
        self,
        settings: WebSettings,
        *,
        resolve: Resolve = resolve_with_system,
        connector: httpcore.AsyncNetworkBackend | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._connector = connector
        self._turns = asyncio.Semaphore(settings.max_at_once)
        # Reading the authorities' certificates takes some 30 ms, so it happens once, at the first need.
        self._secured = cache(partial(_load_certificates, settings.ca_file))
        self._pages = self._make_client(settings.ports, settings.allow_private, settings.max_redirects)
        self._search = (
            None if settings.search_url is None else self._make_provider(settings.search_url, now_s)
        )
        self._speech = None if settings.speech_url is None else self._make_speaker(settings.speech_url)

    @property
    def has_search(self) -> bool:
        """Whether the owner named a search provider."""
        return self._search is not None

    @property
    def has_speech(self) -> bool:
        """Whether the owner named a speech service."""
        return self._speech is not None

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return the page at an address, redirects followed, with any status."""
        most = self._settings.max_bytes
        wanted = most if max_bytes is None else min(max_bytes, most)
        return await self._pages.get(parse_address(url), max_bytes=wanted, accept=accept)

    async def request(self, wanted: HttpRequest) -> HttpResponse:
        """Send one request and return the response, redirects followed, with any status.

        Raises:
            ValidationError: address, header or body is not valid; names the field.
            PermissionDenied: the address may not be reached; names the tier System.
        """
        sent = SentRequest(wanted.method, check_headers(wanted.headers), wanted.body)
        if len(wanted.body) > MAX_SENT_BYTES:
            raise ValidationError(
                f"the body has {len(wanted.body):,} bytes; a request holds at most {MAX_SENT_BYTES:,}",
                "/body",
            )
        most = self._settings.max_bytes
        max_bytes = most if wanted.max_bytes is None else min(wanted.max_bytes, most)
        try:
            return await self._pages.send(parse_address(wanted.url), sent, max_bytes=max_bytes)
        except PermissionDenied as refused:  # the rules for addresses are those of reading
            raise PermissionDenied(PermissionTier.SYSTEM, refused.message) from refused

    async def connect(self, host: str, port: int) -> WebConnection:
        """Return a connection to a host, for a program that speaks to it itself, such as a browser.

        Raises:
            ValidationError: it is not a host.
            PermissionDenied: the port, or an address of the host, is not allowed.
            ExecutionError: the host can't be reached.
        """
        return await self._pages.connect(WebAddress("http", normalise_host(host), port, "/"))

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits of the owner's search provider, best first.

        Raises:
            ExecutionError: no provider is configured; or it cannot be reached, refuses or fails.
        """
        if self._search is None:
            raise ExecutionError(NO_PROVIDER)
        return await self._search.search(query)

    async def speak(self, wanted: SpeechRequest) -> Speech:
        """Return a text spoken by the owner's service.

        Raises:
            ExecutionError: no service is configured; or it cannot be reached, refuses or fails.
        """
        if self._speech is None:
            raise ExecutionError("no speech service is configured: WebSettings(speech_url=…)")
        return await self._speech.speak(wanted)

    def _make_client(
        self, ports: tuple[int, ...], allow_private: tuple[str, ...], redirects: int
    ) -> WebClient:
        settings = self._settings
        rules = AddressRules(ports=ports, allow_private=allow_private)
        return WebClient(
            rules,
            JudgingBackend(rules, self._resolve, self._connector),
            FetchLimits(
                redirects,
                settings.connect_timeout_s,
                settings.read_timeout_s,
                settings.total_timeout_s,
            ),
            self._turns,
            self._secured,
        )

    def _make_provider(self, url: str, now_s: Callable[[], float]) -> SearchCache:
        """Return the provider, with a client that may reach only its address, without redirects."""
        return SearchCache(
            Searxng(url, self._make_service_client(url, "search_url", "a search provider")), now_s
        )

    def _make_speaker(self, url: str) -> SpeechService:
        """Return the speech service, with a client that may reach only its address, without redirects."""
        settings = self._settings
        client = self._make_service_client(url, "speech_url", "a speech service")
        try:
            # Checked now, where its owner sees it, and not with the first call of a model.
            check_headers([("Authorization", settings.speech_key or "")])
        except ToolError:
            raise ConfigError("speech_key holds more than printable ASCII; it is not shown") from None
        return SpeechService(url, client, settings.speech_model, settings.speech_voice, settings.speech_key)

    def _make_service_client(self, url: str, member: str, what: str) -> WebClient:
        try:
            address = parse_address(url)
        except ToolError as error:
            raise ConfigError(
                # The error that is replaced would quote the address, and with it the key that may be in it.
                f"{member} is not an address of {what} ({type(error).__name__}); give one such "
                "as 'http://127.0.0.1:8888', without user name and password; it is not shown, since it may "
                "hold a key"
            ) from None
        return self._make_client((address.port,), (_place(address),), redirects=0)


def _load_certificates(ca_file: Path | None) -> ssl.SSLContext:
    context = httpcore.default_ssl_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def _place(address: WebAddress) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
