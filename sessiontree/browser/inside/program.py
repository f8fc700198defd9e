"""The browser's process: it starts Chromium and carries out the orders of its host.

It is run as a module by ``browser_process.py``, with the number of a socket and an object with the members
``program`` (Chromium's path) and ``dialog_s``. The first thing it sends is a listening socket: the proxy that
Chromium uses. Whoever accepts connections there, outside, decides where they lead.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from playwright.async_api import Browser, BrowserContext, Playwright, Route, async_playwright
from playwright.async_api import Error as PlaywrightError

from sessiontree.browser.inside.frames import FrameError, encode_frame, read_frame
from sessiontree.browser.inside.open_tabs import OpenTabs
from sessiontree.browser.inside.page_watch import Refusal, extract_first_line

OFFLINE: Final = "http://preview.invalid"
NICENESS: Final = 5
START_S: Final = 60.0
GONE: Final = 3
"""Exit code if Chromium has ended."""
SWITCHES: Final = (
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--dns-prefetch-disable",
    "--no-pings",
    # What Chromium would ask its maker for in the background leads to places that the rules refuse.
    "--gcm-checkin-url=http://127.0.0.1:1/",
    "--gcm-registration-url=http://127.0.0.1:1/",
    "--gcm-mcs-endpoint=127.0.0.1:1",
    "--disable-gpu",
)
UNKNOWN_TYPE: Final = "application/octet-stream"
BLANK: Final = "about:blank"
Answer = tuple[dict[str, Any], bytes]


class Orders:
    """Carries out orders; each is answered once, and several may run at a time.

    Args:
        send: Sends a frame to the host.
        dialog_s: How long a dialog waits for an answer.
        nowhere: A port at which nothing listens, the proxy of offline pages.
    """

    def __init__(self, send: Callable[[dict[str, Any], bytes], None], dialog_s: float, nowhere: int) -> None:
        self._send = send
        self._tabs = OpenTabs(dialog_s)
        self._nowhere = nowhere
        self._browser: Browser | None = None
        self._profile: BrowserContext | None = None
        self._running: dict[int, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._questions = 0
        self._acts: dict[str, Callable[[dict[str, Any], bytes], Awaitable[Answer]]] = {
            name: getattr(self, f"_do_{name}")
            for name in (
                "tabs", "open", "open_files", "navigate", "focus", "close", "snapshot", "act", "screenshot",
                "set_viewport", "console", "pdf", "upload", "answer_dialog", "evaluate", "timings",
            )
        }  # fmt: skip

    async def start(self, playwright: Playwright, program: str, proxy: int) -> str:
        """Start Chromium; return its version."""
        self._browser = browser = await playwright.chromium.launch(
            executable_path=program,
            chromium_sandbox=True,
            args=list(SWITCHES),
            proxy={"server": f"socks5://127.0.0.1:{proxy}"},
            timeout=START_S * 1000,
        )
        browser.on("disconnected", lambda _: os._exit(GONE))
        self._profile = await browser.new_context(accept_downloads=False, service_workers="block")
        self._profile.on("page", self._tabs.note_page)
        return browser.version

    def take(self, message: dict[str, Any], blob: bytes) -> None:
        """Take a frame of the host: an order, the end of one, or the answer to a question."""
        if "answer" in message:
            asked = self._asked.pop(message["answer"], None)
            if asked is not None and not asked.done():
                asked.set_result((message, blob))
        elif "cancel" in message:
            running = self._running.get(message["cancel"])
            if running is not None:
                running.cancel()
        else:
            number = message["id"]
            self._running[number] = asyncio.ensure_future(self._carry_out(number, message, blob))

    async def _carry_out(self, number: int, message: dict[str, Any], blob: bytes) -> None:
        try:
            found, data = await self._acts[message["do"]](message, blob)
            self._send({"id": number, "ok": found}, data)
        except Refusal as refusal:
            await self._fail(number, refusal.sort, refusal.text)
        except FrameError as error:
            await self._fail(number, "page", str(error))
        except PlaywrightError as error:
            await self._fail(number, "page", extract_first_line(error))
        finally:
            del self._running[number]

    async def _fail(self, number: int, sort: str, text: str) -> None:
        """Answer an order that failed, unless it did because Chromium has ended, which is another answer."""
        assert self._browser is not None  # noqa: S101 - orders come after the start
        try:
            session = await self._browser.new_browser_cdp_session()
            await session.detach()
        except PlaywrightError:
            os._exit(GONE)
        self._send({"id": number, "sort": sort, "error": text}, b"")

    async def _do_tabs(self, message: dict[str, Any], blob: bytes) -> Answer:
        return {"tabs": await self._tabs.build_rows()}, b""

    async def _do_open(self, message: dict[str, Any], blob: bytes) -> Answer:
        self._tabs.check_room()
        assert self._profile is not None  # noqa: S101 - orders come after the start
        tab = self._tabs.add(await self._profile.new_page(), is_offline=False)
        self._tabs.current = tab.tab_id
        await tab.set_viewport(message["viewport"])
        status = 0
        if message["url"] != BLANK:
            try:
                status = await tab.navigate(message["url"])
            except BaseException:
                await tab.close()
                raise
        return await self._tabs.build_row(tab, status), b""

    async def _do_open_files(self, message: dict[str, Any], blob: bytes) -> Answer:
        self._tabs.check_room()
        assert self._browser is not None  # noqa: S101 - orders come after the start
        context = await self._browser.new_context(
            accept_downloads=False,
            service_workers="block",
            viewport={"width": message["viewport"]["width"], "height": message["viewport"]["height"]},
            proxy={"server": f"socks5://127.0.0.1:{self._nowhere}"},
        )
        try:
            await context.route("**/*", partial(self._serve, message["files"]))
            tab = self._tabs.add(await context.new_page(), is_offline=True)
            status = await tab.navigate(f"{OFFLINE}/{message['path']}")
        except BaseException:
            await context.close()
            raise
        return await self._tabs.build_row(tab, status), b""

    async def _serve(self, files: int, route: Route) -> None:
        """Answer a request of an offline page with a file of the host."""
        address = urlsplit(route.request.url)
        if f"{address.scheme}://{address.netloc}" != OFFLINE or route.request.method not in {"GET", "HEAD"}:
            await route.abort("blockedbyclient")
            return
        path = unquote(address.path.removeprefix("/"), errors="replace")
        self._questions += 1
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[self._questions] = asked
        self._send({"ask": self._questions, "files": files, "path": path}, b"")
        found, data = await asked
        if not found["found"]:
            await route.fulfill(status=404, content_type="text/plain; charset=utf-8", body="not found")
            return
        kind = found["content_type"] or mimetypes.guess_type(path or "index.html")[0] or UNKNOWN_TYPE
        if kind.startswith("text/") and "charset" not in kind:
            kind += "; charset=utf-8"
        await route.fulfill(status=200, content_type=kind, body=data)

    async def _do_navigate(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        return await self._tabs.build_row(tab, await tab.navigate(message["url"])), b""

    async def _do_focus(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        self._tabs.current = tab.tab_id
        return await self._tabs.build_row(tab), b""

    async def _do_close(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        row = await self._tabs.build_row(tab)
        await tab.close()
        self._tabs.forget(tab)
        return row, b""

    async def _do_snapshot(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        found = await tab.snapshot(message["max_chars"])
        return {**found, "tab": await self._tabs.build_row(tab)}, b""

    async def _do_act(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        await tab.act(message)
        return await self._tabs.build_row(tab), b""

    async def _do_screenshot(self, message: dict[str, Any], blob: bytes) -> Answer:
        return {}, await self._tabs.find(message).picture(message)

    async def _do_set_viewport(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        await tab.set_viewport(message["viewport"])
        return await self._tabs.build_row(tab), b""

    async def _do_console(self, message: dict[str, Any], blob: bytes) -> Answer:
        return {"lines": list(self._tabs.find(message).lines)}, b""

    async def _do_pdf(self, message: dict[str, Any], blob: bytes) -> Answer:
        return {}, await self._tabs.find(message).pdf()

    async def _do_upload(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        await tab.upload(message["ref"], message["names"], message["sizes"], blob)
        return await self._tabs.build_row(tab), b""

    async def _do_answer_dialog(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        await tab.answer_dialog(message["accept"], message["text"])
        return await self._tabs.build_row(tab), b""

    async def _do_evaluate(self, message: dict[str, Any], blob: bytes) -> Answer:
        tab = self._tabs.find(message)
        value = await tab.evaluate(
            message["script"], message["world"], message["argument"], message["time_s"]
        )
        return {"value": value}, b""

    async def _do_timings(self, message: dict[str, Any], blob: bytes) -> Answer:
        return {"value": await self._tabs.find(message).timings()}, b""


async def serve(channel: socket.socket, proxy: int, nowhere: int, program: str, dialog_s: float) -> None:
    """Start the browser and carry out orders until the host ends."""
    reader, writer = await asyncio.open_connection(sock=channel)

    def send(message: dict[str, Any], blob: bytes) -> None:
        writer.write(encode_frame(message, blob))

    orders = Orders(send, dialog_s, nowhere)
    async with async_playwright() as playwright:
        try:
            version = await orders.start(playwright, program, proxy)
        except PlaywrightError as error:
            send({"failed": str(error)[:4000]}, b"")
            await writer.drain()
            return
        send({"ready": version}, b"")
        try:
            while True:
                orders.take(*await read_frame(reader))
        except (EOFError, OSError):
            os._exit(0)  # the host is gone; the kernel ends whatever else is here


def main(words: list[str]) -> None:
    """Serve the host whose socket the first word names."""
    os.nice(NICENESS)
    channel = socket.socket(fileno=int(words[0]))
    channel.set_inheritable(False)
    told = json.loads(words[1])
    with socket.socket() as proxy, socket.socket() as nowhere:
        proxy.bind(("127.0.0.1", 0))
        proxy.listen(128)
        nowhere.bind(("127.0.0.1", 0))  # it never listens, so a connection to it is refused
        socket.send_fds(channel, [b"P"], [proxy.fileno()])
        ports = proxy.getsockname()[1], nowhere.getsockname()[1]
        asyncio.run(serve(channel, *ports, told["program"], told["dialog_s"]))


if __name__ == "__main__":
    main(sys.argv[1:])
