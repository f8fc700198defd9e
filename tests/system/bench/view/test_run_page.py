"""Pages of runs: what a person does there, with mouse, keys or a narrow screen; live, or without a server."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.view.run_folder import write_folder
from sessiontree.bench.view_command import find_runs
from tests.system.bench.recorded_run_fixtures import GivenSample, make_run
from tests.system.bench.view.run_page_fixtures import RunScreen, are_of, open_folder, open_runs, site_of_runs
from tests.system.bench.view.view_fixtures import fail, run_with_faults, write
from tests.system.pages.page_fixtures import NARROW, WIDE
from tests.system.pages.test_accessibility import AXE, RUN

HEIGHT = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
async def planets(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one suite, with faults."""
    place = tmp_path_factory.mktemp("planets")
    await run_with_faults(place / "strong", "strong")
    await run_with_faults(place / "weak", "weak")
    return place


async def _read_a_run(screen: RunScreen) -> None:
    """Find a sample by filters, read it, its tree and its attempts, and put two runs side by side."""
    page = screen.page
    await page.get_by_role("link", name="planets").last.click()
    await expect(screen.head.locator(".sentence")).to_have_text(
        "19 of 20 answers passed. 4 of 24 samples have no answer, and are not in the rate: "
        "3 infrastructure (provider 2, node 1), 1 undecided (scorer 1)."
    )
    await expect(screen.head.get_by_text("20 of 24 scored")).to_be_visible()
    await screen.head.get_by_role("button", name="infrastructure").click()
    await expect(screen.lines).to_have_count(3)
    await expect(screen.line("jupiter-place")).to_contain_text("node 10.0.0.7 was lost")
    await page.get_by_role("button", name="Clear").click()
    await page.get_by_label("Filter by tag").select_option("moons")
    await page.get_by_label("Filter by metadata").select_option("level=3")
    await expect(screen.lines).to_have_count(3)
    await page.get_by_label("Filter by score").select_option("exact")
    await page.get_by_label("With which value").fill("1")
    await expect(screen.lines).to_have_count(1)
    await screen.line("uranus-moons").click()
    pane = screen.pane
    await expect(pane).to_contain_text("How many moons does Uranus have?")
    await expect(pane).to_contain_text("expected 28, and the answer is 29")
    await expect(page).to_have_url(re.compile("#/run/1/sample/uranus-moons/1$"))
    await page.get_by_role("tab", name="Tree").click()
    await expect(screen.row("main/w1")).to_contain_text("completed")
    await screen.row("main/w1").click()
    await expect(screen.panel.get_by_text("The almanac says 29.")).to_be_visible()
    await screen.tab("Timeline").click()
    await expect(screen.panel.locator(".lane").first).to_be_visible()
    await page.get_by_role("tab", name="Attempts").click()
    await expect(pane.get_by_role("table", name="Attempts")).to_contain_text("scored")
    await page.get_by_role("link", name="Runs").click()
    for place in (1, 0):
        await page.get_by_role("checkbox").nth(place).check()
    await page.get_by_role("button", name="Compare the two").click()
    await expect(page.get_by_role("button", name="worse")).to_contain_text("3")
    await page.get_by_role("button", name="worse").click()
    await expect(screen.lines).to_have_count(3)
    await screen.line("saturn-moons").click()
    await expect(pane.get_by_label("First run")).to_contain_text("passed")
    await expect(pane.get_by_label("Second run")).to_contain_text("expected 146, and the answer is 147")


async def test_run_is_read_on_a_server(planets: Path, browser: Browser) -> None:
    """From the list to a sample, its tree, and the same sample of another run."""
    async with site_of_runs(browser, planets) as site:
        screen = await open_runs(site)
        await _read_a_run(screen)
        assert are_of(screen.requests, site.origin)
        assert screen.problems == []


async def test_run_is_read_without_a_server(planets: Path, tmp_path: Path, browser: Browser) -> None:
    """The same from files, with no network; a sample's file is loaded when it is opened."""
    written = write_folder(find_runs([str(planets)]), tmp_path / "folder")
    async with open_folder(browser, written.index) as screen:
        await screen.page.get_by_role("checkbox").first.wait_for()
        loaded = [each.partition("/folder/")[2] for each in screen.requests]
        assert loaded == ["index.html#", "view.js", "data/runs.js"] or loaded[1:] == [
            "view.js",
            "data/runs.js",
        ]
        await _read_a_run(screen)
        assert sum("/data/r1/0/" in each for each in screen.requests) <= 4
        assert are_of(screen.requests, written.place.as_uri())
        assert screen.problems == []


