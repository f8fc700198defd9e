"""A live tree drawn on a terminal a few times a second, and removed while something else writes there.

Facts only change the tree; a task draws it, however many facts there are. Rows are live sessions. Ended
sessions, and those that do not fit, are counted in one line below them. No text in a line,
such as the name of a session, can deceive a reader or a terminal.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Self, TextIO, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.progress import ProgressReader
from sessiontree.view.live_tree import LiveTree
from sessiontree.view.session_panel import SessionPanel

Piece: TypeAlias = tuple[str, str]
"""Text and the name of its style, empty for none."""
Line: TypeAlias = list[Piece]
Row: TypeAlias = tuple[str, ...]
"""What is in the columns, in the order of ``_HEADER``; the name has its guides."""

_MAX_GUIDES = 6
"""Maximum levels with their own guide lines; deeper levels share one column."""
_HEADER_FROM = 5
"""Heights below this have no header."""
_GAP = "  "
_NAME_SHARE = 55
"""Maximum percentage of the remaining width for names if calls need space too."""
_MIN_NAME = 12
_MIN_CALLS = 16
_HEADER: Row = ("session", "kind", "state", "turns", "files", "tokens", "cost", "calls")
_KIND, _STATE, _TURNS, _FILES, _TOKENS, _COST, _CALLS = range(1, len(_HEADER))
_DISPENSABLE = (_KIND, _TURNS, _COST, _TOKENS)
"""Columns that a narrow terminal goes without, the first one first."""

STYLES = {
    "active": "",
    "calling": "cyan",
    "waiting for model": "cyan",
    "waiting for children": "dim",
    "waiting for approval": "bold yellow",
    "waiting for an answer": "bold yellow",
    "suspended": "dim",
    "stopping": "yellow",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "expired": "yellow",
}
"""How each state is shown."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed and silence, as shown in a picture."""

    elapsed_s: float
    per_s: float | None = None
    """Counted per second; None = not reported."""
    silent_s: float = 0.0
    """Time since the newest fact; reported when it is long."""


_LONG_SILENCE_S = 2.0


def draw_picture(tree: LiveTree, pace: Pace, width: int, height: int) -> list[Line]:
    """Return the lines of a tree: at most ``height``, each at most ``width`` cells wide."""
    totals: Line = [(_format_totals(tree, pace), "bold")]
    room = height - 1
    has_header = room >= _HEADER_FROM
    rest = None
    chosen = tree.chosen(room - has_header)
    shown = sum(map(len, chosen.values()))
    if shown < tree.total:
        # Chosen again with a line less, because the line that counts the others takes one, too.
        chosen = tree.chosen(room - has_header - 1)
        shown = sum(map(len, chosen.values()))
        rest = _summarize_rest(tree, chosen)
    lines = _draw_table(tree, chosen, has_header, width)
    if rest is not None:
        lines.append([(rest, "dim")])
    # where there is room for one line alone it is that of the totals
    return [_fit_line(line, width) for line in [*lines[: max(0, room)], totals][: max(0, height)]]


def _summarize_rest(tree: LiveTree, chosen: dict[str, list[SessionPanel]]) -> str:
    """Say how many live sessions are not shown, and how those that ended ended."""
    rows = [session for children in chosen.values() for session in children]
    hidden = tree.live - sum(not session.is_ended for session in rows)
    ended = tree.total - tree.live - sum(session.is_ended for session in rows)
    words = [f"{hidden:,} more live"] if hidden else []
    if ended:
        how = [
            f"{tree.ended[status]:,} {status}"
            for status in (SessionStatus.FAILED, SessionStatus.CANCELLED, SessionStatus.EXPIRED)
            if tree.ended[status]
        ]
        words.append(f"{ended:,} finished" + (f" ({', '.join(how)})" if how else ""))
    return f"… {', '.join(words)}"


