"""A browser starts when it is needed, ends with its session or idle, and a crash is said and mended."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sessiontree.browser.browser_process import FILES_AT_ONCE, BrowserProcess
from sessiontree.browser.browser_run import CallAllowance
from sessiontree.browser.found import look_for_browser
from sessiontree.browser.inside.frames import encode_frame
from sessiontree.browser.inside.page_tab import number_lines
from sessiontree.browser.session_browser import SessionBrowser
from sessiontree.browser.tunnels import Tunnels
from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.browser import PageFile
from sessiontree.sandbox.process_tree import find_descendants, find_process_identity, list_children
from tests.unit.browser.browser_fixtures import browsing, pages, showing
from tests.unit.web.site_fakes import serving

WAITING = "() => new Promise((done) => { window.kept = done })"
"""A script that never ends; what could end it is kept, or the page would drop it."""


def browsers() -> list[int]:
    """Return the processes below this one that are bubblewrap's."""
    return [pid for pid in list_children(os.getpid()) if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n"]


def chromium_below(outer: int) -> int:
    """Return the main process of Chromium inside a sandbox."""
    for pid in find_descendants(outer):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if words[0].endswith("/chromium") and not any(word.startswith("--type") for word in words):
            return pid
    raise AssertionError("Chromium does not run")


async def until_ended(browser: SessionBrowser) -> None:
    """Wait until a browser has ended by itself."""
    async with asyncio.timeout(30):
        while browser.is_running:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.02)


@pytest.mark.covers("S11")
@pytest.mark.slow
async def test_killed_browser_is_said_and_started_again() -> None:
    """What waits fails with a typed error; the next call has a new browser; the end leaves no process."""
    async with serving(pages(index="<title>one</title>")) as site, browsing(site) as browser:
        await browser.open(site.url)
        (outer,) = browsers()
        waiting = asyncio.ensure_future(browser.evaluate(WAITING))
        await asyncio.sleep(0)
        os.kill(chromium_below(outer), signal.SIGKILL)
        with pytest.raises(ExecutionError, match="has ended: it ended unexpectedly; the next call starts"):
            await waiting
        await until_ended(browser)
        assert (await browser.status()).ended == "it ended unexpectedly"
        with pytest.raises(ExecutionError, match="no page is open"):
            await browser.snapshot()
        assert (await browser.open(site.url)).title == "one"
        ended = browser.end()
        await browser.ended()
        assert len(ended) > 3
        assert not any(find_process_identity(each.pid) == each for each in ended)
        with pytest.raises(ExecutionError, match="its session has left"):
            await browser.open(site.url)
    assert browsers() == []


@pytest.mark.slow
async def test_page_that_hangs_or_asks_does_not_hold_its_session() -> None:
    """An endless script is ended, a deep value refused, a dialog dismissed; a cancelled call is withdrawn."""
    busy = pages(index="<title>busy</title>")
    async with serving(busy) as site, browsing(site, dialog_s=0.2) as browser:
        await browser.open(site.url)
        with pytest.raises(ExecutionError, match="script"):
            await browser.evaluate("() => { for (;;) {} }", time_s=0.3)
        with pytest.raises(ExecutionError, match=r"ran longer than 0\.3 s"):
            await browser.evaluate(WAITING, time_s=0.3)
        calling = asyncio.ensure_future(browser.evaluate(WAITING))
        await asyncio.sleep(0.05)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await browser.evaluate("() => { setTimeout(() => confirm('Really?'), 0) }")
        async with asyncio.timeout(20):
            while not any(  # noqa: ASYNC110 - a page has no event
                line.kind == "dialog" for line in await browser.console()
            ):
                await asyncio.sleep(0.02)
        for depth in (290, 960, 5_000):
            nested = f"() => {{ let a = 1; for (let i = 0; i < {depth}; i++) a = [a]; return a }}"
            with nullcontext() if depth < 300 else pytest.raises(ExecutionError, match="the script's value"):
                assert str(await browser.evaluate(nested)) == "[" * depth + "1" + "]" * depth
        assert await browser.evaluate("() => document.title") == "busy"


@pytest.mark.slow
async def test_browser_that_takes_too_much_memory_is_ended() -> None:
    """It says so, and takes no order."""
    tunnels = Tunnels(None, CallAllowance())
    process = BrowserProcess(tunnels, dialog_s=1, memory_bytes=1)
    await process.start()
    async with asyncio.timeout(30):
        await process.gone()
    assert process.ended == "it used more than 0 MiB of memory"
    with pytest.raises(ExecutionError, match="more than 0 MiB"):
        await process.ask({"do": "tabs"}, b"", 5)


