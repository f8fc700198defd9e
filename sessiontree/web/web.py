"""The web as one process of a tree reads it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import httpcore

from sessiontree.contracts.errors import ConfigError, ExecutionError, ToolError
from sessiontree.contracts.ports import Page, SearchHit, SearchQuery
from sessiontree.web.address import WebAddress, parse_address
from sessiontree.web.client import FetchLimits, WebClient
from sessiontree.web.network import JudgingBackend, Resolve, system_addresses
from sessiontree.web.rules import AddressRules
from sessiontree.web.search_cache import SearchCache
from sessiontree.web.searxng import Searxng
from sessiontree.web.settings import WebSettings

NO_PROVIDER = (
    "no search provider is configured; the owner of this tree can name a SearXNG: "
    "SessionTree(…, web=WebSettings(search_url='http://127.0.0.1:8888'))"
)


class OutboundWeb:
    """Reads pages and asks the search provider; the :class:`~sessiontree.contracts.ports.Web` of a process.

    Used from one event loop. Nothing is kept open between pages.

    Args:
        settings: The owner's.
        resolve: Gives a name's addresses; by default the system.
        connector: Makes connections to judged addresses; by default the system.
        now_s: A clock that never steps back, in seconds.

    Raises:
        ConfigError: a place or the search provider's address is none.
    """

    def __init__(
        self,
        settings: WebSettings,
        *,
        resolve: Resolve = system_addresses,
        connector: httpcore.AsyncNetworkBackend | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._connector = connector
        self._turns = asyncio.Semaphore(settings.max_at_once)
        # Reading the authorities' certificates takes some 30 ms, so it is done once, and only where needed.
        self._secured = cache(partial(_certificates, settings.ca_file))
        self._pages = self._client(settings.ports, settings.allow_private, settings.max_redirects)
        self._search = None if settings.search_url is None else self._provider(settings.search_url, now_s)

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return what a GET of an address leads to, whatever its status."""
        most = self._settings.max_bytes
        wanted = most if max_bytes is None else min(max_bytes, most)
        return await self._pages.get(parse_address(url), max_bytes=wanted, accept=accept)

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits of the owner's search provider, best first.

        Raises:
            ExecutionError: none is configured; or it can't be reached, refuses or fails.
        """
        if self._search is None:
            raise ExecutionError(NO_PROVIDER)
        return await self._search.search(query)

    def _client(self, ports: tuple[int, ...], allow_private: tuple[str, ...], redirects: int) -> WebClient:
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

    def _provider(self, url: str, now_s: Callable[[], float]) -> SearchCache:
        """Return the provider, with a client whose rules allow that one place and no redirect."""
        try:
            address = parse_address(url)
        except ToolError as error:
            raise ConfigError(f"search_url: {error}") from error
        place = _place(address)
        return SearchCache(Searxng(url, self._client((address.port,), (place,), redirects=0)), now_s)


def _certificates(ca_file: Path | None) -> ssl.SSLContext:
    context = httpcore.default_ssl_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def _place(address: WebAddress) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
