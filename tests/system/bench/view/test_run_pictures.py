"""The pictures of runs in the docs: `make screenshots` writes them, this test makes them elsewhere."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.system.bench.view.run_page_fixtures import open_runs, site_of_runs
from tests.system.bench.view.view_fixtures import run_with_faults
from tests.system.pages.page_fixtures import NARROW, WIDE
from tests.system.pages.test_pictures import MAX_BYTES, PLACE, PLAIN, keep_picture

PICTURES = (
    ("run-light", WIDE, "light", "/run/0", "answers passed"),
    ("sample-dark", WIDE, "dark", "/run/0/sample/saturn-moons/1", "expected 146"),
    ("run-narrow", NARROW, "light", "/run/0", "answers passed"),
    ("sample-narrow", NARROW, "dark", "/run/0/sample/saturn-moons/1", "expected 146"),
    ("pair-light", WIDE, "light", "/pair/1/0/sample/saturn-moons", "open with its tree"),
)


@pytest.mark.long
async def test_pictures_of_runs(tmp_path: Path, browser: Browser) -> None:
    """A run, a sample and two runs: wide and narrow, light and dark."""
    place = Path(os.environ.get(PLACE, tmp_path / "pictures"))
    await asyncio.to_thread(place.mkdir, exist_ok=True)
    for strength in ("strong", "weak"):
        await run_with_faults(tmp_path / "runs" / strength, strength, tags=["almanac-2"])
    async with site_of_runs(browser, tmp_path / "runs") as site:
        for name, size, scheme, address, wanted in PICTURES:
            screen = await open_runs(site, address, viewport=size, color_scheme=scheme, **PLAIN)
            await expect(screen.page.get_by_text(wanted).locator("visible=true").first).to_be_visible()
            await keep_picture(screen.page, place / f"{name}.png")
            assert (place / f"{name}.png").stat().st_size <= MAX_BYTES
            assert screen.problems == []
