"""The browser of a session: its pages as a tool sees them, and the handle that drives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

World: TypeAlias = Literal["page", "isolated"]
"""Where a script runs: with the page's own scripts, or apart from them with the page's document alone."""
ConsoleKind: TypeAlias = Literal["log", "warning", "error", "exception", "network", "download", "dialog"]
"""What a line of the console is: a message by its level, an uncaught error, a request that failed, a download
that was refused, or a dialog that nobody answered."""
ActionKind: TypeAlias = Literal[
    "click", "double_click", "hover", "type", "fill", "press", "select", "check", "uncheck", "drag", "scroll",
    "wait",
]  # fmt: skip
"""What is done to a page. ``type`` sends the keys of a text, ``fill`` replaces the content of a field."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """The part of a page that is visible, in CSS pixels."""

    width: int = 1280
    """16 to 4,096."""
    height: int = 800
    """16 to 4,096."""


DESKTOP: Final = Viewport()
"""The viewport of a new tab."""


@dataclass(frozen=True, slots=True)
class Tab:
    """One open page."""

    tab_id: str
    """Such as ``t3``; never used for a second tab of the session."""
    url: str
    title: str
    is_current: bool
    """Whether calls without a tab are for it."""
    is_offline: bool = False
    """Whether its files come from a reader, and nothing from the network."""
    dialog: str = ""
    """The dialog that waits for an answer: its type and its text; empty = none."""
    status: int = 0
    """The HTTP status of its document, if the call loaded one; else 0."""


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """The accessibility tree of a page as text: a line for each element, such as ``- [12] button "Save"``."""

    tab: Tab
    text: str
    refs: int
    """How many references it gives. They are valid until the next snapshot of that tab."""
    truncated: bool


@dataclass(frozen=True, slots=True)
class PageAction:
    """One action on a page."""

    kind: ActionKind
    ref: int | None = None
    """The element, by its number in the newest snapshot; None = the page."""
    text: str = ""
    """Text to type or to fill in, key to press (such as ``Enter`` or ``Control+a``), or text to wait for."""
    values: tuple[str, ...] = ()
    """Options to select, by value or label."""
    to_ref: int | None = None
    """Where a drag ends."""
    amount: int = 0
    """How far to scroll down, in CSS pixels; negative = up."""
    submit: bool = False
    """Whether Enter follows what was typed or filled in."""
    time_s: float | None = None
    """The longest wait; None = the default of the kind."""


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """One message of a page."""

    kind: ConsoleKind
    text: str
    place: str = ""
    """Address and line of its origin, if it has one."""


@dataclass(frozen=True, slots=True)
class BrowserStatus:
    """The state of the session's browser."""

    is_running: bool
    version: str = ""
    """Such as ``Chromium 150.0.7871.100``; empty while it does not run."""
    tabs: tuple[Tab, ...] = ()
    connections: int = 0
    """Connections that its pages have made since it was started."""
    refused: tuple[str, ...] = ()
    """The newest connections that the address rules refused, each with the rule."""
    received_bytes: int = 0
    memory_bytes: int = 0
    """Of all its processes, as far as they share none."""
    ended: str = ""
    """Why the one before ended, if it did not end on request."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file that an offline page asks for."""

    data: bytes
    content_type: str = ""
    """Media type; empty = by the name."""


PageFiles: TypeAlias = Callable[[str], PageFile | None]
"""Returns a file of an offline page by the path of its address, decoded, without the first slash, such as
``style/main.css``; ``""`` is the origin itself. None or a ToolError = not found. Called in a thread."""
OFFLINE_ORIGIN: Final = "http://preview.invalid"
"""The origin of offline pages; no host has that name (RFC 6761)."""


