"""The address that the server prints: it lets one browser in, and its token stays nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Request, expect

from benchmarks.view import serving
from benchmarks.view_tree import TREE_ID, record_tree
from tests.system.pages.page_fixtures import Screen


async def test_token_stays_nowhere(
    tmp_path: Path, browser: Browser, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in the page's address or history, nor in a Referer, nor in what the server writes."""
    await record_tree(tmp_path / "state", 3)
    async with serving(tmp_path / "state") as (address, _):
        token = re.search(r"token=([\w-]+)", address)
        assert token is not None
        context = await browser.new_context()
        screen = Screen(await context.new_page())
        screen.watch()
        asked: list[Request] = []
        screen.page.on("request", lambda request: asked.append(request))
        await screen.page.goto(address)
        await screen.page.get_by_role("link", name="a book").click()
        await screen.rows.first.wait_for()
        assert screen.page.url.endswith(f"/t/{TREE_ID}")
        session = await context.new_cdp_session(screen.page)
        history = await session.send("Page.getNavigationHistory")
        assert token[1] not in str([entry["url"] for entry in history["entries"]])
        assert len(history["entries"]) == 3
        with_token = [request for request in asked if token[1] in request.url]
        assert len(with_token) == 1
        for request in asked:
            assert "referer" not in await request.all_headers()
        held = "() => [document.cookie, document.referrer, localStorage.length, sessionStorage.length]"
        assert await screen.page.evaluate(held) == ["", "", 0, 0]
        assert screen.problems == []
        stranger = await (await browser.new_context()).new_page()
        answer = await stranger.goto(address)
        assert answer is not None
        assert answer.status == 401
        await expect(stranger.get_by_text("each lets one browser in, once")).to_be_visible()
        await stranger.context.close()
        await context.close()
    said = capfd.readouterr()
    assert token[1] not in said.out + said.err
