"""Lines: how many are code, comment and blank, and which one an offset falls into.

A line ends at a line feed alone; ``decoding.py`` has made every other line end one before.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class LineCount:
    """Lines of one file; ``lines == code + comment + blank``."""

    lines: int
    code: int
    """Lines with anything beside comments; of data and prose every line that is not blank."""
    comment: int
    """Lines with nothing but comments (of Python: docstrings too)."""
    blank: int
    """Lines of nothing but white space, wherever they stand."""


def lines_of(text: str) -> list[str]:
    """Return the lines without their ends; a last line feed begins no further line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def count_lines(lines: list[str], masked_lines: list[str], docstring_lines: int = 0) -> LineCount:
    """Count the lines of a file.

    Args:
        lines: As they stand.
        masked_lines: The same without comments, see ``syntax.masked``.
        docstring_lines: Lines that are not blank, hold a documenting string and count as comment.
    """
    filled = sum(map(bool, map(str.strip, lines)))
    code = filled
    if masked_lines is not lines:
        code = max(0, sum(map(bool, map(str.strip, masked_lines))) - docstring_lines)
    return LineCount(len(lines), code, filled - code, len(lines) - filled)


class LineIndex:
    """Turns offsets into line numbers."""

    __slots__ = ("_starts",)

    def __init__(self, lines: list[str]) -> None:
        """Keep where each line starts; ``lines`` are a text's lines without their ends."""
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]

    def line_of(self, offset: int) -> int:
        """Return the number, from 1, of the line an offset falls into."""
        return bisect_right(self._starts, offset)
