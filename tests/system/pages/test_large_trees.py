"""Trees of many sessions in a browser: few rows are in the document, and all can be reached."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from benchmarks.view_tree import TREE_ID, record_tree
from sessiontree import AsyncFunctionModel, FunctionModel, Limits, ModelRequest, SessionTree, script_call
from sessiontree.models.answers import Answer
from tests.system.pages.page_fixtures import Screen, site_of

MOST_ROWS = 60
"""Rows in the document, however many sessions there are."""
MOST_ELEMENTS = 3_000
ROW_IN_THE_MIDDLE = """() => {
  const root = document.querySelector("session-tree").shadowRoot;
  const box = root.querySelector(".grid").getBoundingClientRect();
  return root.elementFromPoint(box.left + 60, box.top + box.height / 2)?.closest(".row")?.textContent;
}"""


async def _is_bounded(screen: Screen) -> None:
    assert await screen.rows.count() <= MOST_ROWS
    elements = "() => document.querySelector('session-tree').shadowRoot.querySelectorAll('*').length"
    assert await screen.page.evaluate(elements) <= MOST_ELEMENTS


async def _scroll_through(screen: Screen) -> None:
    """Scroll from the first to the last row: each place shows the rows that belong there."""
    grid = screen.page.locator("session-tree .grid")
    for part in (0.25, 0.5, 0.75, 1.0, 0.0):
        await grid.evaluate("(grid, part) => { grid.scrollTop = part * grid.scrollHeight; }", part)
        await screen.page.wait_for_function(ROW_IN_THE_MIDDLE, timeout=5_000)
        await _is_bounded(screen)


@pytest.mark.parametrize("sessions", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_recorded_tree_of_many_sessions(tmp_path: Path, browser: Browser, sessions: int) -> None:
    """It opens, scrolls, filters, and leads to its first failure and to its last session."""
    await record_tree(tmp_path / "state", sessions)
    async with site_of(tmp_path / "state", browser) as site:
        screen = await site.open_tree(TREE_ID)
        await expect(screen.page.locator(".totals")).to_contain_text(
            f"{sessions:,} sessions".replace(",", " ")
        )
        await _scroll_through(screen)
        grid = screen.page.locator("session-tree .grid")
        await grid.focus()
        await screen.page.keyboard.press("End")
        last = int(await grid.get_attribute("aria-rowcount") or 0)
        await expect(screen.rows.last).to_have_attribute("aria-rowindex", str(last))
        await screen.page.keyboard.press("Shift+N")
        await expect(screen.panel.locator("h2")).to_contain_text("chapter")
        await expect(screen.panel.locator(".head")).to_contain_text("failed")
        await screen.page.get_by_label("Filter sessions by state").select_option("failed")
        await _is_bounded(screen)
        await expect(screen.rows.locator("[data-state=failed]").first).to_be_visible()
        await screen.page.get_by_placeholder("Filter").fill("no such session")
        await expect(screen.page.get_by_text("No session matches the filter.")).to_be_visible()
        assert screen.problems == []


@pytest.mark.parametrize("sessions", [100, pytest.param(1_000, marks=pytest.mark.long)])
async def test_live_tree_of_many_sessions(tmp_path: Path, browser: Browser, sessions: int) -> None:
    """All are there while they work, and all are seen to end."""
    go_on = asyncio.Event()

    async def answer(request: ModelRequest) -> Answer:
        await go_on.wait()
        return f"result of {request.session_id}"

    (tmp_path / "workspace").mkdir()
    async with (
        SessionTree(
            tmp_path / "workspace",
            model=AsyncFunctionModel(answer),
            backend="local",
            state_dir=tmp_path / "state",
            slots=sessions + 1,
            limits=Limits(max_children=sessions, max_live=sessions + 1),
        ) as tree,
        site_of(tmp_path / "state", browser) as site,
    ):
        screen = await site.open_tree(tree.tree_id)
        for number in range(sessions):
            await tree.main.spawn("worker", "look", label=f"reader {number}")
        await expect(screen.page.locator(".totals")).to_contain_text(
            f"{sessions + 1:,} live".replace(",", " "), timeout=90_000
        )
        await _scroll_through(screen)
        await screen.page.get_by_placeholder("Filter").fill(f"reader {sessions - 1}")
        await expect(screen.row(f"reader {sessions - 1}")).to_be_visible()
        go_on.set()
        await expect(screen.row(f"reader {sessions - 1}")).to_contain_text("completed", timeout=90_000)
        await expect(screen.page.locator(".totals")).to_contain_text("1 live", timeout=90_000)
        await _is_bounded(screen)
        assert screen.problems == []


async def test_long_transcript_is_read_in_parts(tmp_path: Path, browser: Browser) -> None:
    """Few items stay in the document while it scrolls to its end, and all before them can be had again."""
    turns = 700

    def answer(request: ModelRequest) -> Answer:
        return [script_call("read", path="a.txt")] if request.turn < turns else "the end"

    (tmp_path / "workspace").mkdir()
    await asyncio.to_thread((tmp_path / "workspace" / "a.txt").write_text, "one\n", "utf-8")
    limits = Limits(max_turns=turns, max_repeats=None)
    async with SessionTree(
        tmp_path / "workspace",
        model=FunctionModel(answer),
        backend="local",
        state_dir=tmp_path / "state",
        limits=limits,
    ) as tree:
        await tree.main.send("begin")
    async with site_of(tmp_path / "state", browser) as site:
        screen = await site.open_tree(tree.tree_id)
        await expect(screen.panel.get_by_text("begin")).to_be_visible()
        while await screen.panel.get_by_role("button", name="Show more").is_visible():
            await screen.panel.evaluate("(panel) => { panel.scrollTop = panel.scrollHeight; }")
            await screen.page.wait_for_timeout(50)
        await expect(screen.panel.get_by_text("the end")).to_have_count(1)
        assert await screen.panel.locator("[data-seq]").count() <= 1_200
        earlier = screen.panel.get_by_role("button", name="Show earlier")
        while await earlier.is_visible():
            await earlier.click()
            await expect(screen.panel.locator("[aria-busy]")).to_have_count(0)
        await expect(screen.panel.get_by_text("begin")).to_have_count(1)
        assert screen.problems == []
