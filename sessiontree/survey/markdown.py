"""Markdown: text of others, written so that nothing in it is taken for Markdown, HTML or a control."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

_BACKTICKS = re.compile(r"`+")
_ELLIPSIS = "…"
# controls, formats (bidi, zero width), surrogates, private use, unassigned, line and paragraph separators
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def visible(text: str, max_chars: int = 300) -> str:
    r"""Return one line in which every invisible character is an escape such as ``\x1b`` or ``\u202e``.

    Args:
        text: Any text.
        max_chars: Longest result; what is cut ends with an ellipsis.
    """
    text = text[: max_chars + 1]
    if not text.isprintable():
        text = "".join(map(_visible_character, text))
    return text if len(text) <= max_chars else text[: max_chars - 1] + _ELLIPSIS


def _visible_character(character: str) -> str:
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def code(text: str, *, in_table: bool = False, max_chars: int = 300) -> str:
    """Return text as a code span, in which Markdown and HTML mean nothing.

    Args:
        text: Any text; made :func:`visible`.
        in_table: Write ``|`` as its escape too: it ends a cell even inside a code span.
        max_chars: Longest content.

    Source: CommonMark 0.31, section 6.1: a span ends at a run of backticks as long as its first.
    """
    text = visible(text, max_chars)
    runs = {len(run) for run in _BACKTICKS.findall(text)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    if not text.strip(" "):
        # a span of nothing is no span
        return f"{fence}(empty){fence}"
    if text.startswith(("`", " ")) or text.endswith(("`", " ")):
        text = f" {text} "
    if in_table:
        # a backslash before it would not do: one that stands there already would take it away
        text = text.replace("|", "\\x7c")
    return fence + text + fence


def table(header: Sequence[str], rows: Iterable[Sequence[str | int]]) -> list[str]:
    """Return a table's lines: the first column of text to the left, all others to the right.

    Args:
        header: Column names, plain words.
        rows: Cells; text must already be safe, numbers get thousands separators.
    """
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    for row in rows:
        cells = (f"{cell:,}" if isinstance(cell, int) else cell for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def more(count: int, what: str) -> list[str]:
    """Return the lines that say how many more of something there are, none where there is no more."""
    return ["", f"And {count:,} more {what}."] if count > 0 else []
