"""The rules of axe-core over every view, wide and narrow, light and dark: no violation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page

from tests.system.pages.page_fixtures import NARROW, WIDE, Screen, site_of
from tests.system.pages.research_fixtures import research_tree

AXE = Path(__file__).parents[3] / ".ci/page/node_modules/axe-core/axe.min.js"
RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
    `${id}: ${JSON.stringify(target)}: ${failureSummary}`));
}"""


@pytest.fixture(scope="module")
def rules() -> str:
    """The text of axe-core."""
    if not AXE.is_file():
        pytest.fail("the rules of accessibility are not installed: run make setup-page")
    return AXE.read_text("utf-8")


async def _violations(page: Page, rules: str) -> list[str]:
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(rules)
    return [str(each) for each in await page.evaluate(RUN)]


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light"),
        pytest.param(NARROW, "dark", id="narrow-dark"),
        pytest.param(WIDE, "dark", id="wide-dark", marks=pytest.mark.long),
        pytest.param(NARROW, "light", id="narrow-light", marks=pytest.mark.long),
    ],
)
async def test_no_view_violates_a_rule(
    tmp_path: Path, browser: Browser, rules: str, scheme: Any, size: Any
) -> None:
    """The list, a request, each tab, the menu, the dialogs, the past, and the list of trees."""
    async with research_tree(tmp_path) as tree, site_of(tmp_path / "state", browser) as site:
        options = {"viewport": size, "color_scheme": scheme, "bypass_csp": True, "reduced_motion": "reduce"}
        screen = await site.open_tree(tree.tree_id, **options)
        found = {"tree": await _violations(screen.page, rules)}
        await screen.rows.first.click()
        for tab in ("Inbox", "Transcript", "Tools", "Timeline", "Account", "Receipt", "Replay"):
            await screen.tab(tab).click()
            await screen.panel.get_by_text("Reading…").wait_for(state="detached")
            found[tab] = await _violations(screen.page, rules)
        await _go_back(screen)
        await screen.rows.first.click(button="right")
        found["menu"] = await _violations(screen.page, rules)
        await screen.page.get_by_role("menuitem", name="Cancel").click()
        found["dialog"] = await _violations(screen.page, rules)
        await screen.page.keyboard.press("Escape")
        await screen.page.get_by_role("slider").press("Home")
        await asyncio.sleep(0.3)
        found["past"] = await _violations(screen.page, rules)
        listed = await site.open("/", screen.page.context)
        await listed.page.get_by_role("link").first.wait_for()
        found["trees"] = await _violations(listed.page, rules)
        assert {name: each for name, each in found.items() if each} == {}


async def _go_back(screen: Screen) -> None:
    """Go back to the list of sessions, where it is a view of its own."""
    back = screen.page.get_by_role("button", name="Sessions")
    if await back.is_visible():
        await back.click()
