"""What the diffs of ``edit`` and ``apply_patch`` have in common: their bounds and the ranges of a hunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessiontree.contracts.values.truncation import find_cut

MAX_LINES: Final = 400
MAX_LINE_CHARS: Final = 500


def cut_line(line: str) -> str:
    """Return a line with at most 500 characters, and ``…`` where it was longer."""
    return line if len(line) <= MAX_LINE_CHARS else line[: find_cut(line, MAX_LINE_CHARS)] + "…"


def cut_lines(lines: Sequence[str]) -> list[str]:
    """Return at most 400 lines; one more counts the others."""
    more = [f"… {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else []
    return [*lines[:MAX_LINES], *more]


def show_range(first: int, count: int) -> str:
    """Return a side of a hunk's head; an empty side names the line before the change, as programs expect."""
    return f"{first if count else first - 1},{count}"
