"""Whatever a model, a sample or a setting wrote is text in a page of runs: live, and in a folder."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

from sessiontree.bench.view.run_folder import write_folder
from sessiontree.bench.view_command import find_runs
from tests.system.bench.view.hostile_run_fixtures import record_hostile_run
from tests.system.bench.view.run_page_fixtures import RunScreen, are_of, open_folder, open_runs, site_of_runs
from tests.system.pages.hostile_fixtures import ATTACKS
from tests.system.pages.test_hostile_texts import FIND_FOREIGN

TALL = {"width": 1280, "height": 3000}
OPEN_ALL = """() => {
  const root = document.querySelector("run-view").shadowRoot;
  for (const each of root.querySelectorAll("details")) each.open = true;
}"""


async def _is_clean(screen: RunScreen) -> None:
    await screen.page.evaluate(OPEN_ALL)
    assert await screen.page.evaluate(FIND_FOREIGN) == []


async def _read_everything(screen: RunScreen) -> None:
    """Go through the list, a run, samples with their trees, and two runs side by side."""
    page = screen.page
    await expect(page.get_by_role("checkbox")).to_have_count(2)
    await _is_clean(screen)
    await screen.go("/run/0")
    await expect(screen.lines).to_have_count(len(ATTACKS) + 1)
    await _is_clean(screen)
    for place in (1, 2, len(ATTACKS), 0):
        await screen.lines.nth(place).click()
        await expect(screen.pane.get_by_role("heading", name="Input")).to_be_visible()
        await _is_clean(screen)
    await page.get_by_role("tab", name="Attempts").click()
    await expect(screen.pane.get_by_text("Earlier scores")).to_be_visible()
    await _is_clean(screen)
    await page.get_by_role("tab", name="Tree").click()
    await screen.rows.first.wait_for()
    await _is_clean(screen)
    await page.get_by_label("Filter by tag").select_option("safe")
    await page.get_by_placeholder("Filter by text").fill("alert")
    await _is_clean(screen)
    await screen.go("/pair/0/1")
    await screen.page.get_by_label("Samples of both runs").wait_for()
    await screen.lines.nth(1).click()
    await expect(screen.pane.get_by_text("open with its tree")).to_have_count(2)
    await _is_clean(screen)
    for attack in (*ATTACKS[::8], "<b>", "__proto__"):
        await screen.go(f"/run/0/sample/{attack}/1")
    await expect(screen.lines.first).to_be_visible()
    await _is_clean(screen)


async def test_attacks_stay_text_in_pages_of_runs(tmp_path: Path, browser: Browser) -> None:
    """Through every field: no element, attribute, request, dialog or error comes of them."""
    for name in ("one", "two"):
        await record_hostile_run(tmp_path / name)
    async with site_of_runs(browser, tmp_path) as site:
        screen = await open_runs(site, viewport=TALL)
        await _read_everything(screen)
        assert are_of(screen.requests, site.origin)
        assert screen.problems == []


async def test_attacks_stay_text_in_a_folder(tmp_path: Path, browser: Browser) -> None:
    """The same in files that are opened without a server or a network."""
    for name in ("one", "two"):
        await record_hostile_run(tmp_path / "runs" / name)
    written = write_folder(find_runs([str(tmp_path / "runs")]), tmp_path / "folder")
    assert written.missing == ()
    async with open_folder(browser, written.index, viewport=TALL) as screen:
        await _read_everything(screen)
        assert are_of(screen.requests, written.place.as_uri())
        assert screen.problems == []
