"""A picture of what a canvas's frame shows: its document, drawn by the session's browser offline.

A hostile page may send another document in place of its own: what is drawn runs nothing and loads nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.handles.browser import Browser, PageFile, Viewport
from sessiontree.contracts.values.jsonable import JsonValue

NO_BROWSER: Final = (
    "no picture: this session has no browser; its owner can install sessiontree[browser] and Chromium"
)
TOO_LARGE: Final = "no picture: the frame sent no document, or one that is too large"
NOT_DRAWN: Final = "no picture: the browser can't draw the document"
DRAWN: Final = "The picture shows the frame as its document describes it."
DRAW_S: Final = 60.0
"""Longest time for a picture, including the start of the browser."""
CLOSE_S: Final = 15.0
"""Longest wait for a tab to close; the browser ends with its session all the same."""
PAGE: Final = "canvas.html"
_HEAD: Final = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'"
    '">'
)
"""In front of a document: nothing in it runs, and it loads nothing."""
_SCROLL: Final = "(y) => { scrollTo({ top: y, behavior: 'instant' }); return null; }"


async def draw_document(
    browser: Browser, html: JsonValue, seen: Mapping[str, JsonValue]
) -> tuple[bytes | None, str]:
    """Return a picture as PNG, or None, and a line that says what it is or why it is missing.

    Args:
        browser: Draws it, in a tab of its own.
        html: The document, as the frame sent it.
        seen: The frame's other answers: ``width``, ``height`` and ``scroll`` count, in CSS pixels.
    """
    if not isinstance(html, str) or not html:
        return None, TOO_LARGE
    page = PageFile((_HEAD + html).encode("utf-8", "replace"), "text/html; charset=utf-8")
    size = Viewport(_read_pixels(seen.get("width"), 1280, 16), _read_pixels(seen.get("height"), 800, 16))
    try:
        async with asyncio.timeout(DRAW_S):
            tab = await browser.open_files(lambda path: page if path == PAGE else None, PAGE, viewport=size)
            try:
                top = _read_pixels(seen.get("scroll"), 0, 0, 1_000_000)
                await browser.evaluate(_SCROLL, argument=top, world="isolated", tab_id=tab.tab_id)
                return await browser.screenshot(tab_id=tab.tab_id), DRAWN
            finally:
                with suppress(ToolError, TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await browser.close(tab.tab_id)
    except (ToolError, TimeoutError):
        return None, NOT_DRAWN  # the error may quote the document


def _read_pixels(given: JsonValue, otherwise: int, least: int, most: int = 4_096) -> int:
    """Return a number that a frame sent, within bounds."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1e9:
        return otherwise
    return min(max(int(given), least), most)
