"""A server on this process's loop, and a browser's way to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from sessiontree.serve.listen import Address, PageServer


class Browser:
    """Holds a cookie, sends the headers of a page, and reads a feed."""

    def __init__(self, client: httpx.AsyncClient, origin: str) -> None:
        self.client = client
        self.origin = origin

    async def ask(self, tree_id: str, verb: str, **given: Any) -> Any:
        """Ask, and return the answer."""
        answer = await self.client.post(
            f"/t/{tree_id}/ask", json={"verb": verb, "given": given}, headers={"Origin": self.origin}
        )
        return answer.json()

    async def news(self, tree_id: str, **query: Any) -> AsyncGenerator[dict[str, Any]]:
        """Yield what a feed says."""
        async with self.client.stream("GET", f"/t/{tree_id}/feed", params=query) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    yield httpx.Response(200, text=line.removeprefix("data: ")).json()


@asynccontextmanager
async def running(server: PageServer) -> AsyncIterator[PageServer]:
    """Let a server run."""
    listening = asyncio.Event()
    serving = asyncio.create_task(server.run(listening.set))
    await listening.wait()
    try:
        yield server
    finally:
        server.stop()
        await serving


@asynccontextmanager
async def serving(state_dir: Path) -> AsyncIterator[Browser]:
    """Serve a state directory, and be let in."""
    async with running(PageServer(state_dir, Address())) as server:
        address = server.make_page_address()
        origin = address.partition("/?")[0]
        async with httpx.AsyncClient(base_url=origin, timeout=60) as client:
            answer = await client.get(address, follow_redirects=True)
            assert answer.status_code == 200
            assert "token" not in str(answer.url)
            yield Browser(client, origin)