def _draw_table(
    tree: LiveTree, chosen: dict[str, list[SessionPanel]], has_header: bool, width: int
) -> list[Line]:
    rows = [_build_row(guide, session) for guide, session in _walk(chosen)]
    if not rows:
        return []
    table = [_HEADER, *rows] if has_header else rows
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(_HEADER))]
    has = {
        _FILES: tree.expected is not None or tree.done,
        _TOKENS: tree.usage.tokens,
        _COST: tree.usage.cost_usd,
    }
    for column in (column for column, counted in has.items() if not counted):
        widths[column] = 0
    calls = widths[_CALLS]
    for column in _DISPENSABLE:
        if _compute_room(widths, width) >= _MIN_NAME + min(calls, _MIN_CALLS):
            break
        widths[column] = 0
    # what the other columns leave is shared by names and calls
    left = _compute_room(widths, width)
    widths[0] = min(widths[0], max(left - calls, left * _NAME_SHARE // 100, _MIN_NAME))
    lines = [_draw_columns(row, widths, STYLES[row[_STATE]], "dim") for row in rows]
    return [_draw_columns(_HEADER, widths, "bold", "bold"), *lines] if has_header else lines


def _compute_room(widths: list[int], width: int) -> int:
    """Return the room for names and calls."""
    return width - sum(size + len(_GAP) for size in widths[_KIND:_CALLS] if size) - len(_GAP)


def _draw_columns(row: Row, widths: list[int], style: str, kind_style: str) -> Line:
    """Return a row in columns, with few pieces, because each is drawn separately."""
    numbers = "".join(
        f"{_GAP}{row[column]:>{widths[column]}}" for column in range(_TURNS, _CALLS) if widths[column]
    )
    return [
        (_cut(row[0], widths[0]), ""),
        (f"{_GAP}{row[_KIND]:<{widths[_KIND]}}{_GAP}" if widths[_KIND] else _GAP, kind_style),
        (f"{row[_STATE]:<{widths[_STATE]}}", style),
        (f"{numbers}{_GAP}{row[_CALLS]}", ""),
    ]


def _build_row(guide: str, session: SessionPanel) -> Row:
    calls = session.calls()
    more = f"+{len(calls) - 1} more: " if len(calls) > 1 else ""
    return (
        guide + session.name,
        session.kind.value,
        session.state(),
        f"{session.turns:,}",
        f"{session.done:,}",
        f"{session.usage.tokens:,}",
        _format_cost(session.usage),
        more + calls[0] if calls else session.get_last_display(),
    )


def _format_cost(usage: Usage) -> str:
    """Return a cost in dollars for a narrow column; a question mark stands for what has no known price."""
    return usage.cost_text.replace("price unknown", "?").replace("unknown prices", "?")


def _walk(chosen: dict[str, list[SessionPanel]]) -> Iterator[tuple[str, SessionPanel]]:
    """Yield sessions in path order, each with the lines that lead to it."""
    ahead: list[tuple[str, str, SessionPanel]] = [("", "", top) for top in reversed(chosen[""])]
    while ahead:
        guide, below, session = ahead.pop()
        yield guide, session
        children = chosen[session.session_id]
        if len(below) >= 3 * _MAX_GUIDES:
            steps = [(below, below)] * len(children)
        else:
            steps = [(f"{below}├─ ", f"{below}│  ")] * (len(children) - 1) + [(f"{below}└─ ", f"{below}   ")]
        ahead += [(*step, child) for step, child in zip(steps, children, strict=False)][::-1]


def _format_totals(tree: LiveTree, pace: Pace) -> str:
    words = [f"{tree.live:,} live, {tree.total - tree.live:,} ended"]
    if tree.expected is not None or tree.done:
        of = "" if tree.expected is None else f" of {tree.expected:,}"
        speed = "" if pace.per_s is None else f", {pace.per_s:,.0f} files/s"
        words.append(f"{tree.done:,}{of} files{speed}")
    if tree.usage.tokens:
        words.append(f"{tree.usage.tokens:,} tokens")
        words.append(tree.usage.cost_text)
    words.append(_time(pace.elapsed_s))
    if tree.open_requests:
        words.append(
            f"{tree.open_requests:,} {'approval' if tree.open_requests == 1 else 'approvals'} waiting"
        )
    if pace.silent_s >= _LONG_SILENCE_S and not tree.is_over:
        words.append(f"nothing new for {_time(pace.silent_s)}")
    return " · ".join(words)


def _time(seconds: float) -> str:
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {whole % 60:02} s" if minutes else f"{whole} s"


def _cut(text: str, width: int) -> str:
    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _fit_line(line: Line, width: int) -> Line:
    """Return a line cut to the width."""
    fitted: Line = []
    for text, style in line:
        size = cell_len(text)
        if size > width:
            return [*fitted, (_cut(text, width), style)] if width > 0 else fitted
        fitted.append((text, style))
        width -= size
    return fitted


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
        events: Opens a reader of the tree's events; None = events are not shown.
        started_ms: When the tree began, where it is counted from then on; None = when the view is opened.
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
        """What the last picture showed: fact, second, events."""
        self._seen = 0

    async def __aenter__(self) -> Self:
        """Begin to draw."""
        self._opened_s = time.monotonic()
        self.reset_pace()
        if self._open_events is not None:
            self._events = self._open_events()
        if not self._is_off:
            self._show()
        self._drawing = asyncio.create_task(self._draw_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the last picture on the screen, and restore the terminal."""
        drawing, self._drawing = self._drawing, None
        try:
            if drawing is not None:
                await _end_drawing(drawing)
        finally:
            # The last events come after the task has ended, and the picture that stays must show them.
            self._see()
            if self._events is not None:
                self._events.close()
            if self._live is not None:
                live, self._live = self._live, None
                live.stop()

    def take(self, record: JournalRecord) -> None:
        """Take a fact in; nothing is drawn."""
        self.tree.take(record)

    def reset_pace(self) -> None:
        """Begin to measure how fast it goes."""
        self._paced_s = time.monotonic()
        self._done_before = self.tree.done

    def line(self, text: str, style: str = "") -> None:
        """Show a line above the tree."""
        self._console.print(Text(make_visible(text), style), soft_wrap=True)

    def take_off(self) -> None:
        """Free the place on the terminal; facts are taken in as before."""
        self._is_off = True
        if self._live is not None:
            live, self._live = self._live, None
            live.transient = True
            live.stop()

    def put_back(self) -> None:
        """Resume drawing below what was written in the meantime; does nothing once the view is closed."""
        self._is_off = False
        if self._drawing is not None:
            self._show()

    def _show(self) -> None:
        # a new one each time: what one has drawn it would go back up to
        self._live = Live(
            console=self._console,
            get_renderable=self._draw_frame,
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
            # A picture costs more than a fact, and a tree that rests shows the same one.
            if self._live is not None and news != self._drawn:
                self._drawn = news
                self._live.refresh()

    def _see(self) -> None:
        if self._events is not None:
            for progress in self._events.drain():
                self._seen += 1
                self.tree.see(progress.session, progress.event)

    def _draw_frame(self) -> _Frame:
        size = self._console.size
        # a line that ends at the edge, or a picture that ends at the bottom, makes some terminals scroll
        return _Frame(draw_picture(self.tree, self._measure_pace(), size.width - 1, size.height - 1))

    def _measure_pace(self) -> Pace:
        now_s = time.monotonic()
        if self._started_ms is None:
            paced_s = now_s - self._paced_s
            done = self.tree.done - self._done_before
            return Pace(now_s - self._opened_s, done / paced_s if paced_s >= 1 else None)
        # reported by another process: by its times
        last_ms = self.tree.last_at_ms
        now_ms = last_ms if self.tree.is_over else time.time() * 1000
        return Pace((now_ms - self._started_ms) / 1000, None, (now_ms - last_ms) / 1000)


async def _end_drawing(drawing: asyncio.Task[None]) -> None:
    """End the task that draws; what made it fail, such as a terminal that is gone, is raised here."""
    drawing.cancel()
    await asyncio.wait([drawing])
    if not drawing.cancelled():
        drawing.result()