@pytest.mark.slow
async def test_without_the_web_only_offline_pages_are_shown() -> None:
    """An address is refused with the reason; a page of files opens; broken characters are replaced."""
    browser = SessionBrowser(None)
    try:
        page = PageFile(b"<title>\xff</title><h1>Gr\xc3\xbc\xc3\x9fe</h1>")
        tab = await browser.open_files(lambda path: page if path == "a b.html" else None, "a b.html")
        assert 'heading "Gr\u00fc\u00dfe"' in (await browser.snapshot(tab_id=tab.tab_id)).text
        half = await browser.evaluate('() => "a\\ud800b"', tab_id=tab.tab_id)
        assert half == "a?b"
        with pytest.raises(PermissionDenied, match="the owner of this tree allows no web"):
            await browser.open("http://example.com/")
        with pytest.raises(ValidationError, match="surrogate"):
            await browser.open("http://example.com/\ud800")
    finally:
        browser.end()
        await browser.ended()


@pytest.mark.slow
async def test_idle_browser_ends() -> None:
    """After its time without a call; status says why."""
    async with showing({"index": "<title>x</title>"}) as (_, site), browsing(site, idle_s=0.2) as browser:
        await browser.start()
        await until_ended(browser)
        assert (await browser.status()).ended == "it was idle for 0.2 s"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """Where no program is found, the text says what to install."""
    found = look_for_browser(str(tmp_path))
    assert not found.is_ready
    assert "install Chromium, such as Debian's package chromium" in found.missing
    assert look_for_browser("/usr/bin").is_ready


def test_numbers_are_given_to_elements_alone() -> None:
    """Text of a page that looks like a reference gets no number; numbers go on from the one before."""
    snapshot = """- generic [active] [ref=e1]:
  - button "Save [ref=e9]" [disabled] [ref=f2e2] [cursor=pointer]
  - text: "link [ref=e7]"
  - 'heading "a: b" [level=1] [ref=e3]'"""
    text, refs, truncated = number_lines(snapshot, 5, 10_000)
    assert text.splitlines() == [
        "- [5] generic [active]:",
        '  - [6] button "Save [ref=e9]" [disabled]',
        '  - text: "link [ref=e7]"',
        "  - '[7] heading \"a: b\" [level=1]'",
    ]
    assert (refs, truncated) == ({5: "e1", 6: "f2e2", 7: "e3"}, False)
    assert number_lines(snapshot, 1, 30)[2]


class _FullPipe:
    """Takes what is written, and has room again when it may."""

    def __init__(self) -> None:
        self.written = 0
        self.has_room = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written += 1

    async def drain(self) -> None:
        await self.has_room.wait()


async def test_files_of_a_page_are_sent_as_fast_as_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that asks for one file again and again does not fill the memory outside the browser."""
    process, pipe = BrowserProcess(Tunnels(None, CallAllowance()), dialog_s=1), _FullPipe()
    monkeypatch.setattr(BrowserProcess, "is_running", True)
    monkeypatch.setattr(process, "_writer", pipe)
    read: list[str] = []

    def files(path: str) -> PageFile:
        read.append(path)
        return PageFile(b"x", "text/plain")

    number = process.keep_files(files)
    answering = [
        asyncio.create_task(process._answer({"ask": each, "files": number, "path": "a"}))
        for each in range(50)
    ]
    async with asyncio.timeout(10):
        while pipe.written < FILES_AT_ONCE:  # noqa: ASYNC110 - the files are read in threads
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    assert (len(read), pipe.written) == (FILES_AT_ONCE, FILES_AT_ONCE)
    pipe.has_room.set()
    await asyncio.wait(answering)
    assert pipe.written == 50


@pytest.mark.parametrize("message", [{"id": []}, {"id": {}}])
async def test_message_of_no_known_form_ends_the_browser(message: dict[str, Any]) -> None:
    """Whoever waits hears of it, and does not wait until the time is over."""
    process = BrowserProcess(Tunnels(None, CallAllowance()), dialog_s=1)
    asked = process._asked[1] = asyncio.get_running_loop().create_future()
    reader = asyncio.StreamReader()
    reader.feed_data(encode_frame(message))
    await process._listen(reader)
    with pytest.raises(ExecutionError, match="not an answer"):
        await asked
