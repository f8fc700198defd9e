"""Live view: a live tree drawn on a terminal now and then, and taken off while something else needs it.

Facts only change the tree; a task draws it a few times a second, however many they are.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from sessiontree.channels.shown import visible
from sessiontree.cli.live_picture import STYLES, Line, Pace, picture
from sessiontree.cli.live_tree import LiveTree
from sessiontree.journal.record import Record
from sessiontree.runtime.progress import ProgressReader

REFRESH_EVERY_S = 0.25
_STYLES = {name: Style.parse(name) for name in {*STYLES.values(), "bold", "dim"} if name}


def is_live_terminal(writes: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that may be drawn on again and again.

    ``NO_COLOR``, ``CI`` and ``TERM=dumb`` ask for plain lines.
    """
    if not writes.isatty() or environment.get("TERM", "dumb") in {"", "dumb", "unknown"}:
        return False
    return not environment.get("NO_COLOR") and not environment.get("CI")


class _Frame:
    """Lines as rich draws them: nothing in them is markup, and nothing is wrapped."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            for text, style in line:
                yield Segment(text, _STYLES.get(style))
            yield Segment.line()


class LiveView:
    """A live tree on a terminal, as an async context manager.

    Args:
        console: The terminal.
        events: Opens a reader of the tree's events; None = there are none.
        started_ms: When the tree began, where it is told from then on; None = when the view is opened.
        is_off: Whether somebody else has the place on the terminal when the view is opened.
        wait: Waits a number of seconds between pictures.
    """

    def __init__(
        self,
        console: Console,
        events: Callable[[], ProgressReader] | None = None,
        *,
        started_ms: int | None = None,
        is_off: bool = False,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Keep where to draw; nothing is drawn yet."""
        self.tree = LiveTree()
        self._console = console
        self._open_events = events
        self._started_ms = started_ms
        self._events: ProgressReader | None = None
        self._live: Live | None = None
        self._drawing: asyncio.Task[None] | None = None
        self._is_off = is_off
        self._wait = wait
        self._opened_s = 0.0
        self._paced_s = 0.0
        self._done_before = 0
        self._drawn: tuple[int, int, int] | None = None
        """What the last picture told: fact, second, events."""
        self._seen = 0

    async def __aenter__(self) -> Self:
        """Begin to draw."""
        self._opened_s = time.monotonic()
        self.pace_from_now()
        if self._open_events is not None:
            self._events = self._open_events()
        if not self._is_off:
            self._show()
        self._drawing = asyncio.create_task(self._draw_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last picture standing, and the terminal as it was."""
        drawing, self._drawing = self._drawing, None
        try:
            if drawing is not None:
                await _ended(drawing)
        finally:
            self._see()
            if self._events is not None:
                self._events.close()
            if self._live is not None:
                live, self._live = self._live, None
                live.stop()

    def take(self, record: Record) -> None:
        """Take a fact in; nothing is drawn."""
        self.tree.take(record)

    def count(self, session: str, files: int) -> None:
        """Count files a session has done."""
        self.tree.count(session, files)

    def expect(self, files: int) -> None:
        """Say how many files there are."""
        self.tree.expected = files

    def pace_from_now(self) -> None:
        """Begin to measure how fast it goes."""
        self._paced_s = time.monotonic()
        self._done_before = self.tree.done

    def line(self, text: str) -> None:
        """Show a line above the tree."""
        self._console.print(Text(visible(text)), soft_wrap=True)

    def take_off(self) -> None:
        """Free the place on the terminal; facts are taken in as before."""
        self._is_off = True
        if self._live is not None:
            live, self._live = self._live, None
            live.transient = True
            live.stop()

    def put_back(self) -> None:
        """Draw on, below what was written meanwhile; nothing once the view is closed."""
        self._is_off = False
        if self._drawing is not None:
            self._show()

    def _show(self) -> None:
        # a new one each time: what one has drawn it would go back up to
        self._live = Live(
            console=self._console,
            get_renderable=self._frame,
            auto_refresh=False,
            vertical_overflow="crop",
            redirect_stdout=False,
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start(refresh=True)

    async def _draw_on(self) -> None:
        while True:
            await self._wait(REFRESH_EVERY_S)
            self._see()
            second = int(time.monotonic() - self._opened_s)
            news = (self.tree.last_seq, second, self._seen)
            if self._live is not None and news != self._drawn:
                self._drawn = news
                self._live.refresh()

    def _see(self) -> None:
        if self._events is not None:
            for progress in self._events.drain():
                self._seen += 1
                self.tree.see(progress.session, progress.event)

    def _frame(self) -> _Frame:
        size = self._console.size
        # a line that ends at the edge, or a picture that ends at the bottom, makes some terminals scroll
        return _Frame(picture(self.tree, self._pace(), size.width - 1, size.height - 1))

    def _pace(self) -> Pace:
        now_s = time.monotonic()
        if self._started_ms is None:
            paced_s = now_s - self._paced_s
            done = self.tree.done - self._done_before
            return Pace(now_s - self._opened_s, done / paced_s if paced_s >= 1 else None)
        # told by another process: by its times
        last_ms = self.tree.last_at_ms
        now_ms = last_ms if self.tree.is_over else time.time() * 1000
        return Pace((now_ms - self._started_ms) / 1000, None, (now_ms - last_ms) / 1000)


async def _ended(drawing: asyncio.Task[None]) -> None:
    """End the task that draws; what made it fail, such as a terminal that is gone, is raised here."""
    drawing.cancel()
    await asyncio.wait([drawing])
    if not drawing.cancelled():
        drawing.result()
