"""A page of the workspace in the session's browser: its files come from the reader, nothing from a network.

Not here: what is measured (page_measures.js), or how that is judged (page_scores.py).
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import quote

from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.handles.browser import OFFLINE_ORIGIN, Browser, PageFile, Tab, Viewport
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.handles.previews import MAX_PAGE_BYTES, page_type
from sessiontree_tools.files.text_file import read_up_to

VIEWPORTS: Final = {
    "desktop": Viewport(1440, 900),
    "tablet": Viewport(768, 1024),
    "mobile": Viewport(375, 812),
}
"""The sizes at which a page is looked at. Source: seed 002, section 9."""
ICON: Final = "favicon.ico"
"""What a browser asks an origin for by itself; no page has it."""
PLACE: Final = "preview"
"""Folder of the page below the origin: as once it is published, the page is not at the root."""
MAX_MISSING: Final = 100
"""Most missing files that are remembered."""
MAX_MISSING_CHARS: Final = 300
MAX_DIALOGS: Final = 5
"""Dialogs that are dismissed; a page with more does not come to rest."""
CLOSE_S: Final = 15.0
"""Longest wait for a tab to close; the browser ends with its session all the same."""


class PageFolder:
    """Answers a page's requests from the page's folder, under the rules of the reader.

    Args:
        reader: Reads the workspace.
        page: Path of the page.

    Raises:
        ExecutionError, PermissionDenied: the file is missing, or is no page.
    """

    def __init__(self, reader: Reader, page: str) -> None:
        self._reader = reader
        self.page = reader.stat(page).path
        """Path of the page in the workspace."""
        if (page_type(self.page) or "").partition(";")[0] != "text/html":
            raise ExecutionError(f"{page!r} is no HTML file")
        self.folder = posixpath.dirname(self.page)
        """Folder of the page in the workspace; empty = the workspace itself."""
        self.missing: dict[str, None] = {}
        """Paths that were asked for and are not there, relative to the folder."""
        self._left = MAX_PAGE_BYTES

    @property
    def address(self) -> str:
        """The page's address in the browser."""
        return f"{OFFLINE_ORIGIN}/{self.path}"

    @property
    def path(self) -> str:
        """The page's path below the origin."""
        return quote(f"{PLACE}/{posixpath.basename(self.page)}")

    def __call__(self, path: str) -> PageFile | None:
        """Return the file of a request; None where a published page would have none, either."""
        if path == ICON:
            return None
        place, _, name = path.partition("/")
        kind = page_type(name)
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if place != PLACE or kind is None or is_hidden:
            self._note_missing(path)
            return None
        try:
            with self._reader.open(posixpath.join(self.folder, name)) as stream:
                data = read_up_to(stream, self._left + 1)
        except ToolError:
            self._note_missing(name)
            return None
        self._left -= len(data)
        if self._left < 0:
            raise ExecutionError(f"the page loads more than {MAX_PAGE_BYTES:,} bytes")
        return PageFile(data, kind)

    def begin_load(self) -> None:
        """Begin another load of the page, which may take as many bytes as the one before."""
        self._left = MAX_PAGE_BYTES

    def _note_missing(self, path: str) -> None:
        if len(self.missing) < MAX_MISSING:
            self.missing[path[:MAX_MISSING_CHARS]] = None


@asynccontextmanager
async def open_page(browser: Browser, files: PageFolder, viewport: Viewport) -> AsyncIterator[Tab]:
    """Open a page in a tab of its own and close it at the end.

    Raises:
        ExecutionError: it can't be opened, opens one dialog after the other, or leads elsewhere.
    """
    files.begin_load()
    tab = await browser.open_files(files, files.path, viewport=viewport)
    try:
        yield await dismiss_dialogs(browser, tab)
        await _check_place(browser, tab)
    except ExecutionError as error:
        await _check_place(browser, tab, error)
        raise
    finally:
        # a page whose script never ends may not answer; nobody should wait for it
        with suppress(ToolError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await browser.close(tab.tab_id)


async def _check_place(browser: Browser, tab: Tab, error: ExecutionError | None = None) -> None:
    """Refuse a page that has led elsewhere meanwhile: what was seen is not the page.

    Raises:
        ExecutionError: it has; the error that this led to is its cause.
    """
    for each in (await browser.status()).tabs:
        if each.tab_id == tab.tab_id and not each.url.startswith(f"{OFFLINE_ORIGIN}/{PLACE}/"):
            raise ExecutionError(f"the page leads elsewhere by itself, to {each.url[:200]}") from error


async def dismiss_dialogs(browser: Browser, tab: Tab) -> Tab:
    """Dismiss the dialogs that a page opens by itself.

    Raises:
        ExecutionError: it opens one after the other.
    """
    for _ in range(MAX_DIALOGS):
        if not tab.dialog:
            return tab
        tab = await browser.answer_dialog(accept=False, tab_id=tab.tab_id)
    if tab.dialog:
        raise ExecutionError(f"the page opens one dialog after the other: {tab.dialog[:200]}")
    return tab
