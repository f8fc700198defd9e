"""The pictures of the page in the README: `make screenshots` writes them, this test makes them elsewhere."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from typing import Any, Final

import pytest
from PIL import Image
from playwright.async_api import Browser, Page, expect

from tests.system.pages.page_fixtures import NARROW, WIDE, Screen, Site, site_of
from tests.system.pages.research_fixtures import research_tree
from tests.system.pages.waiting_program_fixtures import waiting_program_tree

PLACE: Final = "SESSIONTREE_PICTURES"
"""Environment variable: the directory to which the pictures are written."""
MAX_BYTES: Final = 200_000
MARKS_ARE_SEEN: Final = """(code) => {
  const seen = code.getBoundingClientRect();
  return [...code.querySelectorAll(".waits")].every((line) => {
    const mark = line.querySelector(".wait-mark").getBoundingClientRect();
    const next = line.nextElementSibling.getBoundingClientRect();
    return line.scrollWidth > seen.width && mark.left > seen.left && mark.right <= seen.right + 1
      && next.top >= mark.bottom - 1;
  });
}"""
"""Whether the marks of long lines that wait are in the visible part, and each next line is below."""
PLAIN: Final[dict[str, Any]] = {"reduced_motion": "reduce", "locale": "en-US", "timezone_id": "UTC"}


def _are_small(place: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in place.glob("*.png")}
    assert len(sizes) >= 5
    assert max(sizes.values()) <= MAX_BYTES


async def keep_picture(page: Page, path: Path) -> None:
    """Write a picture of what a page shows, with few colours."""
    await page.mouse.move(0, 0)
    shot = Image.open(io.BytesIO(await page.screenshot()))
    shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


async def _open(site: Site, tree_id: str, size: Any, scheme: str) -> Screen:
    screen = await site.open_tree(tree_id, viewport=size, color_scheme=scheme, **PLAIN)
    await expect(screen.page.get_by_role("button", name="waits for you")).to_be_visible()
    return screen


@pytest.mark.long
async def test_pictures_of_the_page(tmp_path: Path, browser: Browser) -> None:
    """Two widths, each in light and dark: a research tree in which a request waits."""
    place = Path(os.environ.get(PLACE, tmp_path))
    async with research_tree(tmp_path) as tree, site_of(tmp_path / "state", browser) as site:
        screen = await _open(site, tree.tree_id, WIDE, "light")
        await keep_picture(screen.page, place / "console-light.png")
        await screen.row("council debates").click()
        await screen.tab("Timeline").click()
        await expect(screen.panel.locator(".lane").first).to_be_visible()
        await keep_picture(screen.page, place / "timeline-light.png")
        screen = await _open(site, tree.tree_id, WIDE, "dark")
        await screen.row("council debates").click()
        await screen.tab("Transcript").click()
        await expect(screen.panel.locator("table")).to_be_visible()
        await keep_picture(screen.page, place / "console-dark.png")
        screen = await _open(site, tree.tree_id, NARROW, "dark")
        await keep_picture(screen.page, place / "console-narrow-dark.png")
        screen = await _open(site, tree.tree_id, NARROW, "light")
        await keep_picture(screen.page, place / "console-narrow.png")
        await screen.page.get_by_role("button", name="waits for you").click()
        await expect(screen.cards).to_be_visible()
        await keep_picture(screen.page, place / "inbox-narrow.png")
        assert screen.problems == []
    await asyncio.to_thread(_are_small, place)


@pytest.mark.long
async def test_picture_of_a_program(tmp_path: Path, browser: Browser) -> None:
    """Its card has the program's text; the marks of lines that wait are in the visible part of long lines."""
    place = Path(os.environ.get(PLACE, tmp_path))
    async with waiting_program_tree(tmp_path) as tree, site_of(tmp_path / "state", browser) as site:
        for name, size, scheme in (("", NARROW, "dark"), ("program-light.png", WIDE, "light")):
            screen = await _open(site, tree.tree_id, size, scheme)
            await screen.rows.first.click()
            await screen.tab("Transcript").click()
            card = screen.panel.locator(".program")
            await expect(card.locator(".steps").first).to_be_visible()
            marks = card.locator(".waits .wait-mark")
            await expect(marks).to_have_text(["◂ 6 waiting", "◂ 1 waiting"])
            assert await card.locator(".code").evaluate(MARKS_ARE_SEEN)
            if name:
                await card.evaluate("(card) => card.scrollIntoView()")
                await keep_picture(screen.page, place / name)
            assert screen.problems == []
