"""The handle: pages are opened, read as text with references, used, and shown as pictures."""

from __future__ import annotations

import struct

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.handles.browser import OFFLINE_ORIGIN, PageAction, PageFile, Viewport
from tests.unit.browser.browser_fixtures import browsing, showing
from tests.unit.web.site_fakes import answer, serving

FORM = """<!doctype html><title>Form</title><h1>Order</h1>
<label>Name <input id=name></label><button onclick="
document.querySelector('h1').textContent = 'Thanks, ' + document.querySelector('#name').value">Send</button>
<script>console.warn('beware'); setTimeout(() => { throw new Error('late fault') }, 0)</script>"""


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack("!II", png[16:24])
    return width, height


def ref_of(text: str, words: str) -> int:
    """Return the number of the line with these words."""
    line = next(line for line in text.splitlines() if words in line)
    return int(line.partition("[")[2].partition("]")[0])


@pytest.mark.slow
async def test_page_is_opened_read_used_and_shown() -> None:
    """One session of work: open, snapshot, fill, click, stale reference, screenshot, console, evaluate."""
    async with showing({"index": FORM}) as (browser, site):
        tab = await browser.open(site.url)
        assert (tab.title, tab.status, tab.is_current) == ("Form", 200, True)
        seen = await browser.snapshot()
        name, send = ref_of(seen.text, "textbox"), ref_of(seen.text, "Send")
        await browser.act(PageAction("fill", name, text="Ada"))
        await browser.act(PageAction("click", send))
        after = await browser.snapshot()
        assert 'heading "Thanks, Ada"' in after.text
        with pytest.raises(ExecutionError, match=r"stale.*take a new snapshot"):
            await browser.act(PageAction("click", send))
        picture = await browser.screenshot(viewport=Viewport(375, 812))
        assert size_of(picture) == (375, 812)
        lines = {(line.kind, line.text) for line in await browser.console()}
        assert ("warning", "beware") in lines
        assert any(kind == "exception" and "late fault" in text for kind, text in lines)
        assert await browser.evaluate("(given) => [given, document.title]", argument=3) == [3, "Form"]
        assert (await browser.pdf()).startswith(b"%PDF-")


@pytest.mark.slow
async def test_offline_page_gets_its_files_from_the_reader_and_nothing_from_the_network() -> None:
    """Its own files arrive; a server that the owner even allows hears nothing."""
    asked: list[str] = []

    async with serving(answer(b"never")) as site, browsing(site) as browser:
        page = f'<title>Off</title><link rel=stylesheet href=a/b.css><img src="{site.url}/x.png"><h1>Hi</h1>'
        files = {
            "index.html": PageFile(page.encode()),
            "a/b.css": PageFile(
                b"h1 { color: rgb(1, 2, 3) } h1 { background: url(%s/y) }" % site.url.encode()
            ),
        }

        def read(path: str) -> PageFile | None:
            asked.append(path)
            return files.get(path)

        tab = await browser.open_files(read, viewport=Viewport(768, 1024))
        assert (tab.url, tab.title, tab.is_current) == (f"{OFFLINE_ORIGIN}/index.html", "Off", False)
        colour = "() => getComputedStyle(document.querySelector('h1')).color"
        assert await browser.evaluate(colour, world="isolated", tab_id=tab.tab_id) == "rgb(1, 2, 3)"
        assert size_of(await browser.screenshot(tab_id=tab.tab_id)) == (768, 1024)
        timings = await browser.timings(tab_id=tab.tab_id)
        assert isinstance(timings, dict)
        assert timings["navigation"]
        with pytest.raises(ExecutionError, match="no page is open"):
            await browser.snapshot()
        await browser.close(tab.tab_id)
        assert asked[:2] == ["index.html", "a/b.css"]
        assert site.requests == []


@pytest.mark.slow
async def test_private_addresses_are_refused_by_the_rule_of_the_web() -> None:
    """The error names the rule, for an address and for where it redirects to."""
    async with showing({"index": "<title>ok</title>"}) as (browser, site):
        for url in (f"http://127.0.0.1:{site.port + 1}/", "http://10.0.0.1/", "http://[::1]/"):
            with pytest.raises(PermissionDenied, match=r"not allowed|not a public address"):
                await browser.open(url)
        for url in ("file:///etc/passwd", "chrome://version", "view-source:http://example.com/"):
            with pytest.raises(PermissionDenied, match="only http and https"):
                await browser.open(url)
        assert (await browser.status()).tabs == ()
        assert site.requests == []
