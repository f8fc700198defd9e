"""Asking a SearXNG, in its JSON form.

Source: SearXNG's documentation of its search API; ``format=json`` must be switched on there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.ports import Page, SearchHit, SearchQuery
from sessiontree.web.address import WebAddress, parse_address

MAX_ANSWER_BYTES: Final = 2 * 2**20
MAX_TITLE_CHARS: Final = 300
MAX_SNIPPET_CHARS: Final = 1000
MAX_URL_CHARS: Final = 2000


class SearchProvider(Protocol):
    """Something that finds pages."""

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits, best first, at most as many as wanted.

        Raises:
            ToolError: it can't be asked, or its answer is not valid.
        """
        ...


class Getter(Protocol):
    """What fetches a provider's answers."""

    async def get(self, address: WebAddress, *, max_bytes: int, accept: str) -> Page:
        """Return the page at an address."""
        ...


class Searxng:
    """A SearXNG of the owner's choice.

    Args:
        url: Where it answers, without ``/search``.
        client: Fetches; its rules allow the place.
    """

    def __init__(self, url: str, client: Getter) -> None:
        self._url = url.rstrip("/")
        self._client = client

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits, best first; country counts only together with a language.

        Raises:
            ExecutionError: it refuses, fails, or answers something else than hits.
        """
        address = parse_address(f"{self._url}/search?{urlencode(_parameters(query))}")
        page = await self._client.get(address, max_bytes=MAX_ANSWER_BYTES, accept="application/json")
        if page.status == 403:
            raise ExecutionError(
                "the search provider refuses to answer in JSON; its owner has to add json to search.formats "
                "in its settings.yml"
            )
        if page.status != 200:
            raise ExecutionError(f"the search provider answered with status {page.status}", page.may_pass)
        try:
            answer = json.loads(page.body)
        except (ValueError, RecursionError):
            answer = None
        rows = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(rows, list):
            raise ExecutionError("the search provider's answer is no list of results")
        return tuple(islice(_hits(rows), query.count))


def _parameters(query: SearchQuery) -> dict[str, str]:
    language = query.language
    if language is not None and query.country is not None:
        language = f"{language}-{query.country.upper()}"
    asked = {"q": query.text, "format": "json", "language": language, "time_range": query.freshness}
    return {name: value for name, value in asked.items() if value is not None}


def _hits(rows: list[Any]) -> Iterator[SearchHit]:
    seen: set[str] = set()
    for row in rows:
        if not isinstance(row, dict):
            continue
        url = _line(row.get("url"), MAX_URL_CHARS)
        if url.startswith(("http://", "https://")) and url not in seen:
            seen.add(url)
            yield SearchHit(
                _line(row.get("title"), MAX_TITLE_CHARS), url, _line(row.get("content"), MAX_SNIPPET_CHARS)
            )


def _line(value: object, max_chars: int) -> str:
    """Return a text as one line."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
