"""Streams of news: each counts while its client follows it, and what it holds is let go of at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from sessiontree.serve import server
from sessiontree.serve.server import PageParts
from sessiontree.view.feed import NewsFeed


class _StillFeed:
    """A feed without news."""

    id = "feed"
    revision = 0

    def __init__(self) -> None:
        self.followers = 0

    async def wait_for_news(self, feed: str, revision: int) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    def dump_changes(self, feed: str, revision: int) -> str:
        """Return nothing: nobody asks."""
        return ""

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[NewsFeed]:
        """Count who follows it."""
        self.followers += 1
        yield self
        self.followers -= 1


async def _leave(response: Response, scope: dict[str, Any], *, reads: bool) -> None:
    """Let a client ask for a response, and leave; it reads the headers, or does not."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if not reads:
            await asyncio.Event().wait()

    await response(scope, receive, send)


@pytest.mark.parametrize(("method", "reads"), [("GET", True), ("GET", False), ("HEAD", True)])
async def test_client_that_leaves_at_once_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, method: str, reads: bool
) -> None:
    """Also one that leaves before the first step of its stream, or asks for the headers alone."""
    monkeypatch.setattr(server, "MAX_STREAMS", 1)
    parts, feed = PageParts(), _StillFeed()
    scope: dict[str, Any] = {"type": "http", "method": method, "headers": [], "query_string": b""}
    for _ in range(2):
        response = await parts.follow(Request(scope), feed.follow(), asyncio.Event())
        assert response.status_code == 200
        assert feed.followers == 1
        await _leave(response, scope, reads=reads)
        assert feed.followers == 0
