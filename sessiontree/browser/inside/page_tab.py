"""One tab: what is done to its page, and the references of its newest snapshot."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from playwright.async_api import BrowserContext, Error, FilePayload, FloatRect, Locator, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sessiontree.browser.inside.page_watch import (
    DIALOG_S,
    MAX_LINE_CHARS,
    PageWatch,
    Refusal,
    await_answer,
    extract_first_line,
)

_ELEMENT: Final = re.compile(
    r"(?P<indent>\s*- )(?P<quote>'?)"
    r'(?P<name>[a-z]+(?: "(?:[^"\\]|\\.)*")?)'
    r"(?P<marks>(?: \[[^\]]*\])*)(?P<rest>.*)"
)
"""A line of an element. Its marks follow its role and its quoted name, so no text of a page is among them."""
_MARK: Final = re.compile(r" \[(?P<key>[a-z]+)(?:=(?P<value>[^\]]*))?\]")
_HIDDEN_MARKS: Final = frozenset({"cursor", "ref", "box"})
LOAD_S: Final = 30.0
"""The longest wait for the beginning of an answer."""
SETTLE_S: Final = 5.0
"""The longest wait for the rest of a page; what is there then is shown."""
ACT_S: Final = 10.0
PAUSE_S: Final = 0.1
"""How long a page gets to begin what an action leads to."""
TITLE_S: Final = 2.0
MAX_PICTURE_PIXELS: Final = 16_000_000
MAX_RESULT_CHARS: Final = 4 * 2**20
MAX_NESTING: Final = 300
"""Deepest nesting of the value of a script."""

TIMINGS: Final = """async () => {
  const seen = (type) => new Promise((done) => {
    const entries = [];
    try {
      const observer = new PerformanceObserver((list) => entries.push(...list.getEntries()));
      observer.observe({ type, buffered: true });
      setTimeout(() => {
        entries.push(...observer.takeRecords());
        observer.disconnect();
        done(entries);
      }, 50);
    } catch { done(entries); }
  });
  const [paints, largest, shifts, tasks] = await Promise.all(
    ["paint", "largest-contentful-paint", "layout-shift", "longtask"].map(seen));
  const round = (value) => Math.round(value * 1000) / 1000;
  const [navigation] = performance.getEntriesByType("navigation");
  return {
    navigation: navigation ? navigation.toJSON() : null,
    paint: Object.fromEntries(paints.map((each) => [each.name, round(each.startTime)])),
    largest_paint: largest.length ? round(largest[largest.length - 1].startTime) : null,
    layout_shift: round(shifts.filter((each) => !each.hadRecentInput)
      .reduce((sum, each) => sum + each.value, 0)),
    long_tasks: tasks.map((each) => ({ start: round(each.startTime), duration: round(each.duration) })),
    resources: performance.getEntriesByType("resource").slice(0, 500).map((each) => ({
      url: each.name.slice(0, 500), type: each.initiatorType, start: round(each.startTime),
      duration: round(each.duration), bytes: each.encodedBodySize })),
  };
}"""
"""Returns what the browser measured of the load of a page."""


class PageTab:
    """Drives one page.

    Args:
        tab_id: Its name.
        page: Its page.
        is_offline: Whether its files come from the host.
        dialog_s: How long a dialog waits for an answer.
    """

    def __init__(self, tab_id: str, page: Page, *, is_offline: bool, dialog_s: float = DIALOG_S) -> None:
        self.tab_id = tab_id
        self.page = page
        self.is_offline = is_offline
        self._watch = PageWatch(page, dialog_s)
        self.lines = self._watch.lines
        self._refs: dict[int, str] = {}
        self._next_ref = 1
        self._title = ""

    @property
    def context(self) -> BrowserContext:
        """Its profile."""
        return self.page.context

    async def described(self) -> dict[str, Any]:
        """Return the tab as the host knows it; the title is the last known one if the page is busy."""
        if self._watch.dialog is None and not self._watch.has_crashed:
            try:
                async with asyncio.timeout(TITLE_S):
                    self._title = await self.page.title()
            except (TimeoutError, Error):
                pass
        dialog = (
            ""
            if self._watch.dialog is None
            else f"{self._watch.dialog.type}: {self._watch.dialog.message[:MAX_LINE_CHARS]}"
        )
        return {
            "tab_id": self.tab_id,
            "url": self.page.url[:MAX_LINE_CHARS],
            "title": self._title[:MAX_LINE_CHARS],
            "is_offline": self.is_offline,
            "dialog": dialog,
        }

    async def navigate(self, url: str) -> int:
        """Load an address; return the status of its document."""
        self._watch.has_crashed = False
        self._refs.clear()
        try:
            response = await self._watch.await_until_dialog(
                self.page.goto(url, wait_until="commit", timeout=LOAD_S * 1000)
            )
            await self._settle()
        except PlaywrightTimeout as error:
            raise Refusal("slow", f"nothing of it arrived within {LOAD_S:g} s") from error
        except Error as error:
            if "Download is starting" in str(error):
                raise Refusal("page", "it is a download, and this browser takes none") from error
            raise Refusal("network", extract_first_line(error)) from error
        return 0 if response is None else response.status

    async def snapshot(self, max_chars: int) -> dict[str, Any]:
        """Return the page as text; its references replace those of the snapshot before."""
        self._watch.check_free()
        text = await await_answer(self.page.aria_snapshot(mode="ai", timeout=ACT_S * 1000))
        shown, refs, truncated = number_lines(text, self._next_ref, max_chars)
        self._refs = refs
        self._next_ref += len(refs)
        return {"text": shown, "refs": len(refs), "truncated": truncated}

    async def act(self, order: dict[str, Any]) -> None:
        """Do something to the page, and wait until it has settled or shows a dialog."""
        self._watch.check_free()
        await self._watch.await_until_dialog(self._do(order))
        await self._settle()

    async def _do(self, order: dict[str, Any]) -> None:
        kind, text, limit_ms = order["kind"], order["text"], (order["time_s"] or ACT_S) * 1000
        target = None if order["ref"] is None else await self._find_element(order["ref"])
        if kind == "wait":
            await self._wait(target, text, limit_ms)
        elif kind == "scroll" and target is None:
            await self.page.mouse.wheel(0, order["amount"])
        elif kind == "press" and target is None:
            await await_answer(self.page.keyboard.press(text))
        elif kind == "type" and target is None:
            await self.page.keyboard.type(text)
        elif target is None:
            raise Refusal("page", f"{kind} needs the number of an element: take a snapshot and give ref")
        else:
            await await_answer(self._act_on(target, order, limit_ms))
        if order["submit"]:
            await await_answer(self.page.keyboard.press("Enter"))

    async def _act_on(self, target: Locator, order: dict[str, Any], limit_ms: float) -> None:
        kind, text = order["kind"], order["text"]
        if kind == "drag":
            await target.drag_to(await self._find_element(order["to_ref"]), timeout=limit_ms)
            return
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "click": lambda: target.click(timeout=limit_ms),
            "double_click": lambda: target.dblclick(timeout=limit_ms),
            "hover": lambda: target.hover(timeout=limit_ms),
            "type": lambda: target.press_sequentially(text, timeout=limit_ms),
            "fill": lambda: target.fill(text, timeout=limit_ms),
            "press": lambda: target.press(text, timeout=limit_ms),
            "select": lambda: target.select_option(order["values"], timeout=limit_ms),
            "check": lambda: target.check(timeout=limit_ms),
            "uncheck": lambda: target.uncheck(timeout=limit_ms),
            "scroll": lambda: target.scroll_into_view_if_needed(timeout=limit_ms),
        }
        await acts[kind]()

    async def _wait(self, target: Locator | None, text: str, limit_ms: float) -> None:
        if text:
            place: Page | Locator = self.page if target is None else target
            await await_answer(place.get_by_text(text).first.wait_for(timeout=limit_ms))
        elif target is not None:
            await await_answer(target.wait_for(timeout=limit_ms))
        else:
            await asyncio.sleep(limit_ms / 1000)

    async def picture(self, order: dict[str, Any]) -> bytes:
        """Return a picture of the page or of one element, as PNG."""
        self._watch.check_free()
        if order["viewport"] is not None:
            await self.set_viewport(order["viewport"])
        if order["ref"] is not None:
            target = await self._find_element(order["ref"])
            return await await_answer(target.screenshot(type="png", timeout=ACT_S * 1000))
        clip = await self._measure_page() if order["full_page"] else None
        return await await_answer(
            self.page.screenshot(
                type="png",
                full_page=order["full_page"],
                clip=clip,
                animations="disabled",
                timeout=ACT_S * 1000,
            )
        )

    async def _measure_page(self) -> FloatRect | None:
        """Return the part of a page that is too large for one picture; None if it is not."""
        size = await self.evaluate(
            "() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]", "isolated"
        )
        width, height = max(1, int(size[0])), max(1, int(size[1]))
        if width * height <= MAX_PICTURE_PIXELS:
            return None
        width = min(width, 4096)
        return {"x": 0, "y": 0, "width": width, "height": min(height, MAX_PICTURE_PIXELS // width)}

    async def set_viewport(self, size: dict[str, int]) -> None:
        """Set the visible size."""
        await await_answer(self.page.set_viewport_size({"width": size["width"], "height": size["height"]}))

    async def pdf(self) -> bytes:
        """Return the page as a PDF document."""
        self._watch.check_free()
        return await await_answer(self.page.pdf(print_background=True))

    async def upload(self, ref: int, names: list[str], sizes: list[int], data: bytes) -> None:
        """Give files to a file input, or to what opens a choice of files."""
        self._watch.check_free()
        target = await self._find_element(ref)
        files: list[FilePayload] = []
        for name, size in zip(names, sizes, strict=True):
            files.append({"name": name, "mimeType": "application/octet-stream", "buffer": data[:size]})
            data = data[size:]
        is_input = await await_answer(
            target.evaluate("e => e instanceof HTMLInputElement && e.type === 'file'")
        )
        if is_input:
            await await_answer(target.set_input_files(files, timeout=ACT_S * 1000))
            return
        try:
            async with self.page.expect_file_chooser(timeout=ACT_S * 1000) as chosen:
                await target.click(timeout=ACT_S * 1000)
            await (await chosen.value).set_files(files, timeout=ACT_S * 1000)
        except PlaywrightTimeout as error:
            raise Refusal("page", f"[{ref}] is not a file input, and opens no choice of files") from error

    async def answer_dialog(self, accept: bool, text: str) -> None:
        """Answer the open dialog, and wait until the page has settled."""
        dialog = self._watch.dialog
        if dialog is None:
            raise Refusal("page", "no dialog is open")
        self._watch.forget_dialog()
        if accept:
            await await_answer(dialog.accept(text) if dialog.type == "prompt" else dialog.accept())
        else:
            await await_answer(dialog.dismiss())
        await self._watch.await_until_dialog(asyncio.sleep(PAUSE_S))
        await self._settle()

    async def evaluate(self, script: str, world: str, argument: Any = None, time_s: float = ACT_S) -> Any:
        """Run a script; return its value."""
        self._watch.check_free()
        return await self._watch.await_until_dialog(self._evaluate(script, world, argument, time_s))

    async def timings(self) -> Any:
        """Return what the browser measured of the page's load."""
        return await self.evaluate(TIMINGS, "isolated")

    async def _evaluate(self, script: str, world: str, argument: Any, time_s: float) -> Any:
        session = await self.context.new_cdp_session(self.page)
        try:
            async with asyncio.timeout(time_s):
                order: dict[str, Any] = {
                    "expression": _build_expression(script, argument),
                    "awaitPromise": True,
                    "returnByValue": True,
                    "timeout": time_s * 1000,
                }
                if world == "isolated":
                    tree = await session.send("Page.getFrameTree")
                    place = {"frameId": tree["frameTree"]["frame"]["id"], "worldName": "apart"}
                    made = await session.send("Page.createIsolatedWorld", place)
                    order["contextId"] = made["executionContextId"]
                answer = await session.send("Runtime.evaluate", order)
        except TimeoutError as error:
            raise Refusal("slow", f"the script ran longer than {time_s:g} s") from error
        except Error as error:
            raise Refusal("page", f"the script failed: {extract_first_line(error)}") from error
        finally:
            self._watch.hold(session.detach())
        return _parse_value(answer)

    async def close(self) -> None:
        """Close the page; an offline one with its profile."""
        self._watch.close()
        await (self.context.close() if self.is_offline else self.page.close())

    async def _find_element(self, ref: int) -> Locator:
        """Return the element of a number of the newest snapshot."""
        name = self._refs.get(ref)
        if name is not None:
            found = self.page.locator(f"aria-ref={name}")
            try:
                if await found.count() == 1:
                    return found
            except Error:
                pass
        known = "no snapshot has been taken since the page was loaded"
        if self._refs:
            known = f"the newest snapshot has [{min(self._refs)}] to [{max(self._refs)}]"
            if name is not None:
                known = "its element is gone from the page"
        raise Refusal("stale", f"[{ref}] is stale: {known}; take a new snapshot, and use a number of it")

    async def _settle(self) -> None:
        """Wait until the page is loaded, for a while."""
        if self._watch.dialog is None:
            await self._watch.await_until_dialog(self._wait_for_load())

    async def _wait_for_load(self) -> None:
        await asyncio.sleep(PAUSE_S)
        try:
            await self.page.wait_for_load_state("load", timeout=SETTLE_S * 1000)
        except Error:
            return