class Browser(Protocol):
    """Drives the session's own browser: a confined process that starts with the first call that needs it.

    It has an empty profile, no file of the workspace and no network. Each connection of a page is made by the
    session's host under the rules of :class:`~sessiontree.contracts.handles.ports.Web`. Calls without
    ``tab_id`` are for the current tab. Whatever comes from a page is untrusted.

    Raises (every method):
        ConfinementUnavailable: this machine can't confine it.
        ExecutionError: the tab does not exist, the page does not answer in time, or the browser has ended;
            then the next call starts a new one, without tabs. The text says which.
    """

    async def status(self) -> BrowserStatus:
        """Return its state; starts nothing."""
        ...

    async def start(self) -> BrowserStatus:
        """Start it, unless it runs."""
        ...

    async def stop(self) -> bool:
        """End it with all tabs; return whether it ran."""
        ...

    async def open(self, url: str, *, viewport: Viewport = DESKTOP) -> Tab:
        """Open the address ``url`` in a new tab, which becomes the current one; raises as :meth:`navigate`.

        ``viewport`` is the visible size of the tab.
        """
        ...

    async def open_files(
        self, files: PageFiles, path: str = "index.html", *, viewport: Viewport = DESKTOP
    ) -> Tab:
        """Open a page whose files come from ``files`` in a new tab, without any network.

        The tab has a profile of its own. It does not become the current one: name it in each call, and close
        it. Its address is ``OFFLINE_ORIGIN`` with ``path``, and its visible size is ``viewport``.
        """
        ...

    async def navigate(self, url: str, *, tab_id: str | None = None) -> Tab:
        """Load the address ``url`` in a tab.

        Raises:
            ValidationError: it is not a web address.
            PermissionDenied: a rule forbids the address, or one that it redirects to.
        """
        ...

    async def focus(self, tab_id: str) -> Tab:
        """Make a tab the current one."""
        ...

    async def close(self, tab_id: str | None = None) -> Tab:
        """Close a tab; return it as it was."""
        ...

    async def snapshot(self, *, tab_id: str | None = None, max_chars: int = 50_000) -> PageSnapshot:
        """Return the page as text with numbered references; those of earlier snapshots become invalid.

        The text has at most ``max_chars`` characters.
        """
        ...

    async def act(self, action: PageAction, *, tab_id: str | None = None) -> Tab:
        """Carry out ``action`` on the page, and wait until it has settled.

        If that opens a dialog, return at once: it is in ``Tab.dialog``.

        Raises:
            ExecutionError: the reference is stale, or the element can't be used so; take a new snapshot.
        """
        ...

    async def screenshot(
        self,
        *,
        tab_id: str | None = None,
        viewport: Viewport | None = None,
        full_page: bool = False,
        ref: int | None = None,
    ) -> bytes:
        """Return a picture as PNG.

        Args:
            tab_id: The tab.
            viewport: Set first, and kept; None = as it is.
            full_page: The whole page, as far as it fits 16 million pixels, and not only what is visible.
            ref: One element of the newest snapshot.
        """
        ...

    async def set_viewport(self, viewport: Viewport, *, tab_id: str | None = None) -> Tab:
        """Set the visible size of a tab to ``viewport``."""
        ...

    async def console(self, *, tab_id: str | None = None) -> tuple[ConsoleLine, ...]:
        """Return the newest lines of the tab's console, oldest first, at most 200."""
        ...

    async def pdf(self, *, tab_id: str | None = None) -> bytes:
        """Return the page as a PDF document."""
        ...

    async def upload(self, ref: int, files: Sequence[tuple[str, bytes]], *, tab_id: str | None = None) -> Tab:
        """Give ``files``, each a name and its content, to a file input or to what opens a choice of files.

        ``ref`` is the number of that element in the newest snapshot.
        """
        ...

    async def answer_dialog(self, accept: bool, *, text: str = "", tab_id: str | None = None) -> Tab:
        """Accept or dismiss the open dialog; ``text`` answers a prompt."""
        ...

    async def evaluate(
        self,
        script: str,
        *,
        argument: JsonValue = None,
        world: World = "page",
        tab_id: str | None = None,
        time_s: float = 30.0,
    ) -> JsonValue:
        """Run a script in the page, and return its value as JSON.

        Args:
            script: An expression, or a function such as ``(given) => document.title``, which is called with
                the argument. A promise is awaited.
            argument: JSON.
            world: Where it runs. Scripts of the page can't see or change what is in the isolated world,
                except the document.
            tab_id: The tab.
            time_s: The longest run.

        Raises:
            ExecutionError: the script fails, its value has no JSON form, or it takes too long.
        """
        ...

    async def timings(self, *, tab_id: str | None = None) -> JsonValue:
        """Return what the browser measured of the page's load; times in ms since the navigation began.

        ``{"navigation", "paint", "largest_paint", "layout_shift", "long_tasks", "resources"}``: the entry of
        the navigation; name to time of paints; the time of the largest paint or None; the sum of unexpected
        shifts; ``{"start", "duration"}`` of tasks above 50 ms; ``{"url", "type", "start", "duration",
        "bytes"}`` of each resource, at most 500.
        """
        ...
