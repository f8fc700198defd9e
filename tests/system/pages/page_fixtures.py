"""A server, and pages of it in a browser that notes whatever a page should not do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Locator, Page, expect

from sessiontree.serve.listen import Address, PageServer
from tests.system.serve.serve_fixtures import running

expect.set_options(timeout=120_000)
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 380, "height": 800}
READ_PAGE = """() => {
  const root = document.querySelector("session-tree")?.shadowRoot;
  const texts = [...(root?.children ?? [document.body])].map((each) => each.innerText ?? "");
  return `${location.pathname}: ${texts.join(" | ")}`;
}"""


@dataclass
class Screen:
    """A page, what it asked for, and what went wrong in it."""

    page: Page
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note requests, errors and dialogs from now on."""
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._refuse)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.type}: {message.text}")

    async def _refuse(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    @property
    def rows(self) -> Locator:
        """The rows that are in the document."""
        return self.page.locator("session-tree .lines .row")

    def row(self, label: str) -> Locator:
        """The row of a session."""
        return self.rows.filter(has=self.page.locator(".label", has_text=label))

    @property
    def cards(self) -> Locator:
        """Requests and questions that wait for a person."""
        return self.page.locator("session-tree .card")

    def tab(self, words: str) -> Locator:
        """A tab of the pane next to the list."""
        return self.page.get_by_role("tab", name=words)

    @property
    def panel(self) -> Locator:
        """What the open tab shows."""
        return self.page.locator("session-tree #panel")

    async def focused(self) -> str:
        """Return the class and tag of what has the focus."""
        return str(
            await self.page.evaluate(
                """() => {
                  let at = document.activeElement;
                  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
                  return `${at?.localName} ${at?.className}`;
                }"""
            )
        )


class Site:
    """A server of a state directory, and the pages that a browser has of it."""

    def __init__(self, server: PageServer, browser: Browser) -> None:
        self.server = server
        self.origin = server.make_page_address().partition("/?")[0]
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    async def context(self, **options: Any) -> BrowserContext:
        """Open another profile, with no cookie."""
        context = await self._browser.new_context(**{"viewport": WIDE, **options})
        context.set_default_timeout(120_000)
        self._contexts.append(context)
        return context

    async def open(self, path: str, context: BrowserContext | None = None, **options: Any) -> Screen:
        """Open a page by an address that the server prints; a profile that was let in needs no token."""
        known = context is not None and await context.cookies()
        context = context or await self.context(**options)
        screen = Screen(await context.new_page())
        screen.watch()
        await screen.page.goto(f"{self.origin}{path}" if known else self.server.make_page_address(path))
        return screen

    async def open_tree(self, tree_id: str, context: BrowserContext | None = None, **options: Any) -> Screen:
        """Open the page of a tree, and wait for its rows."""
        screen = await self.open(f"/t/{tree_id}", context, **options)
        await screen.rows.first.wait_for()
        return screen

    async def describe(self) -> str:
        """Return the text of each page, for the report of a test that failed."""
        pages = [page for context in self._contexts for page in context.pages]
        return "\n".join([await page.evaluate(READ_PAGE) for page in pages])

    async def close(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            await context.close()


@asynccontextmanager
async def site_of(state_dir: Path, browser: Browser, port: int = 0) -> AsyncIterator[Site]:
    """Serve a state directory to a browser."""
    async with running(PageServer(state_dir, Address(port=port))) as server:
        site = Site(server, browser)
        try:
            yield site
        except BaseException as error:
            error.add_note(await site.describe())
            raise
        finally:
            await site.close()