def _build_expression(script: str, argument: Any) -> str:
    """Return an expression for the JSON text of a script's value; a script that is a function is called."""
    given = json.dumps(argument, ensure_ascii=True)
    return (
        f"(async () => {{ const value = (\n{script}\n);"
        f" const made = typeof value === 'function' ? await value({given}) : await value;"
        " return JSON.stringify(made === undefined ? null : made); })()"
    )


def _parse_value(answer: dict[str, Any]) -> Any:
    """Return the value of an evaluated script, which arrives as JSON text."""
    thrown = answer.get("exceptionDetails")
    if thrown is not None:
        said = thrown.get("exception", {}).get("description") or thrown.get("text", "")
        raise Refusal("page", f"the script failed: {str(said)[:MAX_LINE_CHARS]}")
    text = answer.get("result", {}).get("value")
    if not isinstance(text, str):
        return None
    if len(text) > MAX_RESULT_CHARS:
        raise Refusal(
            "page", f"the script's value has {len(text)} characters; at most {MAX_RESULT_CHARS} fit"
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal("page", "the script's value has no JSON form") from error
    # The host could not read it as a part of a frame, and would end the browser.
    if _is_nested_too_deep(value):
        raise Refusal("page", f"the script's value is nested more than {MAX_NESTING} levels deep")
    return value


def _is_nested_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def number_lines(snapshot: str, first: int, max_chars: int) -> tuple[str, dict[int, str], bool]:
    """Return a snapshot with numbers, the reference of each number, and whether lines were cut off.

    Numbers count up in a tab and are never used again, so a number of an older snapshot is known to be stale.

    Args:
        snapshot: Lines such as ``- button "Save" [ref=e2] [cursor=pointer]``.
        first: The first number.
        max_chars: Longest text; whole lines are kept.
    """
    lines: list[str] = []
    refs: dict[int, str] = {}
    room = max_chars
    for line in snapshot.splitlines():
        text, ref = _split_reference(line, first + len(refs))
        room -= len(text) + 1
        if room < 0:
            return "\n".join(lines), refs, True
        lines.append(text)
        if ref:
            refs[first + len(refs)] = ref
    return "\n".join(lines), refs, False


def _split_reference(line: str, number: int) -> tuple[str, str]:
    """Return a line as it is shown, and the reference that it holds; empty if it holds none."""
    found = _ELEMENT.fullmatch(line)
    if found is None:
        return line, ""
    marks = [(mark["key"], mark["value"]) for mark in _MARK.finditer(found["marks"])]
    ref = next((value for key, value in marks if key == "ref" and value), "")
    kept = "".join(
        f" [{key}={value}]" if value else f" [{key}]" for key, value in marks if key not in _HIDDEN_MARKS
    )
    shown = f"[{number}] " if ref else ""
    return f"{found['indent']}{found['quote']}{shown}{found['name']}{kept}{found['rest']}", ref