async def test_keys_go_through_a_run(planets: Path, browser: Browser) -> None:
    """Without a mouse: rows, a sample, the next one, the full width, the filter, and back."""
    async with site_of_runs(browser, planets / "strong") as site:
        screen = await open_runs(site)
        page, grid = screen.page, screen.page.get_by_role("grid", name="Samples")
        await screen.lines.first.wait_for()
        await grid.focus()
        for key in ("End", "ArrowUp", "Home", "ArrowDown"):
            await page.keyboard.press(key)
        await page.keyboard.press("Enter")
        await expect(screen.pane.get_by_role("heading", level=2)).to_have_text("mercury-year")
        await expect(screen.pane.get_by_role("heading", level=2)).to_be_focused()
        await page.keyboard.press("j")
        await expect(screen.pane.get_by_role("heading", level=2)).to_have_text("mercury-place")
        await page.keyboard.press("f")
        await expect(grid).to_be_hidden()
        await page.keyboard.press("f")
        await page.keyboard.press("Escape")
        await expect(screen.pane).to_be_hidden()
        await expect(grid).to_be_focused()
        await page.keyboard.press("/")
        await page.keyboard.type("saturn")
        await expect(screen.lines).to_have_count(3)
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert screen.problems == []


async def test_run_is_followed_while_it_goes_on(tmp_path: Path, browser: Browser) -> None:
    """Rows, coverage and rate move by themselves; the open sample and the filter stay."""
    made = [GivenSample(f"s{number}", {"exact": 1.0}) for number in range(3)]
    made += [GivenSample(f"w{number}", state="waiting") for number in range(5)]
    run_dir = make_run(tmp_path / "run", made)
    async with site_of_runs(browser, run_dir) as site:
        screen = await open_runs(site, "/run/0/sample/s1/1")
        await expect(screen.head.get_by_text("3 of 8 scored")).to_be_visible()
        await expect(screen.pane.get_by_role("heading", level=2)).to_have_text("s1")
        write(
            run_dir,
            ("UPDATE samples SET state = 'leased', attempts = 1 WHERE sample_id = 'w0'", ()),
            ("UPDATE scores SET passed = 0 WHERE sample_id = 's0'", ()),
            ("UPDATE samples SET revision = revision + 1 WHERE sample_id = 's0'", ()),
        )
        await expect(screen.line("w0")).to_contain_text("running")
        await expect(screen.line("s0")).to_contain_text("not passed")
        await expect(screen.head.get_by_text("66.7")).to_be_visible()
        fail(run_dir, "s2", FailureKind.PROVIDER, "nobody answered")
        await expect(screen.line("s2")).to_contain_text("infrastructure")
        await expect(screen.head.get_by_text("2 of 8 scored")).to_be_visible()
        await expect(screen.pane.get_by_role("heading", level=2)).to_have_text("s1")
        assert screen.problems == []


async def test_nothing_is_wider_than_a_narrow_screen(planets: Path, browser: Browser) -> None:
    """Every view fits into 380 pixels, and every part of it can be reached."""
    async with site_of_runs(browser, planets) as site:
        screen = await open_runs(site, viewport=NARROW, has_touch=True)
        page = screen.page
        await page.get_by_role("link", name="planets").first.tap()
        await screen.lines.first.wait_for()
        assert await page.evaluate(HEIGHT) == 0
        await page.get_by_role("button", name="Filters").tap()
        await page.get_by_label("Filter by outcome").select_option("not passed")
        assert await page.evaluate(HEIGHT) == 0
        await screen.lines.first.tap()
        await expect(screen.pane.get_by_role("heading", name="Scores")).to_be_visible()
        await expect(screen.lines.first).to_be_hidden()
        assert await page.evaluate(HEIGHT) == 0
        await page.get_by_role("tab", name="Tree").tap()
        await screen.rows.first.wait_for()
        assert await page.evaluate(HEIGHT) == 0
        await page.get_by_role("button", name="← Samples").tap()
        await expect(screen.lines.first).to_be_visible()
        for place in ("/runs", "/pair/0/1", "/pair/0/1/sample/saturn-moons"):
            await screen.go(place)
            await expect(page.get_by_text("Reading the runs…")).to_have_count(0)
            assert await page.evaluate(HEIGHT) == 0
        assert screen.problems == []


async def _violations(page: Page) -> list[str]:
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(await asyncio.to_thread(AXE.read_text, "utf-8"))
    return [str(each) for each in await page.evaluate(RUN)]


