"""What a page reports without being asked: its console, failed requests, its dialogs, and a crash."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, TypeVar

from playwright.async_api import ConsoleMessage, Dialog, Download, Error, Page, Request
from playwright.async_api import TimeoutError as PlaywrightTimeout

T = TypeVar("T")
DIALOG_S: Final = 60.0
"""How long a dialog waits for an answer; then it is dismissed."""
MAX_LINES: Final = 200
MAX_LINE_CHARS: Final = 1000
LEVELS: Final = {"warning": "warning", "error": "error", "assert": "error"}
"""Types of console messages to kinds; every other one is ``log``."""


class Refusal(Exception):
    """An order can't be carried out; sort and text are for the host."""

    def __init__(self, sort: str, text: str) -> None:
        super().__init__(text)
        self.sort = sort
        self.text = text


class PageWatch:
    """Listens to one page, and ends the wait for its work when a dialog opens.

    Args:
        page: The page.
        dialog_s: How long a dialog waits for an answer.
    """

    def __init__(self, page: Page, dialog_s: float) -> None:
        self.lines: deque[dict[str, str]] = deque(maxlen=MAX_LINES)
        """The newest lines of its console."""
        self.dialog: Dialog | None = None
        """The open one."""
        self.has_crashed = False
        self._dialog_s = dialog_s
        self._dialog_opened = asyncio.Event()
        self._ending_dialog: asyncio.Task[None] | None = None
        self._held: set[asyncio.Task[Any]] = set()
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self._note("exception", str(error)))
        page.on("requestfailed", self._note_failure)
        page.on("download", self._note_download)
        page.on("dialog", self._note_dialog)
        page.on("crash", self._note_crash)

    def close(self) -> None:
        """Dismiss no dialog any more."""
        if self._ending_dialog is not None:
            self._ending_dialog.cancel()

    def check_free(self) -> None:
        """Check that the page can take an order.

        Raises:
            Refusal: it has crashed, or a dialog waits.
        """
        if self.has_crashed:
            raise Refusal("page", "the page has crashed; load an address in it again, or close it")
        if self.dialog is not None:
            raise Refusal(
                "page", f"a dialog waits: {self.dialog.type}; answer it with the action dialog first"
            )

    async def await_until_dialog(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T | None:
        """Await work, but no longer than until a dialog opens, which would hold it; None then."""
        # Race: a dialog may open while the work is under way. It stops the page, and the work would not end.
        task = asyncio.ensure_future(work)
        opened = asyncio.ensure_future(self._dialog_opened.wait())
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            opened.cancel()
        if task.done():
            return task.result()
        self._held.add(task)
        task.add_done_callback(self._let_go)
        return None

    def hold(self, work: Coroutine[Any, Any, object]) -> None:
        """Let work go on whose outcome nobody needs."""
        task = asyncio.ensure_future(work)
        self._held.add(task)
        task.add_done_callback(self._let_go)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._held.discard(task)
        if not task.cancelled():
            task.exception()

    def _note(self, kind: str, text: str, place: str = "") -> None:
        self.lines.append({"kind": kind, "text": text[:MAX_LINE_CHARS], "place": place[:MAX_LINE_CHARS]})

    def _note_message(self, message: ConsoleMessage) -> None:
        place = message.location
        at = f"{place.get('url', '')}:{place.get('lineNumber', 0)}" if place else ""
        self._note(LEVELS.get(message.type, "log"), message.text, at)

    def _note_failure(self, request: Request) -> None:
        self._note("network", f"{request.failure}: {request.method} {request.resource_type}", request.url)

    def _note_download(self, download: Download) -> None:
        self._note("download", f"refused: {download.suggested_filename}", download.url)

    def _note_crash(self, page: Page) -> None:
        self.has_crashed = True
        self._note("exception", "the page crashed")

    def _note_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":  # it asks whether to leave, and an order to leave was given
            self.hold(dialog.accept())
            return
        self.dialog = dialog
        self._dialog_opened.set()
        self._ending_dialog = asyncio.ensure_future(self._dismiss_later(dialog))

    async def _dismiss_later(self, dialog: Dialog) -> None:
        await asyncio.sleep(self._dialog_s)
        self._note("dialog", f"dismissed unanswered: {dialog.type}: {dialog.message}")
        self._ending_dialog = None
        self.forget_dialog()
        self.hold(dialog.dismiss())

    def forget_dialog(self) -> None:
        """Note that the dialog is answered."""
        self.dialog = None
        self._dialog_opened.clear()
        if self._ending_dialog is not None:
            self._ending_dialog.cancel()
            self._ending_dialog = None


async def await_answer(answer: Awaitable[T]) -> T:
    """Await an answer of Playwright; its errors become refusals."""
    try:
        return await answer
    except PlaywrightTimeout as error:
        raise Refusal("slow", extract_last_line(error)) from error
    except Error as error:
        raise Refusal("page", extract_first_line(error)) from error


def extract_first_line(error: Exception) -> str:
    """Return the first line of an error of Playwright, without the name of its method."""
    line = str(error).strip().partition("\n")[0]
    return line.partition(": ")[2][:MAX_LINE_CHARS] or line[:MAX_LINE_CHARS]


def extract_last_line(error: Exception) -> str:
    """Return the last step that Playwright reports of what took too long."""
    lines = [line.strip(" -") for line in str(error).strip().splitlines()]
    return f"{extract_first_line(error)} ({lines[-1][:MAX_LINE_CHARS]})"
