"""The open tabs of a browser, and which of them is the current one."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from playwright.async_api import Page

from sessiontree.browser.inside.page_tab import PageTab
from sessiontree.browser.inside.page_watch import Refusal

MAX_TABS: Final = 16


class OpenTabs:
    """Tabs by name, also those that pages opened.

    Args:
        dialog_s: How long a dialog waits for an answer.
    """

    def __init__(self, dialog_s: float) -> None:
        self.current = ""
        """The tab of orders that name none; empty = no page is open."""
        self._dialog_s = dialog_s
        self._tabs: dict[str, PageTab] = {}
        self._numbers = 0
        self._closing: set[asyncio.Future[None]] = set()

    async def build_rows(self) -> list[dict[str, Any]]:
        """Return all tabs as the host knows them."""
        return [await self.build_row(tab) for tab in list(self._tabs.values())]

    def find(self, message: dict[str, Any]) -> PageTab:
        """Return the tab that an order names, or the current one.

        Raises:
            Refusal: it is not open.
        """
        wanted = message.get("tab_id") or self.current
        tab = self._tabs.get(wanted)
        if tab is None:
            open_ones = ", ".join(self._tabs) or "none"
            why = f"there is no tab {wanted!r}" if wanted else "no page is open"
            raise Refusal("page", f"{why}; open tabs: {open_ones}")
        return tab

    async def build_row(self, tab: PageTab, status: int = 0) -> dict[str, Any]:
        """Return a tab as the host knows it."""
        row = await tab.described()
        return {**row, "is_current": tab.tab_id == self.current, "status": status}

    def note_page(self, page: Page) -> None:
        """Take in a page that an order or another page opened."""
        if len(self._tabs) < MAX_TABS:
            self.add(page, is_offline=False)
        else:
            self._closing.add(asyncio.ensure_future(page.close()))

    def add(self, page: Page, *, is_offline: bool) -> PageTab:
        """Return the tab of a page, a new one unless it has one."""
        known = next((tab for tab in self._tabs.values() if tab.page is page), None)
        if known is not None:
            return known
        self._numbers += 1
        tab = PageTab(f"t{self._numbers}", page, is_offline=is_offline, dialog_s=self._dialog_s)
        self._tabs[tab.tab_id] = tab
        page.on("close", lambda _: self.forget(tab))
        return tab

    def forget(self, tab: PageTab) -> None:
        """Note that a tab is closed; the newest of the others becomes the current one."""
        self._tabs.pop(tab.tab_id, None)
        if self.current == tab.tab_id:
            self.current = next(
                (name for name, each in reversed(self._tabs.items()) if not each.is_offline), ""
            )

    def check_room(self) -> None:
        """Check that one more tab may be opened.

        Raises:
            Refusal: too many are open.
        """
        if len(self._tabs) >= MAX_TABS:
            raise Refusal("page", f"{MAX_TABS} tabs are open, the most there may be; close one first")
