"""A page as wide as a telephone: every action can be reached, and nothing is wider than the screen."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.system.pages.page_fixtures import NARROW, Screen, site_of
from tests.system.pages.research_fixtures import research_tree


async def _fits(screen: Screen) -> None:
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await screen.page.evaluate(wide) == 0


async def _go_back(screen: Screen) -> None:
    """Tap on the way back, and again: a browser takes a tap during a scroll as the end of the scroll."""
    while not await screen.rows.first.is_visible():
        await screen.page.get_by_role("button", name="Sessions").tap()
        await screen.page.wait_for_timeout(100)


async def test_every_action_is_reached_on_a_narrow_page(tmp_path: Path, browser: Browser) -> None:
    """Read, steer and interrupt from the menu of a row, answer a request, go through the tabs, and cancel."""
    async with research_tree(tmp_path) as tree, site_of(tmp_path / "state", browser) as site:
        screen = await site.open_tree(tree.tree_id, viewport=NARROW, has_touch=True)
        await _fits(screen)
        page, menu = screen.page, screen.page.get_by_role("menu")
        for verb in ("Steer", "Interrupt", "Cancel"):
            await screen.rows.first.locator(".menu-button").tap()
            await menu.get_by_role("menuitem", name=verb).tap()
            await expect(page.get_by_role("dialog")).to_be_visible()
            await _fits(screen)
            await page.get_by_role("button", name="Do nothing").tap()
        await screen.rows.first.locator(".menu-button").tap()
        await menu.get_by_role("menuitem", name="Read the transcript").tap()
        await expect(screen.panel.get_by_text("Compare the cities")).to_be_visible()
        for tab in ("Inbox", "Transcript", "Tools", "Timeline", "Account", "Receipt", "Replay"):
            await screen.tab(tab).tap()
            await expect(screen.panel).not_to_contain_text("Reading…")
            await _fits(screen)
        await _go_back(screen)
        await page.get_by_role("button", name="Next of 3 failed").tap()
        await expect(screen.panel.locator(".head")).to_contain_text("failed")
        await _go_back(screen)
        await page.get_by_role("button", name="waits for you").tap()
        await screen.cards.get_by_placeholder("Reason").fill("not now")
        await screen.cards.get_by_role("button", name="Deny").tap()
        await expect(screen.cards).to_have_count(0)  # nobody waits any more: the list is there again
        await screen.rows.first.locator(".menu-button").tap()
        await menu.get_by_role("menuitem", name="Cancel").tap()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel the session").tap()
        await expect(page.get_by_role("dialog").get_by_role("table")).to_be_visible()
        await _fits(screen)
        await page.get_by_role("button", name="Close").tap()
        await expect(screen.rows.first).to_contain_text("cancelled")
        assert screen.problems == []
