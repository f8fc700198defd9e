"""Pages of runs in a browser: on a server, or as a folder without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Locator

from sessiontree.bench.view.run_server import make_server
from sessiontree.bench.view_command import find_runs
from tests.system.pages.page_fixtures import Screen, Site
from tests.system.serve.serve_fixtures import running


class RunScreen(Screen):
    """A page of runs."""

    @property
    def lines(self) -> Locator:
        """The rows of samples that are in the document."""
        return self.page.locator("run-view .lines .line")

    def line(self, sample_id: str) -> Locator:
        """The row of a sample."""
        return self.lines.filter(has=self.page.locator(".of-sample", has_text=sample_id))

    @property
    def pane(self) -> Locator:
        """What is shown next to the rows."""
        return self.page.locator("run-view .detail")

    @property
    def head(self) -> Locator:
        """What the run comes to."""
        return self.page.locator("run-view .run-head")

    async def go(self, place: str) -> None:
        """Go to a place of the page."""
        await self.page.evaluate("(place) => { location.hash = place; }", place)


@asynccontextmanager
async def site_of_runs(browser: Browser, *places: Path) -> AsyncIterator[Site]:
    """Serve runs to a browser."""
    async with running(make_server(find_runs(map(str, places)))) as server:
        site = Site(server, browser)
        try:
            yield site
        finally:
            await site.close()


async def open_runs(site: Site, place: str = "", **options: Any) -> RunScreen:
    """Open the page of a server."""
    context = await site.context(**options)
    screen = RunScreen(await context.new_page())
    screen.watch()
    await screen.page.goto(site.server.make_page_address("/", place))
    return screen


@asynccontextmanager
async def open_folder(
    browser: Browser, index: Path, place: str = "", **options: Any
) -> AsyncIterator[RunScreen]:
    """Open the page of a folder, with no network."""
    context = await browser.new_context(
        **{"viewport": {"width": 1280, "height": 800}, "offline": True, **options}
    )
    context.set_default_timeout(120_000)
    try:
        screen = RunScreen(await context.new_page())
        screen.watch()
        await screen.page.goto(f"{index.as_uri()}#{place}")
        yield screen
    finally:
        await context.close()


def are_of(requests: Sequence[str], beginning: str) -> bool:
    """Whether all requests of a page went to one place."""
    return all(address.startswith((beginning, "data:", "blob:")) for address in requests)
