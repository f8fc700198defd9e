"""Live picture: a live tree as lines of text that fit a place, each piece with the name of its style.

Rows are live sessions; what has ended, and what finds no room, is counted in one line below them. Nothing in
a line could deceive an eye or a terminal, however a session is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size

from sessiontree.cli.live_session import SessionPanel
from sessiontree.cli.live_tree import LiveTree
from sessiontree.contracts.kinds import SessionStatus

Piece: TypeAlias = tuple[str, str]
"""Text and the name of its style, empty for none."""
Line: TypeAlias = list[Piece]
Row: TypeAlias = tuple[str, str, str, str, str, str]
"""What stands in the columns: name with its guides, kind, state, turns, files, calls."""

_MAX_GUIDES = 6
"""Levels whose lines are drawn; deeper ones stand in one column."""
_HEADER_FROM = 5
"""Heights below this have no header."""
_GAP = "  "
_NAME_SHARE = 55
"""Percent of what other columns leave that names may take where calls need place too."""
_SHORTEST_NAME = 12
_HEADER: Row = ("session", "kind", "state", "turns", "files", "calls")

STYLES = {
    "active": "",
    "calling": "cyan",
    "waiting for model": "cyan",
    "waiting for children": "dim",
    "waiting for approval": "bold yellow",
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
    """What a picture tells of time."""

    elapsed_s: float
    per_s: float | None = None
    """Counted per second; None = not told."""
    silent_s: float = 0.0
    """Time since the newest fact; told when it is long."""


_LONG_SILENCE_S = 10.0


def picture(tree: LiveTree, pace: Pace, width: int, height: int) -> list[Line]:
    """Return the lines of a tree: at most ``height``, each at most ``width`` cells wide."""
    totals: Line = [(_totals(tree, pace), "bold")]
    room = height - 1
    has_header = room >= _HEADER_FROM
    rest = None
    chosen = tree.chosen(room - has_header)
    shown = sum(map(len, chosen.values()))
    if shown < tree.total:
        chosen = tree.chosen(room - has_header - 1)
        shown = sum(map(len, chosen.values()))
        rest = _rest(tree, chosen)
    lines = _table(tree, chosen, has_header, width)
    if rest is not None:
        lines.append([(rest, "dim")])
    # where there is room for one line alone it is that of the totals
    return [_fitted(line, width) for line in [*lines[: max(0, room)], totals][: max(0, height)]]


def _rest(tree: LiveTree, chosen: dict[str, list[SessionPanel]]) -> str:
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


def _table(tree: LiveTree, chosen: dict[str, list[SessionPanel]], has_header: bool, width: int) -> list[Line]:
    rows = [_row(guide, session) for guide, session in _walk(chosen)]
    if not rows:
        return []
    header = _HEADER
    if tree.expected is None and not tree.done:  # nothing is counted here
        header, *rows = [(*row[:4], "", row[5]) for row in (header, *rows)]
    table = [header, *rows] if has_header else rows
    widths = [max(cell_len(row[column]) for row in table) for column in range(5)]
    # what the other columns leave is shared by names and calls
    left = width - sum(widths[1:]) - 5 * len(_GAP)
    calls = max(cell_len(row[5]) for row in table)
    widths[0] = min(widths[0], max(left - calls, left * _NAME_SHARE // 100, _SHORTEST_NAME))
    lines = [_columns(row, widths, STYLES[row[2]], "dim") for row in rows]
    return [_columns(header, widths, "bold", "bold"), *lines] if has_header else lines


def _columns(row: Row, widths: list[int], style: str, kind_style: str) -> Line:
    """Return a row in columns; few pieces, for each is drawn by itself."""
    numbers = "".join(f"{_GAP}{row[column]:>{widths[column]}}" for column in (3, 4) if widths[column])
    return [
        (_cut(row[0], widths[0]), ""),
        (f"{_GAP}{row[1]:<{widths[1]}}{_GAP}", kind_style),
        (f"{row[2]:<{widths[2]}}", style),
        (f"{numbers}{_GAP}{row[5]}", ""),
    ]


def _row(guide: str, session: SessionPanel) -> Row:
    calls = session.calls()
    more = f"+{len(calls) - 1} more: " if len(calls) > 1 else ""
    return (
        guide + session.name,
        session.kind.value,
        session.state(),
        f"{session.turns:,}",
        f"{session.done:,}",
        more + calls[0] if calls else session.last_display(),
    )


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


def _totals(tree: LiveTree, pace: Pace) -> str:
    words = [f"{tree.live:,} live, {tree.total - tree.live:,} ended"]
    if tree.expected is not None or tree.done:
        of = "" if tree.expected is None else f" of {tree.expected:,}"
        speed = "" if pace.per_s is None else f", {pace.per_s:,.0f} files/s"
        words.append(f"{tree.done:,}{of} files{speed}")
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


def _fitted(line: Line, width: int) -> Line:
    """Return a line without what would stand beyond the width."""
    fitted: Line = []
    for text, style in line:
        size = cell_len(text)
        if size > width:
            return [*fitted, (_cut(text, width), style)] if width > 0 else fitted
        fitted.append((text, style))
        width -= size
    return fitted