async def test_heading_has_words_while_its_sample_is_read(planets: Path, browser: Browser) -> None:
    """The server's answer is held back; then a heading without words would be in the page."""
    async with site_of_runs(browser, planets / "strong") as site:
        screen = await open_runs(site)
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            if '"sample"' in (route.request.post_data or ""):
                asked.set()
                await may_answer.wait()
            await route.continue_()

        await screen.lines.first.wait_for()
        await screen.page.route("**/*", hold)
        await screen.go("/run/0/sample/uranus-moons/1")
        await asked.wait()
        heading = screen.pane.get_by_role("heading", level=2)
        await expect(heading).to_have_text("Sample")
        may_answer.set()
        await expect(heading).to_have_text("uranus-moons")


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light"),
        pytest.param(NARROW, "dark", id="narrow-dark"),
        pytest.param(WIDE, "dark", id="wide-dark", marks=pytest.mark.long),
        pytest.param(NARROW, "light", id="narrow-light", marks=pytest.mark.long),
    ],
)
async def test_no_view_violates_a_rule(planets: Path, browser: Browser, scheme: Any, size: Any) -> None:
    """The rules of axe-core over the list, a run, a sample with its tree, and two runs."""
    async with site_of_runs(browser, planets) as site:
        screen = await open_runs(
            site, viewport=size, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
        )
        await screen.page.get_by_role("checkbox").first.wait_for()
        found = {"list": await _violations(screen.page)}
        for name, place, wanted in (
            ("run", "/run/0", "planets"),
            ("sample", "/run/0/sample/uranus-moons/1", "uranus-moons"),
            ("fault", "/run/0/sample/earth-moons/1", "529"),
            ("pair", "/pair/1/0", "Second:"),
            ("both", "/pair/1/0/sample/saturn-moons", "open with its tree"),
        ):
            await screen.go(place)
            await screen.page.get_by_text(wanted).locator("visible=true").first.wait_for()
            found[name] = await _violations(screen.page)
        await screen.go("/run/0/sample/uranus-moons/1")
        # Before its text is there, the tabs are those of the place before.
        await screen.page.get_by_text("expected 28").locator("visible=true").first.wait_for()
        await screen.page.get_by_role("tab", name="Tree").click()
        await screen.rows.first.wait_for()
        found["tree"] = await _violations(screen.page)
        assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("samples", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
async def test_run_of_many_samples_stays_light(tmp_path: Path, browser: Browser, samples: int) -> None:
    """Few rows are in the document; it scrolls to its end, filters and sorts."""
    numbers = range(samples)
    made = (GivenSample(f"s{each:06}", {"exact": float(each % 3 > 0)}, wall_ms=each) for each in numbers)
    run_dir = make_run(tmp_path / "run", made)
    async with site_of_runs(browser, run_dir) as site:
        screen = await open_runs(site)
        await screen.lines.first.wait_for(timeout=120_000)
        grid = screen.page.get_by_role("grid", name="Samples")
        for part in (0.3, 0.7, 1.0):
            await grid.evaluate("(grid, part) => { grid.scrollTop = part * grid.scrollHeight; }", part)
            await screen.page.wait_for_timeout(50)
            assert await screen.lines.count() <= 60
        await expect(screen.line(f"s{samples - 1:06}")).to_be_visible()
        await screen.page.get_by_role("button", name="Time").click()
        await grid.evaluate("(grid) => { grid.scrollTop = 0; }")
        await expect(screen.lines.first).to_contain_text(f"s{samples - 1:06}")
        await screen.page.get_by_placeholder("Filter by text").fill(f"s{samples // 2:06}")
        await expect(screen.lines).to_have_count(1)
        assert screen.problems == []


async def test_link_of_another_site_leads_in(planets: Path, browser: Browser) -> None:
    """From a notebook, say: the browser leaves its cookie out, and the page asks again from here."""
    async with site_of_runs(browser, planets / "strong") as site:
        context = await site.context()
        page = await context.new_page()
        address = site.server.make_page_address("/", "/run/0/sample/uranus-moons/1")

        async def notebook(route: Any) -> None:
            await route.fulfill(content_type="text/html", body=f'<a href="{address}">look</a>')

        await page.route("http://notebook.example/", notebook)
        for _ in range(2):  # the token is used up by the first; the cookie is known afterwards
            await page.goto("http://notebook.example/")
            await page.get_by_role("link", name="look").click()
            await expect(page.locator("run-view .detail h2")).to_have_text("uranus-moons")
            assert "token" not in page.url
