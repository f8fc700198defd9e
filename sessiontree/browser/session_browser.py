"""The handle behind ``browser``: a session's browser, started when needed, and ended with it or idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from sessiontree.browser.browser_run import DIALOG_S, IDLE_S, LIMIT_S, BrowserRun
from sessiontree.browser.tunnels import Network
from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.browser import (
    DESKTOP,
    BrowserStatus,
    ConsoleLine,
    PageAction,
    PageFiles,
    PageSnapshot,
    Tab,
    Viewport,
    World,
)
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.web.address import parse_address

SPARE_S: Final = 15.0
MAX_UPLOAD_BYTES: Final = 32 * 2**20
LEAST_SIDE: Final = 16
MOST_SIDE: Final = 4096
SHOWN_CHARS: Final = 200
BLANK: Final = "about:blank"


class SessionBrowser:
    """Drives one session's browser; see :class:`~sessiontree.contracts.handles.browser.Browser`.

    Args:
        network: Makes its connections; None = the owner allows no web.
        idle_s: How long it may run without a call.
        dialog_s: How long a dialog waits for an answer.
    """

    def __init__(
        self, network: Network | None, *, idle_s: float = IDLE_S, dialog_s: float = DIALOG_S
    ) -> None:
        self._run = BrowserRun(network, idle_s, dialog_s)

    @property
    def is_running(self) -> bool:
        """Whether a process of it exists."""
        return self._run.is_running

    def end(self) -> set[ProcessIdentity]:
        """Kill it because its session leaves; return its processes. It does not start again."""
        return self._run.end()

    async def ended(self) -> None:
        """Wait until nothing of it exists."""
        await self._run.ended()

    async def status(self) -> BrowserStatus:
        """Return its state; starts nothing."""
        process, tunnels = self._run.process, self._run.tunnels
        if process is None or tunnels is None or not process.is_running:
            return BrowserStatus(False, ended=self._run.explain_end())
        found, _ = await self._run.ask({"do": "tabs"})
        return BrowserStatus(
            True,
            f"Chromium {process.version}",
            tuple(_make_tab(row) for row in found["tabs"]),
            tunnels.connections,
            tuple(dict.fromkeys(reason for _, reason in tunnels.refusals)),
            tunnels.received_bytes,
            process.memory_bytes,
            self._run.why_ended,
        )

    async def start(self) -> BrowserStatus:
        """Start it, unless it runs."""
        await self._run.ensure_running()
        return await self.status()

    async def stop(self) -> bool:
        """End it with all tabs; return whether it ran."""
        return await self._run.stop()

    async def open(self, url: str, *, viewport: Viewport = DESKTOP) -> Tab:
        """Open an address in a new tab, which becomes the current one."""
        order = {"do": "open", "url": check_url(url), "viewport": _check_size(viewport)}
        return await self._load(order, url)

    async def open_files(
        self, files: PageFiles, path: str = "index.html", *, viewport: Viewport = DESKTOP
    ) -> Tab:
        """Open a page whose files come from ``files`` in a new tab, without any network."""
        size = _check_size(viewport)
        process = await self._run.ensure_running()
        number = process.keep_files(files)
        try:
            order = {"do": "open_files", "files": number, "path": path.lstrip("/"), "viewport": size}
            found, _ = await self._run.ask(order)
        except BaseException:
            process.drop_files(number)
            raise
        tab = _make_tab(found)
        self._run.offline[tab.tab_id] = number
        return tab

    async def navigate(self, url: str, *, tab_id: str | None = None) -> Tab:
        """Load an address in a tab."""
        return await self._load({"do": "navigate", "url": check_url(url), "tab_id": tab_id}, url)

    async def focus(self, tab_id: str) -> Tab:
        """Make a tab the current one."""
        return _make_tab((await self._run.ask({"do": "focus", "tab_id": tab_id}))[0])

    async def close(self, tab_id: str | None = None) -> Tab:
        """Close a tab; return it as it was."""
        tab = _make_tab((await self._run.ask({"do": "close", "tab_id": tab_id}))[0])
        number = self._run.offline.pop(tab.tab_id, None)
        if number is not None and self._run.process is not None:
            self._run.process.drop_files(number)
        return tab

    async def snapshot(self, *, tab_id: str | None = None, max_chars: int = 50_000) -> PageSnapshot:
        """Return the page as text with numbered references."""
        found, _ = await self._run.ask({"do": "snapshot", "tab_id": tab_id, "max_chars": max_chars})
        return PageSnapshot(
            _make_tab(found["tab"]), str(found["text"]), int(found["refs"]), bool(found["truncated"])
        )

    async def act(self, action: PageAction, *, tab_id: str | None = None) -> Tab:
        """Do something to the page, and wait until it has settled."""
        order = {
            "do": "act",
            "tab_id": tab_id,
            "kind": action.kind,
            "ref": action.ref,
            "text": action.text,
            "values": list(action.values),
            "to_ref": action.to_ref,
            "amount": action.amount,
            "submit": action.submit,
            "time_s": action.time_s,
        }
        return _make_tab((await self._run.ask(order, limit_s=LIMIT_S + (action.time_s or 0)))[0])

    async def screenshot(
        self,
        *,
        tab_id: str | None = None,
        viewport: Viewport | None = None,
        full_page: bool = False,
        ref: int | None = None,
    ) -> bytes:
        """Return a picture as PNG."""
        size = None if viewport is None else _check_size(viewport)
        order = {"do": "screenshot", "tab_id": tab_id, "viewport": size, "full_page": full_page, "ref": ref}
        return (await self._run.ask(order))[1]

    async def set_viewport(self, viewport: Viewport, *, tab_id: str | None = None) -> Tab:
        """Set the visible size of a tab."""
        order = {"do": "set_viewport", "viewport": _check_size(viewport), "tab_id": tab_id}
        return _make_tab((await self._run.ask(order))[0])

    async def console(self, *, tab_id: str | None = None) -> tuple[ConsoleLine, ...]:
        """Return the newest lines of the tab's console, oldest first."""
        found, _ = await self._run.ask({"do": "console", "tab_id": tab_id})
        return tuple(ConsoleLine(row["kind"], row["text"], row["place"]) for row in found["lines"])

    async def pdf(self, *, tab_id: str | None = None) -> bytes:
        """Return the page as a PDF document."""
        return (await self._run.ask({"do": "pdf", "tab_id": tab_id}))[1]

    async def upload(self, ref: int, files: Sequence[tuple[str, bytes]], *, tab_id: str | None = None) -> Tab:
        """Give files to a file input, or to what opens a choice of files."""
        data = b"".join(content for _, content in files)
        if len(data) > MAX_UPLOAD_BYTES:
            raise ValidationError(
                f"the files have {len(data)} bytes; at most {MAX_UPLOAD_BYTES} are given to a page", "/paths"
            )
        names, sizes = [name for name, _ in files], [len(content) for _, content in files]
        order = {"do": "upload", "tab_id": tab_id, "ref": ref, "names": names, "sizes": sizes}
        return _make_tab((await self._run.ask(order, data))[0])

    async def answer_dialog(self, accept: bool, *, text: str = "", tab_id: str | None = None) -> Tab:
        """Accept or dismiss the open dialog."""
        order = {"do": "answer_dialog", "tab_id": tab_id, "accept": accept, "text": text}
        return _make_tab((await self._run.ask(order))[0])

    async def evaluate(
        self,
        script: str,
        *,
        argument: JsonValue = None,
        world: World = "page",
        tab_id: str | None = None,
        time_s: float = 30.0,
    ) -> JsonValue:
        """Run a script in the page, and return its value as JSON."""
        order = {
            "do": "evaluate",
            "tab_id": tab_id,
            "script": script,
            "argument": argument,
            "world": world,
            "time_s": time_s,
        }
        value: JsonValue = (await self._run.ask(order, limit_s=time_s + SPARE_S))[0]["value"]
        return value

    async def timings(self, *, tab_id: str | None = None) -> JsonValue:
        """Return what the browser measured of the page's load."""
        value: JsonValue = (await self._run.ask({"do": "timings", "tab_id": tab_id}))[0]["value"]
        return value

    async def _load(self, order: dict[str, Any], url: str) -> Tab:
        await self._run.ensure_running()
        assert self._run.tunnels is not None  # noqa: S101 - it runs
        self._run.tunnels.refusals.clear()
        try:
            return _make_tab((await self._run.ask(order))[0])
        except ExecutionError as error:
            refused = self._run.tunnels.refusals
            if refused and "net::ERR_" in error.message:
                host = urlsplit(url).hostname
                named = [reason for place, reason in refused if place == host] or [refused[-1][1]]
                reason = f"{url[:SHOWN_CHARS]}: {named[-1]}"
                raise PermissionDenied(PermissionTier.SYSTEM, reason) from error
            raise


def check_url(url: str) -> str:
    """Return a web address in its normal form, with its fragment, or the address of an empty page.

    Raises:
        ValidationError: it is not a web address.
        PermissionDenied: it has another scheme, or a user name.
    """
    if url.strip() == BLANK:
        return BLANK
    try:
        url.encode()
    except UnicodeEncodeError as error:
        raise ValidationError("the address holds half of a surrogate pair", "/url") from error
    address = parse_address(url)
    _, mark, fragment = url.strip().partition("#")
    return f"{address}{mark}{fragment}" if fragment.isascii() and fragment.isprintable() else str(address)


def _check_size(viewport: Viewport) -> dict[str, int]:
    for name, side in (("width", viewport.width), ("height", viewport.height)):
        if not LEAST_SIDE <= side <= MOST_SIDE:
            raise ValidationError(f"{name} {side} is not {LEAST_SIDE} to {MOST_SIDE}", f"/{name}")
    return {"width": viewport.width, "height": viewport.height}


def _make_tab(row: dict[str, Any]) -> Tab:
    return Tab(
        str(row["tab_id"]),
        str(row["url"]),
        str(row["title"]),
        bool(row["is_current"]),
        bool(row["is_offline"]),
        str(row["dialog"]),
        int(row["status"]),
    )
