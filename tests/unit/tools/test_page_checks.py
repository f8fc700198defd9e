"""``preview_screenshot`` and ``validate_page`` in a real browser, which has no network."""

from __future__ import annotations

import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sessiontree.browser.found import find_browser
from sessiontree.browser.session_browser import SessionBrowser
from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ToolError, ValidationError
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.pages.preview_screenshot import PreviewScreenshot
from sessiontree_tools.pages.validate_page import ValidatePage
from tests.unit.web.site_fakes import answer, local_web, serving

pytestmark = pytest.mark.skipif(not find_browser().is_ready, reason="no browser is installed")

HEAD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page of bees</title>'
FIT = '<meta name="viewport" content="width=device-width, initial-scale=1">'
PAGES = {
    "good.html": f'{HEAD}{FIT}<link rel="stylesheet" href="style/main.css">'
    '<meta name="description" content="Everything about bees, on one page and in plain words.">'
    '</head><body><main id="all"><h1>Bees</h1><h2>Wings</h2><p>They fly. <a href="#all">Up</a> '
    '<a href="bad.html#place">There</a></p><img src="bee.svg" alt="A bee" width="40" height="40">'
    '<form><label>A field <input name="id" style="height:30px"></label></form></main>',
    "bad.html": '<html><body><a name="place"></a><h1>Bees</h1><h4>Wings</h4><img src="bee.svg">'
    '<script>alert("a dialog")</script><img src="gone.png" alt=""><div style="width:900px">wide</div>'
    '<p style="color:#aaa;font-size:9px">grey</p>'
    '<a href="good.html#nowhere">1</a><a href="/rooted.html">2</a><a href="../up.html">3</a>'
    '<a href="https://elsewhere.example/">4</a><button style="width:9px;height:9px;padding:0"></button>'
    '<input><script>throw new Error("broken script")</script>',
    "leads.html": f'{HEAD}<meta http-equiv="refresh" content="0;url=https://elsewhere.example/"></head>',
    "style/main.css": "body{color:#123;background:#fff}",
    "bee.svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="9" fill="#c60"/></svg>',
    "notes.txt": "no page",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A workspace with pages in a folder."""
    for name, text in PAGES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "up.html").write_text("not of the page")
    return tmp_path


@asynccontextmanager
async def browsing() -> AsyncIterator[SessionBrowser]:
    """Yield a browser without any network, and end it."""
    browser = SessionBrowser(None)
    try:
        yield browser
    finally:
        browser.end()
        await browser.ended()


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG file."""
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


async def validate(ctx: ToolContext, **arguments: Any) -> Any:
    """Return the output of a validation."""
    return (await call_tool(ValidatePage(), ctx, **arguments)).output


def details_of(result: ToolResult) -> dict[str, Any]:
    """Return the details of a result."""
    assert isinstance(result.details, dict)
    return result.details


@pytest.mark.covers("U18")
async def test_pictures_have_the_three_sizes(site: Path) -> None:
    """They can be kept in the workspace; what the page lacks is named; mistakes are refused."""
    async with browsing() as browser:
        ctx = make_context(site, browser=browser)
        for viewport, size in (("desktop", (1440, 900)), ("tablet", (768, 1024)), ("mobile", (375, 812))):
            result = await call_tool(
                PreviewScreenshot(),
                ctx,
                filename="site/good.html",
                viewport=viewport,
                save_as=f"s/{viewport}.png",
            )
            assert size_of((site / f"s/{viewport}.png").read_bytes()) == size
            assert result.output == f"Screenshot taken ({viewport} viewport), saved as s/{viewport}.png"
            assert [image.mime_type for image in result.images] == ["image/png"]
            assert result.artifacts == (Artifact("file", "screenshot", path=f"s/{viewport}.png"),)
        result = await call_tool(PreviewScreenshot(), ctx, filename="site/bad.html", full_page=True)
        assert details_of(result)["missing"] == ["gone.png"]
        assert any("broken script" in each for each in details_of(result)["errors"])
        assert result.artifacts == ()
        mistakes: list[tuple[dict[str, Any], type[ToolError], str]] = [
            ({"filename": "site/none.html"}, ExecutionError, "none.html"),
            ({"filename": "site/notes.txt"}, ExecutionError, "no HTML file"),
            ({"filename": "../out.html"}, PermissionDenied, "outside"),
            ({"filename": "site/good.html", "save_as": "a.jpg"}, ValidationError, "PNG"),
            ({"filename": "site/good.html", "save_as": "../a.png"}, PermissionDenied, "outside"),
            ({"filename": "site/leads.html"}, ExecutionError, "elsewhere"),
            ({"filename": "site/good.html", "viewport": "watch"}, ValidationError, "desktop"),
        ]
        for arguments, error, words in mistakes:
            with pytest.raises(error, match=words):
                await call_tool(PreviewScreenshot(), ctx, **arguments)
        assert (await browser.status()).tabs == ()


@pytest.mark.covers("U19")
async def test_scores_follow_what_is_measured(site: Path) -> None:
    """A good page has good scores; each fault of the bad one is found by what it does in the browser."""
    async with browsing() as browser:
        ctx = make_context(site, browser=browser)
        good = await validate(ctx, filename="site/good.html")
        checks = ["accessibility", "responsive", "seo", "links"]
        bad = await validate(ctx, filename="site/bad.html", checks=checks, min_score=50)
        assert good["scores"]["accessibility"] == 100
        assert good["scores"]["responsive"] == 100
        assert good["scores"]["links"] == 100
        assert good["measured"]["requests"] == 3
        assert good["measured"]["transfer_bytes"] == sum(
            len(PAGES[name]) for name in ("good.html", "style/main.css", "bee.svg")
        )
        assert good["measured"]["largest_paint_ms"] > 0
        assert list(bad["scores"]) == checks
        assert all(bad["scores"][name] < good["scores"][name] for name in checks)
        assert bad["score"] < good["score"]
        assert not bad["passed"]
        found = {(each["category"], each["rule"]) for each in bad["issues"]}
        assert found >= {
            ("accessibility", "html-has-lang"),
            ("accessibility", "image-alt"),
            ("accessibility", "color-contrast"),
            ("accessibility", "label"),
            ("responsive", "overflow_mobile"),
            ("responsive", "overflow_tablet"),
            ("responsive", "viewport"),
            ("responsive", "small_targets"),
            ("responsive", "small_text"),
            ("seo", "title"),
            ("seo", "heading_order"),
        }
        assert ("responsive", "overflow_desktop") not in found
        broken = {each["places"][0]: each["text"] for each in bad["issues"] if each["rule"] == "broken"}
        assert broken.keys() == {"gone.png", "good.html#nowhere", "/rooted.html", "../up.html"}
        assert "no place 'nowhere'" in broken["good.html#nowhere"]
        assert bad["not_checked"] == 1
        assert any("broken script" in each for each in bad["errors"])
        with pytest.raises(PermissionDenied, match="web"):
            await call_tool(ValidatePage(), ctx, filename="site/good.html", external_links=True)
        async with serving(answer(b"", status=404)) as other:
            (site / "site/links.html").write_text(f"{HEAD}</head><body><a href='{other.url}/gone'>x</a>")
            ctx = make_context(site, browser=browser, web=local_web(other))
            asked = await validate(ctx, filename="site/links.html", checks=["links"], external_links=True)
        assert asked["issues"][0]["text"] == "the site answers 404"
        assert (asked["scores"], asked["not_checked"]) == ({"links": 0}, 0)


HOSTILE = {
    "endless": "<script>while (true) {}</script>",
    "later": "<script>setTimeout(() => { while (true) {} }, 50)</script>",
    "dialogs": "<script>for (;;) alert(1)</script>",
    "reloads": "<script>setInterval(() => location.reload(), 20)</script>",
    "grows": "<script>setInterval(() => document.body.append('x'.repeat(1e5)), 1)</script>",
    "huge": "<script>document.body.innerHTML = '<i>'.repeat(400) + '<b>x</b>'.repeat(300000)</script>",
    "windows": "<script>for (let n = 0; n < 50; n++) open('good.html')</script>",
    "shadows": "<script>Array.from = document.querySelectorAll = Math.max = () => { throw 1 }</script>",
    "frames": "<iframe src='hostile.html'></iframe>" * 20,
}


@pytest.mark.long
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_page_ends_in_bounded_time(site: Path, body: str) -> None:
    """It gets scores or an error, and the next page is measured as before."""
    (site / "site/hostile.html").write_text(f"{HEAD}</head><body>{body}")
    async with browsing() as browser:
        for tool, most_s in ((PreviewScreenshot(), 100), (ValidatePage(), 130)):
            begun = time.monotonic()
            try:
                await call_tool(tool, make_context(site, browser=browser), filename="site/hostile.html")
            except ExecutionError as error:
                assert error.message
            assert time.monotonic() - begun < most_s
        ctx = make_context(site, browser=browser)  # each call has a minute of its own
        good = await validate(ctx, filename="site/good.html", checks=["accessibility", "links"])
        assert good["scores"] == {"accessibility": 100, "links": 100}
