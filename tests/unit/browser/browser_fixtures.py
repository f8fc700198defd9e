"""A page server on the loopback, and browsers that may reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from sessiontree.browser.session_browser import SessionBrowser
from tests.unit.web.site_fakes import Respond, Site, answer, local_web, serving


def pages(**given: str | Respond) -> Respond:
    """Return what serves pages by the first part of their path; ``index`` is the origin itself."""

    async def respond(request: str, writer: asyncio.StreamWriter) -> None:
        name = request.split(" ", 2)[1].partition("?")[0].strip("/").replace("/", "_") or "index"
        page = given.get(name)
        if page is None:
            await answer(b"missing", status=404)(request, writer)
        elif isinstance(page, str):
            await answer(page.encode(), content_type="text/html; charset=utf-8")(request, writer)
        else:
            await page(request, writer)

    return respond


@asynccontextmanager
async def browsing(
    *sites: Site, idle_s: float = 600.0, dialog_s: float = 60.0
) -> AsyncIterator[SessionBrowser]:
    """Yield a browser that may reach these servers, and end it."""
    browser = SessionBrowser(local_web(*sites), idle_s=idle_s, dialog_s=dialog_s)
    try:
        yield browser
    finally:
        browser.end()
        await browser.ended()


@asynccontextmanager
async def showing(pages_given: Mapping[str, str | Respond]) -> AsyncIterator[tuple[SessionBrowser, Site]]:
    """Yield a browser and a server with these pages, and end both."""
    async with serving(pages(**pages_given)) as site, browsing(site) as browser:
        yield browser, site
